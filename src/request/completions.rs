//! The prompt of the completions API: a text, token ids, or a list of either.

use super::json::feed_text_or_json;
use super::mark;
use super::scan::{Halt, Kind, Scanner, Value};
use crate::prefix::PromptSink;

/// Feeds the prompt. Each prompt of a list ends as a message does; the first one is the root.
///
/// A list of one prompt gives what that prompt alone gives.
pub(super) fn feed(prompt: &Value<'_>, sink: &mut impl PromptSink) {
    let mut prompts = Prompts { sink, had_root: false };
    if prompt.kind == Kind::Array {
        // What is malformed within the list ends the prompt there: the engine is going to refuse it anyway.
        let _ = prompts.feed_list(prompt);
    } else {
        prompts.feed_one(prompt);
    }
}

/// Whether a completion's `prompt` may be such a value.
pub(super) fn is_prompt(value: &Value<'_>) -> bool {
    matches!(value.kind, Kind::String | Kind::Array)
}

struct Prompts<'s, S> {
    sink: &'s mut S,
    had_root: bool,
}

impl<S: PromptSink> Prompts<'_, S> {
    fn feed_list(&mut self, prompts: &Value<'_>) -> Result<(), Halt> {
        let mut scanner = Scanner::new(prompts.raw);
        scanner.enter(b'[');
        let mut is_first = true;
        while scanner.next_item(b']')? {
            let prompt = scanner.value()?;
            // A number first: the list is one prompt, written as token ids.
            if is_first && prompt.kind == Kind::Number {
                self.feed_one(prompts);
                return Ok(());
            }
            is_first = false;
            self.feed_one(&prompt);
        }
        Ok(())
    }

    fn feed_one(&mut self, prompt: &Value<'_>) {
        let is_whole = if prompt.kind == Kind::Array {
            self.sink.mark(mark::TOKENS);
            feed_tokens(prompt, self.sink).is_ok()
        } else {
            self.sink.mark(mark::PROMPT);
            feed_text_or_json(prompt, self.sink);
            !prompt.is_cut
        };
        if !is_whole {
            return;
        }
        self.sink.end_of_message();
        if !self.had_root {
            self.had_root = true;
            self.sink.end_of_root();
        }
    }
}

/// Feeds token ids; `Ok` if the list is whole.
fn feed_tokens(tokens: &Value<'_>, sink: &mut impl PromptSink) -> Result<(), Halt> {
    let mut scanner = Scanner::new(tokens.raw);
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
    use crate::request::recorder::Recorder;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn fed(prompt: &[u8]) -> Recorder {
        let mut recorder = Recorder::default();
        feed(&Scanner::new(prompt).value().unwrap(), &mut recorder);
        recorder
    }

    #[test]
    fn each_form_of_a_prompt_is_framed_as_what_it_is() {
        const CASES: &[(&str, &[u8], &str)] = &[
            ("text", br#""a\u0062c""#, "<9>abc|!"),
            ("list of one", br#"["abc"]"#, "<9>abc|!"),
            ("list", br#"["a","","b"]"#, "<9>a|!<9>|<9>b|"),
            ("no prompt at all", b"[]", ""),
            ("token ids", b"[97, 98]", "<10>a\0\0\0b\0\0\0|!"),
            ("list of token ids", b"[[97],[98]]", "<10>a\0\0\0|!<10>b\0\0\0|"),
            ("list of one list", b"[[97, 98]]", "<10>a\0\0\0b\0\0\0|!"),
            (
                "no ids",
                b"[97,-1,1.5,4294967296,07,1e99,98]",
                "<10>a\0\0\0<11>-1<10><11>1.5<10><11>4294967296<10><11>07<10><11>1e99<10>b\0\0\0|!",
            ),
            ("other things", br#"["a",1,{"b": 2},null]"#, "<9>a|!<9><5>1|<9><5>{\"b\":2}|<9><5>null|"),
            ("other things among ids", br#"[97,"x",[1]]"#, "<10>a\0\0\0x<10><5>[1]<10>|!"),
        ];
        for &(name, prompt, want) in CASES {
            assert_eq!(fed(prompt).written(), want, "{name}");
        }
    }

    #[test]
    fn many_ids_are_fed_in_full() {
        let list: Vec<String> = (0..1_000_u32).map(|id| (id * 4_294_967).to_string()).collect();
        let want: Vec<u8> = (0..1_000_u32).flat_map(|id| (id * 4_294_967).to_le_bytes()).collect();
        assert_eq!(fed(format!("[{}]", list.join(" , ")).as_bytes()).text_bytes(), want);
        assert_eq!(token_id(b"4294967295"), Some(u32::MAX));
    }

    #[test]
    fn text_and_token_ids_of_the_same_bytes_differ() {
        assert_ne!(fed(br#""a\u0000\u0000\u0000""#), fed(b"[97]"));
    }
}
