//! The page, in Markdown: everything in it that a run can change is made from the run's results.

use std::fmt::Write as _;

use warmroute_report::plot::Plot;
use warmroute_report::statistics::median;
use warmroute_report::table::Table;

use super::growth::CURVES;
use super::input::Results;
use super::marks::{Mark, Target, marks};
use super::plots::cost_in_words;
use super::select::{AXES, Cell, PICKER, cells};
use super::tables::{axis_table, cell_table, layers, missing, stream_table};
use super::{PLOT_FOLDER, Paths, stages};
use crate::environment::Environment;
use crate::row::Row;

/// Writes the page.
pub(super) fn page(results: &Results, plots: &[Plot], paths: &Paths) -> String {
    let Results { rows, machine, .. } = results;
    let mut page = String::from("# What it costs\n\n");
    page += "<!-- Written by `warmroute-bench render`; changes belong into tools/bench/src/page. -->\n\n";
    page += &answer(results, paths);
    page += &marks_section(&marks(rows));
    page += &machine_section(machine, rows);
    page += &plots_section(plots);
    page += &format!(
        "## All paths\n\n{}. CPU is user and system time of the router's processes for each request; *spread* is what \
         the middle half of the rounds spans, as a share of their median; ratios are medians of the rounds' ratios.\n\n{}\n",
        capitalised(&Cell::MAIN.words()),
        cell_table(rows, Cell::MAIN, &paths.all).markdown()
    );
    page += &axes_section(rows, &paths.everywhere);
    page += &where_section(results);
    page += &growth_section(results);
    page += &noise_section(results);
    page += &format!("## What the numbers do not say\n\n{LIMITS}\n");
    page += &cells_section(rows);
    page + REGENERATE
}

/// What a full run has and these results lack, in words.
pub(super) fn gaps(results: &Results, paths: &Paths) -> Vec<String> {
    let mut gaps: Vec<String> = missing(&results.rows, Cell::MAIN, &paths.all);
    let marks = marks(&results.rows);
    gaps.extend(marks.iter().filter(|mark| mark.value.is_none()).map(|mark| format!("mark: {}", mark.name)));
    let curves = CURVES.iter().filter(|curve| curve.added_cpu(&results.points).is_none());
    gaps.extend(curves.map(|curve| format!("growth: {}", curve.name)));
    if stages::shown(&results.stages).is_empty() {
        gaps.push("stages".to_owned());
    }
    if results.machine == Environment::default() {
        gaps.push("environment".to_owned());
    }
    gaps
}

/// The short answer.
fn answer(results: &Results, paths: &Paths) -> String {
    let marks = marks(&results.rows);
    let count = |is_met| marks.iter().filter(|mark| mark.is_met() == is_met).count();
    let (met, missed, unknown) = (count(Some(true)), count(Some(false)), count(None));
    let unknown = if unknown == 0 { String::new() } else { format!(", {unknown} not run") };
    let gaps = gaps(results, paths);
    let gaps = match gaps.as_slice() {
        [] => String::new(),
        gaps => format!("\n\n**Not all of it was run**; missing are: {}.", gaps.join("; ")),
    };
    let picker = Cell::MAIN.row(&results.rows, PICKER).filter(|row| row.cpu_ratio_to_envoy > 0.0);
    let picker = picker.map_or_else(String::new, |row| {
        format!(
            " The same decision by an endpoint picker, a process that Envoy asks for each request, takes {:.2} times.",
            row.cpu_ratio_to_envoy
        )
    });
    format!(
        "**{}.**{picker} Of {} marks that were set for it, {met} are reached, {missed} missed{unknown}.\n\nAll paths ran side by \
         side on one shared machine and took turns: ratios within a run say something, absolute numbers do not. What \
         else they do not say is [below](#what-the-numbers-do-not-say).{gaps}\n\n",
        cost_in_words(&results.rows),
        marks.len(),
    )
}

