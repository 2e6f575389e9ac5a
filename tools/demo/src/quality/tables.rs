//! Rows of several seeds, put together: a table for each workload.

use warmroute_report::statistics::geometric_mean;
use warmroute_report::table::{Entry, Table};

use super::row::Row;

/// One path's rows of one workload, a row for each seed.
pub(crate) struct Group<'a> {
    /// How the path is called.
    pub(crate) name: String,
    /// At least one.
    pub(crate) rows: Vec<&'a Row>,
}

impl Group<'_> {
    /// The mean over the seeds.
    pub(crate) fn mean(&self, of: impl Fn(&Row) -> f64) -> f64 {
        self.rows.iter().map(|row| of(row)).sum::<f64>() / self.rows.len() as f64
    }

    /// The geometric mean over the seeds of a ratio; `None` if none is known.
    pub(crate) fn ratio(&self, of: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        geometric_mean(self.rows.iter().filter_map(|row| of(row)))
    }

    /// The ratio with the least and the greatest of the seeds, as text.
    fn ratio_text(&self, of: impl Fn(&Row) -> Option<f64> + Copy) -> String {
        let Some(mean) = self.ratio(of) else { return String::new() };
        let each = || self.rows.iter().filter_map(|row| of(row));
        let (least, most) = (each().fold(f64::INFINITY, f64::min), each().fold(0.0, f64::max));
        if self.rows.len() > 1 { format!("{mean:.2} ({least:.2}-{most:.2})") } else { format!("{mean:.2}") }
    }
}

/// The paths of a workload, the best mean TTFT first.
pub(crate) fn groups<'a>(rows: &'a [Row], workload: &str) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for row in rows.iter().filter(|row| row.workload == workload) {
        match groups.iter_mut().find(|group| group.name == row.name()) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group { name: row.name(), rows: vec![row] }),
        }
    }
    let ttft = |group: &Group<'_>| group.mean(|row| row.ttft_mean_ms);
    groups.sort_by(|left, right| ttft(left).total_cmp(&ttft(right)));
    groups
}

/// What is measured of one workload.
pub(crate) fn of_workload(rows: &[Row], workload: &str) -> Table {
    let mut table = Table::new(&[
        "path",
        "TTFT by Envoy's round robin",
        "TTFT mean ms",
        "p50",
        "p90",
        "p99",
        "end to end mean ms",
        "by Envoy's round robin",
        "token hit rate",
        "requests max/mean",
        "computed tokens max/mean",
        "errors",
        "sent late by at most ms",
    ]);
    for group in groups(rows, workload) {
        let ms = |of: fn(&Row) -> f64| format!("{:.0}", group.mean(of));
        let entries = [
            group.name.clone(),
            group.ratio_text(|row| row.ttft_mean_by_round_robin),
            ms(|row| row.ttft_mean_ms),
            ms(|row| row.ttft_p50_ms),
            ms(|row| row.ttft_p90_ms),
            ms(|row| row.ttft_p99_ms),
            ms(|row| row.latency_mean_ms),
            group.ratio_text(|row| row.latency_mean_by_round_robin),
            format!("{:.1} %", group.mean(|row| row.token_hit_rate) * 100.0),
            format!("{:.2}", group.mean(|row| row.requests_max_by_mean)),
            format!("{:.2}", group.mean(|row| row.computed_max_by_mean)),
            group.rows.iter().map(|row| row.errors).sum::<usize>().to_string(),
            format!("{:.0}", group.rows.iter().map(|row| row.late_max_ms).fold(0.0, f64::max)),
        ];
        table.row(entries.map(Entry::from));
    }
    table
}
