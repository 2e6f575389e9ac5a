//! The run's tables.

use warmroute_report::statistics::geometric_mean;
use warmroute_report::table::{Entry, Table};

use crate::report::row::Row;
use crate::report::select::{Cell, OURS, cells, is_oracle, policies, ratios};

/// Seconds with three significant digits or so.
#[must_use]
pub fn seconds(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// A share as a percentage.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// A column of a cell's table: head, value, how to write it, whether less is better.
type Column = (&'static str, fn(&Row) -> f64, fn(&Row) -> String, bool);

const COLUMNS: &[Column] = &[
    (
        "TTFT mean, s",
        |row| row.ttft_mean_s,
        |row| format!("{} ±{:.3}", seconds(row.ttft_mean_s), row.ttft_mean_ci_s),
        true,
    ),
    ("p50", |row| row.ttft_p50_s, |row| seconds(row.ttft_p50_s), true),
    ("p90", |row| row.ttft_p90_s, |row| seconds(row.ttft_p90_s), true),
    ("p99", |row| row.ttft_p99_s, |row| seconds(row.ttft_p99_s), true),
    ("end to end, s", |row| row.e2e_mean_s, |row| seconds(row.e2e_mean_s), true),
    ("good, %", |row| row.good_share, |row| percent(row.good_share), false),
    ("token hit, %", |row| row.token_hit_rate, |row| percent(row.token_hit_rate), false),
    ("max/mean requests", |row| row.max_over_mean_requests, |row| format!("{:.2}", row.max_over_mean_requests), true),
];

/// One cell: see [`rows_table`].
#[must_use]
pub fn cell_table(rows: &[Row], cell: &Cell) -> Table {
    rows_table(rows.iter().filter(|row| cell.has(row)).collect())
}

/// A line for each row: ours first, then by mean TTFT, oracles last and never the best.
#[must_use]
pub fn rows_table(mut rows: Vec<&Row>) -> Table {
    let place = |row: &Row| (row.policy != OURS, is_oracle(&row.policy));
    rows.sort_by(|a, b| place(a).cmp(&place(b)).then(a.ttft_mean_s.total_cmp(&b.ttft_mean_s)));
    let heads: Vec<&str> = std::iter::once("policy").chain(COLUMNS.iter().map(|(head, ..)| *head)).collect();
    let best = |column: &Column| {
        let (_, value, _, is_less_better) = *column;
        let values = rows.iter().filter(|row| !is_oracle(&row.policy)).map(|row| value(row));
        if is_less_better { values.fold(f64::INFINITY, f64::min) } else { values.fold(f64::NEG_INFINITY, f64::max) }
    };
    let bests: Vec<f64> = COLUMNS.iter().map(best).collect();
    let mut table = Table::new(&heads);
    for row in rows {
        let entry = |(column, best): (&Column, &f64)| Entry {
            text: (column.2)(row),
            is_best: !is_oracle(&row.policy) && (column.1)(row).total_cmp(best).is_eq(),
        };
        table.row(std::iter::once(Entry::from(row.policy.as_str())).chain(COLUMNS.iter().zip(&bests).map(entry)));
    }
    table
}

/// A policy's distance from ours over all cells that both have.
#[derive(Clone, Debug, PartialEq)]
pub struct Distance<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// Cells compared.
    pub cells: usize,
    /// Geometric mean of its mean TTFT over ours; above 1 is slower than ours.
    pub ttft: f64,
    /// Geometric mean of its mean end-to-end time over ours.
    pub e2e: f64,
    /// Its highest TTFT ratio, and where.
    pub worst: (f64, Cell),
    /// Its lowest TTFT ratio, and where.
    pub best: (f64, Cell),
}

/// The distances of all policies but ours with one gateway, the nearest first.
#[must_use]
pub fn distances(rows: &[Row]) -> Vec<Distance<'_>> {
    let cells: Vec<Cell> = cells(rows).into_iter().filter(|cell| cell.gateways == 1).collect();
    let distance = |policy| {
        let ttft: Vec<(&Cell, f64)> = ratios(rows, &cells, policy, |row| row.ttft_mean_s).collect();
        let worst = ttft.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let best = ttft.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(Distance {
            policy,
            cells: ttft.len(),
            ttft: geometric_mean(ttft.iter().map(|(_, ratio)| *ratio))?,
            e2e: geometric_mean(ratios(rows, &cells, policy, |row| row.e2e_mean_s).map(|(_, ratio)| ratio))?,
            worst: (worst.1, worst.0.clone()),
            best: (best.1, best.0.clone()),
        })
    };
    let mut distances: Vec<Distance<'_>> =
        policies(rows).into_iter().filter(|policy| *policy != OURS).filter_map(distance).collect();
    distances.sort_by(|a, b| a.ttft.total_cmp(&b.ttft));
    distances
}

