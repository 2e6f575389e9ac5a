//! What of a request's body is needed to route it: a body becomes an [`InferenceRequest`].
//!
//! The body is hostile input and may be cut short, for only its first bytes are read. It is scanned, not parsed: values
//! are found where they stand, and nothing is allocated or copied.

mod anthropic_messages;
mod api;
mod chat_completions;
mod completions;
mod content;
mod cookie;
mod embeddings;
mod error;
mod format;
mod generate;
mod headers;
mod image_size;
mod json;
mod mark;
mod media;
mod message;
mod ollama_chat;
mod ollama_generate;
mod preamble;
mod rerank;
mod responses;
mod scan;
mod sglang_generate;
mod shape;
mod text;
mod tgi_generate;
mod tokens;
mod tools;
mod vllm_generate;
mod within;

#[cfg(test)]
mod equal_prompts;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod recorder;
#[cfg(test)]
mod respell;
#[cfg(test)]
mod samples;

pub use api::Api;
pub use cookie::cookie_value;
pub use error::ParseError;
pub use headers::Headers;
#[cfg(test)]
pub(crate) use headers::tests::serialized;
pub use text::Text;
pub use within::{HintKeys, each_member, wipe_hints};

use std::ops::Range;

use crate::prefix::PromptSink;
use format::{Format, Prompt, Stream};
use json::feed_text_or_json;
use scan::{Halt, Kind, Scanner, Value};
use text::SHORT_BYTES_MAX;

/// What of a body is needed to route it. Borrows the body.
#[derive(Clone, Debug)]
pub struct InferenceRequest<'a> {
    /// The model, or the adapter that the engine serves under a model's name. Empty if the body names none, or is cut
    /// before the name's end.
    pub model: Text<'a>,
    /// Where the model's name stands in the body, in bytes from its start: what another name may be put in place of. The
    /// quotes are not part of it.
    pub model_span: Option<Range<usize>>,
    /// The adapter, where it is named apart from the model: SGLang's `lora_path`, TGI's `parameters.adapter_id`. If it is
    /// not, the model's name may be one.
    pub adapter: Option<Text<'a>>,
    /// What keeps cached prefixes of different tenants apart: `cache_salt` (vLLM, SGLang), else SGLang's `extra_key`.
    pub cache_salt: Option<Text<'a>>,
    /// The response that the prompt goes on from, which only the server that gave it may know: `previous_response_id` of
    /// the responses API.
    pub previous_response: Option<Text<'a>>,
    /// Whether the answer tells its `usage`: all do but streams of some formats for which the client does not ask for it.
    /// True where the body is cut before that is known.
    pub tells_usage: bool,
    /// Whether the server is to keep its response, as that of the responses API: all are kept but those with `"store": false`.
    /// True where the body is cut before that is known.
    pub keeps_response: bool,
    /// Whether it has a member [`EXTENSION_KEY`] or one of the [`ENGINE_KEYS`], whole or cut.
    pub has_hints: bool,
    /// Whether only the body's first bytes were there to be read.
    pub is_truncated: bool,
    /// The object's end was not seen: members may yet come.
    is_open: bool,
    /// What keeps caches apart besides.
    more_salt: Option<Value<'a>>,
    /// SGLang takes a list of adapters for a batch.
    adapter_batch: Option<Value<'a>>,
    prompt: Prompt<'a>,
}

/// The member at the top of a body in which NVIDIA Dynamo's clients say more, of its worker too.
pub const EXTENSION_KEY: &[u8] = b"nvext";

/// The members at the top of a body by which routers tell an engine to which of its ranks a request goes, and from where its
/// KV cache comes: SGLang's, and vLLM's last.
///
/// Source: SGLang, `python/sglang/srt/managers/io_struct.py` (`GenerateReqInput`) and `entrypoints/openai/protocol.py`, where
/// `data_parallel_rank` is the older name of `routed_dp_rank`; vLLM, `vllm/entrypoints/openai/*/protocol.py`.
pub const ENGINE_KEYS: &[&[u8]] = &[
    b"routed_dp_rank",
    b"data_parallel_rank",
    b"disagg_prefill_dp_rank",
    b"bootstrap_host",
    b"bootstrap_port",
    b"bootstrap_room",
    b"bootstrap_pair_key",
    b"kv_transfer_params",
];

