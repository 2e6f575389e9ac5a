//! Which API a path means.

/// A request format: one API of one family of servers. Where a path means several formats (`/generate`), the body tells
/// which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI's chat completions: `POST /chat/completions`.
    ChatCompletions,
    /// OpenAI's completions: `POST /completions`.
    Completions,
    /// OpenAI's responses: `POST /responses`.
    Responses,
    /// OpenAI's embeddings: `POST /embeddings`.
    Embeddings,
    /// Anthropic's messages: `POST /v1/messages`.
    AnthropicMessages,
    /// Anthropic's count of a prompt's tokens: `POST /v1/messages/count_tokens`.
    AnthropicCountTokens,
    /// vLLM's token ids in and token ids out: `POST /inference/v1/generate`.
    VllmGenerate,
    /// `POST /generate` of SGLang, TGI and vLLM's demonstration server.
    Generate,
    /// TGI's stream: `POST /generate_stream`.
    GenerateStream,
    /// Rerank as of Cohere, Jina, vLLM and TEI: `POST /rerank`.
    Rerank,
    /// Ollama's chat: `POST /api/chat`.
    OllamaChat,
    /// Ollama's completion: `POST /api/generate`.
    OllamaGenerate,
}

impl Api {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Responses,
        Self::Embeddings,
        Self::AnthropicMessages,
        Self::AnthropicCountTokens,
        Self::VllmGenerate,
        Self::Generate,
        Self::GenerateStream,
        Self::Rerank,
        Self::OllamaChat,
        Self::OllamaGenerate,
    ];

    /// Its name in stats and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat-completions",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
            Self::AnthropicMessages => "anthropic-messages",
            Self::AnthropicCountTokens => "anthropic-count-tokens",
            Self::VllmGenerate => "vllm-generate",
            Self::Generate => "generate",
            Self::GenerateStream => "generate-stream",
            Self::Rerank => "rerank",
            Self::OllamaChat => "ollama-chat",
            Self::OllamaGenerate => "ollama-generate",
        }
    }

    /// What the paths of its requests end with. Starts with a slash.
    #[must_use]
    pub const fn path_suffix(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/chat/completions",
            Self::Completions => "/completions",
            Self::Responses => "/responses",
            Self::Embeddings => "/embeddings",
            Self::AnthropicMessages => "/v1/messages",
            Self::AnthropicCountTokens => "/v1/messages/count_tokens",
            Self::VllmGenerate => "/inference/v1/generate",
            Self::Generate => "/generate",
            Self::GenerateStream => "/generate_stream",
            Self::Rerank => "/rerank",
            Self::OllamaChat => "/api/chat",
            Self::OllamaGenerate => "/api/generate",
        }
    }

    /// Whose API it is and what of it is hashed, for documents.
    #[must_use]
    pub const fn doc(self) -> &'static str {
        match self {
            Self::ChatCompletions => "OpenAI: tools, then messages with text, images, sound, files, tool calls",
            Self::Completions => "OpenAI: a text, texts, token ids or lists of them",
            Self::Responses => {
                "OpenAI: tools, `instructions`, `input` as a text or items; `previous_response_id` leads to the worker that holds the response"
            }
            Self::Embeddings => "OpenAI: `input` as in completions, or messages",
            Self::AnthropicMessages => "Anthropic: tools, `system`, messages; never `cache_control`",
            Self::AnthropicCountTokens => "Anthropic: computes no prompt, so it is routed by load",
            Self::VllmGenerate => "vLLM: `token_ids`",
            Self::Generate => {
                "SGLang (`text`, `input_ids`, images), TGI (`inputs`), vLLM's demonstration server (`prompt`): the body tells"
            }
            Self::GenerateStream => "TGI: `inputs`",
            Self::Rerank => "Cohere, Jina, vLLM (`query`, `documents`) and TEI (`query`, `texts`)",
            Self::OllamaChat => "Ollama: tools, then messages with text and images",
            Self::OllamaGenerate => "Ollama: `system`, `prompt`, images",
        }
    }

    /// Whether a worker that serves the request computes the prompt, and so has it in its KV cache afterwards.
    #[must_use]
    pub const fn builds_cache(self) -> bool {
        !matches!(self, Self::AnthropicCountTokens)
    }

    /// The API of a request's path, which may carry a query; `None` if it is none that is routed.
    ///
    /// The path must lie below one of `base_paths` (such as `/code`, or empty for any) and end with an API's suffix, byte by
    /// byte: a trailing slash or another case is another path, as it is to the engines. Of several suffixes that fit the
    /// longest counts.
    #[must_use]
    pub fn from_path(path: &[u8], base_paths: &[String]) -> Option<Self> {
        let path = path.split(|&byte| byte == b'?').next()?;
        if !base_paths.iter().any(|base| lies_below(path, base.as_bytes())) {
            return None;
        }
        let fitting = Self::ALL.into_iter().filter(|api| path.ends_with(api.path_suffix().as_bytes()));
        fitting.max_by_key(|api| api.path_suffix().len())
    }
}

