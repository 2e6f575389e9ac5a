//! Where in an answer a number stands, in the formats of all engines, and which it is.
//!
//! The places do not collide, so the reader need not be told which API was asked:
//!
//! | place | format | source |
//! |---|---|---|
//! | `usage` | OpenAI chat completions, completions, embeddings, rerank; vLLM `/inference/v1/generate` where it tells | OpenAI API reference, "The chat completion object", "Embeddings" |
//! | `usage`, in streams `response.usage` | OpenAI Responses | OpenAI API reference, "The response object", event `response.completed`; vLLM `entrypoints/openai/responses/protocol.py`, `ResponseUsage` |
//! | `usage`, in streams also `message.usage` | Anthropic messages | Anthropic API reference, "Messages", "Streaming messages": `message_start`, and in `message_delta` cumulative; vLLM `entrypoints/anthropic/serving.py` and pull request 40912 |
//! | `meta_info` | SGLang `/generate` | SGLang `managers/tokenizer_manager.py`, `_handle_batch_output` |
//! | `details` | TGI `/generate`, `/generate_stream` | TGI `router/src/lib.rs`, `Details`, `StreamDetails` |
//! | outermost | Ollama `/api/chat`, `/api/generate`, `/api/embed` | Ollama `api/types.go`, `Metrics` |
//! | outermost, `timings` | llama.cpp, beside `usage` or alone | llama.cpp `tools/server/README.md`, "Response format" |
//!
//! Of TGI only streams tell how long the prompt is, and answers to `decoder_input_details`, which list its tokens. Of
//! llama.cpp, `tokens_cached` is left alone: releases differ in whether it counts what was reused or all that is in the
//! slot in the end.

use super::counts::Count;

/// The object whose members are being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Level {
    #[default]
    Outermost,
    /// The answer within an event: `response` or `message`.
    Wrapper,
    Usage,
    /// `prompt_tokens_details` or `input_tokens_details`.
    TokenDetails,
    MetaInfo,
    Details,
    Timings,
}

/// What a member is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Field {
    #[default]
    Other,
    /// An object to read, if it is one.
    Object(Level),
    /// A number.
    Count(Count),
    /// The prompt's tokens, one by one.
    Prefill,
    /// Which prompt of several an event is of.
    Index,
    /// The answer's name.
    Id,
}

/// What lines of a stream say something by, as far as the first one shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    /// OpenAI's and Anthropic's events.
    Usage,
    /// Ollama's lines.
    EvalCount,
}

/// The longest key that is looked for: `cache_creation_input_tokens`.
const KEY_BYTES_MAX: usize = 27;

impl Level {
    /// The member of this object that is named `key`.
    pub(super) fn field(self, key: &[u8]) -> Field {
        if key.len() > KEY_BYTES_MAX {
            return Field::Other;
        }
        match (self, key) {
            (Self::Outermost | Self::Wrapper, b"usage") => Field::Object(Self::Usage),
            (Self::Outermost | Self::Wrapper, b"id") => Field::Id,
            (Self::Outermost, b"response" | b"message") => Field::Object(Self::Wrapper),
            (Self::Outermost, b"meta_info") => Field::Object(Self::MetaInfo),
            (Self::Outermost, b"details") => Field::Object(Self::Details),
            (Self::Outermost, b"timings") => Field::Object(Self::Timings),
            (Self::Outermost, b"index") => Field::Index,
            (Self::Outermost, b"prompt_eval_count" | b"tokens_evaluated") => Field::Count(Count::Prompt),
            (Self::Outermost, b"eval_count" | b"tokens_predicted") => Field::Count(Count::Completion),
            (Self::Usage | Self::MetaInfo, b"prompt_tokens") => Field::Count(Count::Prompt),
            (Self::Usage | Self::MetaInfo, b"completion_tokens") => Field::Count(Count::Completion),
            (Self::Usage, b"input_tokens") => Field::Count(Count::Input),
            (Self::Usage, b"output_tokens") => Field::Count(Count::Completion),
            (Self::Usage, b"total_tokens") => Field::Count(Count::Total),
            (Self::Usage, b"cache_read_input_tokens") => Field::Count(Count::CacheRead),
            (Self::Usage, b"cache_creation_input_tokens") => Field::Count(Count::CacheCreation),
            (Self::Usage, b"prompt_tokens_details" | b"input_tokens_details") => Field::Object(Self::TokenDetails),
            (Self::TokenDetails | Self::MetaInfo, b"cached_tokens") => Field::Count(Count::Cached),
            (Self::Details, b"generated_tokens") => Field::Count(Count::Completion),
            (Self::Details, b"input_length") => Field::Count(Count::Prompt),
            (Self::Details, b"prefill") => Field::Prefill,
            (Self::Timings, b"prompt_n") => Field::Count(Count::Computed),
            (Self::Timings, b"cache_n") => Field::Count(Count::Reused),
            (Self::Timings, b"predicted_n") => Field::Count(Count::Completion),
            _ => Field::Other,
        }
    }

    /// What the member `key` of a stream's first line shows of all its lines.
    pub(super) fn marker(self, key: &[u8]) -> Option<Marker> {
        match (self, key) {
            (Self::Outermost, b"choices" | b"type") => Some(Marker::Usage),
            (Self::Outermost, b"done") => Some(Marker::EvalCount),
            _ => None,
        }
    }
}
