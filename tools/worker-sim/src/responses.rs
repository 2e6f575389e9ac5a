//! OpenAI's Responses API as vLLM serves it with `VLLM_ENABLE_RESPONSES_API_STORE`: a response is kept in the process that
//! made it, and a request that continues one which this process does not have is answered 404.
//!
//! Source: vLLM `entrypoints/openai/responses/serving.py` and `protocol.py`.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::config::SimConfig;
use crate::openai::{Answer, ApiError, Inference, StreamOptions, check_length, push_content};
use crate::prompt::{Prompt, PromptText, output_text, word};

/// Responses kept, the latest; vLLM keeps all.
const KEPT_MAX: usize = 16_384;

#[derive(Deserialize)]
struct Request<'a> {
    model: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    instructions: Option<Cow<'a, str>>,
    previous_response_id: Option<String>,
    max_output_tokens: Option<usize>,
    stream: Option<bool>,
    store: Option<bool>,
    cache_salt: Option<String>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

/// The conversations that end in a response of this process, by its name.
#[derive(Debug, Default)]
pub(crate) struct ResponseStore(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    conversations: HashMap<String, PromptText>,
    by_age: VecDeque<String>,
}

impl ResponseStore {
    fn conversation(&self, name: &str) -> Option<PromptText> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).conversations.get(name).cloned()
    }

    fn keep(&self, name: String, conversation: PromptText) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.by_age.push_back(name.clone());
        kept.conversations.insert(name, conversation);
        if kept.by_age.len() > KEPT_MAX
            && let Some(oldest) = kept.by_age.pop_front()
        {
            kept.conversations.remove(&oldest);
        }
    }

    /// Another process begins without any.
    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Kept::default();
    }
}

/// What an answer of this API has besides.
#[derive(Debug)]
pub(crate) struct Response {
    previous: Option<String>,
    /// All that came before the answer.
    conversation: PromptText,
    /// Where to keep it, unless it is not to be kept.
    store: Option<Arc<ResponseStore>>,
}

/// Reads a body.
///
/// # Errors
/// 400 and 404, as [`Inference::parse`]; 404 also if this process does not have the response that is to be continued.
pub(crate) fn parse(body: &[u8], config: &SimConfig, store: &Arc<ResponseStore>) -> Result<Inference, ApiError> {
    let request: Request<'_> =
        serde_json::from_slice(body).map_err(|error| ApiError::validation("invalid", "body", &error.to_string()))?;
    let model = request.model.clone().unwrap_or_else(|| config.model.clone());
    if config.strict_model && model != config.model {
        return Err(ApiError::unknown_model(&model, config));
    }
    let mut text = PromptText::default();
    if let Some(previous) = &request.previous_response_id {
        let Some(conversation) = store.conversation(previous) else {
            let message = format!("Response with id '{previous}' not found.");
            return Err(ApiError::new(404, "invalid_request_error", Some("response_id"), &message));
        };
        text = conversation;
    }
    push_input(&mut text, &request)?;
    let conversation = text.clone();
    let prompt = Prompt::new(text, config.block_size_tokens, &model, request.cache_salt.as_deref().unwrap_or_default());
    let max_tokens = request.max_output_tokens.unwrap_or(config.default_max_tokens);
    check_length(prompt.tokens, max_tokens, config.max_request_tokens())?;
    let stream = request.stream.unwrap_or(false);
    let stream = stream.then_some(StreamOptions { include_usage: true, ..StreamOptions::default() });
    let store = request.store.unwrap_or(true).then(|| Arc::clone(store));
    let response = Response { previous: request.previous_response_id, conversation, store };
    Ok(Inference { model, adapter: None, prompt, max_tokens, stream, response: Some(response) })
}

/// Instructions, and a text or items, as [`crate::openai`] has the messages of a chat.
fn push_input(text: &mut PromptText, request: &Request<'_>) -> Result<(), ApiError> {
    let input = request.input.ok_or_else(|| ApiError::validation("missing", "body.input", "Field required"))?;
    if let Some(instructions) = &request.instructions {
        [b"system", instructions.as_bytes(), b"\n"].iter().for_each(|section| text.push(section));
    }
    match serde_json::from_str::<Vec<Item<'_>>>(input.get()) {
        Ok(items) => {
            for item in items {
                text.push(item.role.as_bytes());
                if let Some(content) = item.content {
                    push_content(text, content);
                }
                text.push(b"\n");
            }
        }
        Err(_) if input.get().starts_with('"') => {
            text.push(b"user");
            push_content(text, input);
            text.push(b"\n");
        }
        Err(error) => return Err(ApiError::validation("invalid", "body.input", &error.to_string())),
    }
    text.push(b"assistant");
    Ok(())
}

impl Response {
    /// The answer in one piece; the response is kept from now on.
    pub(crate) fn whole(&self, answer: &Answer, generated_tokens: usize, cached_tokens: usize) -> String {
        let output = output_text(answer.output_seed, generated_tokens);
        self.keep(answer, &output);
        self.object(answer, Some((&output, generated_tokens, cached_tokens))).to_string()
    }

    /// The event before the first token.
    pub(crate) fn created(&self, answer: &Answer) -> String {
        event(json!({ "response": self.object(answer, None), "sequence_number": 0, "type": "response.created" }))
    }

