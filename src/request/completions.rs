//! OpenAI's completions API: `POST …/completions`.
//!
//! The prompt is `prompt`: a text, token ids, or a list of either; then `suffix`, where text is to be put in between.
//!
//! Source: OpenAI API reference, "Create completion".

use super::content::feed_part;
use super::format::{Format, Stream};
use super::json::feed_text_or_json;
use super::mark;
use super::scan::{Halt, Kind, Scanner, Value};
use super::tokens::feed_tokens;
use crate::prefix::PromptSink;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Completions<'a> {
    prompt: Option<Value<'a>>,
    suffix: Option<Value<'a>>,
}

impl<'a> Format<'a> for Completions<'a> {
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
        match key {
            b"prompt" => Some(&mut self.prompt),
            b"suffix" => Some(&mut self.suffix),
            _ => None,
        }
    }

    fn holds_prompt(&self) -> bool {
        self.prompt.is_some_and(|prompt| is_prompt(&prompt))
    }

    fn feed(&self, _is_open: bool, sink: &mut impl PromptSink) {
        let Some(prompt) = &self.prompt else { return };
        feed_prompts(prompt, sink);
        feed_suffix(prompt, self.suffix.as_ref(), sink);
    }

    fn tells_usage(&self, stream: Stream) -> bool {
        stream.tells_usage_if_asked()
    }
}

/// Feeds what comes behind the text that is asked for, once the prompt before it is whole.
pub(super) fn feed_suffix(prompt: &Value<'_>, suffix: Option<&Value<'_>>, sink: &mut impl PromptSink) {
    if let Some(suffix) = suffix.filter(|suffix| !prompt.is_cut && !suffix.is_null() && !suffix.is_cut_scalar()) {
        sink.mark(mark::SUFFIX);
        feed_text_or_json(suffix, sink);
        if !suffix.is_cut {
            sink.end_of_message();
        }
    }
}

/// Feeds the prompt. Each prompt of a list ends as a message does; the first one is the root.
///
/// A list of one prompt gives what that prompt alone gives.
pub(super) fn feed_prompts(prompt: &Value<'_>, sink: &mut impl PromptSink) {
    let mut prompts = Prompts { sink, had_root: false };
    if prompt.kind == Kind::Array {
        // What is malformed within the list ends the prompt there: the engine is going to refuse it anyway.
        let _ = prompts.feed_list(prompt);
    } else {
        prompts.feed_one(prompt);
    }
}

/// Whether a prompt may be such a value: a text or a list.
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
        let is_whole = match prompt.kind {
            Kind::Array => feed_tokens(prompt, self.sink).is_ok(),
            // What is embedded may be a part of a content, as with Jina's embeddings of images.
            Kind::Object => {
                self.sink.mark(mark::PROMPT);
                feed_part(&mut Scanner::new(prompt.raw), 0, self.sink).is_ok()
            }
            _ => {
                self.sink.mark(mark::PROMPT);
                feed_text_or_json(prompt, self.sink);
                !prompt.is_cut
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::recorder::Recorder;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn fed(prompt: &[u8]) -> Recorder {
        let mut recorder = Recorder::default();
        feed_prompts(&Scanner::new(prompt).value().unwrap(), &mut recorder);
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
            ("other things", br#"["a",1,{"b": 2},null]"#, "<9>a|!<9><5>1|<9><18>b<19>2|<9><5>null|"),
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
    }

    #[test]
    fn text_and_token_ids_of_the_same_bytes_differ() {
        assert_ne!(fed(br#""a\u0000\u0000\u0000""#), fed(b"[97]"));
    }
}
