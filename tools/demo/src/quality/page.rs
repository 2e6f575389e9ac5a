//! The page `docs/routing-quality-http.md` and its plot, written from the rows.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use warmroute_report::number::trimmed;
use warmroute_report::plot::grid;
use warmroute_report::plot::panel::{Emphasis, Panel, Series};
use warmroute_report::plot::scale::Scale;

use super::WORKLOADS;
use super::row::Row;
use super::tables::{Group, groups, of_workload};
use crate::run::WORKERS;

const PAGE: &str = "routing-quality-http.md";
const PLOT: &str = "routing-quality-http/ttft-hit-rate.svg";
/// What the page is about.
const OURS: &str = "warmroute hybrid";

/// Writes both into `folder` and returns the page's path.
///
/// # Errors
/// When there is no row of [`OURS`] for a workload, or a file cannot be written.
pub(crate) fn write(folder: &Path, rows: &[Row], date: &str) -> Result<PathBuf> {
    let (page, plot) = (folder.join(PAGE), folder.join(PLOT));
    let title = title(rows)?;
    fs::create_dir_all(plot.parent().unwrap_or(folder))?;
    fs::write(&plot, draw(&title, rows)).with_context(|| format!("writing {}", plot.display()))?;
    fs::write(&page, text(&title, rows, date)).with_context(|| format!("writing {}", page.display()))?;
    Ok(page)
}

fn text(title: &str, rows: &[Row], date: &str) -> String {
    let mut seeds: Vec<u64> = rows.iter().map(|row| row.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let late_ms = rows.iter().map(|row| row.late_max_ms).fold(0.0, f64::max);
    let mut page = format!(
        "\
# How well it routes, over HTTP

<!-- Written by `make quality PEERS=1 DOCS=1`; changes belong into tools/demo/src/quality/page.rs. -->

**{title}**

Measured {date}, seeds {}: real routers, real HTTP on one machine, {WORKERS} simulated engines (tools/worker-sim, constants of an 8B model on
an H100, 96 k tokens of cache each), fresh for every run. The same requests at the same times go through every path; none waits for an
answer. Ratios are to Envoy's round robin of the same seed, below 1 is better: their geometric mean over the seeds, the least and the
greatest in brackets. Everything else is a mean over the seeds. TTFT is the time to the first byte of content.

![{title}]({PLOT})
",
        seeds.join(", "),
    );
    for (workload, what) in WORKLOADS.iter().zip(WHAT) {
        page += &format!("\n## {workload}\n\n{what}\n\n{}", of_workload(rows, workload).markdown());
    }
    page += &format!(
        "\n{CAVEATS}* The machine was not idle: the latest request was sent {late_ms:.0} ms after its time. Where the last column has hundreds of
  milliseconds or more, the machine stood still in one of the runs, and what the row says of times is the machine's.\n\n{COMMAND}"
    );
    page
}

/// The sentence that says what came out, from the numbers.
fn title(rows: &[Row]) -> Result<String> {
    let mut parts = Vec::new();
    for workload in WORKLOADS {
        let groups = groups(rows, workload);
        let ttft = |group: &Group<'_>| group.mean(|row| row.ttft_mean_ms);
        let ours = groups.iter().find(|group| group.name == OURS).with_context(|| format!("{workload}: no {OURS}"))?;
        // With the session's header it is ours as well.
        let best = groups.iter().find(|group| !group.name.starts_with(OURS));
        let best = best.with_context(|| format!("{workload}: nothing to compare with"))?;
        ensure!(ttft(ours) > 0.0, "{workload}: nothing was answered");
        parts.push(format!("{:.2} times on {workload} ({})", ttft(best) / ttft(ours), best.name));
    }
    Ok(format!("The best other path's mean TTFT by warmroute hybrid's: {}", parts.join(", ")))
}

fn draw(title: &str, rows: &[Row]) -> String {
    let all: Vec<Vec<Group<'_>>> = WORKLOADS.iter().map(|workload| groups(rows, workload)).collect();
    let panels: Vec<Panel<'_>> = WORKLOADS.iter().zip(&all).map(|(workload, groups)| panel(workload, groups)).collect();
    grid(title, "A dot is a path. Mean TTFT, ms (lower is better), against prompt tokens found in the cache.", &panels)
}

fn panel<'a>(workload: &str, groups: &'a [Group<'a>]) -> Panel<'a> {
    let point = |group: &Group<'_>| (group.mean(|row| row.token_hit_rate), group.mean(|row| row.ttft_mean_ms));
    let series = groups.iter().map(|group| Series {
        name: &group.name,
        emphasis: match group.name.as_str() {
            OURS => Emphasis::Ours,
            name if name.starts_with("envoy") => Emphasis::Rival,
            _ => Emphasis::Muted,
        },
        points: vec![point(group)],
    });
    Panel {
        title: workload.to_owned(),
        series: series.collect(),
        x: Scale::share(groups.iter().map(|group| point(group).0)),
        y: Scale::log(groups.iter().map(|group| point(group).1)),
        x_name: "token hit rate",
        y_name: "mean TTFT, ms",
        x_text: trimmed,
    }
}

const WHAT: [&str; 2] = [
    "The demo's workload: chats of 6 to 16 turns under five shared system prompts of 500 to 2000 tokens, 72 open at a time; a third of\n\
     the messages are pasted texts; every eighth request is a one-off prompt that nothing shares.",
    "24 tasks of tool-using agents at a time, of three kinds, each kind with 4 to 6 thousand tokens of tool definitions and system prompt.\n\
     6 to 12 short turns grow a prompt by tool results of 50 to 2000 tokens; after every fifth turn 3 to 6 sub-agents begin with the\n\
     whole prompt within 0.2 s and take 2 to 4 turns of their own. With the session header a task and its sub-agents are one session.",
];

const CAVEATS: &str = "\
## What it cannot tell

* The engines are simulated, and router, engines and client share one machine's cores: a router that costs more CPU is charged for it in
  its times, by a share that depends on the machine. The order and the ratios say something, the milliseconds do not.
* The chats are the demo's, which was looked at while `hybrid` was made, with sizes such that one worker's cache does not hold all of them.
  The agents' sizes were set before anything was measured and have not been changed since.
* Every router runs with its own defaults (sglang-router 0.3.2, vllm-router 0.1.17, Envoy with 2 threads). Their thresholds (64 requests
  of difference before load counts) are for larger loads than this; lower ones may serve them better. Their modes that
  read the engines' KV events, and Dynamo and llm-d, are not here.
* vllm-router's `cache_aware` asks every engine for the tokens of every prompt, at `/v1/chat/completions/render`. vLLM 0.32 answers there
  if started with `--enable-scale-out`, else 403; then the router does without tokens, and counts `missing_tokens`. Both are here, the
  former as `+ render`. What rendering costs a real engine is not in it.
* `consistent_hash` is meant for clients that name their sessions, the row with `x-session-id`. Without, all chat requests had the
  same key here and went to one worker.
* A run is short and begins with cold caches: learning is in the figures. Few seeds; one gateway; no failures.
";

const COMMAND: &str = "\
## Command

`make quality` measures Envoy and warmroute, in about three minutes; `PEERS=1` adds the others and `SEEDS=2` a second seed, eight minutes a
seed; `DOCS=1` writes this page. `target/quality/summary.json` has a row for each run.
";