/// A ratio with three significant digits or so.
#[must_use]
pub fn ratio(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// The ratios to ours over all cells with one gateway.
#[must_use]
pub fn distance_table(rows: &[Row]) -> Table {
    let place = |(value, cell): &(f64, Cell)| format!("{} ({})", ratio(*value), cell.words());
    let mut table =
        Table::new(&["policy", "cells", "mean TTFT / ours", "end to end / ours", "worst cell", "best cell"]);
    for distance in distances(rows) {
        table.row([
            distance.policy.to_owned(),
            distance.cells.to_string(),
            ratio(distance.ttft),
            ratio(distance.e2e),
            place(&distance.worst),
            place(&distance.best),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::select::testing::{full_run, row};
    use super::*;

    #[test]
    fn a_cells_table_orders_by_ttft_and_marks_the_best_but_no_oracle() {
        let rows = [
            row("random", "chat", 0.8, 1, 9.0, 0.2),
            row("oracle-ttft", "chat", 0.8, 1, 0.5, 0.9),
            row("lmetric", "chat", 0.8, 1, 0.75, 0.4),
            row(OURS, "chat", 0.8, 1, 1.0, 0.6),
        ];
        let table = cell_table(&rows, &Cell::new("chat", 0.8, 1));
        let markdown = table.markdown();
        let order: Vec<&str> = table.rows().iter().map(|row| row[0].text.as_str()).collect();
        assert_eq!(order, [OURS, "lmetric", "random", "oracle-ttft"]);
        assert!(markdown.contains("| lmetric | **0.750 ±0.007** |"), "{markdown}");
        assert!(markdown.contains("| **60.0** |") && !markdown.contains("**90.0**"), "{markdown}");
        let plain = table.plain();
        let its_line = plain.lines().find(|line| line.trim_start().starts_with("lmetric"));
        assert!(its_line.is_some_and(|line| line.contains("0.750 ±0.007*")), "{plain}");
    }

    #[test]
    fn distances_are_geometric_means_over_cells_with_one_gateway() {
        let mut rows = full_run();
        let is_its = |row: &&mut Row| {
            row.policy == "random" && row.load == 1.2 && row.workload == "hot" && row.model == "batching"
        };
        rows.iter_mut().find(is_its).unwrap().ttft_mean_s *= 10.0;
        let distances = distances(&rows);
        assert_eq!(distances[0].policy, "oracle-ttft");
        let random = distances.last().unwrap();
        assert_eq!((random.policy, random.cells), ("random", 20));
        assert!((random.ttft - 2.0 * 10.0_f64.powf(1.0 / 20.0)).abs() < 1e-9, "{random:?}");
        assert_eq!(random.worst.1, Cell::new("hot", 1.2, 1));
        assert!(distance_table(&rows).markdown().contains("| random | 20 | 2.24 |"));
    }

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in [(0.0421, "0.042"), (1.336, "1.34"), (17.46, "17.5"), (274.6, "275")] {
            assert_eq!(seconds(value), text);
        }
    }
}
