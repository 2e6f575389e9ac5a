//! The OpenAI wire shapes as vLLM serves them: requests in, answers, stream chunks and errors out.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::config::SimConfig;
use crate::prompt::{Prompt, PromptText, output_text, word};
use crate::responses::Response;

/// Which of the inference APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Completion,
    Responses,
}

impl Api {
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completion),
            "/v1/responses" => Some(Self::Responses),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct Request<'a> {
    model: Option<String>,
    #[serde(borrow)]
    messages: Option<Vec<Message<'a>>>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    cache_salt: Option<String>,
}

impl<'a> Request<'a> {
    fn read(body: &'a [u8]) -> Result<Self, ApiError> {
        serde_json::from_slice(body).map_err(|error| {
            let (kind, param) = if error.is_data() {
                ("invalid", "body".to_owned())
            } else {
                ("json_invalid", format!("body.{}", error.column()))
            };
            ApiError::validation(kind, &param, &error.to_string())
        })
    }
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct StreamOptions {
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage_stats: bool,
}

/// A request that the engine can take.
#[derive(Debug)]
pub(crate) struct Inference {
    pub(crate) model: String,
    /// The LoRA adapter that the model is, if it is one.
    pub(crate) adapter: Option<Arc<str>>,
    pub(crate) prompt: Prompt,
    pub(crate) max_tokens: usize,
    /// `None`: answer in one piece.
    pub(crate) stream: Option<StreamOptions>,
    /// Of the Responses API only.
    pub(crate) response: Option<Response>,
}

/// An error answer in vLLM's shape.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl ApiError {
    pub(crate) fn new(status: u16, kind: &str, param: Option<&str>, message: &str) -> Self {
        let error = json!({"message": message, "type": kind, "param": param, "code": status});
        Self { status, body: json!({ "error": error }).to_string() }
    }

    /// Rendering needs a flag of the engine.
    pub(crate) fn refused_render() -> Self {
        Self::new(403, "Forbidden", None, "Rendering needs --enable-scale-out.")
    }

    pub(crate) fn unknown_model(model: &str, config: &SimConfig) -> Self {
        let message = format!("The model `{model}` does not exist. Valid aliases: {}.", config.model);
        Self::new(404, "NotFoundError", Some("model"), &message)
    }

    /// What vLLM's validation says of one place in the body.
    pub(crate) fn validation(kind: &str, param: &str, what: &str) -> Self {
        let detail = format!("1 validation error:\n  {{'type': '{kind}', 'loc': '{param}', 'msg': '{what}'}}");
        Self::new(400, "Bad Request", Some(param), &detail)
    }
}

impl Inference {
    /// Reads a body; that of the Responses API is [`crate::responses::parse`]'s.
    ///
    /// # Errors
    /// 400 for what is no JSON, lacks its prompt, or asks for more tokens than fit; 404 for another model, if strict.
    pub(crate) fn parse(api: Api, body: &[u8], config: &SimConfig) -> Result<Self, ApiError> {
        let request = Request::read(body)?;
        let model = request.model.clone().unwrap_or_else(|| config.model.clone());
        if config.strict_model && model != config.model {
            return Err(ApiError::unknown_model(&model, config));
        }
        let text = match api {
            Api::Chat => chat_text(&request)?,
            Api::Completion | Api::Responses => completion_text(request.prompt)?,
        };
        let salt = request.cache_salt.as_deref().unwrap_or_default();
        let prompt = Prompt::new(text, config.block_size_tokens, &model, salt);
        let asked = request.max_completion_tokens.or(request.max_tokens);
        let max_tokens = asked.unwrap_or(config.default_max_tokens);
        check_length(prompt.tokens, max_tokens, config.max_request_tokens())?;
        let stream = request.stream.unwrap_or(false).then(|| request.stream_options.unwrap_or_default());
        let is_adapter = config.max_loras > 0 && model != config.model;
        let adapter = is_adapter.then(|| Arc::from(model.as_str()));
        Ok(Self { model, adapter, prompt, max_tokens, stream, response: None })
    }
}

pub(crate) fn check_length(prompt_tokens: usize, max_tokens: usize, limit_tokens: usize) -> Result<(), ApiError> {
    let refuse = |param: &str, message: &str| Err(ApiError::new(400, "BadRequestError", Some(param), message));
    if max_tokens == 0 {
        return refuse("max_tokens", "max_tokens must be at least 1, got 0.");
    }
    if prompt_tokens.saturating_add(max_tokens) > limit_tokens {
        let message = format!(
            "This model's maximum context length is {limit_tokens} tokens. However, you requested {max_tokens} output \
             tokens and your prompt contains {prompt_tokens} tokens. Please reduce the length of one of them."
        );
        return refuse("input_tokens", &message);
    }
    Ok(())
}

