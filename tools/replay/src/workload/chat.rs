//! Conversations of several turns that share a few system prompts.

use super::draw::Draw;
use super::first_arrivals;
use super::prompt::Prompt;
use crate::request::Request;

/// System prompts, the first the most frequent.
const SYSTEM_PROMPTS: usize = 12;

/// Turns of a conversation, on average.
const TURNS_MEAN: f64 = 5.0;

/// From one answer's arrival to the next question, seconds, on average.
const THINK_MEAN_S: f64 = 20.0;

/// How long before the first request the first conversation begins, seconds: most are over by then.
const LEAD_S: f64 = 600.0;

/// Share of messages that are pasted documents.
const PASTE_SHARE: f64 = 0.12;

/// `count` requests at a mean rate.
#[must_use]
pub fn requests(seed: u64, requests_per_s: f64, count: usize) -> Vec<Request> {
    let mut draw = Draw::new(seed, "chat");
    let mut requests = Vec::new();
    let mut start_s = -LEAD_S;
    let mut session = 0;
    // Conversations that begin after the last request that is kept would only be cut off.
    while start_s < count as f64 / requests_per_s * 1.5 {
        start_s += draw.exponential(TURNS_MEAN / requests_per_s);
        session += 1;
        converse(&mut draw, start_s, session, &mut requests);
    }
    first_arrivals(requests, count, requests_per_s)
}

/// One conversation, from its first message.
fn converse(draw: &mut Draw, start_s: f64, session: u64, requests: &mut Vec<Request>) {
    let mut prompt = Prompt::default();
    let system = draw.zipf(SYSTEM_PROMPTS);
    prompt.append(system as u64, system_prompt_tokens(system));
    let mut at_s = start_s;
    loop {
        let message_tokens =
            if draw.unit() < PASTE_SHARE { draw.log_uniform(2_000.0, 10_000.0) } else { draw.log_normal(130.0, 0.8) };
        prompt.append(draw.content(), message_tokens);
        let output_tokens = draw.log_normal(210.0, 0.7).clamp(32.0, 1_024.0);
        requests.push(prompt.send(draw, at_s, output_tokens, session));
        if draw.unit() < 1.0 / TURNS_MEAN {
            return;
        }
        // At 25 ms a token, the answer is read as it comes; then the person thinks.
        at_s += output_tokens * 0.025 + draw.exponential(THINK_MEAN_S);
    }
}

/// 600 to 9 000 tokens, in equal ratios, mixed so that popularity and length have nothing to do with each other.
fn system_prompt_tokens(system: usize) -> f64 {
    let step = (system * 5 + 7) % SYSTEM_PROMPTS;
    600.0 * 15_f64.powf(step as f64 / (SYSTEM_PROMPTS - 1) as f64)
}
