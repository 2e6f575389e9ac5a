//! One prefix that most requests share, beside ordinary chat.

use super::draw::Draw;
use super::prompt::Prompt;
use super::{chat, first_arrivals};
use crate::request::Request;

/// Share of requests that begin with the hot prefix.
const HOT_SHARE: f64 = 0.6;

/// Tokens of the hot prefix.
const HOT_TOKENS: f64 = 8_192.0;

/// The content number of the hot prefix; far from the small ones of chat's system prompts.
const HOT_CONTENT: u64 = 1 << 40;

/// `count` requests at a mean rate.
#[must_use]
pub fn requests(seed: u64, requests_per_s: f64, count: usize) -> Vec<Request> {
    let mut draw = Draw::new(seed, "hot");
    let hot_count = (count as f64 * HOT_SHARE) as usize;
    let mut requests = chat::requests(seed, requests_per_s * (1.0 - HOT_SHARE), count - hot_count);
    let mut at_s = 0.0;
    for place in 0..hot_count {
        at_s += draw.exponential(1.0 / (requests_per_s * HOT_SHARE));
        let mut prompt = Prompt::default();
        prompt.append(HOT_CONTENT, HOT_TOKENS);
        let question_tokens = draw.log_normal(200.0, 0.8).min(4_000.0);
        prompt.append(draw.content(), question_tokens);
        let output_tokens = draw.log_normal(190.0, 0.6).clamp(32.0, 1_024.0);
        // Sessions of chat count from 1.
        requests.push(prompt.send(&mut draw, at_s, output_tokens, HOT_CONTENT + place as u64));
    }
    first_arrivals(requests, count, requests_per_s)
}
