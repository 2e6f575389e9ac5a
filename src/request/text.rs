//! A JSON string as it stands in the body, and what it says.

use std::borrow::Cow;

use super::scan::find_backslash;

/// The contents of a JSON string, still escaped, without its quotes. Borrows the body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Text<'a> {
    raw: &'a [u8],
    has_escapes: bool,
    is_cut: bool,
}

impl<'a> Text<'a> {
    /// `has_escapes` may be true without need; `is_cut` = the body ends before the closing quote.
    pub(super) const fn new(raw: &'a [u8], has_escapes: bool, is_cut: bool) -> Self {
        Self { raw, has_escapes, is_cut }
    }

    /// The bytes as written in the body, escapes and all.
    #[must_use]
    pub const fn raw(self) -> &'a [u8] {
        self.raw
    }

    /// Whether it says nothing. A missing text is empty too.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.raw.is_empty()
    }

    /// Whether the body ends before the closing quote.
    pub(super) const fn is_cut(self) -> bool {
        self.is_cut
    }

    /// The text of its first bytes as they are written.
    pub(super) fn first(self, raw_bytes: usize) -> Self {
        self.raw.get(..raw_bytes).map_or(self, |raw| Self { raw, is_cut: true, ..self })
    }

    /// What a short text says, decoded into `buffer` if it has escapes. Empty if that is too long for a key that is known.
    pub(super) fn short<'b>(self, buffer: &'b mut [u8; SHORT_BYTES_MAX]) -> &'b [u8]
    where
        'a: 'b,
    {
        if !self.has_escapes {
            return self.raw;
        }
        let mut used_bytes = 0;
        // A byte takes six at most to write (`\u006d`): a key of a megabyte is not decoded to find that it is none of ours.
        if self.raw.len() <= SHORT_BYTES_MAX * 6 {
            self.decode(|chunk| {
                if let Some(free) = buffer.get_mut(used_bytes..used_bytes + chunk.len()) {
                    free.copy_from_slice(chunk);
                }
                used_bytes += chunk.len();
            });
        }
        buffer.get(..used_bytes).unwrap_or_default()
    }

    /// Whether it says `word`, however it is escaped.
    #[must_use]
    pub fn is(self, word: &[u8]) -> bool {
        if !self.has_escapes {
            return self.raw == word;
        }
        // A byte takes six at most to write (`\u006d`): a key of a megabyte is not decoded to find that it is none of ours.
        if self.raw.len() > word.len().saturating_mul(6) {
            return false;
        }
        let mut rest = Some(word);
        self.decode(|chunk| rest = rest.and_then(|rest| rest.strip_prefix(chunk)));
        rest.is_some_and(<[u8]>::is_empty)
    }

    /// What it says. Borrows unless there are escapes, so an allocation is rare for a model's name.
    #[must_use]
    pub fn decoded(self) -> Cow<'a, [u8]> {
        if !self.has_escapes {
            return Cow::Borrowed(self.raw);
        }
        let mut bytes = Vec::with_capacity(self.raw.len());
        self.decode(|chunk| bytes.extend_from_slice(chunk));
        Cow::Owned(bytes)
    }

    /// Hands what it says to `emit`, chunk by chunk, in order. Copies nothing but the characters behind escapes.
    ///
    /// A lone surrogate becomes U+FFFD, an escape that JSON does not know stays as written, bytes that are no UTF-8 pass
    /// unchanged. An escape that the end of a truncated body cuts is dropped.
    pub fn decode(self, mut emit: impl FnMut(&[u8])) {
        let mut rest = self.raw;
        while self.has_escapes
            && let Some((literal, escape)) = find_backslash(rest).and_then(|at| rest.split_at_checked(at))
        {
            if !literal.is_empty() {
                emit(literal);
            }
            let (emitted, escape_bytes) = match Escape::read(escape, self.is_cut) {
                Escape::Char { char, escape_bytes } => (char, escape_bytes),
                Escape::Unknown => ('\\', 1),
                Escape::Incomplete => return,
            };
            emit(emitted.encode_utf8(&mut [0; 4]).as_bytes());
            rest = escape.get(escape_bytes..).unwrap_or_default();
        }
        if !rest.is_empty() {
            emit(rest);
        }
    }
}

/// From so many bytes on a text is not [short](Text::short).
pub(super) const SHORT_BYTES_MAX: usize = 32;

/// What stands behind a backslash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// A character, written with `escape_bytes` bytes, backslash included: 2, 6, or 12 for a surrogate pair.
    Char { char: char, escape_bytes: usize },
    /// Nothing that JSON knows.
    Unknown,
    /// The body ends before one can tell.
    Incomplete,
}

