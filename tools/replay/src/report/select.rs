//! Finds rows: who is ours, who is a peer, which cells there are.

use crate::peer::PEERS;
use crate::report::row::Row;

/// The name of our policy's rows.
pub const OURS: &str = "hybrid";
/// The oracle that minimises each request's own TTFT.
pub const ORACLE_TTFT: &str = "oracle-ttft";
/// The model of an engine with which policies are compared.
pub const BATCHING: &str = "batching";
/// The simple model, whose results can be checked against another program's.
pub const SERIAL: &str = "serial";
/// The name in rows of the batching model on which nothing was chosen.
pub const HELD_OUT: &str = "held-out";
/// The workloads that policies are compared on, in the order of the report.
pub const WORKLOADS: [&str; 5] = ["conversation", "synthetic", "chat", "agent", "hot"];

/// Whether a policy is somebody else's, as opposed to ours, its variants and the oracles.
#[must_use]
pub fn is_peer(policy: &str) -> bool {
    PEERS.iter().any(|peer| peer.name == policy)
}

/// Whether a policy sees the engines from inside.
#[must_use]
pub fn is_oracle(policy: &str) -> bool {
    policy.starts_with("oracle-")
}

/// A workload at a load with a number of gateways, on the batching model.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The workload's name.
    pub workload: String,
    /// Offered load as a share of what the pool can serve.
    pub load: f64,
    /// Gateways.
    pub gateways: u32,
}

impl Cell {
    /// A cell.
    #[must_use]
    pub fn new(workload: &str, load: f64, gateways: u32) -> Self {
        Self { workload: workload.to_owned(), load, gateways }
    }

    /// Whether `row` is of this cell.
    #[must_use]
    pub fn has(&self, row: &Row) -> bool {
        row.model == BATCHING
            && row.workload == self.workload
            && is_load(row.load, self.load)
            && row.gateways == self.gateways
    }

    /// The row of `policy` in this cell.
    #[must_use]
    pub fn row<'a>(&self, rows: &'a [Row], policy: &str) -> Option<&'a Row> {
        rows.iter().find(|row| row.policy == policy && self.has(row))
    }

    /// The cell in words.
    #[must_use]
    pub fn words(&self) -> String {
        let gateways = if self.gateways == 1 { String::new() } else { format!(", {} gateways", self.gateways) };
        format!("{} at load {}{gateways}", self.workload, self.load)
    }
}

/// Whether two loads are the same.
#[must_use]
pub fn is_load(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-6
}

/// The cells of the batching model that have rows, in the order of the report.
#[must_use]
pub fn cells(rows: &[Row]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for row in rows.iter().filter(|row| row.model == BATCHING) {
        if !cells.iter().any(|cell| cell.has(row)) {
            cells.push(Cell::new(&row.workload, row.load, row.gateways));
        }
    }
    let place =
        |cell: &Cell| WORKLOADS.iter().position(|workload| *workload == cell.workload).unwrap_or(WORKLOADS.len());
    cells.sort_by(|a, b| (place(a), a.gateways).cmp(&(place(b), b.gateways)).then(a.load.total_cmp(&b.load)));
    cells
}

/// The policies that have rows with the batching model: ours first, then as they come, oracles last.
#[must_use]
pub fn policies(rows: &[Row]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.model == BATCHING) {
        if !names.contains(&row.policy.as_str()) {
            names.push(&row.policy);
        }
    }
    names.sort_by_key(|name| (*name != OURS, is_oracle(name)));
    names
}

/// Of each cell that both have: `policy`'s value over ours. More than 1 is worse than ours if low values are good.
pub fn ratios<'a>(
    rows: &'a [Row],
    cells: &'a [Cell],
    policy: &'a str,
    value: fn(&Row) -> f64,
) -> impl Iterator<Item = (&'a Cell, f64)> + 'a {
    cells.iter().filter_map(move |cell| {
        let (theirs, ours) = (cell.row(rows, policy)?, cell.row(rows, OURS)?);
        Some((cell, value(theirs) / value(ours)))
    })
}

#[cfg(test)]
pub(crate) mod testing {
    //! Made-up rows.

    use super::*;

    /// A row of the batching model whose other numbers follow from these.
    pub(crate) fn row(policy: &str, workload: &str, load: f64, gateways: u32, ttft_mean_s: f64, hit: f64) -> Row {
        Row {
            model: BATCHING.to_owned(),
            workload: workload.to_owned(),
            load,
            workers: 8,
            gateways,
            policy: policy.to_owned(),
            seeds: 5,
            ttft_mean_s,
            ttft_mean_ci_s: ttft_mean_s / 100.0,
            ttft_p50_s: ttft_mean_s / 2.0,
            ttft_p90_s: ttft_mean_s * 2.0,
            ttft_p99_s: ttft_mean_s * 8.0,
            e2e_mean_s: 10.0 + ttft_mean_s,
            good_share: 0.8,
            token_hit_rate: hit,
            max_over_mean_requests: 1.05,
        }
    }

    /// All cells of a full run in which every peer is twice as slow as ours, and all marks are met.
    pub(crate) fn full_run() -> Vec<Row> {
        let mut rows = Vec::new();
        let policies = PEERS.iter().map(|peer| (peer.name, 2.0)).chain([
            (OURS, 1.0),
            (ORACLE_TTFT, 0.95),
            ("oracle-marginal", 1.0),
        ]);
        for (policy, factor) in policies {
            for (place, workload) in WORKLOADS.iter().enumerate() {
                let ttft_s = factor * (1.0 + place as f64);
                for load in [0.6, 0.8, 1.0, 1.2] {
                    rows.push(row(policy, workload, load, 1, ttft_s * load, 0.5));
                }
                for gateways in [2, 4, 8] {
                    rows.push(row(policy, workload, 0.8, gateways, ttft_s * 1.2, 0.45));
                }
            }
            for (workload, hit) in [("conversation", 0.29), ("synthetic", 0.61)] {
                let serial = Row { model: SERIAL.to_owned(), ..row(policy, workload, 1.0, 1, 0.66 * factor, hit) };
                rows.push(serial);
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{full_run, row};
    use super::*;

    #[test]
    fn ratios_compare_only_cells_that_both_have() {
        let rows = [
            row(OURS, "chat", 0.6, 1, 2.0, 0.5),
            row("random", "chat", 0.6, 1, 6.0, 0.5),
            row(OURS, "chat", 0.8, 1, 3.0, 0.5),
            row("random", "chat", 1.0, 1, 3.0, 0.5),
        ];
        let cells = cells(&rows);
        let found: Vec<f64> = ratios(&rows, &cells, "random", |row| row.ttft_mean_s).map(|(_, ratio)| ratio).collect();
        assert_eq!(found, [3.0]);
    }

    #[test]
    fn cells_and_policies_come_in_the_reports_order() {
        let mut rows = full_run();
        rows.reverse();
        let cells = cells(&rows);
        assert_eq!(cells.len(), 35);
        assert_eq!(cells[0], Cell::new("conversation", 0.6, 1));
        assert_eq!(cells[4], Cell::new("conversation", 0.8, 2));
        let policies = policies(&rows);
        assert_eq!(policies[0], OURS);
        assert!(policies[policies.len() - 2..].iter().all(|policy| is_oracle(policy)));
    }
}