    /// The event of one output token, the `nth` from 1.
    pub(crate) fn delta(answer: &Answer, nth: usize) -> String {
        let bytes = word(answer.output_seed, nth - 1);
        event(json!({
            "content_index": 0, "delta": String::from_utf8_lossy(&bytes), "item_id": "msg_1", "logprobs": [],
            "output_index": 0, "sequence_number": nth, "type": "response.output_text.delta",
        }))
    }

    /// The event after the last token; the response is kept from now on.
    pub(crate) fn completed(&self, answer: &Answer, generated_tokens: usize, cached_tokens: usize) -> String {
        let output = output_text(answer.output_seed, generated_tokens);
        self.keep(answer, &output);
        let response = self.object(answer, Some((&output, generated_tokens, cached_tokens)));
        event(json!({ "response": response, "sequence_number": generated_tokens + 1, "type": "response.completed" }))
    }

    fn keep(&self, answer: &Answer, output: &str) {
        if let Some(store) = &self.store {
            let mut conversation = self.conversation.clone();
            conversation.push(output.as_bytes());
            conversation.push(b"\n");
            store.keep(name(answer), conversation);
        }
    }

    /// `done`: the output, and how many tokens were generated and cached.
    fn object(&self, answer: &Answer, done: Option<(&str, usize, usize)>) -> Value {
        let usage = done.map(|(_, generated_tokens, cached_tokens)| {
            let cached = if answer.details { cached_tokens } else { 0 };
            json!({
                "input_tokens": answer.prompt_tokens, "input_tokens_details": { "cached_tokens": cached },
                "output_tokens": generated_tokens, "output_tokens_details": { "reasoning_tokens": 0 },
                "total_tokens": answer.prompt_tokens + generated_tokens,
            })
        });
        let output: Vec<Value> = done
            .iter()
            .map(|(text, ..)| {
                let content = json!([{ "annotations": [], "text": text, "type": "output_text", "logprobs": null }]);
                json!({ "id": "msg_1", "content": content, "role": "assistant", "status": "completed", "type": "message" })
            })
            .collect();
        let model: Value = serde_json::from_str(&answer.model_json).unwrap_or_default();
        json!({
            "id": name(answer), "created_at": answer.created_s, "metadata": null, "model": model, "object": "response",
            "output": output, "previous_response_id": self.previous, "usage": usage,
            "status": if done.is_some() { "completed" } else { "in_progress" },
        })
    }
}

fn name(answer: &Answer) -> String {
    format!("resp_{:032x}", answer.id)
}

fn event(event: Value) -> String {
    let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
    format!("event: {kind}\ndata: {event}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(body: &Value, store: &Arc<ResponseStore>) -> Result<Inference, ApiError> {
        parse(body.to_string().as_bytes(), &SimConfig::default(), store)
    }

    fn answer(inference: Inference, id: u64) -> Answer {
        Answer {
            api: crate::openai::Api::Responses,
            id,
            created_s: 1,
            model_json: "\"sim\"".to_owned(),
            output_seed: inference.prompt.output_seed,
            prompt_tokens: inference.prompt.tokens,
            block_size_tokens: 16,
            details: true,
            zero_details: true,
            response: inference.response,
        }
    }

    #[test]
    fn a_follow_up_has_the_whole_conversation_as_its_prompt() {
        let store = Arc::default();
        let first = tokens(&json!({ "input": "aaaabbbb", "instructions": "be" }), &store).unwrap();
        // system 2, be 1, end 1; user 1, text 2, end 1; the role of the answer 3.
        assert_eq!(first.prompt.tokens, 11);
        let answer = answer(first, 7);
        let text: Value = serde_json::from_str(&answer.whole(2, 0)).unwrap();
        let previous = text["id"].as_str().unwrap();
        assert_eq!(previous, format!("resp_{:032x}", 7));
        assert_eq!(text["usage"]["input_tokens"], 11);
        let next = json!({ "input": [{ "role": "user", "content": "cccc" }], "previous_response_id": previous });
        // The answer 2 and its end 1; user 1, text 1, end 1; the role 3.
        assert_eq!(tokens(&next, &store).unwrap().prompt.tokens, 11 + 9);
        store.clear();
        assert_eq!(tokens(&next, &store).unwrap_err().status, 404);
    }

    #[test]
    fn what_is_not_to_be_kept_and_what_has_no_input_is_refused() {
        let store = Arc::default();
        let answer = answer(tokens(&json!({ "input": "a", "store": false }), &store).unwrap(), 7);
        answer.whole(1, 0);
        let next = json!({ "input": "a", "previous_response_id": format!("resp_{:032x}", 7) });
        assert_eq!(tokens(&next, &store).unwrap_err().status, 404);
        assert_eq!(tokens(&json!({}), &store).unwrap_err().status, 400);
        assert_eq!(tokens(&json!({ "input": 7 }), &store).unwrap_err().status, 400);
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        let store = ResponseStore::default();
        (0..=KEPT_MAX).for_each(|number| store.keep(number.to_string(), PromptText::default()));
        assert!(store.conversation("0").is_none() && store.conversation("1").is_some());
    }
}