fn marks_section(marks: &[Mark]) -> String {
    let mut table = Table::new(&["mark", "target", "is", "where", ""]);
    for mark in marks {
        let target = match mark.target {
            Target::AtMost(bound) => format!("≤ {bound:.1}"),
            Target::Below(bound) => format!("< {bound:.1}"),
        };
        let value = mark.value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
        table.row([mark.name.clone(), target, value, mark.place.clone(), mark.verdict()]);
    }
    format!(
        "## Marks\n\nWhat it may cost, set before it was built. *Within the noise*: the rounds lie as far apart as the \
         value from its target. Streams ask for their `usage`, which makes the plugin read every chunk; of those that do not \
         it reads none. What the time goes into, and what of it no plugin can avoid: \
         [What a request costs](../ARCHITECTURE.md#what-a-request-costs).\n\n{}\n",
        table.markdown()
    )
}

fn machine_section(machine: &Environment, rows: &[Row]) -> String {
    let or = |text: &str| if text.is_empty() { "not known".to_owned() } else { text.to_owned() };
    let mut table = Table::new(&["", ""]);
    let rounds = rows.iter().map(|row| row.rounds);
    let rounds = match (rounds.clone().min(), rounds.max()) {
        (Some(fewest), Some(most)) if fewest == most => most.to_string(),
        (Some(fewest), Some(most)) => format!("{fewest} to {most}"),
        _ => "none".to_owned(),
    };
    let command = format!("`cargo run --profile tools -p warmroute-bench -- {}`", machine.command_line.join(" "));
    for (name, value) in [
        ("date", or(&machine.date)),
        ("command", if machine.command_line.is_empty() { or("") } else { command }),
        ("rounds", rounds),
        ("cores", if machine.cores == 0 { or("") } else { machine.cores.to_string() }),
        ("processor", or(&machine.processor)),
        ("kernel", or(&machine.kernel)),
        ("Envoy", or(&machine.envoy)),
        ("plugin", if machine.plugin_bytes == 0 { or("") } else { format!("{} bytes", machine.plugin_bytes) }),
        (
            "load average",
            format!("{} before, {} after", or(&machine.load_average_before), or(&machine.load_average_after)),
        ),
    ] {
        table.row([name.to_owned(), value]);
    }
    format!("## What was measured\n\n{MEASURED}\n{}\n", table.markdown())
}

fn plots_section(plots: &[Plot]) -> String {
    let mut text = String::from("## Plots\n\n");
    for plot in plots {
        let _ = writeln!(text, "![{}]({PLOT_FOLDER}/{})\n", plot.title, plot.file);
    }
    text
}

fn axes_section(rows: &[Row], everywhere: &[String]) -> String {
    let mut text = format!(
        "## Bodies, connections, workers, streams\n\nAll else as in the main cell: {}.\n\n",
        Cell::MAIN.words()
    );
    for axis in AXES {
        let its = axis_table(rows, axis, everywhere);
        let _ = writeln!(text, "### By {}\n\n{}", axis.name, table_or_not_run(&its));
    }
    let _ =
        writeln!(text, "### Streams\n\nThe request's own cost is in it.\n\n{}", table_or_not_run(&stream_table(rows)));
    text
}

fn table_or_not_run(table: &Table) -> String {
    if table.rows().is_empty() { "Not run.\n".to_owned() } else { table.markdown() }
}

fn where_section(results: &Results) -> String {
    let mut text = format!(
        "## Where the microseconds go\n\nCPU of the whole process for a request of the main cell, layer by layer:\n\n{}\n",
        layers(&results.rows).markdown()
    );
    text += "Within the plugin, from a build with marks between the stages (`make micro`): time on the clock and not on the \
             CPU, of what happens inside the VM and in calls of the host. The way into the VM and back, once for each \
             callback, is in the layers above and not in here.\n\n";
    let runs = stages::runs(&results.stages);
    if runs.is_empty() {
        text += "Not run.\n\n";
    }
    for run in runs {
        let _ = writeln!(
            text,
            "<details>\n<summary>{}</summary>\n\n{}\n</details>\n",
            stages::words(run),
            stages::table(&results.stages, run).markdown()
        );
    }
    text
}