/// Finds in `body` what is needed to route it.
///
/// `is_truncated` = more of the body follows that is not there to be read: a value that runs off its end is then cut and
/// no error. Keys may be escaped; of a key that is written twice the last value counts, as in the engines. What is
/// malformed only deep within a value may pass.
///
/// # Errors
///
/// See [`ParseError`].
pub fn parse(api: Api, body: &[u8], is_truncated: bool) -> Result<InferenceRequest<'_>, ParseError> {
    let request = parse_with_or_without_prompt(api, body, is_truncated)?;
    if request.has_prompt() { Ok(request) } else { Err(ParseError::NoPrompt) }
}

/// As [`parse`], and takes an object without a prompt too: its model, session and previous response still matter.
///
/// # Errors
///
/// See [`ParseError`], but for [`ParseError::NoPrompt`].
pub fn parse_with_or_without_prompt(
    api: Api,
    body: &[u8],
    is_truncated: bool,
) -> Result<InferenceRequest<'_>, ParseError> {
    let mut scanner = Scanner::new(body);
    if !scanner.enter(b'{') {
        return Err(if scanner.peek().is_none() { ParseError::Empty } else { ParseError::NotAnObject });
    }
    let mut members = Members::new(api);
    let has_end = loop {
        match scanner.member() {
            Ok(Some((key, value))) => members.take(key, value, scanner.offset()),
            Ok(None) if scanner.peek().is_some() => return Err(ParseError::Malformed { offset: scanner.offset() }),
            Ok(None) => break true,
            Err(Halt::End { .. }) if is_truncated => break false,
            Err(halt) => return Err(halt.into()),
        }
    };
    Ok(members.request(api, is_truncated, !has_end))
}

/// The text of the member `key` at the top of `body`; `None` if there is none, it is no string, or it is cut off.
#[must_use]
pub fn top_text<'a>(body: &'a [u8], key: &[u8], is_truncated: bool) -> Option<Text<'a>> {
    let mut scanner = Scanner::new(body);
    if !scanner.enter(b'{') {
        return None;
    }
    let mut found = None;
    loop {
        match scanner.member() {
            Ok(Some((name, value))) if name.is(key) => found = value.whole_text(),
            Ok(Some(_)) => {}
            Err(Halt::End { .. }) if is_truncated => return found,
            Err(_) => return None,
            Ok(None) => return found,
        }
    }
}

/// Whether the last member `key` of the object in `raw` is `true`.
fn is_true(raw: &[u8], key: &[u8]) -> bool {
    let mut scanner = Scanner::new(raw);
    let mut is_true = false;
    if scanner.enter(b'{') {
        while let Ok(Some((name, value))) = scanner.member() {
            if name.is(key) {
                is_true = value.raw == b"true";
            }
        }
    }
    is_true
}

impl InferenceRequest<'_> {
    /// Whether the body holds a prompt that is understood; what it holds may be fed in any case.
    #[must_use]
    pub fn has_prompt(&self) -> bool {
        self.prompt.holds_prompt()
    }

    /// Feeds the prompt to `sink`, in the order in which the engine's chat template sees it.
    ///
    /// A truncated body feeds a prefix of what the whole one would, without an end for the message that is cut. Four
    /// exceptions: what is fed before the messages (tools, a system prompt, an adapter) but stands behind them in the body
    /// and was not reached is missing, a key that is written twice counts as far as it was seen, and a role that stands
    /// behind a long content that is cut is a guess, as is that a long text of which the part's type was not reached is one.
    pub fn feed_prompt(&self, sink: &mut impl PromptSink) {
        match (&self.adapter_batch, self.adapter) {
            (Some(adapters), _) => feed_apart(mark::ADAPTER, adapters, sink),
            (None, Some(adapter)) => {
                sink.mark(mark::ADAPTER);
                adapter.decode(|chunk| sink.text(chunk));
            }
            (None, None) => {}
        }
        if let Some(salt) = &self.more_salt {
            feed_apart(mark::SALT, salt, sink);
        }
        self.prompt.feed(self.is_open, sink);
    }
}

