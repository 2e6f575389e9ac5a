//! The other request formats that engines serve: each path answers at once with a small object of its own shape.
//!
//! No engine stands behind them: nothing waits, and nothing is cached. They are there for whoever wants to see that a
//! request of that format arrives whole and that its answer comes back.
//!
//! Sources of the shapes: the OpenAI API reference (embeddings), Anthropic's (messages, count_tokens), Cohere's and
//! Jina's (rerank), text-embeddings-inference's and text-generation-inference's OpenAPI documents, SGLang's native API,
//! vLLM's disaggregated `/inference/v1/generate`, and Ollama's `docs/api.md`.

use serde_json::{Value, json};

use crate::openai::ApiError;

/// A format that is answered here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Embeddings,
    Messages,
    CountTokens,
    TokensIn,
    Generate,
    GenerateStream,
    Rerank,
    OllamaChat,
    OllamaGenerate,
}

/// An answer: what it is, and its text.
pub(crate) struct Told {
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";
const LINES: &str = "application/x-ndjson";

impl Format {
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/embeddings" => Self::Embeddings,
            "/v1/messages" => Self::Messages,
            "/v1/messages/count_tokens" => Self::CountTokens,
            "/inference/v1/generate" => Self::TokensIn,
            "/generate" => Self::Generate,
            "/generate_stream" => Self::GenerateStream,
            "/rerank" | "/v1/rerank" | "/v2/rerank" => Self::Rerank,
            "/api/chat" => Self::OllamaChat,
            "/api/generate" => Self::OllamaGenerate,
            _ => return None,
        })
    }

    /// The answer to `body`.
    ///
    /// # Errors
    /// 400 where the body is no JSON object.
    pub(crate) fn answer(self, body: &[u8]) -> Result<Told, ApiError> {
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        if !request.is_object() {
            return Err(ApiError::new(400, "BadRequestError", None, "The body is no JSON object."));
        }
        let wants_stream = request["stream"].as_bool();
        // Four bytes of the body are one token, as a prompt's are.
        let prompt_tokens = body.len().div_ceil(4);
        Ok(match self {
            Self::Messages if wants_stream == Some(true) => message_events(&request["model"], prompt_tokens),
            Self::OllamaChat | Self::OllamaGenerate => {
                let answer = self.ollama(&request["model"], prompt_tokens);
                // Ollama streams unless told not to.
                if wants_stream == Some(false) { told(JSON, answer) } else { told_lines(answer) }
            }
            Self::GenerateStream => told_event(text_generation(prompt_tokens)),
            Self::Generate if request.get("inputs").is_some() => told(JSON, text_generation(prompt_tokens)),
            Self::Generate if wants_stream == Some(true) => told_event(sglang(prompt_tokens)),
            Self::Generate if request.get("prompt").is_some() => told(JSON, json!({ "text": [TEXT] })),
            Self::Generate => told(JSON, sglang(prompt_tokens)),
            Self::Rerank if request.get("texts").is_some() => told(JSON, json!([{ "index": 0, "score": 0.5 }])),
            _ => told(JSON, self.object(&request["model"], prompt_tokens)),
        })
    }

    fn object(self, model: &Value, prompt_tokens: usize) -> Value {
        match self {
            Self::Embeddings => json!({
                "object": "list", "model": model, "data": [{ "object": "embedding", "index": 0, "embedding": [0.5, -0.5] }],
                "usage": { "prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens },
            }),
            Self::CountTokens => json!({ "input_tokens": prompt_tokens }),
            Self::TokensIn => json!({
                "request_id": "generate-1", "choices": [{ "index": 0, "token_ids": [1, 2], "finish_reason": "length" }],
            }),
            Self::Rerank => json!({
                "id": "rerank-1", "model": model, "results": [{ "index": 0, "relevance_score": 0.5 }],
                "usage": { "total_tokens": prompt_tokens },
            }),
            _ => message(model, prompt_tokens),
        }
    }

    fn ollama(self, model: &Value, prompt_tokens: usize) -> Value {
        let (key, text) = match self {
            Self::OllamaChat => ("message", json!({ "role": "assistant", "content": TEXT })),
            _ => ("response", json!(TEXT)),
        };
        json!({
            "model": model, "created_at": "2026-01-01T00:00:00Z", key: text, "done": true, "done_reason": "length",
            "prompt_eval_count": prompt_tokens, "eval_count": 2,
        })
    }
}

