//! The kinds of framing marks that a request puts between the texts of its prompt.
//!
//! They are part of every hash: a new meaning for a number needs a new format version in `prefix`.

/// The tool definitions follow, each behind a mark of its own.
pub(super) const TOOLS: u8 = 1;
/// A message begins; its role follows.
pub(super) const ROLE: u8 = 2;
/// A message's content follows.
pub(super) const CONTENT: u8 = 3;
/// Stands between two parts of one content.
pub(super) const PART: u8 = 4;
/// A JSON value follows where a text was to be expected: a number for a name.
pub(super) const JSON: u8 = 5;
/// A message's tool calls follow, each behind a mark of its own.
pub(super) const TOOL_CALLS: u8 = 6;
/// Which tool call this is, or is answered, follows.
pub(super) const TOOL_CALL_ID: u8 = 7;
/// A name follows: of a message's author, of a tool.
pub(super) const NAME: u8 = 8;
/// A completion prompt's text follows.
pub(super) const PROMPT: u8 = 9;
/// Token ids follow, 4 bytes each, least significant first.
pub(super) const TOKENS: u8 = 10;
/// The digits of a number follow that is no token id.
pub(super) const NUMBER: u8 = 11;
/// A tool definition begins.
pub(super) const TOOL: u8 = 12;
/// The type of a tool, a part or an item follows, where it is not the usual one.
pub(super) const KIND: u8 = 13;
/// A tool's description follows.
pub(super) const DESCRIPTION: u8 = 14;
/// The JSON schema of a tool's arguments follows.
pub(super) const PARAMETERS: u8 = 15;
/// A tool call begins.
pub(super) const TOOL_CALL: u8 = 16;
/// A tool call's arguments follow.
pub(super) const ARGUMENTS: u8 = 17;
/// The key of a member follows that has no mark of its own.
pub(super) const OTHER_KEY: u8 = 18;
/// The value of such a member follows, as JSON.
pub(super) const OTHER_VALUE: u8 = 19;
/// What a model thought follows.
pub(super) const REASONING: u8 = 20;
/// Documents for the chat template follow, as one JSON value.
pub(super) const DOCUMENTS: u8 = 21;
/// A chat template follows.
pub(super) const TEMPLATE: u8 = 22;
/// Arguments of the chat template follow, as one JSON value.
pub(super) const TEMPLATE_ARGUMENTS: u8 = 23;
/// How much a model is to think follows.
pub(super) const EFFORT: u8 = 24;
/// The adapter follows, where it is named apart from the model.
pub(super) const ADAPTER: u8 = 25;
/// What keeps caches apart follows, beyond the salt that the chain starts with.
pub(super) const SALT: u8 = 26;
/// What the server remembers, and the prompt goes on from, follows: a response's or a session's name.
pub(super) const PREVIOUS: u8 = 27;
/// An image's digests follow.
pub(super) const IMAGE: u8 = 28;
/// A sound's digests follow.
pub(super) const AUDIO: u8 = 29;
/// A film's digests follow.
pub(super) const VIDEO: u8 = 30;
/// A file's digests follow.
pub(super) const FILE: u8 = 31;
/// The text of something follows that is more than a text.
pub(super) const TEXT: u8 = 32;
/// What documents are ranked by follows.
pub(super) const QUERY: u8 = 33;
/// A document that is ranked follows.
pub(super) const DOCUMENT: u8 = 34;
/// What comes behind the text that is asked for follows.
pub(super) const SUFFIX: u8 = 35;
/// Hashes and places of media within token ids follow, as one JSON value.
pub(super) const FEATURES: u8 = 36;
/// The definitions of tools that a message brings along follow, each behind a mark of its own.
pub(super) const MESSAGE_TOOLS: u8 = 37;
/// A message's one call of a function follows, in the form that was before tool calls.
pub(super) const FUNCTION_CALL: u8 = 38;
