//! What it may cost, set before it was built, and what it costs: computed from rows.

use super::select::{BASE, Cell, LARGE_BODY_BYTES, OURS, RIVAL, SMALL_BODY_BYTES, cells};
use crate::row::Row;

/// Of the plugin's index in its default configuration, which is what runs: 1024 pages of 4 KB.
const INDEX_MB: f64 = (1024.0 * 4096.0) / 1e6;

/// Which end of a mark is good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    /// The value has to be at most this.
    AtMost(f64),
    /// The value has to be less than this.
    Below(f64),
}

/// One mark.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mark {
    /// What is measured, in words with its unit.
    pub name: String,
    /// What it has to be.
    pub target: Target,
    /// What it is; `None` if no row says.
    pub value: Option<f64>,
    /// Where that was measured, in words.
    pub place: String,
    /// How far the rounds lie apart that the value is from, as a share of it; 0 if that is not known.
    pub noise: f64,
}

impl Mark {
    /// Whether the target is reached; `None` if it was not measured.
    pub(super) fn is_met(&self) -> Option<bool> {
        let value = self.value?;
        Some(match self.target {
            Target::AtMost(bound) => value <= bound,
            Target::Below(bound) => value < bound,
        })
    }

    /// Whether rounds lie as far apart as the value from its target.
    pub(super) fn is_close(&self) -> bool {
        self.value.is_some_and(|value| (value - self.bound()).abs() < self.noise * value.abs())
    }

    /// The target's number.
    pub(super) const fn bound(&self) -> f64 {
        let (Target::AtMost(bound) | Target::Below(bound)) = self.target;
        bound
    }

    /// What it comes to, in words.
    pub(super) fn verdict(&self) -> String {
        let close = if self.is_close() { ", within the noise" } else { "" };
        match (self.is_met(), self.value) {
            (Some(true), _) => format!("reached{close}"),
            (Some(false), Some(value)) => {
                format!("missed by {:.0} %{close}", 100.0 * (value - self.bound()) / self.bound())
            }
            _ => "not run".to_owned(),
        }
    }
}

/// All marks, in order.
pub(super) fn marks(rows: &[Row]) -> Vec<Mark> {
    vec![
        cpu_over_envoy(rows),
        cpu_over_rival(rows),
        added_p50(rows, SMALL_BODY_BYTES, 0.1),
        added_p50(rows, LARGE_BODY_BYTES, 1.5),
        chunk(rows),
        memory(rows),
    ]
}

fn cpu_over_envoy(rows: &[Row]) -> Mark {
    let ours = Cell::MAIN.row(rows, OURS).filter(|row| row.cpu_ratio_to_envoy > 0.0);
    Mark {
        name: "CPU for each request over plain Envoy's".to_owned(),
        target: Target::AtMost(1.5),
        value: ours.map(|row| row.cpu_ratio_to_envoy),
        place: Cell::MAIN.words(),
        noise: ours.map_or(0.0, |row| row.cpu_noise),
    }
}

/// Both are known as ratios to plain Envoy in the same round, so their ratio does not depend on how fast the machine was.
fn cpu_over_rival(rows: &[Row]) -> Mark {
    let ratio = |name| Cell::MAIN.row(rows, name).filter(|row| row.cpu_ratio_to_envoy > 0.0);
    let both = ratio(OURS).zip(ratio(RIVAL));
    Mark {
        name: format!("CPU for each request over {RIVAL}'s"),
        target: Target::Below(0.7),
        value: both.map(|(ours, theirs)| ours.cpu_ratio_to_envoy / theirs.cpu_ratio_to_envoy),
        place: Cell::MAIN.words(),
        noise: both.map_or(0.0, |(ours, theirs)| ours.cpu_noise + theirs.cpu_noise),
    }
}

/// On as few connections as were run: on many, requests wait for each other, and latency is CPU once more.
fn added_p50(rows: &[Row], body_bytes: usize, bound_ms: f64) -> Mark {
    let is_its = |cell: &Cell| *cell == Cell { body_bytes, connections: cell.connections, ..Cell::MAIN };
    let both = |cell: Cell| Some((cell, cell.row(rows, OURS)?, cell.row(rows, BASE)?));
    let found = cells(rows).into_iter().filter(is_its).filter_map(both).min_by_key(|(cell, ..)| cell.connections);
    Mark {
        name: format!("added p50, ms, {} KB", body_bytes >> 10),
        target: Target::AtMost(bound_ms),
        value: found.map(|(_, ours, base)| ours.p50_ms - base.p50_ms),
        place: found.map_or_else(String::new, |(cell, ..)| cell.words()),
        noise: 0.0,
    }
}

