//! Finds what counts in one JSON object whose bytes come piece by piece.
//!
//! Members of the objects on the way to a number (see `member.rs`) are read strictly; every other value is skipped by its
//! strings and brackets.

use memchr::memchr2;

use super::counts::{Count, Counts, Usage};
use super::member::{Field, Level, Marker};
use super::{RESPONSE_NAME_BYTES_MAX, response_hash};

/// Walks over one JSON object after the other, and remembers what the complete parts of them tell.
#[derive(Clone, Debug)]
pub(super) struct ObjectReader {
    state: State,
    level: Level,
    /// Whether `usage` is that of an object within the outermost.
    is_wrapped: bool,
    /// The member of the object at `level` that is being read.
    field: Field,
    /// The bytes of a key, or of a text that matters, as written and as far as they fit. None that is looked for has
    /// escapes, and all keys are shorter than the longest text.
    text: [u8; RESPONSE_NAME_BYTES_MAX],
    /// Length of the text, also of one that does not fit.
    text_bytes: usize,
    /// The last byte was a backslash within a string that began no later than the piece before.
    is_escaped: bool,
    /// Brackets open within the value that is being skipped.
    nesting: u32,
    /// Objects and arrays that it has as elements.
    elements: u32,
    /// The number being read, as long as it is one.
    number: Option<u32>,
    /// Whether the outermost object has `meta_info`, and is of another prompt than the first.
    has_meta_info: bool,
    is_of_another: bool,
    /// Of the object that is being read.
    pending: Counts,
    complete: Counts,
    /// Whether anything was told.
    is_told: bool,
    /// Whether it was told of one prompt of several.
    is_partial: bool,
    marker: Option<Marker>,
    response: Option<u64>,
}

impl Default for ObjectReader {
    fn default() -> Self {
        Self {
            state: State::default(),
            level: Level::default(),
            is_wrapped: false,
            field: Field::default(),
            text: [0; RESPONSE_NAME_BYTES_MAX],
            text_bytes: 0,
            is_escaped: false,
            nesting: 0,
            elements: 0,
            number: None,
            has_meta_info: false,
            is_of_another: false,
            pending: Counts::default(),
            complete: Counts::default(),
            is_told: false,
            is_partial: false,
            marker: None,
            response: None,
        }
    }
}

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
    /// In a string that matters.
    Text,
    /// Behind a value: `,` or `}`.
    Comma,
    /// In an object or array that is skipped.
    Nested,
    NestedString,
}

impl ObjectReader {
    /// What was told so far. Of one prompt of several nothing: what is known of the request is about all of them.
    pub(super) fn usage(&self) -> Option<Usage> {
        (self.is_told && !self.is_partial).then(|| self.complete.usage())
    }

    /// Hash of the name of the first response in the answer.
    pub(super) const fn response(&self) -> Option<u64> {
        self.response
    }