impl Escape {
    /// Reads the escape at the front of `bytes`, which starts with a backslash. `is_cut` = more may follow `bytes`.
    pub(super) fn read(bytes: &[u8], is_cut: bool) -> Self {
        let char = match bytes.get(1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'u') => return Self::read_unicode(bytes, is_cut),
            None if is_cut => return Self::Incomplete,
            _ => return Self::Unknown,
        };
        Self::Char { char, escape_bytes: 2 }
    }

    fn read_unicode(bytes: &[u8], is_cut: bool) -> Self {
        let unit = match CodeUnit::read(bytes) {
            CodeUnit::Is(unit) => unit,
            CodeUnit::Incomplete if is_cut => return Self::Incomplete,
            CodeUnit::Incomplete | CodeUnit::Other => return Self::Unknown,
        };
        if let Some(char) = char::from_u32(unit) {
            return Self::Char { char, escape_bytes: 6 };
        }
        let lone = Self::Char { char: char::REPLACEMENT_CHARACTER, escape_bytes: 6 };
        if !(0xd800..0xdc00).contains(&unit) {
            return lone;
        }
        match CodeUnit::read(bytes.get(6..).unwrap_or_default()) {
            CodeUnit::Is(low @ 0xdc00..0xe000) => {
                let code_point = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                let char = char::from_u32(code_point).unwrap_or(char::REPLACEMENT_CHARACTER);
                Self::Char { char, escape_bytes: 12 }
            }
            CodeUnit::Incomplete if is_cut => Self::Incomplete,
            _ => lone,
        }
    }
}

/// A UTF-16 code unit as JSON writes it.
enum CodeUnit {
    Is(u32),
    /// The bytes end, and so far they look like one.
    Incomplete,
    Other,
}

impl CodeUnit {
    fn read(bytes: &[u8]) -> Self {
        let (escape, digits) = bytes.split_at_checked(2).unwrap_or((bytes, &[]));
        if escape.len() < 2 {
            return if b"\\u".starts_with(escape) { Self::Incomplete } else { Self::Other };
        }
        if escape != b"\\u" {
            return Self::Other;
        }
        let mut unit = 0;
        for index in 0..4 {
            let Some(&digit) = digits.get(index) else { return Self::Incomplete };
            let Some(value) = char::from(digit).to_digit(16) else { return Self::Other };
            unit = unit << 4 | value;
        }
        Self::Is(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn decoded(raw: &[u8], is_cut: bool) -> Vec<u8> {
        Text::new(raw, true, is_cut).decoded().into_owned()
    }

    #[test]
    fn escapes_say_what_json_says() {
        const CASES: &[(&str, &[u8], &[u8])] = &[
            ("plain", b"abc", b"abc"),
            ("short escapes", br#"a\"\\\/\n\t\r\b\fz"#, b"a\"\\/\n\t\r\x08\x0cz"),
            ("code units, either case", br"\u0041\u00e9\u00E9\u20ac", "Aéé€".as_bytes()),
            ("surrogate pair", br"\ud83d\ude00", "😀".as_bytes()),
            ("lone high surrogate", br"\ud83dx", "\u{fffd}x".as_bytes()),
            ("lone low surrogate", br"\ude00", "\u{fffd}".as_bytes()),
            ("high, then pair", br"\ud83d\ud83d\ude00", "\u{fffd}😀".as_bytes()),
            ("high, then another escape", br"\ud83d\u0041\n", "\u{fffd}A\n".as_bytes()),
            ("high, then a bad unit", br"\ud83d\uzzzz", "\u{fffd}\\uzzzz".as_bytes()),
            ("high at the end", br"\ud83d", "\u{fffd}".as_bytes()),
            ("unknown escapes stay", br"\x41\u12g4\'", br"\x41\u12g4\'"),
            ("short unit stays", br"\u12", br"\u12"),
            ("no UTF-8 passes", b"\xff\xc3\\n\x80", b"\xff\xc3\n\x80"),
        ];
        for &(name, raw, want) in CASES {
            assert_eq!(decoded(raw, false), want, "{name}");
            assert!(Text::new(raw, true, false).is(want), "{name}");
            assert!(!Text::new(raw, true, false).is(b"other"), "{name}");
        }
    }

    #[test]
    fn every_cut_of_a_text_says_a_prefix_of_the_whole() {
        let raw = br#"a\n\u00e9\ud83d\ude00\ud83d\ud83d\ude00\ud83dx\x\u1g\"\\\ud83d\u0041 end"#;
        let whole = decoded(raw, false);
        for cut in 0..=raw.len() {
            let part = decoded(&raw[..cut], true);
            assert!(whole.starts_with(&part), "cut at {cut}");
            assert!(part.len() * 12 + 12 >= cut, "cut at {cut} drops more than one escape");
        }
    }
}
