//! What all request formats have in common: each finds its members in the body and feeds them.

use super::anthropic_messages::AnthropicMessages;
use super::api::Api;
use super::chat_completions::ChatCompletions;
use super::completions::Completions;
use super::embeddings::Embeddings;
use super::generate::Generate;
use super::ollama_chat::OllamaChat;
use super::ollama_generate::OllamaGenerate;
use super::rerank::Rerank;
use super::responses::Responses;
use super::scan::Value;
use super::text::Text;
use super::vllm_generate::VllmGenerate;
use crate::prefix::PromptSink;

/// The members of a body that one format's prompt is made of.
pub(super) trait Format<'a> {
    /// Where the member `key` of the body is kept; `None` if it says nothing of the prompt.
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>>;

    /// Whether what was found is a prompt, or its front where the body is cut.
    fn holds_prompt(&self) -> bool;

    /// Feeds the prompt as far as it was found. `is_open` = members that are missing may yet come.
    fn feed(&self, is_open: bool, sink: &mut impl PromptSink);

    /// The adapter, where the format names it in a place of its own.
    fn adapter(&self) -> Option<Text<'a>> {
        None
    }

    /// What the server remembers and the prompt goes on from.
    fn previous_response(&self) -> Option<Text<'a>> {
        None
    }

    /// Whether the answer tells how many tokens the prompt had.
    fn tells_usage(&self, stream: Stream) -> bool {
        let _ = stream;
        true
    }
}

/// What a body says of its answer's form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// It is to be a stream.
    pub(super) is_stream: bool,
    /// The stream is to tell its usage: OpenAI's `stream_options.include_usage`.
    pub(super) includes_usage: bool,
}

impl Stream {
    /// OpenAI's rule: all answers tell their usage but streams that are not asked to.
    ///
    /// Source: OpenAI API reference, "Create chat completion", `stream_options.include_usage`. vLLM's
    /// `--enable-force-include-usage` is not known here: what such streams tell unasked is not read.
    pub(super) const fn tells_usage_if_asked(self) -> bool {
        !self.is_stream || self.includes_usage
    }
}

macro_rules! formats {
    ($($format:ident: $($api:ident)|+;)+) => {
        /// The prompt of a body, by its format.
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Prompt<'a> {
            $($format($format<'a>),)+
        }

        impl Prompt<'_> {
            /// Nothing found yet.
            pub(super) fn empty(api: Api) -> Self {
                match api {
                    $($(Api::$api)|+ => Self::$format($format::default()),)+
                }
            }
        }

        impl<'a> Format<'a> for Prompt<'a> {
            fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
                match self { $(Self::$format(prompt) => prompt.member(key),)+ }
            }
            fn holds_prompt(&self) -> bool {
                match self { $(Self::$format(prompt) => prompt.holds_prompt(),)+ }
            }
            fn feed(&self, is_open: bool, sink: &mut impl PromptSink) {
                match self { $(Self::$format(prompt) => prompt.feed(is_open, sink),)+ }
            }
            fn adapter(&self) -> Option<Text<'a>> {
                match self { $(Self::$format(prompt) => prompt.adapter(),)+ }
            }
            fn previous_response(&self) -> Option<Text<'a>> {
                match self { $(Self::$format(prompt) => prompt.previous_response(),)+ }
            }
            fn tells_usage(&self, stream: Stream) -> bool {
                match self { $(Self::$format(prompt) => prompt.tells_usage(stream),)+ }
            }
        }
    };
}

formats! {
    ChatCompletions: ChatCompletions;
    Completions: Completions;
    Responses: Responses;
    Embeddings: Embeddings;
    AnthropicMessages: AnthropicMessages | AnthropicCountTokens;
    VllmGenerate: VllmGenerate;
    Generate: Generate | GenerateStream;
    Rerank: Rerank;
    OllamaChat: OllamaChat;
    OllamaGenerate: OllamaGenerate;
}
