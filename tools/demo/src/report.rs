//! What the demo prints: the workload before, the tables after.

use warmroute::stats::{STATS, Stat};
use warmroute_report::statistics::share;
use warmroute_report::table::Table;
use worker_sim::Timing;

use crate::drive::Answer;
use crate::run::{Outcome, Prediction, WORKERS, engine};
use crate::workload::{Planned, SYSTEM_PROMPT_COUNT, Shape, Workload};

/// What is about to be sent to whom.
pub(crate) fn header(shape: &Shape, workload: &Workload, time_scale: f64) -> String {
    let (requests, one_offs) = (workload.requests.len(), workload.one_offs());
    let sim = engine(time_scale);
    let Timing { step_base_us, prefill_us_per_token, .. } = sim.timing;
    let cache_tokens = sim.kv_blocks * sim.block_size_tokens;
    let offered_per_s = workload.prompt_tokens_mean() as f64 * requests as f64 / workload.end_s() / time_scale;
    let prefill_per_s = WORKERS as f64 * 1e6 / (prefill_us_per_token * time_scale);
    format!(
        "\
Workload  {requests} requests in {:.0} s, seed {}: {} turns of {} chats ({} open at a time) under {SYSTEM_PROMPT_COUNT} shared system
          prompts, {one_offs} one-off prompts; streamed; arrivals are random and wait for no answer
Load      {:.1} requests/s with a mean prompt of {} tokens: {:.0} k prompt tokens/s
Workers   {WORKERS} simulated engines at time scale {time_scale}: {:.1} ms a step and {:.0} us a prompt token, so all of them
          together compute at most {:.0} k prompt tokens/s; what is cached needs no computing
Caches    {:.0} k tokens in each worker, {:.0} k in all; the open chats' own histories are about {:.0} k
",
        workload.end_s() * time_scale,
        shape.seed,
        requests - one_offs,
        workload.chats,
        shape.conversations,
        requests as f64 / workload.end_s() / time_scale,
        workload.prompt_tokens_mean(),
        offered_per_s / 1e3,
        step_base_us * time_scale / 1e3,
        prefill_us_per_token * time_scale,
        prefill_per_s / 1e3,
        cache_tokens as f64 / 1e3,
        (cache_tokens * WORKERS) as f64 / 1e3,
        workload.open_tokens as f64 / 1e3,
    )
}

/// A run's workers, side by side.
pub(crate) fn workers(outcome: &Outcome) -> String {
    let mut table = Table::new(&["worker", "requests", "prompt tokens", "cache hit rate", "largest queue"]);
    for worker in &outcome.workers {
        table.row([
            worker.address.to_string(),
            worker.requests.to_string(),
            worker.prompt_tokens.to_string(),
            percent(share(worker.cached_tokens, worker.prompt_tokens)),
            worker.queue_max.to_string(),
        ]);
    }
    table.to_string()
}

/// Why the plugin chose as it did, how often.
pub(crate) fn decisions(outcome: &Outcome) -> String {
    let total = outcome.decisions.iter().map(|(_, decisions)| decisions).sum();
    let mut text = String::new();
    for (branch, decisions) in &outcome.decisions {
        let doc = STATS.get(Stat::from(*branch).index()).map_or("", |stat| stat.doc);
        let doc = doc.strip_prefix("decisions: ").unwrap_or(doc);
        text += &format!("  {:<14} {decisions:>5}  {:>7}  {doc}\n", branch.name(), percent(share(*decisions, total)));
    }
    let undecided = (outcome.requests as u64).saturating_sub(total);
    if undecided > 0 {
        text += &format!("  {:<14} {undecided:>5}           left to Envoy's fallback policy\n", "undecided");
    }
    text
}

/// What the plugin believed of the caches, and what the engines found there.
pub(crate) fn prediction(prediction: &Prediction) -> String {
    let Prediction { predicted_tokens, cached_tokens } = *prediction;
    format!(
        "Prompt tokens believed to be cached where they were sent: {predicted_tokens}; that were, by the engines' `usage`: {cached_tokens} ({} apart)\n",
        percent(share(predicted_tokens.abs_diff(cached_tokens), cached_tokens)),
    )
}

/// All runs, side by side; of the baselines also what the plugin is by comparison.
pub(crate) fn totals(policy: &str, warmroute: &Outcome, baselines: &[(&str, Outcome)]) -> String {
    let mut head = vec![String::new(), format!("warmroute, {policy}")];
    for (name, _) in baselines {
        head.extend([format!("Envoy {name}"), "warmroute is".to_owned()]);
    }
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    let mut row = |name: &str, show: &dyn Fn(&Outcome) -> String, compare: &dyn Fn(&Outcome) -> String| {
        let theirs = baselines.iter().flat_map(|(_, run)| [show(run), compare(run)]);
        table.row([name.to_owned(), show(warmroute)].into_iter().chain(theirs));
    };
    let incomparable = |_: &Outcome| String::new();
    row("requests", &|run| run.requests.to_string(), &incomparable);
    row("errors", &|run| run.errors.to_string(), &incomparable);
    row("cache hit rate", &|run| percent(run.cache_hit_rate()), &incomparable);
    row("prompt tokens computed", &|run| computed_tokens(run).to_string(), &|run| {
        ratio(computed_tokens(run) as f64, computed_tokens(warmroute) as f64, "fewer")
    });
    row("engine time spent on prompts", &|run| percent(run.prefill_share), &incomparable);
    let mut ttft_row = |name: &str, of: &dyn Fn(&Outcome) -> f64| {
        row(name, &|run| format!("{:.0} ms", of(run)), &|run| ratio(of(run), of(warmroute), "faster"));
    };
    ttft_row("TTFT mean", &|run| run.ttft_ms.mean());
    ttft_row("TTFT p50", &|run| run.ttft_ms.percentile(50.0));
    ttft_row("TTFT p90", &|run| run.ttft_ms.percentile(90.0));
    ttft_row("TTFT p99", &|run| run.ttft_ms.percentile(99.0));
    row("sent late by at most", &|run| format!("{:.0} ms", run.late_ms_max), &incomparable);
    table.to_string()
}

/// One request and the headers that explain where it went.
pub(crate) fn example(request: &Planned, answer: &Answer) -> String {
    let what = match request.turn {
        Some(turn) => format!("<turn {} of a chat, {} KB>", turn.number, request.body.len() / 1000),
        None => format!("<a one-off prompt, {} KB>", request.body.len() / 1000),
    };
    let mut text = format!("  $ curl -i $GATEWAY{} -d '{what}'\n  HTTP/1.1 200 OK\n", request.path);
    for (name, value) in answer.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-warmroute-")) {
        text += &format!("  {name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    let (usage, ttft_ms) = (answer.usage, answer.ttft.as_secs_f64() * 1e3);
    text += &format!(
        "  ... first content after {ttft_ms:.0} ms; usage: {} prompt tokens, {} of them cached\n",
        usage.prompt_tokens, usage.cached_tokens
    );
    text
}

fn computed_tokens(outcome: &Outcome) -> u64 {
    outcome.workers.iter().map(|worker| worker.prompt_tokens.saturating_sub(worker.cached_tokens)).sum()
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// "2.50x better", by which lower numbers are better.
fn ratio(baseline: f64, ours: f64, better: &str) -> String {
    if ours > 0.0 { format!("{:.2}x {better}", baseline / ours) } else { String::new() }
}
