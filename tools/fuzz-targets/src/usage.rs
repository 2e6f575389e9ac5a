//! Answers: what is read of their `usage` and name, however they are cut, and whatever the model was made to say.

use warmroute::response::{Usage, UsageReader};
use warmroute::rng::Rng;

use crate::document::Node;

/// An input as the fuzzer writes it: how to cut, the answer.
pub(crate) fn input(cuts: u8, answer: &[u8]) -> Vec<u8> {
    [&[cuts], answer].concat()
}

/// Reads an answer, and answers that quote it.
///
/// # Panics
/// When it depends on how the answer is cut into pieces; when a text in an answer is taken for its usage or name; when
/// serde_json reads other numbers.
pub fn usage(data: &[u8]) {
    let Some((&cuts, answer)) = data.split_first() else { return };
    let whole = read([answer]);
    assert_eq!(read(answer.chunks(usize::from(cuts % 16) + 1)), whole, "pieces of one length");
    assert_eq!(read(pieces(answer, cuts)), whole, "pieces of any length");
    if let Some(want) = Node::read(answer).as_ref().and_then(told) {
        assert_eq!(whole.0, want, "serde_json reads it so");
    }
    quoted_text_is_no_usage(answer, cuts);
}

/// The usage, and the hash of the response's name.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Option<Usage>, Option<u64>) {
    let mut reader = UsageReader::default();
    pieces.into_iter().for_each(|piece| reader.feed(piece));
    (reader.usage(), reader.response())
}

/// Pieces of up to 40 bytes, empty ones among them.
fn pieces(answer: &[u8], seed: u8) -> Vec<&[u8]> {
    let (mut rng, mut rest, mut pieces) = (Rng::new(seed.into()), answer, Vec::new());
    while !rest.is_empty() {
        let bytes = rng.below(41) as usize;
        let (piece, behind) = rest.split_at_checked(bytes).unwrap_or((rest, &[]));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// What an answer of the chat completions API tells; `None` if it is none for sure.
fn told(answer: &Node) -> Option<Option<Usage>> {
    const MEMBERS: &[&str] = &["id", "object", "created", "model", "choices", "usage"];
    const COUNTS: &[&str] = &["prompt_tokens", "completion_tokens", "prompt_tokens_details"];
    let has_only = |node: &Node, known: &[&str]| node.members().iter().all(|(key, _)| known.contains(&key.as_str()));
    let usage = answer.get("usage").filter(|usage| matches!(usage, Node::Object(_)))?;
    let details = usage.get("prompt_tokens_details");
    let has_only_cached = details.is_none_or(|details| has_only(details, &["cached_tokens"]));
    if !has_only(answer, MEMBERS) || !has_only(usage, COUNTS) || !has_only_cached {
        return None;
    }
    Some(Some(Usage {
        prompt_tokens: usage.get("prompt_tokens").and_then(Node::u32),
        completion_tokens: usage.get("completion_tokens").and_then(Node::u32),
        cached_tokens: details.and_then(|details| details.get("cached_tokens")).and_then(Node::u32),
    }))
}

/// The model says just what is in `answer`: that is text, and steers nothing.
fn quoted_text_is_no_usage(answer: &[u8], cuts: u8) {
    let text = Node::Text(String::from_utf8_lossy(answer).into_owned()).respell(&mut Rng::new(cuts.into()));
    // One line, as an event's data is.
    let text = text.trim();
    let said = format!(r#"{{"id":"x","choices":[{{"message":{{"content":{text}}},"delta":{{"content":{text}}}}}]}}"#);
    assert_eq!(read([said.as_bytes()]), (None, None), "in an answer");
    let event = format!("data: {said}\n\n");
    assert_eq!(read(pieces(event.as_bytes(), cuts)), (None, None), "in an event");
    let counts = r#""usage":{"prompt_tokens":7,"completion_tokens":2}"#;
    let want = Usage { prompt_tokens: Some(7), completion_tokens: Some(2), cached_tokens: None };
    let told = format!(r#"{{"choices":[{{"message":{{"content":{text}}}}}],{counts},"x":{text}}}"#);
    assert_eq!(read(pieces(told.as_bytes(), cuts)), (Some(want), None), "between texts");
    let stream = format!("{event}data: {{\"choices\":[],{counts}}}\n\ndata: [DONE]\n\n{event}");
    assert_eq!(read(pieces(stream.as_bytes(), cuts)), (Some(want), None), "beside a true one");
}
