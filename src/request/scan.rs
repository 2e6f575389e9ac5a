//! A tolerant, single-pass JSON scanner: finds where values begin and end, also in a body that is cut short.
//!
//! It does not judge what it skips: `[}` passes as a value. The engine will refuse such a body; here it only must not
//! cost more than its bytes.

use memchr::{memchr, memchr2};

use super::text::Text;

/// Brackets open at once, at the most. APIs need under ten, JSON schemas of tools some tens; Python's own parser
/// gives up near 1000.
pub(super) const NESTING_MAX: usize = 512;

/// What a value is, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    String,
    Object,
    Array,
    /// Also `NaN` and `Infinity`, which Python's parser takes.
    Number,
    /// `true`, `false`, `null`, or what starts like one of them.
    Literal,
}

/// A value's span in the body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'a> {
    pub(super) kind: Kind,
    /// As written, quotes and brackets included.
    pub(super) raw: &'a [u8],
    /// The body ends within the value, or right behind a number or literal that might go on.
    pub(super) is_cut: bool,
    has_escapes: bool,
}

impl<'a> Value<'a> {
    /// The contents if this is a string, cut or not.
    pub(super) fn text(&self) -> Option<Text<'a>> {
        let contents = self.raw.strip_prefix(b"\"")?;
        let contents = if self.is_cut { contents } else { contents.strip_suffix(b"\"")? };
        Some(Text::new(contents, self.has_escapes, self.is_cut))
    }

    /// The contents if this is a string that is complete.
    pub(super) fn whole_text(&self) -> Option<Text<'a>> {
        self.text().filter(|_| !self.is_cut)
    }

    pub(super) fn is_null(&self) -> bool {
        self.raw == b"null"
    }

    /// Whether half of it says nothing: a number or literal that the body's end cuts.
    pub(super) fn is_cut_scalar(&self) -> bool {
        self.is_cut && matches!(self.kind, Kind::Number | Kind::Literal)
    }
}

/// Why there is no next value. Offsets are bytes from the start of what is scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// The bytes end where more must follow.
    End { offset: usize },
    /// A byte that fits nothing.
    Malformed { offset: usize },
    /// More than [`NESTING_MAX`] brackets are open.
    TooDeep { offset: usize },
}

/// Walks over the bytes of a body, or of one value of it.
#[derive(Clone, Debug)]
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Nothing was read yet of the object or array that was entered last, so no comma is due.
    is_first: bool,
}

