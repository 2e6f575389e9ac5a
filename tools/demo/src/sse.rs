//! Reads a streamed answer: server-sent events, as far as the demo wants to know them.

use serde::Deserialize;

/// What one event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Text of the answer, not empty.
    Content,
    /// The counts at the end.
    Usage(Usage),
    /// The end mark.
    Done,
}

/// How long the prompt was, as the engine counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// All tokens of the prompt.
    pub(crate) prompt_tokens: u64,
    /// Those of them that were found in the prefix cache.
    pub(crate) cached_tokens: u64,
}

/// Puts events together from pieces that may end anywhere.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    partial: Vec<u8>,
}

impl EventReader {
    /// The events that `piece` completes. What is no event of an answer (comments, the role) is skipped.
    pub(crate) fn read(&mut self, piece: &[u8]) -> Vec<Event> {
        self.partial.extend_from_slice(piece);
        let Some(end) = self.partial.iter().rposition(|&byte| byte == b'\n') else { return Vec::new() };
        let rest = self.partial.split_off(end + 1);
        let complete = std::mem::replace(&mut self.partial, rest);
        complete.split(|&byte| byte == b'\n').filter_map(|line| read_event(line.strip_prefix(b"data: ")?)).collect()
    }
}

#[derive(Deserialize)]
struct Chunk {
    choices: Vec<Choice>,
    usage: Option<ChunkUsage>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
    #[serde(default)]
    text: String,
}

#[derive(Default, Deserialize)]
struct Delta {
    #[serde(default)]
    content: String,
}

#[derive(Deserialize)]
struct ChunkUsage {
    prompt_tokens: u64,
    prompt_tokens_details: Option<PromptTokensDetails>,
}

#[derive(Deserialize)]
struct PromptTokensDetails {
    cached_tokens: u64,
}

fn read_event(data: &[u8]) -> Option<Event> {
    if data == b"[DONE]" {
        return Some(Event::Done);
    }
    let chunk: Chunk = serde_json::from_slice(data).ok()?;
    if let Some(ChunkUsage { prompt_tokens, prompt_tokens_details }) = chunk.usage {
        let cached_tokens = prompt_tokens_details.map_or(0, |details| details.cached_tokens);
        return Some(Event::Usage(Usage { prompt_tokens, cached_tokens }));
    }
    let has_text = chunk.choices.iter().any(|choice| !(choice.text.is_empty() && choice.delta.content.is_empty()));
    has_text.then_some(Event::Content)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = concat!(
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\" hi\"}}]}\n\n",
        ": a comment\n\n",
        "data: {\"choices\":[{\"text\":\" hi\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n",
        "data: [DONE]\n\n",
    );

    #[test]
    fn the_role_is_no_content_and_pieces_may_end_anywhere() {
        let usage = Event::Usage(Usage { prompt_tokens: 9, cached_tokens: 4 });
        let want = [Event::Content, Event::Content, usage, Event::Done];
        for piece_bytes in 1..=ANSWER.len() {
            let mut reader = EventReader::default();
            let got: Vec<Event> = ANSWER.as_bytes().chunks(piece_bytes).flat_map(|piece| reader.read(piece)).collect();
            assert_eq!(got, want, "pieces of {piece_bytes}");
        }
    }
}