/// The request's own cost is in it: over thousands of chunks it is nothing.
fn chunk(rows: &[Row]) -> Mark {
    let streams = cells(rows).into_iter().filter(|cell| cell.stream_chunks > 0);
    let both = |cell: Cell| Some((cell, cell.row(rows, OURS)?, cell.row(rows, BASE)?));
    let found = streams.filter_map(both).max_by_key(|(cell, ..)| cell.stream_chunks);
    Mark {
        name: "added CPU, us for each streamed chunk".to_owned(),
        target: Target::AtMost(1.5),
        value: found.map(|(cell, ours, base)| {
            (ours.cpu_us_per_request - base.cpu_us_per_request) / f64::from(cell.stream_chunks)
        }),
        place: found.map_or_else(String::new, |(cell, ..)| cell.words()),
        // Of the difference, which both move.
        noise: found.map_or(0.0, |(_, ours, base)| {
            let (ours_us, base_us) = (ours.cpu_us_per_request, base.cpu_us_per_request);
            (ours.cpu_noise * ours_us + base.cpu_noise * base_us) / (ours_us - base_us).abs()
        }),
    }
}

fn memory(rows: &[Row]) -> Mark {
    let both = Cell::MAIN.row(rows, OURS).zip(Cell::MAIN.row(rows, BASE));
    Mark {
        name: format!("memory over plain Envoy's, MB, of which {INDEX_MB:.1} MB are the index"),
        target: Target::AtMost(40.0 + INDEX_MB),
        value: both.map(|(ours, base)| ours.rss_mb - base.rss_mb),
        place: Cell::MAIN.words(),
        noise: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{change, full_run};
    use super::*;

    #[test]
    fn a_run_that_reaches_everything_meets_every_mark() {
        for mark in marks(&full_run()) {
            assert_eq!(mark.is_met(), Some(true), "{mark:?}");
            assert!(mark.verdict().starts_with("reached"), "{mark:?}");
        }
    }

    #[test]
    fn no_rows_meet_no_mark() {
        for mark in marks(&[]) {
            assert_eq!((mark.is_met(), mark.verdict().as_str()), (None, "not run"), "{mark:?}");
        }
    }

    #[test]
    fn one_bad_number_misses_its_mark_and_no_other() {
        struct Case {
            name: &'static str,
            cell: Cell,
            path: &'static str,
            change: fn(&mut Row),
            missed: &'static [usize],
            verdict: &'static str,
        }
        let stream = Cell { connections: 4, stream_chunks: 10_000, ..Cell::MAIN };
        let cases = [
            Case {
                name: "ours takes more CPU",
                cell: Cell::MAIN,
                path: OURS,
                change: |row| row.cpu_ratio_to_envoy = 1.8,
                missed: &[0],
                verdict: "missed by 20 %",
            },
            Case {
                name: "the other router takes less",
                cell: Cell::MAIN,
                path: RIVAL,
                change: |row| row.cpu_ratio_to_envoy = 1.4,
                missed: &[1],
                verdict: "missed by 43 %",
            },
            Case {
                name: "exactly 0.7 is not below",
                cell: Cell::MAIN,
                path: RIVAL,
                change: |row| row.cpu_ratio_to_envoy = 2.0,
                missed: &[1],
                verdict: "missed by 0 %, within the noise",
            },
            Case {
                name: "a small body waits",
                cell: Cell { connections: 1, ..Cell::MAIN },
                path: OURS,
                change: |row| row.p50_ms += 0.1448,
                missed: &[2],
                verdict: "missed by 100 %",
            },
            Case {
                name: "a large body waits",
                cell: Cell { connections: 1, body_bytes: LARGE_BODY_BYTES, ..Cell::MAIN },
                path: OURS,
                change: |row| row.p50_ms += 1.556,
                missed: &[3],
                verdict: "missed by 33 %",
            },
            Case {
                name: "chunks",
                cell: stream,
                path: OURS,
                change: |row| row.cpu_us_per_request += 10_000.0,
                missed: &[4],
                verdict: "missed by 34 %",
            },
            Case {
                name: "memory",
                cell: Cell::MAIN,
                path: OURS,
                change: |row| row.rss_mb += 30.0,
                missed: &[5],
                verdict: "missed by 36 %",
            },
        ];
        for case in cases {
            let mut rows = full_run();
            change(&mut rows, case.cell, case.path, case.change);
            let marks = marks(&rows);
            let missed: Vec<usize> = (0..marks.len()).filter(|mark| marks[*mark].is_met() == Some(false)).collect();
            assert_eq!(missed, case.missed, "{}: {marks:#?}", case.name);
            assert_eq!(marks[missed[0]].verdict(), case.verdict, "{}: {:?}", case.name, marks[missed[0]]);
        }
    }

    #[test]
    fn latency_is_compared_on_as_few_connections_as_there_are() {
        let mut rows = full_run();
        let place = |rows: &[Row]| marks(rows)[3].place.clone();
        assert_eq!(place(&rows), "220 KB, 1 connection, 4 workers");
        rows.retain(|row| row.connections > 1);
        assert_eq!(place(&rows), "220 KB, 16 connections, 4 workers");
        rows.retain(|row| row.name() != BASE || row.body_bytes != LARGE_BODY_BYTES);
        assert_eq!(marks(&rows)[3].value, None);
    }
}
