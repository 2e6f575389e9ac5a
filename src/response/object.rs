//! Finds the numbers of `usage` in one JSON object whose bytes come piece by piece.
//!
//! Members of the three objects on the way to a number (the outermost, `usage`, `prompt_tokens_details`) are read
//! strictly; every other value is skipped by its strings and brackets.

use memchr::memchr2;

/// What an engine tells of a finished request. A number that it does not tell, or that is no whole number of 32 bits,
/// is `None`: unknown, which is not 0.
///
/// Source: OpenAI API reference, "The chat completion object", member `usage`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, after the chat template.
    pub prompt_tokens: Option<u32>,
    /// Tokens that were generated.
    pub completion_tokens: Option<u32>,
    /// Tokens of the prompt that were in the KV cache; 0 if the engine says that none was.
    ///
    /// `None` if it does not say: vLLM tells it only with `--enable-prompt-tokens-details`, SGLang only with
    /// `--enable-cache-report`. With their flags, SGLang (`_details_if_cached` in `usage_processor.py`) and vLLM's older
    /// releases (`enable_prompt_tokens_details and num_cached_tokens` in `serving_chat.py`) still leave it out when it
    /// would be 0, so one answer without it does not show whether nothing was cached or nothing is told.
    pub cached_tokens: Option<u32>,
}

/// Walks over one JSON object after the other, and remembers the last complete `usage`.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectReader {
    state: State,
    level: Level,
    /// The member of the object at `level` that is being read.
    field: Field,
    /// The bytes of a key as written, as far as they fit. No key that is looked for has escapes.
    key: [u8; KEY_BYTES_MAX],
    /// Length of the key, also of one that does not fit.
    key_bytes: usize,
    /// The last byte was a backslash within a string that began no later than the piece before.
    is_escaped: bool,
    /// Brackets open within the value that is being skipped.
    nesting: u32,
    /// The number being read, as long as it is one.
    number: Option<u32>,
    /// Of the `usage` that is being read.
    pending: Usage,
    complete: Option<Usage>,
}

/// The longest key that is looked for, `prompt_tokens_details`, has 21 bytes.
const KEY_BYTES_MAX: usize = 21;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the object.
    #[default]
    Start,
    /// Behind the object.
    Ended,
    /// This is no such object: nothing counts before the next event.
    Broken,
    /// Behind `{`: a key or `}`.
    FirstMember,
    /// Behind `,`: a key.
    Member,
    Key,
    Colon,
    Value,
    /// In a number or literal.
    Scalar,
    String,
    /// Behind a value: `,` or `}`.
    Comma,
    /// In an object or array that is skipped.
    Nested,
    NestedString,
}

/// The object whose members are being read.
#[derive(Clone, Copy, Debug, Default)]
enum Level {
    #[default]
    Outermost,
    Usage,
    PromptTokensDetails,
}

#[derive(Clone, Copy, Debug, Default)]
enum Field {
    #[default]
    Other,
    Usage,
    PromptTokens,
    CompletionTokens,
    PromptTokensDetails,
    CachedTokens,
}

impl ObjectReader {
    pub(super) const fn usage(&self) -> Option<Usage> {
        self.complete
    }

    /// Whether nothing was read of the event that comes next.
    pub(super) const fn is_between(&self) -> bool {
        matches!(self.state, State::Start)
    }

    /// The event is over, whatever there was of it.
    pub(super) fn end_event(&mut self) {
        self.state = State::Start;
    }

    /// Another line of an event's text begins. It may continue an object but no string, for JSON has no line end within
    /// one. Behind an object that has ended it begins the next, for servers that leave out the empty line.
    pub(super) fn begin_line(&mut self) {
        match self.state {
            State::Ended => self.state = State::Start,
            State::Key | State::String | State::NestedString => self.state = State::Broken,
            State::Scalar => self.end_scalar(),
            _ => {}
        }
    }