fn growth_section(results: &Results) -> String {
    let mut table = Table::new(&["over", "CPU that the plugin adds to plain Envoy", "for each", "R²"]);
    for curve in CURVES {
        let r_squared = curve.added_cpu(&results.points).and_then(|growth| growth.r_squared());
        let words = curve.added_cpu_words(&results.points).unwrap_or_else(|| "not run".to_owned());
        let r_squared = r_squared.map_or_else(|| "–".to_owned(), |r_squared| format!("{r_squared:.3}"));
        table.row([curve.name.to_owned(), words, curve.each.to_owned(), r_squared]);
    }
    format!(
        "## How it grows\n\nFrom a run of its own. Fitted to the curves of the plots: a line where it fits, a power where that is clearly nearer, \
         constant where no point is further than 5 % from the mean or neither explains half of the scatter.\n\n{}\n",
        table.markdown()
    )
}

fn noise_section(results: &Results) -> String {
    let Results { rows, machine, .. } = results;
    let routed = || rows.iter().filter(|row| row.cpu_us_per_request > 0.0);
    let worst = routed().max_by(|a, b| a.cpu_noise.total_cmp(&b.cpu_noise));
    let text = match (median(routed().map(|row| row.cpu_noise).collect()), worst) {
        (Some(median), Some(worst)) => format!(
            "The middle half of the rounds' CPU figures spans {:.0} % of their median in the median row, and {:.0} % in the \
             worst ({}, {}). The load average was {} before and {} after, on {} cores. A difference between two rows that is \
             not larger than their spreads says nothing.\n",
            100.0 * median,
            100.0 * worst.cpu_noise,
            worst.name(),
            Cell::of(worst).words(),
            machine.load_average_before,
            machine.load_average_after,
            machine.cores,
        ),
        _ => "Not known: nothing was run.\n".to_owned(),
    };
    format!("## How noisy it was\n\n{text}\n")
}

