//! Prompts that grow part by part, as chains of piece ids.

use warmroute::rng::mix;

use super::draw::Draw;
use crate::request::Request;

/// Tokens of a piece in the generators.
pub const PIECE_TOKENS: u32 = 64;

/// A text so far. Parts have whole pieces, so that equal beginnings have equal ids.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    pieces: Vec<u64>,
}

impl Prompt {
    /// Appends the text `content` of about `tokens`; the same text after the same beginning has the same ids.
    pub fn append(&mut self, content: u64, tokens: f64) {
        for place in 0..whole_pieces(tokens) {
            let last = self.pieces.last().copied().unwrap_or_default();
            self.pieces.push(mix(last.rotate_left(17) ^ mix(content.wrapping_add(u64::from(place)))));
        }
    }

    /// Tokens so far.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        u32::try_from(self.pieces.len()).unwrap_or(u32::MAX) * PIECE_TOKENS
    }

    /// Sends it: the request, whose answer of about `output_tokens` is appended to this prompt.
    pub fn send(&mut self, draw: &mut Draw, arrival_s: f64, output_tokens: f64, session: u64) -> Request {
        let prompt_pieces = self.pieces.len();
        let prompt_tokens = self.tokens();
        self.append(draw.content(), output_tokens);
        Request {
            arrival_s,
            pieces: self.pieces[..prompt_pieces].into(),
            piece_tokens: PIECE_TOKENS,
            prompt_tokens,
            output_tokens: self.tokens() - prompt_tokens,
            output_pieces: self.pieces[prompt_pieces..].into(),
            session,
        }
    }
}

/// At least one piece.
fn whole_pieces(tokens: f64) -> u32 {
    (tokens / f64::from(PIECE_TOKENS)).round().max(1.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_next_turn_begins_with_prompt_and_answer() {
        let mut draw = Draw::new(1, "test");
        let mut prompt = Prompt::default();
        prompt.append(1, 128.0);
        let first = prompt.send(&mut draw, 0.0, 100.0, 1);
        prompt.append(2, 64.0);
        let second = prompt.send(&mut draw, 1.0, 64.0, 1);
        assert_eq!((first.prompt_tokens, first.output_tokens, second.prompt_tokens), (128, 128, 320));
        assert_eq!([&first.pieces[..], &first.output_pieces[..]].concat(), second.pieces[..4]);
    }
}
