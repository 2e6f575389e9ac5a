//! Lists of token ids.

use super::json::feed_text_or_json;
use super::mark;
use super::scan::{Halt, Kind, Scanner, Value};
use crate::prefix::PromptSink;

/// Feeds token ids, behind their mark.
///
/// # Errors
/// Where the list is not whole or no JSON; what was fed is right all the same.
pub(super) fn feed_tokens(tokens: &Value<'_>, sink: &mut impl PromptSink) -> Result<(), Halt> {
    let mut scanner = Scanner::new(tokens.raw);
    sink.mark(mark::TOKENS);
    let mut batch = TokenBatch::new(sink);
    scanner.enter(b'[');
    while let Some(value) = scanner.element()? {
        // A number that the body's end touches might go on.
        if value.is_cut_scalar() {
            continue;
        }
        if let Some(token) = token_id(value.raw) {
            batch.push(token);
            continue;
        }
        batch.flush();
        if value.kind == Kind::Number {
            batch.sink.mark(mark::NUMBER);
            batch.sink.text(value.raw);
        } else {
            feed_text_or_json(&value, batch.sink);
        }
        if !value.is_cut {
            batch.sink.mark(mark::TOKENS);
        }
    }
    Ok(())
}

/// The token id that `digits` write; `None` for anything that is no integer of 32 bits in its plain form.
fn token_id(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 10 || (digits.len() > 1 && digits.first() == Some(&b'0')) {
        return None;
    }
    digits.iter().try_fold(0_u32, |token, &byte| {
        let digit = char::from(byte).to_digit(10)?;
        token.checked_mul(10)?.checked_add(digit)
    })
}

/// Gathers token ids, so that a prompt of 100 000 tokens is not 100 000 calls of four bytes.
struct TokenBatch<'s, S: PromptSink> {
    sink: &'s mut S,
    bytes: [u8; 256],
    used_bytes: usize,
}

impl<'s, S: PromptSink> TokenBatch<'s, S> {
    fn new(sink: &'s mut S) -> Self {
        Self { sink, bytes: [0; 256], used_bytes: 0 }
    }

    fn push(&mut self, token: u32) {
        if let Some(free) = self.bytes.get_mut(self.used_bytes..).and_then(<[u8]>::first_chunk_mut) {
            *free = token.to_le_bytes();
            self.used_bytes += size_of::<u32>();
        }
        if self.used_bytes == self.bytes.len() {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if let Some(bytes) = self.bytes.get(..self.used_bytes)
            && !bytes.is_empty()
        {
            self.sink.text(bytes);
        }
        self.used_bytes = 0;
    }
}

/// On whatever way the list ends, what was gathered is fed.
impl<S: PromptSink> Drop for TokenBatch<'_, S> {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn an_id_is_an_integer_of_32_bits_in_its_plain_form() {
        const CASES: &[(&[u8], Option<u32>)] = &[
            (b"0", Some(0)),
            (b"128009", Some(128_009)),
            (b"4294967295", Some(u32::MAX)),
            (b"4294967296", None),
            (b"99999999999", None),
            (b"07", None),
            (b"-1", None),
            (b"1.0", None),
            (b"1e3", None),
            (b"", None),
        ];
        for &(digits, want) in CASES {
            assert_eq!(token_id(digits), want, "{}", String::from_utf8_lossy(digits));
        }
    }
}
