//! Request bodies: what is read of any bytes, and of valid JSON what it means.

use warmroute::prefix::{BLOCKS_MAX, CUTS_MAX, Chain, PromptSink, seed};
use warmroute::request::{Api, InferenceRequest, parse, top_text};
use warmroute::rng::Rng;

use crate::bodies;
use crate::choices::Choices;
use crate::document::Node;

/// Members that hold a conversation; of more than one it depends on the format which one counts.
const CONVERSATION: &[&str] = &["messages", "prompt", "input", "inputs", "text", "input_ids", "token_ids", "query"];

/// Members that stand behind the conversation in a prompt, wherever they stand in the body.
const BEHIND: &[&str] = &["suffix", "images", "image_data", "video_data", "audio_data", "texts"];

/// Fed symbols for each byte of the body, at the most: an image that says that it is huge.
const SYMBOLS_PER_BYTE_MAX: usize = 40;

/// From so many bytes on, the role of a message that is cut is a guess.
const GUESS_BYTES_MIN: usize = 16_384;

/// An input as the fuzzer writes it: format (its number in [`Api::ALL`]; with the highest bit set choices follow and no
/// body), where to cut, body.
pub(crate) fn input(api: u8, cut: u16, body: &[u8]) -> Vec<u8> {
    [&[api], &cut.to_le_bytes()[..], body].concat()
}

/// Reads a body, whole and cut, and feeds its prompt.
///
/// # Panics
/// When what is fed is not bounded by the body; when a cut body feeds other than a prefix of what the whole one does;
/// when the prompt depends on spaces, escapes or the order of the top keys; when serde_json reads another model or text.
pub fn request(data: &[u8]) {
    let Some((&[choice, cut @ ..], rest)) = data.split_first_chunk::<3>() else { return };
    let Some(&api) = Api::ALL.get(usize::from(choice & 0x7f) % Api::ALL.len()) else { return };
    let generated;
    let body = if choice < 0x80 {
        rest
    } else {
        generated = bodies::body(&mut Choices::new(rest)).respell(&mut Rng::new(rest.len() as u64));
        generated.as_bytes()
    };
    let cut = usize::from(u16::from_le_bytes(cut)) % (body.len() + 1);
    let cut_body = body.get(..cut).unwrap_or_default();
    let whole = read(api, body, false);
    let part = read(api, cut_body, true);
    read(api, body, true);

    let Some(document) = Node::read(body) else { return };
    let Node::Object(members) = &document else {
        assert!(whole.is_none(), "what is no object has no prompt");
        return;
    };
    assert_eq!(
        top_text(body, b"user", false).map(|text| text.decoded().into_owned()),
        document.get("user").and_then(Node::text).map(|text| text.as_bytes().to_vec()),
        "the text at the top"
    );
    let mut rng = Rng::new(data.len() as u64 + cut as u64 * 65_536);
    let respelled = read(api, document.respell(&mut rng).as_bytes(), false);
    assert_eq!(respelled, whole, "spaces and escapes mean nothing");
    let mut rotated = members.clone();
    rotated.rotate_left(cut % members.len().max(1));
    let rotated = read(api, Node::Object(rotated).respell(&mut rng).as_bytes(), false);
    assert_eq!(rotated, whole, "the order of the top keys means nothing");
    let (Some(whole), Some(part)) = (whole, part) else { return };
    let model = document.get("model").and_then(Node::text).unwrap_or_default();
    assert_eq!(String::from_utf8_lossy(&whole.model), model, "the model");
    if cut < GUESS_BYTES_MIN && is_in_order(api, members) {
        assert!(whole.fed.symbols.starts_with(&part.fed.symbols), "cut at {cut}: {:?}", part.fed.symbols);
    }
}

