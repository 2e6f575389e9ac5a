//! What our policy has to reach, computed from rows.

use std::fmt;

use warmroute_report::statistics::geometric_mean;

use crate::peer::PEERS;
use crate::report::row::Row;
use crate::report::select::{Cell, ORACLE_TTFT, OURS, SERIAL, WORKLOADS, is_peer, policies, ratios};

/// Loads of the marks with one gateway, as a share of what the pool can serve.
const LOADS: [f64; 3] = [0.6, 0.8, 1.0];
/// The load of the marks with several gateways, and the highest of the comparison with the oracle.
const MODERATE_LOAD: f64 = 0.8;
/// Gateways of the marks with several.
const GATEWAYS: u32 = 8;

/// Which end of a mark is good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// The value has to be at least this.
    AtLeast(f64),
    /// The value has to be at most this.
    AtMost(f64),
    /// The value has to be less than this.
    Below(f64),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "at least {bound}"),
            Self::AtMost(bound) => write!(f, "at most {bound}"),
            Self::Below(bound) => write!(f, "below {bound}"),
        }
    }
}

/// One mark: what is measured, the target, what was reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// What is measured, in words with its unit.
    pub name: String,
    /// What it has to be.
    pub target: Target,
    /// What it is; `None` if no row says.
    pub value: Option<f64>,
    /// The cell and the policy that the value comes from, in words; empty if there is nothing to say.
    pub place: String,
    /// Comparisons that the mark asks for and the rows lack.
    pub missing: usize,
}

impl Mark {
    /// Whether the target is reached, by what there is; `None` if nothing is.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        let value = self.value?;
        Some(match self.target {
            Target::AtLeast(bound) => value >= bound,
            Target::AtMost(bound) => value <= bound,
            Target::Below(bound) => value < bound,
        })
    }

    /// By how much the target is missed, as a share of it, above 0; `None` if it is met or nothing is known.
    #[must_use]
    pub fn missed_by(&self) -> Option<f64> {
        if self.is_met()? {
            return None;
        }
        let (Target::AtLeast(bound) | Target::AtMost(bound) | Target::Below(bound)) = self.target;
        Some((self.value? - bound).abs() / bound)
    }
}

/// All marks, in order.
#[must_use]
pub fn marks(rows: &[Row]) -> Vec<Mark> {
    let mut marks = serial_marks(rows);
    marks.push(best_peer_in_a_cell(rows, "mean TTFT", |row| row.ttft_mean_s));
    marks.push(best_peer_in_a_cell(rows, "mean end-to-end time", |row| row.e2e_mean_s));
    marks.push(against_the_best_peer(rows));
    marks.push(against_the_oracle(rows));
    marks.push(hit_rate_with_gateways(rows));
    marks.push(against_peers_with_gateways(rows));
    marks
}

/// The serial model has no noise and another program's results to compare with: absolute numbers hold.
fn serial_marks(rows: &[Row]) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (workload, hit, mean_s, p99_s) in [("conversation", 0.29, 1.34, 10.7), ("synthetic", 0.60, 0.67, 5.6)] {
        let is_its = |row: &&Row| row.model == SERIAL && row.workload == workload && row.gateways == 1;
        let row = rows.iter().filter(is_its).find(|row| row.policy == OURS);
        let mut add = |what: &str, target, value: Option<f64>| {
            let name = format!("serial model, {workload}: {what}");
            let missing = usize::from(value.is_none());
            marks.push(Mark { name, target, value, place: String::new(), missing });
        };
        add("token hit rate", Target::AtLeast(hit), row.map(|row| row.token_hit_rate));
        add("mean TTFT, s", Target::AtMost(mean_s), row.map(|row| row.ttft_mean_s));
        add("p99 TTFT, s", Target::AtMost(p99_s), row.map(|row| row.ttft_p99_s));
    }
    marks
}

/// The cells of the marks with one gateway.
fn one_gateway() -> Vec<Cell> {
    let loads = |workload: &&'static str| LOADS.map(|load| Cell::new(workload, load, 1));
    WORKLOADS.iter().flat_map(loads).collect()
}

/// The cells of the marks with several gateways.
fn several_gateways() -> Vec<Cell> {
    WORKLOADS.iter().map(|workload| Cell::new(workload, MODERATE_LOAD, GATEWAYS)).collect()
}

/// The peers that were run.
fn peers(rows: &[Row]) -> Vec<&str> {
    policies(rows).into_iter().filter(|policy| is_peer(policy)).collect()
}