fn told(content_type: &'static str, answer: Value) -> Told {
    Told { content_type, body: answer.to_string() }
}

fn told_event(answer: Value) -> Told {
    Told { content_type: EVENTS, body: format!("data:{answer}\n\n") }
}

fn told_lines(answer: Value) -> Told {
    Told { content_type: LINES, body: format!("{answer}\n") }
}

fn message(model: &Value, prompt_tokens: usize) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "stop_reason": "max_tokens",
        "content": [{ "type": "text", "text": TEXT }], "usage": { "input_tokens": prompt_tokens, "output_tokens": 2 },
    })
}

fn message_events(model: &Value, prompt_tokens: usize) -> Told {
    let events = [
        json!({ "type": "message_start", "message": message(model, prompt_tokens) }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": TEXT } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "max_tokens" }, "usage": { "output_tokens": 2 } }),
        json!({ "type": "message_stop" }),
    ];
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    Told { content_type: EVENTS, body: events.iter().map(event).collect() }
}

fn text_generation(prompt_tokens: usize) -> Value {
    json!({
        "token": { "id": 1, "text": TEXT, "logprob": -0.5, "special": false }, "generated_text": TEXT,
        "details": { "finish_reason": "length", "generated_tokens": 2, "input_length": prompt_tokens },
    })
}

fn sglang(prompt_tokens: usize) -> Value {
    json!({
        "text": TEXT,
        "meta_info": { "id": "1", "prompt_tokens": prompt_tokens, "completion_tokens": 2, "cached_tokens": 0,
            "finish_reason": { "type": "length", "length": 2 } },
    })
}

const TEXT: &str = " foo bar";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_answers_in_its_own_shape() {
        struct Case {
            path: &'static str,
            body: &'static str,
            content_type: &'static str,
            holds: &'static str,
        }
        let case = |path, body, content_type, holds| Case { path, body, content_type, holds };
        let cases = [
            case("/v1/embeddings", r#"{"input":"a"}"#, JSON, r#""object":"embedding""#),
            case("/v1/messages", r#"{"messages":[]}"#, JSON, r#""input_tokens":4"#),
            case("/v1/messages", r#"{"messages":[],"stream":true}"#, EVENTS, "event: message_stop\n"),
            case("/v1/messages/count_tokens", r#"{"messages":[]}"#, JSON, r#"{"input_tokens":4}"#),
            case("/inference/v1/generate", r#"{"token_ids":[1]}"#, JSON, r#""token_ids":[1,2]"#),
            case("/generate", r#"{"text":"a"}"#, JSON, "meta_info"),
            case("/generate", r#"{"text":"a","stream":true}"#, EVENTS, "meta_info"),
            case("/generate", r#"{"inputs":"a"}"#, JSON, "generated_text"),
            case("/generate", r#"{"prompt":"a"}"#, JSON, r#"{"text":["#),
            case("/generate_stream", r#"{"inputs":"a"}"#, EVENTS, "generated_text"),
            case("/v2/rerank", r#"{"query":"a","documents":["b"]}"#, JSON, "relevance_score"),
            case("/rerank", r#"{"query":"a","texts":["b"]}"#, JSON, r#"[{"index":0,"score":0.5}]"#),
            case("/api/chat", r#"{"messages":[]}"#, LINES, r#""role":"assistant""#),
            case("/api/generate", r#"{"prompt":"a","stream":false}"#, JSON, r#""response":"#),
        ];
        for Case { path, body, content_type, holds } in cases {
            let told = Format::of_path(path).map(|format| format.answer(body.as_bytes()));
            let Some(Ok(told)) = told else { panic!("{path} {body} is refused") };
            assert_eq!(told.content_type, content_type, "{path} {body}");
            assert!(told.body.contains(holds), "{path} {body}: {}", told.body);
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in ["", "[]", "{", "\u{1f}"] {
            let refusal = Format::Generate.answer(body.as_bytes()).err().map(|refusal| refusal.status);
            assert_eq!(refusal, Some(400), "{body:?}");
        }
    }
}
