//! Agents: one long context, and bursts of requests that all begin with it.

use super::draw::Draw;
use super::first_arrivals;
use super::prompt::Prompt;
use crate::request::Request;

/// Descriptions of tools that a task begins with.
const PREAMBLES: u32 = 5;

/// Requests of a task, on average: five rounds of a planner and seven and a half siblings.
const REQUESTS_PER_TASK: f64 = 5.0 * 8.5;

/// How long before the first request the first task begins, seconds: longer than almost any takes.
const LEAD_S: f64 = 150.0;

/// `count` requests at a mean rate.
#[must_use]
pub fn requests(seed: u64, requests_per_s: f64, count: usize) -> Vec<Request> {
    let mut draw = Draw::new(seed, "agent");
    let mut requests = Vec::new();
    let mut start_s = -LEAD_S;
    let mut session = 0;
    // Tasks that begin after the last request that is kept would only be cut off.
    while start_s < count as f64 / requests_per_s * 1.5 {
        start_s += draw.exponential(REQUESTS_PER_TASK / requests_per_s);
        session += 1;
        work(&mut draw, start_s, session, &mut requests);
    }
    first_arrivals(requests, count, requests_per_s)
}

/// One task: a planner reads the context, its siblings work on parts at the same time, and their results are added.
fn work(draw: &mut Draw, start_s: f64, session: u64, requests: &mut Vec<Request>) {
    let mut context = Prompt::default();
    let preamble = draw.count(1, PREAMBLES);
    context.append(u64::from(preamble), 1_024.0 * f64::from(preamble));
    let context_tokens = draw.log_uniform(2_000.0, 32_000.0);
    context.append(draw.content(), context_tokens);
    let mut at_s = start_s;
    for _round in 0..draw.count(3, 7) {
        let plan_tokens = draw.log_normal(160.0, 0.4).clamp(64.0, 640.0);
        requests.push(context.send(draw, at_s, plan_tokens, session));
        // The siblings wait for the plan, which takes about 30 ms a token and two seconds before that.
        at_s += 2.0 + plan_tokens * 0.030;
        let siblings = draw.count(3, 12);
        let mut longest_s = 0.0_f64;
        for _sibling in 0..siblings {
            let mut part = context.clone();
            let task_tokens = draw.log_normal(200.0, 0.7).min(2_000.0);
            part.append(draw.content(), task_tokens);
            let output_tokens = draw.log_normal(80.0, 0.6).clamp(32.0, 512.0);
            let sent_s = at_s + draw.between(0.0, 0.3);
            requests.push(part.send(draw, sent_s, output_tokens, session));
            longest_s = longest_s.max(output_tokens * 0.030);
        }
        context.append(draw.content(), f64::from(siblings) * 128.0);
        at_s += 2.0 + longest_s + draw.exponential(3.0);
    }
}
