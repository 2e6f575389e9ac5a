//! Runs a plan on all processors, and makes its rows.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use warmroute::rng::mix;

use crate::contestant::Contestant;
use crate::metrics::{Interval, Summary};
use crate::plan::{Plan, PlannedCell};
use crate::report::row::Row;
use crate::simulation;

/// What a cell with one seed came to, for each contestant.
type Group = Vec<Summary>;

/// How far an execution is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Groups (a cell with one seed, all policies) that are done.
    pub done: usize,
    /// Groups of the plan.
    pub total: usize,
    /// The one that was just done.
    pub words: String,
}

/// Runs all of `plan`; `tell` hears of each group that is done, in no particular order. The rows do not depend on that
/// order, nor on the number of processors.
pub fn execute(plan: &Plan, tell: &(dyn Fn(Progress) + Sync)) -> Vec<Row> {
    let groups: Vec<(PlannedCell, u64)> =
        plan.cells.iter().flat_map(|cell| (1..=u64::from(plan.seeds)).map(|seed| (*cell, seed))).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let mut finished: Vec<(usize, Group)> = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((cell, seed)) = groups.get(number) else { return finished };
            finished.push((number, run_group(cell, *seed, &plan.contestants)));
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            tell(Progress { done, total: groups.len(), words: format!("{}, seed {seed}", cell.words()) });
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(groups.len().max(1));
    let mut finished: Vec<(usize, Group)> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let results = running.into_iter().map(|thread| thread.join());
        // A thread fails only by panicking; then so does this one.
        results.flat_map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    finished.sort_by_key(|(number, _)| *number);
    let groups: Vec<Group> = finished.into_iter().map(|(_, group)| group).collect();
    rows(plan, &groups)
}

/// All contestants on one cell with one seed; they get the same requests.
fn run_group(cell: &PlannedCell, seed: u64, contestants: &[Contestant]) -> Group {
    let (requests, setup) = (cell.requests(seed), cell.setup(seed));
    let run = |contestant: &Contestant| {
        let make = |gateway: usize| contestant.policy(mix(seed ^ mix(gateway as u64 + 1)), &setup);
        Summary::of(&simulation::run(&setup, &requests, &make), cell.workers())
    };
    contestants.iter().map(run).collect()
}

/// A row for each cell and contestant from the groups, which are in the order of cells and then of seeds.
fn rows(plan: &Plan, groups: &[Group]) -> Vec<Row> {
    let by_cell = plan.cells.iter().zip(groups.chunks(plan.seeds.max(1) as usize));
    let of_cell = |(cell, groups): (&PlannedCell, &[Group])| {
        let of_contestant = |(place, contestant): (usize, &Contestant)| {
            let summaries: Vec<Summary> = groups.iter().filter_map(|group| group.get(place).copied()).collect();
            row(cell, contestant.name(), &summaries)
        };
        plan.contestants.iter().enumerate().map(of_contestant).collect::<Vec<Row>>()
    };
    by_cell.flat_map(of_cell).collect()
}

fn row(cell: &PlannedCell, policy: &str, seeds: &[Summary]) -> Row {
    let over_seeds = |value: fn(&Summary) -> f64| Interval::of(&seeds.iter().map(value).collect::<Vec<f64>>());
    let ttft_mean_s = over_seeds(|summary| summary.ttft_mean_s);
    Row {
        model: cell.model().to_owned(),
        workload: cell.workload.name().to_owned(),
        load: cell.load,
        workers: cell.workers() as u32,
        gateways: cell.gateways as u32,
        policy: policy.to_owned(),
        seeds: seeds.len() as u32,
        ttft_mean_s: ttft_mean_s.mean,
        ttft_mean_ci_s: ttft_mean_s.half,
        ttft_p50_s: over_seeds(|summary| summary.ttft_p50_s).mean,
        ttft_p90_s: over_seeds(|summary| summary.ttft_p90_s).mean,
        ttft_p99_s: over_seeds(|summary| summary.ttft_p99_s).mean,
        e2e_mean_s: over_seeds(|summary| summary.e2e_mean_s).mean,
        good_share: over_seeds(|summary| summary.good_share).mean,
        token_hit_rate: over_seeds(|summary| summary.token_hit).mean,
        max_over_mean_requests: over_seeds(|summary| summary.requests_max_over_mean).mean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Model;
    use crate::workload::Workload;

    #[test]
    fn rows_are_means_over_seeds_in_the_order_of_cells_and_contestants() {
        let cell = |load| PlannedCell { workload: Workload::Chat, load, gateways: 1, model: Model::Batching };
        let contestants: Vec<Contestant> = Contestant::all().into_iter().take(2).collect();
        let plan = Plan { cells: vec![cell(0.6), cell(0.8)], seeds: 2, contestants };
        let summary = |ttft_mean_s| Summary { ttft_mean_s, ..Summary::default() };
        let groups: Vec<Group> =
            [[1.0, 10.0], [3.0, 30.0], [5.0, 50.0], [5.0, 50.0]].map(|group| group.map(summary).to_vec()).to_vec();
        let rows = rows(&plan, &groups);
        let found: Vec<(f64, &str, f64, bool)> =
            rows.iter().map(|row| (row.load, row.policy.as_str(), row.ttft_mean_s, row.ttft_mean_ci_s > 0.0)).collect();
        let names: Vec<&str> = plan.contestants.iter().map(|contestant| contestant.name()).collect();
        let expected = [
            (0.6, names[0], 2.0, true),
            (0.6, names[1], 20.0, true),
            (0.8, names[0], 5.0, false),
            (0.8, names[1], 50.0, false),
        ];
        assert_eq!(found, expected);
        assert!(rows.iter().all(|row| row.seeds == 2));
    }
}