    /// Takes the next piece.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((&byte, behind)) = rest.split_first() {
            rest = match self.state {
                State::Ended | State::Broken => return,
                State::Key | State::String | State::NestedString => self.skip_string(rest),
                State::Nested => self.skip_nested(rest),
                _ => {
                    self.step(byte);
                    behind
                }
            };
        }
    }

    /// Takes one byte between and within the members that are read.
    fn step(&mut self, byte: u8) {
        if self.state == State::Scalar && matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b'}') {
            self.end_scalar();
        }
        self.state = match (self.state, byte) {
            (state, b' ' | b'\t' | b'\r' | b'\n') => state,
            (State::Start, b'{') => {
                self.level = Level::Outermost;
                State::FirstMember
            }
            (State::FirstMember | State::Member, b'"') => self.begin_string(State::Key),
            (State::FirstMember | State::Comma, b'}') => self.close(),
            (State::Colon, b':') => State::Value,
            (State::Value, b'"') => self.begin_string(State::String),
            (State::Value, b'{') => self.open(),
            (State::Value, b'[') => self.begin_nested(),
            (State::Value, b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') => {
                self.number = Some(0);
                self.push_digit(byte);
                State::Scalar
            }
            (State::Scalar, b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') => {
                self.push_digit(byte);
                State::Scalar
            }
            (State::Comma, b',') => State::Member,
            _ => State::Broken,
        };
    }

    fn push_digit(&mut self, byte: u8) {
        let digit = char::from(byte).to_digit(10);
        self.number = self.number.and_then(|number| number.checked_mul(10)?.checked_add(digit?));
    }

    fn end_scalar(&mut self) {
        self.set_field(self.number);
        self.state = State::Comma;
    }

    /// Takes `number` as what the current member says, if it is one that counts.
    const fn set_field(&mut self, number: Option<u32>) {
        match self.field {
            Field::PromptTokens => self.pending.prompt_tokens = number,
            Field::CompletionTokens => self.pending.completion_tokens = number,
            Field::CachedTokens => self.pending.cached_tokens = number,
            Field::PromptTokensDetails => self.pending.cached_tokens = None,
            Field::Other | Field::Usage => {}
        }
    }

    /// Enters the object that is the current member's value, or skips it.
    fn open(&mut self) -> State {
        match self.field {
            Field::Usage => {
                self.level = Level::Usage;
                self.pending = Usage::default();
            }
            Field::PromptTokensDetails => self.level = Level::PromptTokensDetails,
            _ => return self.begin_nested(),
        }
        State::FirstMember
    }

    fn close(&mut self) -> State {
        match self.level {
            Level::Outermost => return State::Ended,
            Level::Usage => {
                self.complete = Some(self.pending);
                self.level = Level::Outermost;
            }
            Level::PromptTokensDetails => self.level = Level::Usage,
        }
        State::Comma
    }

    const fn begin_string(&mut self, state: State) -> State {
        self.key_bytes = 0;
        self.is_escaped = false;
        state
    }

    const fn begin_nested(&mut self) -> State {
        self.nesting = 1;
        State::Nested
    }

    /// Skips what is there of a string; the bytes behind it.
    fn skip_string<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        // The byte behind a backslash is skipped unseen, so an escaped quote or backslash is neither.
        let mut at = usize::from(self.is_escaped);
        while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
            at += found;
            if bytes.get(at) == Some(&b'"') {
                self.push_key(bytes.get(..at).unwrap_or_default());
                self.end_string();
                return bytes.get(at + 1..).unwrap_or_default();
            }
            at += 2;
        }
        self.is_escaped = at > bytes.len();
        self.push_key(bytes);
        &[]
    }

    fn push_key(&mut self, piece: &[u8]) {
        if self.state == State::Key {
            let free = self.key.iter_mut().skip(self.key_bytes);
            free.zip(piece).for_each(|(to, byte)| *to = *byte);
            self.key_bytes = self.key_bytes.saturating_add(piece.len());
        }
    }

    fn end_string(&mut self) {
        self.state = match self.state {
            State::Key => {
                self.begin_member();
                State::Colon
            }
            State::String => State::Comma,
            _ => State::Nested,
        };
    }

    /// Takes note of the member whose key has been read. If it comes twice, the last one counts, as in Python.
    fn begin_member(&mut self) {
        let key = self.key.get(..self.key_bytes).unwrap_or_default();
        self.field = match (self.level, key) {
            (Level::Outermost, b"usage") => Field::Usage,
            (Level::Usage, b"prompt_tokens") => Field::PromptTokens,
            (Level::Usage, b"completion_tokens") => Field::CompletionTokens,
            (Level::Usage, b"prompt_tokens_details") => Field::PromptTokensDetails,
            (Level::PromptTokensDetails, b"cached_tokens") => Field::CachedTokens,
            _ => Field::Other,
        };
        self.set_field(None);
    }

    /// Skips what is there of an object or array, up to its end or the next string in it; the bytes behind that.
    ///
    /// Brackets are counted and not paired: what the engine writes outside strings is its own.
    fn skip_nested<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => self.state = self.begin_string(State::NestedString),
                b'{' | b'[' => {
                    self.nesting = self.nesting.saturating_add(1);
                    continue;
                }
                b'}' | b']' => {
                    self.nesting = self.nesting.saturating_sub(1);
                    if self.nesting > 0 {
                        continue;
                    }
                    self.state = State::Comma;
                }
                _ => continue,
            }
            return bytes.get(at + 1..).unwrap_or_default();
        }
        &[]
    }
}
