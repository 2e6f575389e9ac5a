//! The page about routing quality: everything in it that a run can change is made from the run's rows.

use std::fmt::Write as _;

use warmroute_report::plot::Plot;
use warmroute_report::statistics::geometric_mean;
use warmroute_report::table::Table;

use crate::contestant::STUDY;
use crate::oracle::ORACLES;
use crate::peer::PEERS;
use crate::report::marks::{Mark, Target, marks};
use crate::report::plot::nearest_peer;
use crate::report::row::Row;
use crate::report::select::{BATCHING, Cell, HELD_OUT, OURS, SERIAL, WORKLOADS, cells};
use crate::report::table::{cell_table, distance_table, rows_table};

/// The folder of the plots, beside the page.
pub const PLOT_FOLDER: &str = "routing-quality";

/// Writes the page, in Markdown.
#[must_use]
pub fn page(rows: &[Row], plots: &[Plot]) -> String {
    let marks = marks(rows);
    let mut page = String::from("# How well it routes\n\n");
    page += "<!-- Written by `make replay FULL=1`; changes belong into tools/replay/src/report/page.rs. -->\n\n";
    page += &answer(rows, &marks);
    page += &marks_section(&marks);
    page += &plots_section(plots);
    page += "## Distance from every policy\n\n";
    page += "Ratios over all workloads and loads with one gateway; above 1 is worse than `hybrid`. Means are geometric.\n\n";
    page += &distance_table(rows).markdown();
    page += "\n";
    page += &held_out(rows);
    page += &set_up(rows);
    page += &policies_section();
    page += &tables_section(rows);
    page + REGENERATE
}

/// The short answer.
fn answer(rows: &[Row], marks: &[Mark]) -> String {
    let met = marks.iter().filter(|mark| mark.is_met() == Some(true)).count();
    let missed = marks.iter().filter(|mark| mark.is_met() == Some(false)).count();
    let unknown = marks.len() - met - missed;
    let unknown = if unknown == 0 { String::new() } else { format!(", {unknown} not run") };
    let seeds = seeds(rows);
    format!(
        "**{}** (geometric mean over workloads and loads, one gateway). Of {} marks that were set for it, {met} are \
         reached, {missed} missed{unknown}.\n\nThis is a simulation of engines{seeds}; nothing here was measured on a GPU. Seconds are the \
         models'; only their order and ratios say something. What else it cannot tell is [below](#what-it-cannot-tell).\n\n",
        nearest_peer(rows),
        marks.len(),
    )
}

/// How near the nearest peer comes where nothing was chosen.
fn held_out(rows: &[Row]) -> String {
    let its = |policy: &str, workload: &str| {
        rows.iter()
            .find(|row| row.model == HELD_OUT && row.policy == policy && row.workload == workload)
            .map(|row| row.ttft_mean_s)
    };
    let ratio = |policy: &str| {
        geometric_mean(WORKLOADS.iter().filter_map(|workload| Some(its(policy, workload)? / its(OURS, workload)?)))
    };
    let peers = PEERS.iter().filter_map(|peer| Some((peer.name, ratio(peer.name)?)));
    peers.min_by(|a, b| a.1.total_cmp(&b.1)).map_or_else(String::new, |(name, ratio)| {
        format!(
            "On the [held-out set-up](#set-up), on which no constant was chosen, the nearest peer over the workloads is \
             `{name}` with {ratio:.2} times the mean TTFT of `{OURS}`.\n\n"
        )
    })
}

/// How many seeds the rows of the batching model are means of, in words.
fn seeds(rows: &[Row]) -> String {
    let counts = || rows.iter().filter(|row| row.model == BATCHING).map(|row| row.seeds);
    match (counts().min(), counts().max()) {
        (Some(fewest), Some(most)) if fewest == most => format!(", {most} seeds for each number"),
        (Some(fewest), Some(most)) => format!(", {fewest} to {most} seeds for each number"),
        _ => String::new(),
    }
}

