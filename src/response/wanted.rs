//! What is wanted of one answer, and when there is no more of it to come: to read a stream has its price.

use super::counts::Usage;
use super::usage::UsageReader;

/// A response's name is among the first members of its object: where so many bytes of the answer tell none, it has none, or
/// is compressed.
const NAME_WITHIN_BYTES: usize = 64 * 1_024;

/// Reads of an answer what is wanted.
#[derive(Clone, Debug)]
pub struct AnswerReader {
    reader: UsageReader,
    wants_usage: bool,
    /// Bytes in which the name may yet be told; 0 = it is not looked for, or not any more.
    name_bytes_left: usize,
}

impl AnswerReader {
    /// A reader of what is wanted: the usage, the name of the response that the answer makes; `None` if neither is.
    #[must_use]
    pub fn new(wants_usage: bool, wants_name: bool) -> Option<Self> {
        let name_bytes_left = if wants_name { NAME_WITHIN_BYTES } else { 0 };
        let reader = Self { reader: UsageReader::default(), wants_usage, name_bytes_left };
        (!reader.is_done()).then_some(reader)
    }

    /// Takes the next piece of the answer. Returns the hash of the response's name, once, when that is wanted and was read.
    pub fn feed(&mut self, bytes: &[u8]) -> Option<u64> {
        self.reader.feed(bytes);
        if self.name_bytes_left == 0 {
            return None;
        }
        let name = self.reader.response();
        self.name_bytes_left = if name.is_some() { 0 } else { self.name_bytes_left.saturating_sub(bytes.len()) };
        name
    }

    /// Whether what follows can be left unread.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        !self.wants_usage && self.name_bytes_left == 0
    }

    /// See [`UsageReader::usage`].
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.reader.usage()
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::response::response_hash;

    const CREATED: &str = "data: {\"response\":{\"id\":\"resp_1\",\"usage\":null}}\n\n";
    const DELTA: &str = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a word\"}\n\n";
    const COMPLETED: &str = "data: {\"response\":{\"id\":\"resp_1\",\"usage\":{\"input_tokens\":7}}}\n\n";

    #[test]
    fn an_answer_is_read_until_all_that_is_wanted_was_told() {
        let name = response_hash(b"resp_1");
        for (wants_usage, wants_name) in [(true, true), (true, false), (false, true)] {
            let mut reader = AnswerReader::new(wants_usage, wants_name).unwrap();
            assert_eq!((reader.feed(&CREATED.as_bytes()[..20]), reader.is_done()), (None, false));
            assert_eq!(reader.feed(&CREATED.as_bytes()[20..]), name.filter(|_| wants_name));
            assert_eq!(reader.is_done(), !wants_usage, "the usage is told at the end");
            assert_eq!(reader.feed(DELTA.as_bytes()), None);
            assert_eq!(reader.feed(COMPLETED.as_bytes()), None, "the name is told once");
            assert_eq!(reader.usage().and_then(|usage| usage.prompt_tokens), Some(7));
        }
        assert!(AnswerReader::new(false, false).is_none());
    }

    #[test]
    fn a_name_that_is_not_told_in_the_first_bytes_is_given_up() {
        for wants_usage in [false, true] {
            let mut reader = AnswerReader::new(wants_usage, true).unwrap();
            let mut read_bytes = 0;
            while read_bytes < NAME_WITHIN_BYTES {
                assert!(!reader.is_done(), "{read_bytes}");
                assert_eq!(reader.feed(DELTA.as_bytes()), None);
                read_bytes += DELTA.len();
            }
            assert_eq!(reader.is_done(), !wants_usage);
            assert_eq!(reader.feed(COMPLETED.as_bytes()), None, "too late");
            assert_eq!(reader.usage().and_then(|usage| usage.prompt_tokens), Some(7));
        }
    }
}