fn cells_section(rows: &[Row]) -> String {
    let mut text = String::from("## All cells\n\n<details>\n<summary>every path of every other cell</summary>\n\n");
    for cell in cells(rows).into_iter().filter(|cell| *cell != Cell::MAIN) {
        let _ = writeln!(text, "### {}\n\n{}", capitalised(&cell.words()), cell_table(rows, cell, &[]).markdown());
    }
    text + "</details>\n\n"
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// What does not depend on a run.
const MEASURED: &str = "Chats of several turns with shared system prompts, in a closed loop: each connection sends its next \
request when the last is answered. Load and workers are one thread that does next to nothing for an answer; every router is a \
process of its own on the same machine, Envoy with one worker thread. In each round every path has one burst, and the next \
round begins with another path. Plain Envoy is round robin with the same listener, cluster and bodies.
";

const LIMITS: &str = "- How many requests a router can serve. Load, workers and router share the cores, so requests/s is what \
is left for the router, and a path that uses several cores takes them from the load. CPU for each request is what to compare.
- What anything takes elsewhere. Clock rate, caches and kernel differ; ratios move less than absolute numbers, and move too.
- Tail latency. On a shared machine p99 is mostly the machine's, and on more than one connection requests wait for each other, \
so that p50 is mostly CPU once more.
- What other routers cost in their best set-up. They ran with their defaults beside workers that answer at once; what they do \
in the background, such as health checks, is in their CPU, and a release after the one that ran may differ.
- What a request costs end to end. Engines take milliseconds to seconds for it; what is compared here is a small part of that, \
and says nothing about which worker was chosen: [How well it routes](routing-quality.md) does.
- What TLS, access logs, other filters and HTTP/2 cost beside it: none of them ran.
- Memory after days: it was read after minutes.
";

const REGENERATE: &str = "## Do it again

The command above writes `summary.json` and `environment.json` to `target/bench`, `warmroute-bench growth` writes `growth.json` \
there, and `make micro` writes `stages.json`. This page and its plots are made from these files alone:

```sh
cargo run --profile tools -p warmroute-bench -- render --docs docs
```

It refuses to write into `docs` while something was not run, unless `--with-gaps` says that this is meant; then the page names \
what is missing.
";

#[cfg(test)]
mod tests {
    use super::super::plots::plots;
    use super::super::select::{BASE, OURS, RIVAL};
    use super::super::testing::{change, full_results, full_run};
    use super::*;

    fn paths() -> Paths {
        let all = [BASE, OURS, RIVAL, "direct", "envoy-noop", "warmroute/least-load"].map(str::to_owned).to_vec();
        let everywhere = [OURS, BASE, RIVAL].map(str::to_owned).to_vec();
        Paths { all, everywhere }
    }

    fn written(results: &Results) -> String {
        page(results, &plots(results, &paths().everywhere), &paths())
    }

    fn assert_says(page: &str, texts: &[&str]) {
        for text in texts {
            assert!(page.contains(text), "{text} is not in\n{page}");
        }
    }

    #[test]
    fn the_page_says_what_the_results_say() {
        let mut results = full_results();
        let page = written(&results);
        assert_says(
            &page,
            &[
                "**For a 4 KB chat, hybrid takes 1.40 times plain Envoy's CPU, and 0.47 times that of sglang-router",
                "Of 6 marks that were set for it, 6 are reached, 0 missed.",
                "| CPU for each request over plain Envoy's | ≤ 1.5 | 1.40 | 4 KB, 16 connections, 4 workers | reached |",
                "-- cost --full --peers`",
                "| kernel | Linux 6.1.0 |",
                "| rounds | 5 |",
                "](performance/cost.svg)",
                "| body | 12 us + 0.10 us per KB | request | 1.000 |",
                "| index | stays at 12 us | request | – |",
                "<summary>hybrid, 4 KB, 8 workers</summary>",
                "spans 4 % of their median in the median row",
                "### 1 MB, 64 connections, 4 workers",
            ],
        );
        change(&mut results.rows, Cell::MAIN, OURS, |row| row.cpu_ratio_to_envoy = 1.8);
        let page = written(&results);
        assert_says(
            &page,
            &["5 are reached, 1 missed.", "| ≤ 1.5 | 1.80 | 4 KB, 16 connections, 4 workers | missed by 20 % |"],
        );
    }

    #[test]
    fn what_was_not_run_is_said() {
        let rows: Vec<Row> = full_run().into_iter().filter(|row| row.path != "sglang-router").collect();
        let some = Results { rows, points: Vec::new(), stages: Vec::new(), ..full_results() };
        let page = written(&some);
        assert_says(
            &page,
            &[
                "**Not all of it was run**; missing are: sglang-router/cache_aware; mark: CPU for each request over sglang",
                "5 are reached, 0 missed, 1 not run.",
                "| sglang-router/cache_aware | not run |",
                "| body | not run | request | – |",
                "(`make micro`): ",
                "Not run.",
            ],
        );
        // Curves of four axes and more.
        let names = gaps(&some, &paths());
        assert!(names.contains(&"stages".to_owned()) && names.contains(&"growth: workers".to_owned()), "{names:?}");
        let nothing = Results::default();
        assert_says(
            &written(&nothing),
            &["0 are reached, 0 missed, 6 not run.", "| kernel | not known |", "Not known: nothing was run."],
        );
    }

    #[test]
    fn only_curves_that_were_not_run_are_missing_in_a_full_run() {
        let names = gaps(&full_results(), &paths());
        assert_eq!(names, ["growth: threads", "growth: scraped page"]);
    }
}