    /// What lines say something by, as far as the lines so far show it.
    pub(super) const fn marker(&self) -> Option<Marker> {
        self.marker
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
            State::Key | State::String | State::Text | State::NestedString => self.state = State::Broken,
            State::Scalar => self.end_scalar(),
            _ => {}
        }
    }

    /// Takes the next piece; returns what of it stands behind the object.
    pub(super) fn feed<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut rest = bytes;
        while let Some((&byte, behind)) = rest.split_first() {
            rest = match self.state {
                State::Ended => return rest,
                State::Broken => return &[],
                State::Key | State::String | State::Text | State::NestedString => self.skip_string(rest),
                State::Nested => self.skip_nested(rest),
                _ => {
                    self.step(byte);
                    behind
                }
            };
        }
        &[]
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
                (self.has_meta_info, self.is_of_another) = (false, false);
                State::FirstMember
            }
            (State::FirstMember | State::Member, b'"') => self.begin_string(State::Key),
            (State::FirstMember | State::Comma, b'}') => self.close(),
            (State::Colon, b':') => State::Value,
            (State::Value, b'"') if self.field == Field::Id => self.begin_string(State::Text),
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
    fn set_field(&mut self, number: Option<u32>) {
        match self.field {
            Field::Count(count) if self.level == Level::Outermost => {
                self.is_told |= number.is_some();
                self.complete.set_if_told(count, number);
            }
            Field::Count(count) => self.pending.set(count, number),
            Field::Object(Level::TokenDetails) => self.pending.set(Count::Cached, None),
            Field::Index => self.is_of_another = number.is_some_and(|index| index > 0),
            Field::Object(_) | Field::Prefill | Field::Id | Field::Other => {}
        }
    }

    /// Enters the object that is the current member's value, or skips it.
    fn open(&mut self) -> State {
        let Field::Object(level) = self.field else {
            self.field = Field::Other;
            return self.begin_nested();
        };
        match level {
            Level::Outermost | Level::Wrapper | Level::TokenDetails => {}
            Level::Usage | Level::MetaInfo | Level::Details | Level::Timings => {
                self.is_wrapped = self.level == Level::Wrapper;
                self.pending = Counts::default();
            }
        }
        self.level = level;
        State::FirstMember
    }

    fn close(&mut self) -> State {
        self.level = match self.level {
            Level::Outermost => {
                self.is_partial |= self.has_meta_info && self.is_of_another;
                return State::Ended;
            }
            Level::Wrapper => Level::Outermost,
            Level::TokenDetails => Level::Usage,
            Level::Usage | Level::MetaInfo | Level::Details | Level::Timings => {
                self.has_meta_info |= self.level == Level::MetaInfo;
                self.is_told = true;
                self.complete.update(&self.pending);
                if self.is_wrapped { Level::Wrapper } else { Level::Outermost }
            }
        };
        State::Comma
    }

    const fn begin_string(&mut self, state: State) -> State {
        self.text_bytes = 0;
        self.is_escaped = false;
        state
    }

    const fn begin_nested(&mut self) -> State {
        (self.nesting, self.elements) = (1, 0);
        State::Nested
    }

    /// Skips what is there of a string; the bytes behind it.
    fn skip_string<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        // The byte behind a backslash is skipped unseen, so an escaped quote or backslash is neither.
        let mut at = usize::from(self.is_escaped);
        while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
            at += found;
            if bytes.get(at) == Some(&b'"') {
                self.push_text(bytes.get(..at).unwrap_or_default());
                self.end_string();
                return bytes.get(at + 1..).unwrap_or_default();
            }
            at += 2;
        }
        self.is_escaped = at > bytes.len();
        self.push_text(bytes);
        &[]
    }

    fn push_text(&mut self, piece: &[u8]) {
        if matches!(self.state, State::Key | State::Text) {
            let free = self.text.iter_mut().skip(self.text_bytes);
            free.zip(piece).for_each(|(to, byte)| *to = *byte);
            self.text_bytes = self.text_bytes.saturating_add(piece.len());
        }
    }

    fn end_string(&mut self) {
        self.state = match self.state {
            State::Key => {
                self.begin_member();
                State::Colon
            }
            State::Text => {
                let text = self.text.get(..self.text_bytes).unwrap_or_default();
                self.response = self.response.or_else(|| response_hash(text));
                State::Comma
            }
            State::String => State::Comma,
            _ => State::Nested,
        };
    }

    /// Takes note of the member whose key has been read. If it comes twice, the last one counts, as in Python.
    fn begin_member(&mut self) {
        let key = self.text.get(..self.text_bytes).unwrap_or_default();
        self.field = self.level.field(key);
        self.marker = self.marker.or_else(|| self.level.marker(key));
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
                    self.elements = self.elements.saturating_add(u32::from(self.nesting == 1));
                    self.nesting = self.nesting.saturating_add(1);
                    continue;
                }
                b'}' | b']' => {
                    self.nesting = self.nesting.saturating_sub(1);
                    if self.nesting > 0 {
                        continue;
                    }
                    self.end_nested();
                }
                _ => continue,
            }
            return bytes.get(at + 1..).unwrap_or_default();
        }
        &[]
    }

    fn end_nested(&mut self) {
        // An empty list means that it was not asked for.
        if self.field == Field::Prefill && self.elements > 0 {
            self.pending.set(Count::Prompt, Some(self.elements));
        }
        self.state = State::Comma;
    }
}
