//! The table: what each stage takes of a request, and how much of that is calls of the host.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use warmroute::stage::{HostCall, Stage};
use warmroute_report::table::Table;

use crate::native;
use crate::vm::Run;

/// A stage's or a kind of host call's part of a request.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    kind: Kind,
    name: &'static str,
    body_bytes: usize,
    workers: usize,
    policy: String,
    per_request: PerRequest,
    /// Of all stages' time, 0.0 to 1.0.
    share: f64,
    native_us: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stage,
    /// Work that no request causes: how often and how long while one was served, on average.
    Root,
    HostCall,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct PerRequest {
    calls: f64,
    us: f64,
    host_calls: f64,
    host_us: f64,
    bytes: f64,
}

impl Row {
    pub(crate) fn to_json(&self) -> Value {
        let kind = match self.kind {
            Kind::Stage => "stage",
            Kind::Root => "root",
            Kind::HostCall => "host_call",
        };
        let PerRequest { calls, us, host_calls, host_us, bytes } = self.per_request;
        json!({
            "kind": kind, "name": self.name, "policy": self.policy, "body_bytes": self.body_bytes,
            "workers": self.workers, "calls_per_request": calls, "us_per_request": us, "share": self.share,
            "host_calls_per_request": host_calls, "host_us_per_request": host_us, "host_bytes_per_request": bytes,
            "native_us": self.native_us,
        })
    }
}

/// The rows of a run, stages first.
///
/// Between two marks the clock is read once, and twice for each host call; within what a host call is said to have taken,
/// once. What a reading costs the plugin measures itself, by some in a row.
pub(crate) fn of_run(run: &Run, native: &BTreeMap<String, f64>) -> Vec<Row> {
    let clock_ns = clock_ns(run);
    let of = |what: &str, name: &str, of: &str| number(run, &format!("warmroute_{what}_{name}_{of}_total"));
    let requests = run.requests as f64;
    let us = |ns: f64, readings: f64| (ns - readings * clock_ns).max(0.0) / 1_000.0 / requests;
    let row = |kind, name, per_request, native_us| Row {
        kind,
        name,
        body_bytes: run.body_bytes,
        workers: run.workers,
        policy: run.policy.clone(),
        per_request,
        share: 0.0,
        native_us,
    };
    let stages = Stage::ALL.iter().map(|stage| {
        let name = stage.name();
        let (calls, host_calls) = (of("stage", name, "calls"), of("stage", name, "host_calls"));
        let per_request = PerRequest {
            calls: calls / requests,
            us: us(of("stage", name, "ns"), calls + 2.0 * host_calls),
            host_calls: host_calls / requests,
            host_us: us(of("stage", name, "host_ns"), host_calls),
            bytes: 0.0,
        };
        let kind = if stage.is_of_root() { Kind::Root } else { Kind::Stage };
        row(kind, name, per_request, native::find(native, name, run.body_bytes, run.workers, &run.policy))
    });
    let calls = HostCall::ALL.iter().map(|call| {
        let name = call.name();
        let calls = of("host_call", name, "calls");
        let host_us = us(of("host_call", name, "ns"), calls);
        let per_request = PerRequest {
            calls: calls / requests,
            us: host_us,
            host_calls: calls / requests,
            host_us,
            bytes: of("host_call", name, "bytes") / requests,
        };
        row(Kind::HostCall, name, per_request, None)
    });
    let mut rows: Vec<Row> = stages.chain(calls).filter(|row| row.per_request.calls > 0.0).collect();
    let total_us: f64 = rows.iter().filter(|row| row.kind == Kind::Stage).map(|row| row.per_request.us).sum();
    rows.iter_mut().for_each(|row| row.share = row.per_request.us / total_us);
    rows
}

fn number(run: &Run, name: &str) -> f64 {
    run.counters.get(name).map_or(0.0, |value| *value as f64)
}

/// What a reading of the clock takes.
fn clock_ns(run: &Run) -> f64 {
    number(run, "warmroute_stage_clock_ns_total") / number(run, "warmroute_stage_clock_calls_total").max(1.0)
}