/// Whether there is one conversation, and whatever stands before it in the prompt stands before it in the body.
fn is_in_order(api: Api, members: &[(String, Node)]) -> bool {
    // Of a rerank the query is the front.
    let is_behind = |key: &str| BEHIND.contains(&key) || api == Api::Rerank && key == "documents";
    let is_conversation = |key: &str| CONVERSATION.contains(&key);
    let mut keys = members.iter().map(|(key, _)| key.as_str()).filter(|key| !is_behind(key));
    let has_both = |left, right| [left, right].iter().all(|key| members.iter().any(|(known, _)| known == key));
    keys.any(is_conversation)
        && !keys.any(|key| is_conversation(key) || FRONT.contains(&key))
        && !has_both("documents", "texts")
}

/// Members that stand before the conversation in a prompt of some format: see [`InferenceRequest::feed_prompt`] on bodies
/// that are cut before those.
const FRONT: &[&str] = &[
    "tools",
    "documents",
    "chat_template",
    "chat_template_kwargs",
    "reasoning_effort",
    "reasoning",
    "think",
    "template",
    "context",
    "raw",
    "system",
    "instructions",
    "previous_response_id",
    "conversation",
    "session_params",
    "features",
    "lora_path",
    "extra_key",
    "cache_salt",
    "parameters",
];

/// What was read of a body.
#[derive(Debug, PartialEq)]
struct Read {
    model: Vec<u8>,
    salt: Option<Vec<u8>>,
    previous: Option<Vec<u8>>,
    tells_usage: bool,
    keeps_response: bool,
    fed: Recorder,
}

fn read(api: Api, body: &[u8], is_truncated: bool) -> Option<Read> {
    let request = parse(api, body, is_truncated).ok()?;
    let (model, salt) = (request.model.decoded(), request.cache_salt.map(|salt| salt.decoded()));
    if let Some(span) = request.model_span.clone() {
        assert_eq!(body.get(span.clone()), Some(request.model.raw()), "the model is where it is said to be");
        let quotes = (body.get(span.start.wrapping_sub(1)), body.get(span.end));
        assert_eq!(quotes, (Some(&b'"'), Some(&b'"')), "between its quotes");
    }
    let mut chain = Chain::new();
    chain.reset(seed(&model, salt.as_deref()));
    request.feed_prompt(&mut chain);
    assert!(chain.blocks().len() <= BLOCKS_MAX && chain.cuts().len() <= CUTS_MAX);
    assert!(chain.cuts().is_sorted_by(|left, right| left.end_bytes < right.end_bytes), "cuts are in order");
    assert!(chain.prompt_bytes() <= symbols_max(body), "fed {} of {} bytes", chain.prompt_bytes(), body.len());
    Some(Read {
        model: model.to_vec(),
        salt: salt.map(|salt| salt.to_vec()),
        previous: request.previous_response.map(|previous| previous.decoded().into_owned()),
        tells_usage: request.tells_usage,
        keeps_response: request.keeps_response,
        fed: Recorder::of(&request, body),
    })
}

const fn symbols_max(body: &[u8]) -> u64 {
    (SYMBOLS_PER_BYTE_MAX * body.len()) as u64
}

/// Keeps what it is fed, one symbol for each byte, mark and end.
#[derive(Debug, Default, PartialEq)]
struct Recorder {
    symbols: Vec<u16>,
    calls: u64,
}

impl Recorder {
    fn of(request: &InferenceRequest<'_>, body: &[u8]) -> Self {
        let mut recorder = Self::default();
        request.feed_prompt(&mut recorder);
        assert!(recorder.calls <= symbols_max(body), "{} calls for {} bytes", recorder.calls, body.len());
        // How a text is split over calls means nothing.
        Self { calls: 0, ..recorder }
    }

    fn push(&mut self, symbols: impl IntoIterator<Item = u16>) {
        self.symbols.extend(symbols);
        self.calls += 1;
    }
}

impl PromptSink for Recorder {
    fn text(&mut self, bytes: &[u8]) {
        self.push(bytes.iter().copied().map(u16::from));
    }
    fn mark(&mut self, kind: u8) {
        self.push([0x100 + u16::from(kind)]);
    }
    fn end_of_message(&mut self) {
        self.push([0x200]);
    }
    fn end_of_root(&mut self) {
        self.push([0x201]);
    }
}