/// Feeds what parts whole prompts, behind its mark.
fn feed_apart(kind: u8, value: &Value<'_>, sink: &mut impl PromptSink) {
    sink.mark(kind);
    feed_text_or_json(value, sink);
}

/// The members of a body that matter, as far as they were seen.
struct Members<'a> {
    model: Option<Value<'a>>,
    model_end: usize,
    cache_salt: Option<Value<'a>>,
    extra_key: Option<Value<'a>>,
    lora_path: Option<Value<'a>>,
    stream: Option<Value<'a>>,
    stream_options: Option<Value<'a>>,
    store: Option<Value<'a>>,
    has_hints: bool,
    prompt: Prompt<'a>,
}

impl<'a> Members<'a> {
    fn new(api: Api) -> Self {
        Self {
            model: None,
            model_end: 0,
            cache_salt: None,
            extra_key: None,
            lora_path: None,
            stream: None,
            stream_options: None,
            store: None,
            has_hints: false,
            prompt: Prompt::empty(api),
        }
    }

    /// Takes a member whose value ends at `end`, in bytes from the start of the body.
    fn take(&mut self, key: Text<'a>, value: Value<'a>, end: usize) {
        let mut buffer = [0; SHORT_BYTES_MAX];
        let member = match key.short(&mut buffer) {
            b"model" => {
                self.model_end = end;
                &mut self.model
            }
            b"stream" => &mut self.stream,
            b"stream_options" => &mut self.stream_options,
            b"store" => &mut self.store,
            b"cache_salt" => &mut self.cache_salt,
            b"extra_key" => &mut self.extra_key,
            b"lora_path" => &mut self.lora_path,
            key => match self.prompt.member(key) {
                Some(member) => member,
                None => {
                    self.has_hints |= key == EXTENSION_KEY || ENGINE_KEYS.contains(&key);
                    return;
                }
            },
        };
        *member = Some(value);
    }

    /// What was found, if it is a request.
    fn request(self, api: Api, is_truncated: bool, is_open: bool) -> InferenceRequest<'a> {
        let text_of = |value: Option<Value<'a>>| value.and_then(|value| value.whole_text());
        let model = text_of(self.model);
        let model_span = model.and_then(|model| {
            let end = self.model_end.checked_sub(1)?;
            Some(end.checked_sub(model.raw().len())?..end)
        });
        let is_said = |value: &Value<'a>| !value.is_cut && matches!(value.kind, Kind::String | Kind::Array);
        let (salt, key) = (self.cache_salt.filter(is_said), self.extra_key.filter(is_said));
        let salt_text = text_of(salt);
        let more_salt =
            if salt_text.is_some() { key } else { salt.or_else(|| key.filter(|key| key.kind == Kind::Array)) };
        let adapters = self.lora_path.filter(is_said);
        let stream = Stream {
            is_stream: api == Api::GenerateStream || self.stream.is_some_and(|stream| stream.raw == b"true"),
            includes_usage: self.stream_options.is_some_and(|options| is_true(options.raw, b"include_usage")),
        };
        InferenceRequest {
            model: model.unwrap_or_default(),
            model_span,
            adapter: text_of(adapters).or_else(|| self.prompt.adapter()),
            cache_salt: salt_text.or_else(|| text_of(key)),
            previous_response: self.prompt.previous_response(),
            tells_usage: is_truncated || self.prompt.tells_usage(stream),
            keeps_response: self.store.is_none_or(|store| store.raw != b"false"),
            has_hints: self.has_hints,
            is_truncated,
            is_open,
            more_salt,
            adapter_batch: adapters.filter(|adapters| adapters.kind == Kind::Array),
            prompt: self.prompt,
        }
    }
}

#[cfg(test)]
mod tests;
