//! A body is read: its prompt becomes the chain that the decision speaks of, and its model the one that is forwarded.

use std::ops::Range;

use super::{Router, session_hash};
use crate::prefix::{SkipLines, seed};
use crate::request::{Api, InferenceRequest, ParseError, parse_with_or_without_prompt, top_text};
use crate::response::response_hash;
use crate::stage::{self, Stage};
use crate::worker::{AdapterHash, AskedAdapter};

/// A request's body, as far as it is there.
#[derive(Clone, Copy, Debug)]
pub struct Body<'b> {
    /// Its first bytes.
    pub bytes: &'b [u8],
    /// Whether more follows.
    pub is_truncated: bool,
    /// How long all of it is, as far as that is known; only looked at if more follows.
    pub announced_bytes: Option<u64>,
}

/// What a body says of its request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes of the prompt as it was hashed; an estimate of all of it where only a part was read. 0 where the worker does
    /// not compute the prompt.
    pub prompt_bytes: u64,
    /// Whether the worker computes a prompt that was understood, and so has it in its KV cache afterwards.
    pub builds_cache: bool,
    /// Whether all of the prompt was read.
    pub is_whole: bool,
    /// The adapter that it may be for: the one that it names, else its model's name.
    pub adapter: Option<AskedAdapter>,
    /// Hash of the session that it names.
    pub session: Option<u64>,
    /// Hash of the response that it continues.
    pub previous: Option<u64>,
    /// See [`crate::request::InferenceRequest::tells_usage`].
    pub tells_usage: bool,
    /// See [`crate::request::InferenceRequest::keeps_response`].
    pub keeps_response: bool,
    /// See [`crate::request::InferenceRequest::has_hints`].
    pub has_hints: bool,
    /// The model that it is forwarded for; `None` if the body names none, or where neither aliases nor a header for the
    /// route are configured.
    pub model: Option<Model>,
}

/// The model that a request is forwarded for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// The bytes of the body that it has to replace; `None` if they say it already.
    pub replaces: Option<Range<usize>>,
}

impl<'b> Body<'b> {
    /// A body that is all there.
    #[must_use]
    pub const fn whole(bytes: &'b [u8]) -> Self {
        Self { bytes, is_truncated: false, announced_bytes: None }
    }

    /// The first bytes of a body that has so many, if that is known.
    #[must_use]
    pub const fn cut(bytes: &'b [u8], announced_bytes: Option<u64>) -> Self {
        Self { bytes, is_truncated: true, announced_bytes }
    }
}

impl Router {
    /// Reads a body's prompt, which is then the one that [`Self::decide`] speaks of. `session` = hash of the session that
    /// is named elsewhere: it keeps its model.
    ///
    /// # Errors
    /// See [`ParseError`]: the body cannot be routed by its prompt.
    pub fn read_prompt(&mut self, api: Api, body: &Body<'_>, session: Option<u64>) -> Result<Reading, ParseError> {
        let request = parse_with_or_without_prompt(api, body.bytes, body.is_truncated)?;
        let builds_cache = api.builds_cache() && request.has_prompt();
        stage::end(Stage::Parse);
        let body_key = self.config.session.body_key.as_bytes();
        let named = if body_key.is_empty() { None } else { top_text(body.bytes, body_key, body.is_truncated) };
        let named = named.and_then(|name| session_hash(&name.decoded()));
        let model = self.forwarded_model(&request, session.or(named));
        let spoken = request.model.decoded();
        let name = model.as_ref().map_or(&*spoken, |model| model.name.as_bytes());
        let prompt_bytes = self.read_as(name, &request);
        stage::end(Stage::FeedAndHash);
        Ok(Reading {
            prompt_bytes: match builds_cache {
                false => 0,
                true if body.is_truncated => whole_prompt_bytes(prompt_bytes, body),
                true => prompt_bytes,
            },
            builds_cache,
            is_whole: !body.is_truncated,
            adapter: adapter_of(&request, name),
            session: named,
            previous: request.previous_response.and_then(|name| response_hash(&name.decoded())),
            tells_usage: request.tells_usage,
            keeps_response: request.keeps_response,
            has_hints: request.has_hints,
            model,
        })
    }

    /// Hashes the prompt as one for the model `name`; returns its bytes.
    fn read_as(&mut self, name: &[u8], request: &InferenceRequest<'_>) -> u64 {
        let salt = request.cache_salt.map(|salt| salt.decoded());
        self.chain.reset(seed(name, salt.as_deref()));
        match self.config.request.skip_lines.as_slice() {
            [] => request.feed_prompt(&mut self.chain),
            begins => request.feed_prompt(&mut SkipLines::new(begins, &mut self.chain)),
        }
        self.chain.prompt_bytes()
    }

    /// The model that a request is forwarded for, where anybody is to be told.
    fn forwarded_model(&mut self, request: &InferenceRequest<'_>, session: Option<u64>) -> Option<Model> {
        if self.config.models.is_empty() && self.config.model_header.is_empty() {
            return None;
        }
        let span = request.model_span.clone()?;
        let spoken = String::from_utf8(request.model.decoded().into_owned()).ok()?;
        let target = self.alias_target(&spoken, request, session);
        Some(match target {
            Some(name) if name != spoken => Model { name, replaces: Some(span) },
            _ => Model { name: spoken, replaces: None },
        })
    }

    /// What an alias stands for in this conversation: told by its session, else by the root of its prompt, which all its
    /// turns share.
    fn alias_target(&mut self, spoken: &str, request: &InferenceRequest<'_>, session: Option<u64>) -> Option<String> {
        let place = self.config.models.iter().position(|alias| alias.name == spoken)?;
        let is_canary = self.config.models.get(place)?.targets.len() > 1;
        let conversation = match session {
            Some(session) => session,
            None if is_canary => {
                self.read_as(spoken.as_bytes(), request);
                self.chain.root().0
            }
            None => 0,
        };
        Some(self.config.models.get(place)?.pick(conversation)?.name.clone())
    }
}

/// The adapter that a request for the model `name` may be for.
fn adapter_of(request: &InferenceRequest<'_>, name: &[u8]) -> Option<AskedAdapter> {
    let adapter = request.adapter.map(|adapter| adapter.decoded()).filter(|adapter| !adapter.is_empty());
    let model = (!name.is_empty()).then(|| AskedAdapter::Model(AdapterHash::of(name)));
    adapter.map(|adapter| AskedAdapter::Named(AdapterHash::of(&adapter))).or(model)
}

/// What was not read is taken to be as much prompt for its bytes as what was; up to a bound, for it is only announced.
fn whole_prompt_bytes(prompt_bytes: u64, body: &Body<'_>) -> u64 {
    let Some(whole) = body.announced_bytes else { return prompt_bytes };
    let parts = u128::from(prompt_bytes) * u128::from(whole) / (body.bytes.len() as u128).max(1);
    u64::try_from(parts).unwrap_or(u64::MAX).clamp(prompt_bytes, prompt_bytes.saturating_mul(UNREAD_PARTS_MAX))
}

/// A prompt that is read in part is taken to be at most so many times as long.
const UNREAD_PARTS_MAX: u64 = 8;