fn marks_section(marks: &[Mark]) -> String {
    let mut table = Table::new(&["mark", "target", "is", "where", ""]);
    for mark in marks {
        let verdict = match (mark.is_met(), mark.missed_by()) {
            (_, Some(share)) => format!("missed by {:.1} %", 100.0 * share),
            (Some(true), _) => "reached".to_owned(),
            _ => "not run".to_owned(),
        };
        let gap = if mark.missing > 0 && mark.value.is_some() {
            format!(" ({} comparisons missing)", mark.missing)
        } else {
            String::new()
        };
        let value = mark.value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"));
        table.row([mark.name.clone(), target(mark.target), value, mark.place.clone(), format!("{verdict}{gap}")]);
    }
    format!("## Marks\n\nWhat it was to reach, set before it was built.\n\n{}\n", table.markdown())
}

fn target(target: Target) -> String {
    match target {
        Target::AtLeast(bound) => format!("≥ {bound}"),
        Target::AtMost(bound) => format!("≤ {bound}"),
        Target::Below(bound) => format!("< {bound}"),
    }
}

fn plots_section(plots: &[Plot]) -> String {
    let mut text = String::from("## Plots\n\n");
    for plot in plots {
        let _ = writeln!(text, "![{}]({PLOT_FOLDER}/{})\n", plot.title, plot.file);
    }
    text
}

fn set_up(rows: &[Row]) -> String {
    let workers = sorted(rows.iter().filter(|row| row.model == BATCHING).map(|row| row.workers));
    let of_workers = match workers.as_slice() {
        [] => String::new(),
        counts => format!("{} workers. ", counts.iter().map(u32::to_string).collect::<Vec<_>>().join(" or ")),
    };
    format!("## Set-up\n\n{of_workers}{SET_UP}\n## What it cannot tell\n\n{LIMITS}\n")
}

