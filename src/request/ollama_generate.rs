//! Ollama's completion: `POST /api/generate`.
//!
//! The prompt: the template and how much to think, the tokens of the conversation so far (`context`), `system` as a system
//! message, `prompt` as a user's with its images, and `suffix`; the server puts `prompt` into a chat template. With `raw` it
//! does not, and `prompt` is fed as a completion's.
//!
//! Source: ollama/ollama, `docs/api.md`, "Generate a completion".

use super::completions::{feed_prompts, feed_suffix};
use super::content::feed_media_list;
use super::format::Format;
use super::json::feed_text_or_json;
use super::mark;
use super::media::Media;
use super::message::feed_message_of;
use super::preamble::Preamble;
use super::scan::{Kind, Value};
use super::tokens::feed_tokens;
use crate::prefix::PromptSink;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OllamaGenerate<'a> {
    preamble: Preamble<'a>,
    context: Option<Value<'a>>,
    raw: Option<Value<'a>>,
    system: Option<Value<'a>>,
    prompt: Option<Value<'a>>,
    images: Option<Value<'a>>,
    suffix: Option<Value<'a>>,
}

impl<'a> Format<'a> for OllamaGenerate<'a> {
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
        Some(match key {
            b"prompt" => &mut self.prompt,
            b"system" => &mut self.system,
            b"suffix" => &mut self.suffix,
            b"images" => &mut self.images,
            b"context" => &mut self.context,
            b"raw" => &mut self.raw,
            b"template" => &mut self.preamble.chat_template,
            b"think" => &mut self.preamble.reasoning_effort,
            _ => return None,
        })
    }

    fn holds_prompt(&self) -> bool {
        self.prompt.is_some_and(|prompt| prompt.kind == Kind::String)
    }

    fn feed(&self, is_open: bool, sink: &mut impl PromptSink) {
        let Some(prompt) = self.prompt.filter(|_| self.preamble.feed(false, sink)) else { return };
        if let Some(context) = self.context.filter(|context| context.kind == Kind::Array)
            && feed_tokens(&context, sink).is_err()
        {
            return;
        }
        if let Some(system) = &self.system
            && !feed_message_of(b"system", system, sink)
        {
            return;
        }
        if self.raw.is_some_and(|raw| raw.raw == b"true") {
            feed_prompts(&prompt, sink);
            feed_suffix(&prompt, self.suffix.as_ref(), sink);
        } else {
            self.feed_as_chat(&prompt, is_open, sink);
        }
    }
}

impl OllamaGenerate<'_> {
    fn feed_as_chat(&self, prompt: &Value<'_>, is_open: bool, sink: &mut impl PromptSink) {
        sink.mark(mark::ROLE);
        sink.text(b"user");
        sink.mark(mark::CONTENT);
        feed_text_or_json(prompt, sink);
        if prompt.is_cut {
            return;
        }
        match self.images {
            None if is_open => return,
            Some(images) if images.kind == Kind::Array => {
                feed_media_list(Media::Image, &images, sink);
                if images.is_cut {
                    return;
                }
            }
            _ => {}
        }
        sink.end_of_message();
        sink.end_of_root();
        feed_suffix(prompt, self.suffix.as_ref(), sink);
    }
}
