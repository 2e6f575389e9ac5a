//! Where the microseconds of a request go in the plugin.

use warmroute_report::number::significant;
use warmroute_report::table::Table;

use super::input::StageRow;
use super::select::{Cell, size};

/// A run of the stages: policy, bytes of a body, workers.
pub(super) type Run<'a> = (&'a str, usize, usize);

fn run(row: &StageRow) -> Run<'_> {
    (&row.policy, row.body_bytes, row.workers)
}

/// All runs, as they come.
pub(super) fn runs(stages: &[StageRow]) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for row in stages {
        if !runs.contains(&run(row)) {
            runs.push(run(row));
        }
    }
    runs
}

/// The stages of the run that is nearest to the main cell, in the order in which a request comes by.
pub(super) fn shown(stages: &[StageRow]) -> Vec<&StageRow> {
    let distance = |(policy, body_bytes, workers): &Run<'_>| {
        (*policy != "hybrid", body_bytes.abs_diff(Cell::MAIN.body_bytes), workers.abs_diff(Cell::MAIN.workers))
    };
    let nearest = runs(stages).into_iter().min_by_key(distance);
    stages.iter().filter(|row| Some(run(row)) == nearest && row.kind == "stage").collect()
}

/// A run's stages, what all of them take, and the same calls of the host by their kind.
pub(super) fn table(stages: &[StageRow], of: Run<'_>) -> Table {
    let its = |kind: &'static str| stages.iter().filter(move |row| run(row) == of && row.kind == kind);
    let total_us: f64 = its("stage").map(|row| row.us_per_request).sum();
    let mut table = Table::new(&["stage", "us", "share", "of it in host calls, us", "host calls"]);
    let mut line = |name: String, share: String, us: f64, host_us: f64, host_calls: f64| {
        table.row([name, significant(us, 2), share, significant(host_us, 2), significant(host_calls, 2)]);
    };
    let share = |us: f64| format!("{:.0} %", 100.0 * us / total_us);
    for row in its("stage") {
        let StageRow { us_per_request: us, host_us_per_request: host_us, host_calls_per_request: calls, .. } = row;
        line(row.name.clone(), share(*us), *us, *host_us, *calls);
    }
    if total_us > 0.0 {
        let sum = |of: fn(&StageRow) -> f64| its("stage").map(of).sum::<f64>();
        let (host_us, calls) = (sum(|row| row.host_us_per_request), sum(|row| row.host_calls_per_request));
        line("**all stages**".to_owned(), share(total_us), total_us, host_us, calls);
    }
    for (kind, words) in [("root", "besides"), ("host_call", "all calls of this kind")] {
        for row in its(kind) {
            let StageRow { us_per_request: us, host_us_per_request: host_us, host_calls_per_request: calls, .. } = row;
            line(row.name.clone(), words.to_owned(), *us, *host_us, *calls);
        }
    }
    table
}

/// A run in words.
pub(super) fn words((policy, body_bytes, workers): Run<'_>) -> String {
    format!("{policy}, {}, {workers} workers", size(body_bytes as f64))
}

#[cfg(test)]
mod tests {
    use super::super::testing::full_results;
    use super::*;

    #[test]
    fn the_run_nearest_to_the_main_cell_is_shown_without_what_is_no_stage() {
        let mut stages = full_results().stages;
        let larger: Vec<StageRow> =
            stages.iter().map(|row| StageRow { body_bytes: 1 << 20, us_per_request: 99.0, ..row.clone() }).collect();
        stages.splice(0..0, larger);
        let names: Vec<&str> = shown(&stages).iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["read_body", "parse", "score"]);
        assert!(shown(&stages).iter().all(|row| row.body_bytes == 4096));
        assert_eq!(runs(&stages).len(), 2);
        assert!(shown(&[]).is_empty());
    }

    #[test]
    fn the_table_adds_stages_up_and_leaves_the_rest_out_of_the_sum() {
        let stages = full_results().stages;
        let table = table(&stages, ("hybrid", 4096, 8)).markdown();
        for line in [
            "| parse | 3.0 | 60 % | 0 | 2.0 |",
            "| **all stages** | 5.0 | 100 % | 1.4 | 6.0 |",
            "| tick | 0.20 | besides | 0.10 | 2.0 |",
            "| get_buffer | 1.4 | all calls of this kind | 1.4 | 2.0 |",
        ] {
            assert!(table.contains(line), "{line} is not in\n{table}");
        }
    }
}