/// A mark whose value is the worst of many comparisons; those that are `None` lack a row.
fn worst_of<'a>(name: String, target: Target, comparisons: impl Iterator<Item = Option<(f64, String)>> + 'a) -> Mark {
    let is_worse = |new: f64, old: f64| match target {
        Target::AtLeast(_) => new < old,
        Target::AtMost(_) | Target::Below(_) => new > old,
    };
    let mut mark = Mark { name, target, value: None, place: String::new(), missing: 0 };
    for comparison in comparisons {
        match comparison {
            None => mark.missing += 1,
            Some((value, place)) if mark.value.is_none_or(|worst| is_worse(value, worst)) => {
                (mark.value, mark.place) = (Some(value), place);
            }
            Some(_) => {}
        }
    }
    mark
}

fn best_peer_in_a_cell(rows: &[Row], what: &str, value: fn(&Row) -> f64) -> Mark {
    let comparisons = one_gateway().into_iter().flat_map(|cell| {
        let of_peer = |peer: &str| {
            let (theirs, ours) = (cell.row(rows, peer)?, cell.row(rows, OURS)?);
            Some((value(theirs) / value(ours), format!("{peer}, {}", cell.words())))
        };
        peers_or_gap(rows).into_iter().map(of_peer).collect::<Vec<_>>()
    });
    let name =
        format!("one gateway, loads 0.6 to 1.0: the best peer's {what} over ours in the cell where it is lowest");
    worst_of(name, Target::AtLeast(0.8), comparisons)
}

/// The peers that were run; of none, a name that no row has, so that what is missing is counted.
fn peers_or_gap(rows: &[Row]) -> Vec<&str> {
    let peers = peers(rows);
    if peers.is_empty() { vec!["any peer"] } else { peers }
}

fn against_the_best_peer(rows: &[Row]) -> Mark {
    let cells = one_gateway();
    let ttft_s = |row: &Row| row.ttft_mean_s;
    let mean_over_ours = |peer: &&str| {
        let found: Vec<f64> = ratios(rows, &cells, peer, ttft_s).map(|(_, ratio)| ratio).collect();
        let missing = cells.len() - found.len();
        Some((geometric_mean(found.into_iter())?, missing, (*peer).to_owned()))
    };
    let means: Vec<(f64, usize, String)> = peers(rows).iter().filter_map(mean_over_ours).collect();
    let best = means.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    Mark {
        name:
            "one gateway, loads 0.6 to 1.0: our mean TTFT over that of the best single peer, geometric mean over cells"
                .to_owned(),
        target: Target::AtMost(0.8),
        value: best.map(|(mean, ..)| 1.0 / mean),
        place: best.map_or_else(String::new, |(mean, _, peer)| format!("{peer} has {mean:.2} times ours")),
        missing: if means.is_empty() { cells.len() } else { means.iter().map(|(_, missing, _)| missing).sum() },
    }
}

fn against_the_oracle(rows: &[Row]) -> Mark {
    let cells = one_gateway().into_iter().filter(|cell| cell.load <= MODERATE_LOAD);
    let comparisons = cells.map(|cell| {
        let (oracle, ours) = (cell.row(rows, ORACLE_TTFT)?, cell.row(rows, OURS)?);
        Some((ours.ttft_mean_s / oracle.ttft_mean_s, cell.words()))
    });
    let name = "one gateway, loads 0.6 and 0.8: our mean TTFT over that of the greedy oracle, in the worst cell";
    worst_of(name.to_owned(), Target::AtMost(1.12), comparisons)
}

fn hit_rate_with_gateways(rows: &[Row]) -> Mark {
    let comparisons = several_gateways().into_iter().map(|cell| {
        let alone = Cell { gateways: 1, ..cell.clone() };
        let (many, one) = (cell.row(rows, OURS)?, alone.row(rows, OURS)?);
        Some((many.token_hit_rate / one.token_hit_rate, cell.workload))
    });
    let name = "8 gateways, load 0.8: our token hit rate over that with one gateway, on the worst workload";
    worst_of(name.to_owned(), Target::AtLeast(0.85), comparisons)
}

