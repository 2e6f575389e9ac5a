//! What a run has shown, as JSON and as a page.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use warmroute_report::table::Table;

use crate::journal::{Count, Violation};
use crate::memory::Memory;
use crate::options::Options;
use crate::tally::Requests;
use crate::watch::Seen;

/// The counters of the plugin that tell what the faults made it do.
const COUNTERS: [&str; 12] = [
    "requests_total",
    "routed_total",
    "answered_first_pick_total",
    "answered_later_pick_total",
    "answered_other_total",
    "answered_by_host_total",
    "unanswered_total",
    "all_unavailable_total",
    "polls_sent_total",
    "polls_failed_total",
    "lease_taken_total",
    "page_conflicts_total",
];

/// A fault's row in the report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FaultRow {
    /// As in [`crate::fault::FAULTS`] or [`crate::load::KINDS`].
    pub name: &'static str,
    /// How it ended.
    pub heal: &'static str,
    /// How often.
    #[serde(flatten)]
    pub count: Count,
    /// Whether it could be felt in this run; what could not be is not injected.
    pub is_felt: bool,
}

/// All that a run has shown.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What it was told.
    #[serde(serialize_with = "told")]
    pub options: Options,
    /// How long it took, lulls included, seconds.
    pub took_s: f64,
    /// Of workers and operators, then of clients.
    pub faults: Vec<FaultRow>,
    /// By kind.
    pub requests: BTreeMap<&'static str, Requests>,
    /// Envoy's memory.
    pub memory: Memory,
    /// Lulls, after each of which nothing may be in flight.
    pub lulls: u64,
    /// What was looked at all along.
    pub seen: Seen,
    /// All of them.
    pub violations_total: u64,
    /// The first of them.
    pub violations: Vec<Violation>,
    /// The end of Envoy's log, where something was violated.
    pub log_tail: String,
}

fn told<S: serde::Serializer>(options: &Options, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{options:?}"))
}

impl Report {
    /// Whether nothing was violated.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations_total == 0
    }

    /// The most requests that any look saw in flight.
    #[must_use]
    pub fn inflight_max(&self) -> u64 {
        self.seen.samples.iter().map(|sample| sample.inflight).max().unwrap_or(0)
    }

    /// Writes `report.md` and `report.json` into the folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        fs::write(folder.join("report.json"), serde_json::to_vec_pretty(self)?)?;
        fs::write(folder.join("report.md"), self.page())?;
        Ok(())
    }

    /// As Markdown.
    #[must_use]
    pub fn page(&self) -> String {
        let verdict = match self.violations_total {
            0 => "Nothing was violated.".to_owned(),
            count => format!("**{count} violations**, see the end."),
        };
        let options = &self.options;
        let mut page = format!(
            "# Soak and chaos\n\n{verdict} Seed {}, {:.0} s with {} lulls, {} workers and {} more that came and went, at \
             least {} untouched at any time, {} Envoy threads, {} clients, {} retries, workers {}.\n",
            options.seed,
            self.took_s,
            self.lulls,
            options.workers,
            options.spares,
            options.healthy_min,
            options.threads,
            options.clients,
            options.retries,
            if options.listed { "listed" } else { "discovered" },
        );
        page += &format!("\n## Faults\n\n{}", self.faults_table().markdown());
        page += &format!("\n## Requests\n\n{}", self.requests_table().markdown());
        page += "\nCut: an answer that had begun when its worker was killed or hung. Times are of what was answered.\n";
        page += &format!("\n## Envoy\n\n{}", self.envoy_table().markdown());
        page += &format!("\nMemory, MB, every tenth look: {}\n", self.memory_course());
        page += &self.violations_text();
        page
    }

    fn faults_table(&self) -> Table {
        let mut table = Table::new(&["fault", "ended by", "injected", "survived"]);
        for FaultRow { name, heal, count, is_felt } in &self.faults {
            let [injected, survived] = match is_felt {
                true => [count.injected.to_string(), count.survived.to_string()],
                false => ["nobody would feel it".to_owned(), String::new()],
            };
            table.row([(*name).to_owned(), (*heal).to_owned(), injected, survived]);
        }
        table
    }

    fn requests_table(&self) -> Table {
        let head =
            ["kind", "sent", "answered", "refused", "aborted", "cut", "lost", "corrupt", "p50 ms", "p95", "p99", "max"];
        let mut table = Table::new(&head);
        for (name, kind) in &self.requests {
            let counts = [kind.sent, kind.answered, kind.refused, kind.aborted, kind.cut, kind.lost, kind.corrupt];
            let latency = kind.latency;
            let times = [latency.p50_ms, latency.p95_ms, latency.p99_ms, latency.max_ms];
            let texts = std::iter::once((*name).to_owned()).chain(counts.iter().map(u64::to_string));
            table.row(texts.chain(times.iter().map(|time| format!("{time:.0}"))));
        }
        table
    }

    fn envoy_table(&self) -> Table {
        let mut table = Table::new(&["", ""]);
        let memory = &self.memory;
        let mb = |mb: f64| format!("{mb:.0} MB");
        table.row(["memory at first, after the warm-up, at last".to_owned(), {
            format!("{:.0}, {:.0}, {}", memory.first_mb, memory.warm_mb, mb(memory.last_mb))
        }]);
        table.row(["memory, most".to_owned(), mb(memory.max_mb)]);
        table.row(["growth after the warm-up".to_owned(), {
            format!("{:.0} of at most {}", memory.growth_mb(), mb(memory.growth_mb_max))
        }]);
        table.row(["VMs that crashed".to_owned(), self.seen.vm_reloads.to_string()]);
        let pause_s = self.seen.scrape_pause_max_s;
        table.row(["longest pause of the scrapes, of looks every 0.5 s".to_owned(), format!("{pause_s:.1} s")]);
        table.row(["most requests in flight".to_owned(), self.inflight_max().to_string()]);
        for name in COUNTERS {
            let count = self.seen.counters.get(name).copied().unwrap_or(0);
            table.row([format!("`{name}`"), count.to_string()]);
        }
        table
    }

    fn memory_course(&self) -> String {
        let course = self.seen.samples.iter().step_by(10).map(|sample| format!("{:.0}", sample.resident_mb));
        course.collect::<Vec<_>>().join(" ")
    }

    fn violations_text(&self) -> String {
        if self.is_clean() {
            return String::new();
        }
        let mut text = format!("\n## Violations: {}\n", self.violations_total);
        for Violation { at_s, what, faults } in &self.violations {
            text += &format!("\n- at {at_s:.1} s: {}\n", what.replace('\n', " "));
            text.extend(faults.iter().map(|fault| format!("  - {fault}\n")));
        }
        let at_violation = self.seen.log_at_violation.as_deref().unwrap_or_default();
        text += &format!("\n## Envoy's log at the first violation\n\n```\n{at_violation}\n```\n");
        text + &format!("\n## The end of Envoy's log\n\n```\n{}\n```\n", self.log_tail)
    }
}
