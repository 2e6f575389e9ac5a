//! The kinds of framing marks that a request puts between the texts of its prompt.
//!
//! They are part of every hash: a new meaning for a number needs a new format version in `prefix`.

/// The tool definitions follow, as one JSON value.
pub(super) const TOOLS: u8 = 1;
/// A message begins; its role follows.
pub(super) const ROLE: u8 = 2;
/// A message's content follows.
pub(super) const CONTENT: u8 = 3;
/// Stands between two parts of one content.
pub(super) const PART: u8 = 4;
/// A JSON value follows where a text was to be expected: an image part, a number for a name.
pub(super) const JSON: u8 = 5;
/// A message's tool calls follow, as one JSON value.
pub(super) const TOOL_CALLS: u8 = 6;
/// Which tool call a message answers follows.
pub(super) const TOOL_CALL_ID: u8 = 7;
/// A message's author follows.
pub(super) const NAME: u8 = 8;
/// A completion prompt's text follows.
pub(super) const PROMPT: u8 = 9;
/// Token ids follow, 4 bytes each, least significant first.
pub(super) const TOKENS: u8 = 10;
/// The digits of a number follow that is no token id.
pub(super) const NUMBER: u8 = 11;