impl<'a> Scanner<'a> {
    /// Starts at the front of `bytes`, behind a byte order mark.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let at = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Self { bytes, at, is_first: true }
    }

    /// Enters the object or array that starts with the bracket `open`; `false`, and only white space skipped, if the
    /// next byte is another one.
    pub(super) fn enter(&mut self, open: u8) -> bool {
        let is_open = self.peek() == Some(open);
        if is_open {
            self.at += 1;
            self.is_first = true;
        }
        is_open
    }

    /// Moves to the next item of the object or array that ends with the bracket `close`; `false` behind its end.
    pub(super) fn next_item(&mut self, close: u8) -> Result<bool, Halt> {
        let byte = self.expect_any()?;
        if byte == close {
            self.at += 1;
            self.is_first = false;
            return Ok(false);
        }
        if !self.is_first {
            self.expect(b',')?;
            if self.expect_any()? == close {
                return Err(self.malformed());
            }
        }
        self.is_first = false;
        Ok(true)
    }

    /// The next member of the object entered last; `None` behind its end.
    pub(super) fn member(&mut self) -> Result<Option<(Text<'a>, Value<'a>)>, Halt> {
        if !self.next_item(b'}')? {
            return Ok(None);
        }
        if self.peek() != Some(b'"') {
            return Err(self.malformed());
        }
        let key = self.value()?.whole_text().ok_or(Halt::End { offset: self.at })?;
        self.expect(b':')?;
        self.value().map(|value| Some((key, value)))
    }

    /// The next element of the array entered last; `None` behind its end.
    pub(super) fn element(&mut self) -> Result<Option<Value<'a>>, Halt> {
        if self.next_item(b']')? { self.value().map(Some) } else { Ok(None) }
    }

    /// The value that comes next, skipped as a whole. If the bytes end within it, it is cut and still a value.
    pub(super) fn value(&mut self) -> Result<Value<'a>, Halt> {
        let first = self.expect_any()?;
        let begin = self.at;
        let mut has_escapes = false;
        let (kind, is_whole) = match first {
            b'"' => (Kind::String, self.skip_string(&mut has_escapes)),
            b'{' => (Kind::Object, self.skip_brackets()?),
            b'[' => (Kind::Array, self.skip_brackets()?),
            b'-' | b'0'..=b'9' | b'N' | b'I' => (Kind::Number, self.skip_scalar()),
            b't' | b'f' | b'n' => (Kind::Literal, self.skip_scalar()),
            _ => return Err(self.malformed()),
        };
        #[cfg(test)]
        READ_BYTES.set(READ_BYTES.get() + self.at - begin);
        Ok(Value { kind, raw: self.since(begin), is_cut: !is_whole, has_escapes })
    }

    /// What was scanned since offset `begin`.
    pub(super) fn since(&self, begin: usize) -> &'a [u8] {
        self.bytes.get(begin..self.at).unwrap_or_default()
    }

    /// All that is left, read or not: for a value that the bytes' end cuts.
    pub(super) fn rest_from(&self, begin: usize) -> &'a [u8] {
        self.bytes.get(begin..).unwrap_or_default()
    }

    /// Bytes scanned so far.
    pub(super) const fn offset(&self) -> usize {
        self.at
    }

    /// The next byte that is no white space, not consumed.
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.bytes.get(self.at)?;
            if !is_white_space(byte) {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    fn expect_any(&mut self) -> Result<u8, Halt> {
        self.peek().ok_or(Halt::End { offset: self.at })
    }

    fn expect(&mut self, byte: u8) -> Result<(), Halt> {
        if self.expect_any()? != byte {
            return Err(self.malformed());
        }
        self.at += 1;
        Ok(())
    }

    fn malformed(&self) -> Halt {
        Halt::Malformed { offset: self.at }
    }

    /// Skips the string whose opening quote comes next; `false` if the bytes end first.
    fn skip_string(&mut self, has_escapes: &mut bool) -> bool {
        self.at += 1;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = match find_quote_or_backslash(rest) {
            Some(at) if rest.get(at) == Some(&b'"') => Some(at),
            Some(at) => {
                *has_escapes = true;
                find_closing_quote(rest, at)
            }
            None => None,
        };
        self.at = end.map_or(self.bytes.len(), |end| self.at + end + 1);
        end.is_some()
    }

    /// Skips from an opening bracket to the one that closes it, counting and not recursing: a client chooses the depth.
    fn skip_brackets(&mut self) -> Result<bool, Halt> {
        let mut depth = 0_usize;
        while let Some(found) = self.bytes.get(self.at..).and_then(find_quote_or_bracket) {
            self.at += found;
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    if !self.skip_string(&mut false) {
                        return Ok(false);
                    }
                    continue;
                }
                Some(b'{' | b'[') if depth == NESTING_MAX => return Err(Halt::TooDeep { offset: self.at }),
                Some(b'{' | b'[') => depth += 1,
                _ => depth = depth.saturating_sub(1),
            }
            self.at += 1;
            if depth == 0 {
                return Ok(true);
            }
        }
        self.at = self.bytes.len();
        Ok(false)
    }

    /// Skips a number or literal; `false` if the bytes end with it, for then it might go on.
    fn skip_scalar(&mut self) -> bool {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end =
            rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.'));
        self.at += end.unwrap_or(rest.len());
        end.is_some()
    }
}