/// Prints a run's rows.
pub(crate) fn print(run: &Run, rows: &[Row]) {
    println!(
        "\n{} KB bodies, {} workers, {}: {} requests, {:.0} a second; a reading of the clock {:.0} ns",
        run.body_bytes >> 10,
        run.workers,
        run.policy,
        run.requests,
        run.requests as f64 / run.seconds,
        clock_ns(run)
    );
    let stages = || rows.iter().filter(|row| row.kind == Kind::Stage);
    let mut table = Table::new(&["stage", "times", "us", "share", "host calls", "us of them", "native us"]);
    for row in stages().chain(rows.iter().filter(|row| row.kind == Kind::Root)) {
        let PerRequest { calls, us, host_calls, host_us, .. } = row.per_request;
        let share = if row.kind == Kind::Stage { format!("{:.1} %", row.share * 100.0) } else { "besides".to_owned() };
        let native = row.native_us.map_or_else(String::new, |us| format!("{us:.2}"));
        table.row([
            row.name.to_owned(),
            format!("{calls:.1}"),
            format!("{us:.2}"),
            share,
            format!("{host_calls:.1}"),
            format!("{host_us:.2}"),
            native,
        ]);
    }
    let sum = |of: fn(&PerRequest) -> f64| stages().map(|row| of(&row.per_request)).sum::<f64>();
    let (us, host_calls, host_us) = (sum(|of| of.us), sum(|of| of.host_calls), sum(|of| of.host_us));
    table.row([
        "a request".to_owned(),
        String::new(),
        format!("{us:.2}"),
        "100 %".to_owned(),
        format!("{host_calls:.1}"),
        format!("{host_us:.2}"),
        String::new(),
    ]);
    println!("{}", table.plain());
    let mut table = Table::new(&["host call", "calls", "us", "us each", "bytes", "share"]);
    for row in rows.iter().filter(|row| row.kind == Kind::HostCall) {
        let PerRequest { calls, us, bytes, .. } = row.per_request;
        table.row([
            row.name.to_owned(),
            format!("{calls:.1}"),
            format!("{us:.2}"),
            format!("{:.2}", us / calls),
            format!("{bytes:.0}"),
            format!("{:.1} %", row.share * 100.0),
        ]);
    }
    println!("{}", table.plain());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_of_the_clock_are_taken_out_and_shares_are_of_the_requests_stages() {
        let counters = [
            ("warmroute_stage_clock_ns_total", 5_000),
            ("warmroute_stage_clock_calls_total", 100),
            ("warmroute_stage_parse_ns_total", 30_500),
            ("warmroute_stage_parse_calls_total", 10),
            ("warmroute_stage_trunk_ns_total", 13_000),
            ("warmroute_stage_trunk_calls_total", 20),
            ("warmroute_stage_trunk_host_ns_total", 4_000),
            ("warmroute_stage_trunk_host_calls_total", 20),
            ("warmroute_stage_tick_ns_total", 70_000),
            ("warmroute_stage_tick_calls_total", 5),
            ("warmroute_host_call_get_shared_data_ns_total", 4_000),
            ("warmroute_host_call_get_shared_data_calls_total", 20),
            ("warmroute_host_call_get_shared_data_bytes_total", 81_920),
        ];
        let run = Run {
            body_bytes: 4_096,
            workers: 4,
            policy: "hybrid".to_owned(),
            requests: 10,
            seconds: 1.0,
            counters: counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        };
        let rows = of_run(&run, &BTreeMap::new());
        let of = |name| rows.iter().find(|row| row.name == name).map(|row| (row.per_request, row.share));
        let stage = |calls, us, host_calls, host_us, bytes| PerRequest { calls, us, host_calls, host_us, bytes };
        // 30,500 ns less 10 readings of 50 ns, of 10 requests; the trunk has 20 readings and 2 for each of 20 calls.
        assert_eq!(of("parse"), Some((stage(1.0, 3.0, 0.0, 0.0, 0.0), 0.75)));
        assert_eq!(of("trunk"), Some((stage(2.0, 1.0, 2.0, 0.3, 0.0), 0.25)));
        assert_eq!(of("get_shared_data").map(|row| row.0), Some(stage(2.0, 0.3, 2.0, 0.3, 8_192.0)));
        assert_eq!(of("delete"), None, "what never ran has no row");
    }
}