fn sorted(values: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut values: Vec<u32> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// What does not depend on a run.
const SET_UP: &str = "A request arrives at one gateway at random; gateways share nothing.

- **batching model**: engines that schedule as vLLM's V1 scheduler does (vllm/v1/core/sched/scheduler.py): running
  requests first, prefill in chunks, first come first served, prefix cache with LRU eviction, preemption. A step's time is
  roofline arithmetic for a 70B model on four H100, not fitted to measurements.
- **serial model**: one prefill after the other at a fixed rate, decode without contention, an LRU of whole pieces: simple
  enough to check by hand. Its two rows are the traces at their own speed, 8 workers of 4000 pieces of 512 tokens, 8000
  tokens/s (synthetic: 10000).
- **held-out set-up**: the batching model with the constants of an 8B model on one H100, 12 workers of 400,000 tokens of
  KV cache, twice the requests for each worker. The constants of `hybrid` were chosen on the workloads of this page with the
  70B model and 8 workers, so only this set-up, and no other workload, tells whether they fit elsewhere.
- **load** 1 is about what the pool can serve under a policy that sees the engines from inside and counts its effect on
  others.
- **workloads**: `conversation` and `synthetic` are Mooncake's FAST25 traces (Apache-2.0); `chat` is conversations of
  several turns with shared system prompts; `agent` is a planner with bursts of siblings on a long shared context; `hot` has
  one prefix that most requests share. They are open loop: nobody waits for an answer to ask the next question.
- **good** is TTFT <= 2 s and TPOT <= 50 ms.
";

const LIMITS: &str =
    "- How long anything takes on a real engine. Constants are arithmetic, other engines schedule differently.
- What other systems do beyond their formula: the peers are written anew from published formulas and defaults, with one
  set of counts and one index. Exact KV-cache events, gossip between replicas, queueing in the gateway and
  prefill/decode splitting are not modelled. Deployments of some of them run one replica: then compare with one gateway.
- What happens when slow answers make clients send less, when gateways get whole sessions, or when requests are retried.
- Differences of a few percent: see the confidence intervals, which cover the seeds only and not the models.
- What overload does to single requests. From load 1.2 on the interference term parts long prompts from short ones: means
  stay low, and for some prompts another worker would have been free. With one hot prefix others then have lower means.
- What a decision costs. That is measured in Envoy, with `make bench-decision`; its goal is a median under 25 us for a 4 KB
  chat over 8 workers. On two busy cores of a virtual machine it was 21 to 31 us, of which 4 host calls that return bytes are
  6 to 7: it depends on the machine more than on the workers, and is not held by a test.
";

fn policies_section() -> String {
    let peers = PEERS.iter().map(|peer| (peer.name, peer.doc));
    let oracles = ORACLES.iter().map(|oracle| (oracle.name, oracle.doc));
    let ours = [(OURS, "this plugin's default policy"), (STUDY, "the same with the constants of the study it is from")];
    let mut table = Table::new(&["policy", "what it does"]);
    for (name, doc) in ours.into_iter().chain(peers).chain(oracles) {
        table.row([format!("`{name}`"), doc.to_owned()]);
    }
    format!("## Policies\n\nOracles are greedy: reference points, not bounds.\n\n{}\n", table.markdown())
}

fn tables_section(rows: &[Row]) -> String {
    let mut text = String::from("## All numbers\n\nThe best of each column is bold, oracles aside.\n\n");
    for workload in WORKLOADS {
        let its_cells: Vec<Cell> = cells(rows).into_iter().filter(|cell| cell.workload == workload).collect();
        let _ = writeln!(text, "<details>\n<summary>{workload}</summary>\n");
        if its_cells.is_empty() {
            text += "Not run.\n\n";
        }
        for cell in its_cells {
            let _ = writeln!(text, "### {}\n\n{}", cell.words(), cell_table(rows, &cell).markdown());
        }
        text += "</details>\n\n";
    }
    for (model, words) in [(SERIAL, "serial model"), (HELD_OUT, "held-out set-up")] {
        let _ = writeln!(text, "<details>\n<summary>{words}</summary>\n");
        for workload in WORKLOADS {
            let its: Vec<&Row> = rows.iter().filter(|row| row.model == model && row.workload == workload).collect();
            if !its.is_empty() {
                let _ = writeln!(text, "### {workload}, {words}\n\n{}", rows_table(its).markdown());
            }
        }
        text += "</details>\n\n";
    }
    text
}

const REGENERATE: &str = "## Do it again

```sh
make replay FULL=1
```

writes this page and its plots, and all rows to `target/replay/summary.json`. Without `FULL=1` it runs a small part in a
few minutes and leaves this page alone. `cargo run --profile tools -p warmroute-replay -- --help` lists what can be chosen.
The same seeds give the same numbers.
";

#[cfg(test)]
mod tests {
    use super::super::plot::plots;
    use super::super::select::testing::full_run;
    use super::*;

    fn written(rows: &[Row]) -> String {
        page(rows, &plots(rows))
    }

    #[test]
    fn the_page_says_what_the_rows_say() {
        let mut rows = full_run();
        let page = written(&rows);
        for says in [
            "**The nearest peer, round-robin, has 2.00 times hybrid's mean TTFT**",
            "Of 12 marks that were set for it, 12 are reached, 0 missed.",
            ", 5 seeds for each number",
            "| serial model, synthetic: token hit rate | ≥ 0.6 | 0.610 |  | reached |",
            "### agent at load 0.8, 8 gateways",
            "| hybrid | **2.00 ±0.020** |",
            "](routing-quality/ratio.svg)",
            "8 workers. A request",
        ] {
            assert!(page.contains(says), "{says} is not in\n{page}");
        }
        let is_its = |row: &&mut Row| row.model == SERIAL && row.policy == OURS && row.workload == "synthetic";
        rows.iter_mut().find(is_its).unwrap().token_hit_rate = 0.54;
        let page = written(&rows);
        assert!(page.contains("| ≥ 0.6 | 0.540 |  | missed by 10.0 % |"), "{page}");
        assert!(page.contains("11 are reached, 1 missed."), "{page}");
    }

    #[test]
    fn what_was_not_run_is_said() {
        let mut rows = full_run();
        rows.retain(|row| row.workload != "hot");
        let page = written(&rows);
        assert!(page.contains("<summary>hot</summary>\n\nNot run."), "{page}");
        assert!(page.contains("comparisons missing)"), "{page}");
        let page = written(&[]);
        assert!(page.contains("0 are reached, 0 missed, 12 not run."), "{page}");
    }
}
