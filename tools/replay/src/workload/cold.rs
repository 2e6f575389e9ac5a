//! Nothing is ever reused: what a policy costs where its cache knowledge is worth nothing.

use super::draw::Draw;
use super::first_arrivals;
use super::prompt::Prompt;
use crate::request::Request;

/// `count` requests at a mean rate.
#[must_use]
pub fn requests(seed: u64, requests_per_s: f64, count: usize) -> Vec<Request> {
    let mut draw = Draw::new(seed, "cold");
    let mut at_s = 0.0;
    let mut requests = Vec::with_capacity(count);
    for session in 0..count {
        at_s += draw.exponential(1.0 / requests_per_s);
        let mut prompt = Prompt::default();
        let prompt_tokens = draw.log_normal(1_000.0, 1.0).min(16_000.0);
        prompt.append(draw.content(), prompt_tokens);
        let output_tokens = draw.log_normal(150.0, 0.7).clamp(16.0, 1_024.0);
        requests.push(prompt.send(&mut draw, at_s, output_tokens, session as u64));
    }
    first_arrivals(requests, count, requests_per_s)
}