/// A stand-in for a chat template: tools first, each message under its role, and the role of the answer at the end.
fn chat_text(request: &Request<'_>) -> Result<PromptText, ApiError> {
    let messages = request.messages.as_ref().filter(|messages| !messages.is_empty());
    let messages = messages.ok_or_else(|| ApiError::validation("missing", "body.messages", "Field required"))?;
    let mut text = PromptText::default();
    if let Some(tools) = request.tools {
        text.push(tools.get().as_bytes());
    }
    for message in messages {
        text.push(message.role.as_bytes());
        if let Some(content) = message.content {
            push_content(&mut text, content);
        }
        if let Some(calls) = message.tool_calls {
            text.push(calls.get().as_bytes());
        }
        text.push(b"\n");
    }
    text.push(b"assistant");
    Ok(text)
}

/// A string, or a list of parts: text as text, anything else as it stands in the body.
pub(crate) fn push_content(text: &mut PromptText, content: &RawValue) {
    let raw = content.get();
    if let Ok(plain) = serde_json::from_str::<CowStr<'_>>(raw) {
        text.push(plain.0.as_bytes());
    } else if let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(raw) {
        for part in parts {
            match serde_json::from_str::<Part<'_>>(part.get()) {
                Ok(part) => text.push(part.text.as_bytes()),
                Err(_) => text.push(part.get().as_bytes()),
            }
        }
    } else if raw != "null" {
        text.push(raw.as_bytes());
    }
}

/// A string that is borrowed when it has no escapes.
#[derive(Deserialize)]
struct CowStr<'a>(#[serde(borrow)] Cow<'a, str>);

/// Text, a list of texts, token ids, or a list of those; lists are run together into one prompt.
fn completion_text(prompt: Option<&RawValue>) -> Result<PromptText, ApiError> {
    let raw = prompt.ok_or_else(|| ApiError::validation("missing", "body.prompt", "Field required"))?.get();
    let mut text = PromptText::default();
    if let Ok(plain) = serde_json::from_str::<CowStr<'_>>(raw) {
        text.push(plain.0.as_bytes());
    } else if let Ok(ids) = serde_json::from_str::<Vec<u32>>(raw) {
        ids.into_iter().for_each(|id| text.push_token_id(id));
    } else if let Ok(texts) = serde_json::from_str::<Vec<CowStr<'_>>>(raw) {
        texts.iter().for_each(|plain| text.push(plain.0.as_bytes()));
    } else if let Ok(lists) = serde_json::from_str::<Vec<Vec<u32>>>(raw) {
        lists.into_iter().flatten().for_each(|id| text.push_token_id(id));
    } else {
        let what = "Input should be a string, a list of strings or token ids";
        return Err(ApiError::validation("invalid", "body.prompt", what));
    }
    Ok(text)
}

/// What the answers to one request have in common.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) api: Api,
    /// 16 hex digits, unique in the worker.
    pub(crate) id: u64,
    pub(crate) created_s: u64,
    /// As JSON, with its quotes.
    pub(crate) model_json: String,
    pub(crate) output_seed: u64,
    pub(crate) prompt_tokens: usize,
    pub(crate) block_size_tokens: usize,
    /// Tell `prompt_tokens_details`.
    pub(crate) details: bool,
    /// Tell them also when no token was cached.
    pub(crate) zero_details: bool,
    /// Of the Responses API only.
    pub(crate) response: Option<Response>,
}

const FINGERPRINT: &str = "worker-sim";

impl Answer {
    /// The answer in one piece.
    pub(crate) fn whole(&self, generated_tokens: usize, cached_tokens: usize) -> String {
        if let Some(response) = &self.response {
            return response.whole(self, generated_tokens, cached_tokens);
        }
        let text = output_text(self.output_seed, generated_tokens);
        let details = self.prompt_details(cached_tokens).unwrap_or_else(|| "null".to_owned());
        let usage = self.usage(generated_tokens, Some(details));
        let (object, choice) = match self.api {
            Api::Chat => (
                "chat.completion",
                format!(
                    "\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\",\"refusal\":null,\"reasoning\":null}}"
                ),
            ),
            Api::Completion | Api::Responses => ("text_completion", format!("\"text\":\"{text}\"")),
        };
        format!(
            "{},\"choices\":[{{\"index\":0,{choice},\"logprobs\":null,\"finish_reason\":\"length\",\
             \"stop_reason\":null}}],\"service_tier\":null,\"system_fingerprint\":\"{FINGERPRINT}\",\
             \"usage\":{usage},\"kv_transfer_params\":null}}",
            self.open(object)
        )
    }

    /// The chunk before the first token; completions have none.
    pub(crate) fn role_chunk(&self, options: StreamOptions) -> Option<String> {
        if let Some(response) = &self.response {
            return Some(response.created(self));
        }
        (self.api == Api::Chat).then(|| {
            let choice = "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\
                          \"finish_reason\":null}";
            self.chunk(choice, options.continuous_usage_stats.then(|| self.usage(0, None)))
        })
    }

