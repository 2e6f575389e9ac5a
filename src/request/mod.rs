//! What of a request's body is needed to route it: a body becomes an [`InferenceRequest`].
//!
//! The body is hostile input and may be cut short, for only its first bytes are read. It is scanned, not parsed: values
//! are found where they stand, and nothing is allocated or copied.

mod chat_completions;
mod completions;
mod cookie;
mod error;
mod json;
mod mark;
mod scan;
mod text;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod recorder;

pub use cookie::cookie_value;
pub use error::ParseError;
pub use text::Text;

use crate::prefix::PromptSink;
use scan::{Halt, Kind, Scanner, Value};

/// Which API a path means. Source: OpenAI API reference, "Create chat completion" and "Create completion".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `POST /chat/completions`.
    ChatCompletions,
    /// `POST /completions`.
    Completions,
}

impl Api {
    /// The API of a request's path, which may carry a query; `None` if it is none that is routed.
    ///
    /// The path must be one of `path_prefixes` (such as `/v1`, or empty) followed by the API's own path, byte by byte: a
    /// trailing slash or another case is another path, as it is to the engines.
    #[must_use]
    pub fn from_path(path: &[u8], path_prefixes: &[String]) -> Option<Self> {
        let path = path.split(|&byte| byte == b'?').next()?;
        path_prefixes.iter().find_map(|prefix| match path.strip_prefix(prefix.as_bytes())? {
            b"/chat/completions" => Some(Self::ChatCompletions),
            b"/completions" => Some(Self::Completions),
            _ => None,
        })
    }
}

/// What of a body is needed to route it. Borrows the body.
#[derive(Clone, Debug)]
pub struct InferenceRequest<'a> {
    /// The model, or the adapter that the engine serves under a model's name. Empty if the body names none, or is cut
    /// before the name's end.
    pub model: Text<'a>,
    /// Where in the body the model's name stands, as written and without its quotes.
    pub model_span: Option<std::ops::Range<usize>>,
    /// What keeps cached prefixes of different tenants apart. Source: vLLM, `cache_salt` of the chat completions API.
    pub cache_salt: Option<Text<'a>>,
    /// Whether the answer tells its `usage`: all do but streams for which the client does not ask for it. True where the
    /// body is cut before that is known.
    ///
    /// Source: OpenAI API reference, "Create chat completion", `stream_options.include_usage`. vLLM's
    /// `--enable-force-include-usage` is not known here: what such streams tell unasked is not read.
    pub tells_usage: bool,
    /// Whether only the body's first bytes were there to be read.
    pub is_truncated: bool,
    prompt: Prompt<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Prompt<'a> {
    Chat { tools: Option<Value<'a>>, messages: Option<Value<'a>> },
    Completion(Value<'a>),
}

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
    let mut scanner = Scanner::new(body);
    if !scanner.enter(b'{') {
        return Err(if scanner.peek().is_none() { ParseError::Empty } else { ParseError::NotAnObject });
    }
    let mut members = Members::default();
    loop {
        match scanner.member() {
            Ok(Some((key, value))) => members.take(key, value),
            Ok(None) if scanner.peek().is_some() => return Err(ParseError::Malformed { offset: scanner.offset() }),
            Ok(None) => break,
            Err(Halt::End { .. }) if is_truncated => break,
            Err(halt) => return Err(halt.into()),
        }
    }
    let prompt = members.prompt(api).ok_or(ParseError::NoPrompt)?;
    Ok(InferenceRequest {
        model: members.model.and_then(|model| model.whole_text()).unwrap_or_default(),
        model_span: members.model.and_then(|model| model.whole_text()).and_then(|name| span_in(body, name.raw())),
        cache_salt: members.cache_salt.and_then(|salt| salt.whole_text()),
        tells_usage: is_truncated || members.tells_usage(),
        is_truncated,
        prompt,
    })
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
    /// Feeds the prompt to `sink`, in the order in which the engine's chat template sees it.
    ///
    /// A truncated body feeds a prefix of what the whole one would, without an end for the message that is cut. Three
    /// exceptions: tools that stand behind the messages in the body and were not reached are missing, a key that is
    /// written twice counts as far as it was seen, and a role that stands behind a long content that is cut is a guess.
    pub fn feed_prompt(&self, sink: &mut impl PromptSink) {
        match &self.prompt {
            Prompt::Chat { tools, messages } => chat_completions::feed(tools.as_ref(), messages.as_ref(), sink),
            Prompt::Completion(prompt) => completions::feed(prompt, sink),
        }
    }
}

/// The members of a body that matter, as far as they were seen.
#[derive(Default)]
struct Members<'a> {
    model: Option<Value<'a>>,
    cache_salt: Option<Value<'a>>,
    stream: Option<Value<'a>>,
    stream_options: Option<Value<'a>>,
    messages: Option<Value<'a>>,
    tools: Option<Value<'a>>,
    prompt: Option<Value<'a>>,
}

impl<'a> Members<'a> {
    fn take(&mut self, key: Text<'a>, value: Value<'a>) {
        let member = if key.is(b"model") {
            &mut self.model
        } else if key.is(b"messages") {
            &mut self.messages
        } else if key.is(b"prompt") {
            &mut self.prompt
        } else if key.is(b"tools") {
            &mut self.tools
        } else if key.is(b"stream") {
            &mut self.stream
        } else if key.is(b"stream_options") {
            &mut self.stream_options
        } else if key.is(b"cache_salt") {
            &mut self.cache_salt
        } else {
            return;
        };
        *member = Some(value);
    }

    fn tells_usage(&self) -> bool {
        let is_stream = self.stream.is_some_and(|stream| stream.raw == b"true");
        !is_stream || self.stream_options.is_some_and(|options| is_true(options.raw, b"include_usage"))
    }

    fn prompt(&self, api: Api) -> Option<Prompt<'a>> {
        match api {
            Api::ChatCompletions => {
                let messages = self.messages.filter(|messages| messages.kind == Kind::Array);
                // Tools so long that the body is cut before its messages still are the front of the prompt.
                let is_cut_in_tools = self.messages.is_none() && self.tools.is_some_and(|tools| tools.is_cut);
                (messages.is_some() || is_cut_in_tools).then_some(Prompt::Chat { tools: self.tools, messages })
            }
            Api::Completions => self.prompt.filter(completions::is_prompt).map(Prompt::Completion),
        }
    }
}

#[cfg(test)]
mod tests;

/// Where `part`, which borrows `body`, stands in it.
fn span_in(body: &[u8], part: &[u8]) -> Option<std::ops::Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    Some(start..start.checked_add(part.len())?)
}
