//! Text for pieces of prompts: equal ids give equal bytes.

use warmroute::rng::mix;

use crate::request::Request;

/// Bytes of text that make a token here.
pub(super) const BYTES_PER_TOKEN: usize = 4;

/// A prompt's pieces with the tokens of each.
pub(super) fn pieces(request: &Request) -> impl Iterator<Item = (u64, u32)> {
    let mut left = request.prompt_tokens;
    request.pieces.iter().map(move |piece| {
        let tokens = left.min(request.piece_tokens);
        left -= tokens;
        (*piece, tokens)
    })
}

/// Writes the text of a piece of so many tokens into `text`, instead of what is there.
pub(super) fn write(piece: u64, tokens: u32, text: &mut Vec<u8>) {
    text.clear();
    let bytes = tokens as usize * BYTES_PER_TOKEN;
    let mut state = mix(piece);
    while text.len() < bytes {
        state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        text.extend_from_slice(&state.to_le_bytes());
    }
    text.truncate(bytes);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn text(piece: u64, tokens: u32) -> Vec<u8> {
        // What was there before must not show.
        let mut text = vec![7; 100];
        write(piece, tokens, &mut text);
        text
    }

    #[test]
    fn equal_pieces_are_equal_bytes_and_others_differ_from_the_start() {
        assert_eq!(text(5, 64), text(5, 64));
        assert_eq!(text(5, 3), text(5, 64)[..12], "a shorter piece is the beginning of a longer one");
        let beginnings: HashSet<Vec<u8>> = (0..10_000).map(|piece| text(piece, 2)).collect();
        assert_eq!(beginnings.len(), 10_000);
    }

    #[test]
    fn a_piece_has_four_bytes_a_token() {
        for tokens in [0, 1, 2, 3, 63, 64, 512] {
            assert_eq!(text(1, tokens).len(), tokens as usize * BYTES_PER_TOKEN, "{tokens} tokens");
        }
    }

    #[test]
    fn the_last_piece_has_what_is_left_of_the_prompt() {
        struct Case {
            name: &'static str,
            prompt_tokens: u32,
            tokens: [u32; 3],
        }
        const CASES: &[Case] = &[
            Case { name: "three whole pieces", prompt_tokens: 192, tokens: [64, 64, 64] },
            Case { name: "an unfinished one", prompt_tokens: 130, tokens: [64, 64, 2] },
            Case { name: "more than the pieces hold is not written", prompt_tokens: 500, tokens: [64, 64, 64] },
        ];
        for case in CASES {
            let request = Request {
                arrival_s: 0.0,
                pieces: [1, 2, 3].into(),
                piece_tokens: 64,
                prompt_tokens: case.prompt_tokens,
                output_tokens: 1,
                output_pieces: [].into(),
                session: 0,
            };
            let expected: Vec<(u64, u32)> = [1, 2, 3].into_iter().zip(case.tokens).collect();
            assert_eq!(pieces(&request).collect::<Vec<_>>(), expected, "{}", case.name);
        }
    }
}