/// Whether `base` is all of `path` before one of its slashes: `/code` is a base of `/code/v1`, and not of `/codex/v1`.
fn lies_below(path: &[u8], base: &[u8]) -> bool {
    let base = base.strip_suffix(b"/").unwrap_or(base);
    path.strip_prefix(base).is_some_and(|rest| rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_path_means_the_api_of_its_longest_suffix() {
        use Api::*;
        const CASES: &[(&[u8], Option<Api>)] = &[
            (b"/v1/chat/completions", Some(ChatCompletions)),
            (b"/chat/completions", Some(ChatCompletions)),
            (b"/openai/v1/chat/completions", Some(ChatCompletions)),
            (b"/v1/completions", Some(Completions)),
            (b"/v1/completions?a=/v1/chat/completions?", Some(Completions)),
            (b"/v1/responses", Some(Responses)),
            (b"/v1/embeddings", Some(Embeddings)),
            (b"/v1/messages", Some(AnthropicMessages)),
            (b"/anthropic/v1/messages", Some(AnthropicMessages)),
            (b"/v1/messages/count_tokens", Some(AnthropicCountTokens)),
            (b"/inference/v1/generate", Some(VllmGenerate)),
            (b"/generate", Some(Generate)),
            (b"/generate_stream", Some(GenerateStream)),
            (b"/rerank", Some(Rerank)),
            (b"/v2/rerank", Some(Rerank)),
            (b"/api/chat", Some(OllamaChat)),
            (b"/api/generate", Some(OllamaGenerate)),
            (b"/my/api/generate", Some(OllamaGenerate)),
            (b"/my-api/generate", Some(Generate)),
            (b"/threads/1/messages", None),
            (b"/v1/chat/completions/", None),
            (b"/v1/Chat/completions", Some(Completions)),
            (b"/v1/chat/Completions", None),
            (b"/v1/xcompletions", None),
            (b"completions", None),
            (b"/v1/models", None),
            (b"/v1", None),
            (b"?/v1/completions", None),
            (b"/v1/completions\xff", None),
            (b"", None),
        ];
        for &(path, api) in CASES {
            assert_eq!(Api::from_path(path, &[String::new()]), api, "{}", String::from_utf8_lossy(path));
            assert_eq!(Api::from_path(path, &[]), None);
        }
    }

    #[test]
    fn a_path_must_lie_below_a_base() {
        const CASES: &[(&[u8], &str, bool)] = &[
            (b"/v1/completions", "/v1", true),
            (b"/v1/completions", "/v1/", true),
            (b"/v1/completions", "/", true),
            (b"/v1/messages", "/v1", true),
            (b"/completions", "/v1", false),
            (b"/code/v1/completions", "/v1", false),
            (b"/code/v1/completions", "/code", true),
            (b"/codex/v1/completions", "/code", false),
            (b"/v1/completions", "/v1/completions", false),
        ];
        for &(path, base, is_below) in CASES {
            let api = Api::from_path(path, &["/other".to_owned(), base.to_owned()]);
            assert_eq!(api.is_some(), is_below, "{} below {base}", String::from_utf8_lossy(path));
        }
    }

    #[test]
    fn names_and_suffixes_tell_all_apart() {
        for (index, api) in Api::ALL.into_iter().enumerate() {
            assert!(api.path_suffix().starts_with('/'), "{api:?}");
            for other in Api::ALL.into_iter().take(index) {
                assert_ne!(api.name(), other.name());
                assert_ne!(api.path_suffix(), other.path_suffix());
            }
        }
    }
}