#[cfg(test)]
thread_local! {
    /// Bytes of values that scanners passed on this thread: how often a body is read is what hostile ones try to raise.
    pub(super) static READ_BYTES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// White space outside strings, as JSON has it.
pub(super) const fn is_white_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Where the first `"` or `\` is: the two bytes that mean something within a string.
pub(super) fn find_quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    memchr2(b'"', b'\\', bytes)
}

/// Where the first quote is that no backslash escapes, given that there is none before `from`, where a backslash is.
///
/// Texts have a line end, an escape, every few words, and quotes are rare: so quotes are looked for, and then what stands
/// before them.
fn find_closing_quote(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += memchr(b'"', bytes.get(at..)?)?;
        let before = bytes.get(from..at)?;
        let backslashes = before.iter().rev().take_while(|&&byte| byte == b'\\').count();
        if backslashes % 2 == 0 {
            return Some(at);
        }
        at += 1;
    }
}

/// Where the first quote or bracket is: all that matters between an opening bracket and the one that closes it.
///
/// Looks at 8 bytes at a time: lists of token ids are long and have neither.
fn find_quote_or_bracket(bytes: &[u8]) -> Option<usize> {
    let (words, tail) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // Square and curly brackets differ by one bit only, and no third byte becomes one by setting it.
        let curly = word | repeat(b'{' ^ b'[');
        let hits =
            zero_bytes(word ^ repeat(b'"')) | zero_bytes(curly ^ repeat(b'{')) | zero_bytes(curly ^ repeat(b'}'));
        if hits != 0 {
            return Some(index * 8 + hits.trailing_zeros() as usize / 8);
        }
    }
    let in_tail = tail.iter().position(|byte| matches!(byte, b'"' | b'[' | b']' | b'{' | b'}'));
    in_tail.map(|at| words.len() * 8 + at)
}

/// Where the first `\` is.
pub(super) fn find_backslash(bytes: &[u8]) -> Option<usize> {
    memchr(b'\\', bytes)
}

/// The top bit of each byte of `word` that is 0. A byte above such a one may be set without cause, so only the lowest
/// hit counts.
///
/// Source: Sean Eron Anderson, Bit Twiddling Hacks, "Determine if a word has a zero byte".
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(repeat(0x01)) & !word & repeat(0x80)
}

const fn repeat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn the_search_by_words_finds_what_a_search_by_bytes_finds() {
        let mut rng = Rng::new(1);
        for case in 0..5_000 {
            let bytes: Vec<u8> = (0..rng.below(40))
                .map(|_| match rng.below(12) {
                    0 => b'"',
                    1 => b'\\',
                    2 => b'"' + 1,
                    4 => b"[]{}"[rng.below(4) as usize],
                    3 => b'\\' ^ 0x80,
                    _ => rng.below(256) as u8,
                })
                .collect();
            let first_of = |wanted: &[u8]| bytes.iter().position(|byte| wanted.contains(byte));
            assert_eq!(find_quote_or_bracket(&bytes), first_of(b"\"[]{}"), "case {case}");
        }
    }

    #[test]
    fn a_value_ends_where_json_ends_it() {
        const CASES: &[(&[u8], Kind, &[u8])] = &[
            (br#" "a\"b" ,"#, Kind::String, br#""a\"b""#),
            (br#""a\\" "#, Kind::String, br#""a\\""#),
            (b"-1.5e+3,", Kind::Number, b"-1.5e+3"),
            (b"true}", Kind::Literal, b"true"),
            (br#"{"a":["}",{}],"b":1} ,"#, Kind::Object, br#"{"a":["}",{}],"b":1}"#),
            (b"[[],[]]]", Kind::Array, b"[[],[]]"),
        ];
        for &(bytes, kind, raw) in CASES {
            let value = Scanner::new(bytes).value().unwrap();
            assert_eq!((value.kind, value.raw, value.is_cut), (kind, raw, false));
        }
    }

    #[test]
    fn a_value_that_runs_off_the_end_is_cut() {
        for bytes in [&b"\"ab"[..], b"\"ab\\", b"\"ab\\\"", b"12", b"tru", b"[1,2", b"{\"a\":{}", b"[\"]\\"] {
            let value = Scanner::new(bytes).value().unwrap();
            assert!(value.is_cut, "{}", String::from_utf8_lossy(bytes));
            assert_eq!(value.raw, bytes);
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert!(!Scanner::new(&nested(NESTING_MAX)).value().unwrap().is_cut);
        let halt = Scanner::new(&nested(NESTING_MAX + 1)).value().unwrap_err();
        assert_eq!(halt, Halt::TooDeep { offset: NESTING_MAX });
        assert_eq!(Scanner::new(&vec![b'['; 4 << 20]).value().unwrap_err(), halt);
    }

    #[test]
    fn items_need_their_commas() {
        for bytes in [&b"[1 2]"[..], b"[,1]", b"[1,]", b"[1,,2]", b"[}", b"[:]"] {
            let mut scanner = Scanner::new(bytes);
            assert!(scanner.enter(b'['));
            let end = std::iter::repeat_with(|| scanner.element()).find(|next| !matches!(next, Ok(Some(_))));
            assert!(matches!(end, Some(Err(Halt::Malformed { .. }))), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