    /// The chunk of one output token, the `nth` from 1; the last one names the reason of the end.
    pub(crate) fn token_chunk(&self, nth: usize, last: bool, options: StreamOptions) -> String {
        if self.response.is_some() {
            return Response::delta(self, nth);
        }
        let bytes = word(self.output_seed, nth - 1);
        let text = String::from_utf8_lossy(&bytes);
        let delta = match self.api {
            Api::Chat => format!("\"delta\":{{\"content\":\"{text}\"}}"),
            Api::Completion | Api::Responses => format!("\"text\":\"{text}\""),
        };
        let end = if last { "\"length\",\"stop_reason\":null" } else { "null" };
        let choice = format!("{{\"index\":0,{delta},\"logprobs\":null,\"finish_reason\":{end},\"token_ids\":null}}");
        self.chunk(&choice, options.continuous_usage_stats.then(|| self.usage(nth, None)))
    }

    /// The chunk after the last token, if `include_usage` asks for it. vLLM leaves out there what is null.
    pub(crate) fn usage_chunk(&self, generated_tokens: usize, cached_tokens: usize) -> String {
        if let Some(response) = &self.response {
            return response.completed(self, generated_tokens, cached_tokens);
        }
        self.chunk("", Some(self.usage(generated_tokens, self.prompt_details(cached_tokens))))
    }

    /// What stands behind the last chunk; the Responses API has nothing there.
    pub(crate) fn done_event(&self) -> Option<String> {
        self.response.is_none().then(|| "data: [DONE]\n\n".to_owned())
    }

    fn open(&self, object: &str) -> String {
        let prefix = match self.api {
            Api::Chat => "chatcmpl",
            Api::Completion | Api::Responses => "cmpl",
        };
        let Self { id, created_s, model_json, .. } = self;
        format!(
            "{{\"id\":\"{prefix}-{id:016x}\",\"object\":\"{object}\",\"created\":{created_s},\"model\":{model_json}"
        )
    }

    fn chunk(&self, choice: &str, usage: Option<String>) -> String {
        let object = match self.api {
            Api::Chat => "chat.completion.chunk",
            Api::Completion | Api::Responses => "text_completion",
        };
        let mut event = format!("data: {},\"choices\":[{choice}]", self.open(object));
        if let Some(usage) = usage {
            let _ = write!(event, ",\"usage\":{usage}");
        }
        event.push_str("}\n\n");
        event
    }

    /// `prompt_tokens_details`; `None` if this engine does not tell.
    fn prompt_details(&self, cached_tokens: usize) -> Option<String> {
        let full = self.prompt_tokens / self.block_size_tokens * self.block_size_tokens;
        let created = full.saturating_sub(cached_tokens);
        (self.details && (self.zero_details || cached_tokens > 0))
            .then(|| format!("{{\"cached_tokens\":{cached_tokens},\"created_cache_tokens\":{created}}}"))
    }

    /// `prompt_details`: only in the final usage.
    fn usage(&self, generated_tokens: usize, prompt_details: Option<String>) -> String {
        let prompt_tokens = self.prompt_tokens;
        let total = prompt_tokens + generated_tokens;
        let details = prompt_details.map_or_else(String::new, |json| format!(",\"prompt_tokens_details\":{json}"));
        format!(
            "{{\"prompt_tokens\":{prompt_tokens},\"total_tokens\":{total},\"completion_tokens\":{generated_tokens}{details}}}"
        )
    }
}

/// `/tokenize`: the tokens of a chat (with its answer's role) or of a text.
///
/// # Errors
/// 400, as for inference.
pub(crate) fn tokenized(body: &[u8], config: &SimConfig) -> Result<String, ApiError> {
    let (tokens, max_model_len) = (token_ids(body)?, config.max_request_tokens());
    Ok(json!({ "count": tokens.len(), "max_model_len": max_model_len, "tokens": tokens, "token_strs": null })
        .to_string())
}

/// `/v1/chat/completions/render` and the like, as far as routers read the answer.
///
/// # Errors
/// 400, as for inference.
pub(crate) fn rendered(body: &[u8]) -> Result<String, ApiError> {
    Ok(json!({ "request_id": "render", "token_ids": token_ids(body)? }).to_string())
}

fn token_ids(body: &[u8]) -> Result<Vec<u32>, ApiError> {
    let request = Request::read(body)?;
    let text = if request.messages.is_some() { chat_text(&request)? } else { completion_text(request.prompt)? };
    Ok(text.token_ids().collect())
}

/// `/v1/models`.
pub(crate) fn models(config: &SimConfig, created_s: u64) -> String {
    let model = json!({
        "id": config.model, "object": "model", "created": created_s, "owned_by": "vllm", "root": config.model,
        "parent": null, "max_model_len": config.max_request_tokens(),
    });
    json!({"object": "list", "data": [model]}).to_string()
}

#[cfg(test)]
mod tests;