fn against_peers_with_gateways(rows: &[Row]) -> Mark {
    let shares_nothing = |policy: &&str| PEERS.iter().any(|peer| peer.name == *policy && peer.shares_nothing);
    let comparisons = several_gateways().into_iter().flat_map(|cell| {
        let of_peer = |peer: &str| {
            let (theirs, ours) = (cell.row(rows, peer)?, cell.row(rows, OURS)?);
            Some((ours.ttft_mean_s / theirs.ttft_mean_s, format!("{peer}, {}", cell.workload)))
        };
        let peers: Vec<&str> = peers_or_gap(rows);
        peers.into_iter().filter(|peer| !is_peer(peer) || shares_nothing(peer)).map(of_peer).collect::<Vec<_>>()
    });
    let name =
        "8 gateways, load 0.8: our mean TTFT over that of the best peer that shares nothing, on the worst workload";
    worst_of(name.to_owned(), Target::Below(1.0), comparisons)
}

#[cfg(test)]
mod tests {
    use super::super::select::BATCHING;
    use super::super::select::testing::{full_run, row};
    use super::*;

    #[test]
    fn a_run_that_reaches_everything_meets_every_mark() {
        for mark in marks(&full_run()) {
            assert_eq!((mark.is_met(), mark.missing), (Some(true), 0), "{mark:?}");
            assert_eq!(mark.missed_by(), None);
        }
    }

    #[test]
    fn no_rows_meet_no_mark_and_are_all_missing() {
        for mark in marks(&[]) {
            assert_eq!(mark.is_met(), None, "{mark:?}");
            assert!(mark.missing > 0, "{mark:?}");
        }
    }

    #[test]
    fn one_bad_number_misses_its_mark_and_no_other() {
        struct Case {
            name: &'static str,
            change: fn(&mut Row),
            of: (&'static str, &'static str, f64, u32),
            mark: usize,
            missed_by: f64,
        }
        const CASES: &[Case] = &[
            Case {
                name: "hit",
                change: |row| row.token_hit_rate = 0.261,
                of: ("serial", OURS, 1.0, 1),
                mark: 0,
                missed_by: 0.1,
            },
            Case {
                name: "a peer at half",
                change: |row| row.ttft_mean_s = 1.2,
                of: (BATCHING, "random", 0.6, 1),
                mark: 6,
                missed_by: 0.375,
            },
            Case {
                name: "a peer's e2e",
                change: |row| row.e2e_mean_s = 6.36,
                of: (BATCHING, "random", 0.6, 1),
                mark: 7,
                missed_by: 0.359,
            },
            Case {
                name: "the oracle",
                change: |row| row.ttft_mean_s = 2.0,
                of: (BATCHING, ORACLE_TTFT, 0.8, 1),
                mark: 9,
                missed_by: 0.429,
            },
            Case {
                name: "the hit rate of 8",
                change: |row| row.token_hit_rate = 0.34,
                of: (BATCHING, OURS, 0.8, 8),
                mark: 10,
                missed_by: 0.2,
            },
            Case {
                name: "a peer of 8",
                change: |row| row.ttft_mean_s = 4.32,
                of: (BATCHING, "random", 0.8, 8),
                mark: 11,
                missed_by: 0.111,
            },
        ];
        for case in CASES {
            let mut rows = full_run();
            let (model, policy, load, gateways) = case.of;
            // "agent" is the fourth workload: ours has 4 * load seconds there with one gateway, 4.8 with several.
            let workload = if model == SERIAL { "conversation" } else { "agent" };
            let is_its = |row: &&mut Row| {
                row.model == model
                    && row.policy == policy
                    && row.load == load
                    && row.gateways == gateways
                    && row.workload == workload
            };
            let row = rows.iter_mut().find(is_its).unwrap();
            (case.change)(row);
            let all = marks(&rows);
            let missed: Vec<usize> = (0..all.len()).filter(|mark| all[*mark].is_met() == Some(false)).collect();
            assert_eq!(missed, [case.mark], "{}", case.name);
            assert!(
                (all[case.mark].missed_by().unwrap() - case.missed_by).abs() < 0.05,
                "{}: {:?}",
                case.name,
                all[case.mark]
            );
        }
    }

    #[test]
    fn an_equal_peer_with_8_gateways_is_not_beaten() {
        let mut rows = full_run();
        rows.retain(|row| row.policy != "random");
        rows.push(row("random", "hot", 0.8, 8, 6.0, 0.4));
        let mark = marks(&rows).pop().unwrap();
        assert_eq!((mark.is_met(), mark.place.as_str(), mark.missing), (Some(false), "random, hot", 4));
    }
}
