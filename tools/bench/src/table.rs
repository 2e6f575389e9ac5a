//! The results as text.

use std::fmt::Write;

use warmroute_report::table::Table;

use crate::environment::Environment;
use crate::row::Row;

const HEAD: [&str; 10] =
    ["path", "requests/s", "CPU/request", "x Envoy", "noise", "p50", "p90", "p99", "rate x Envoy", "memory"];

/// A table for each cell.
pub(crate) fn cost(rows: &[Row]) -> String {
    let mut text = String::new();
    let cell = |row: &Row| (row.body_bytes, row.connections, row.workers, row.stream_chunks);
    for rows in rows.chunk_by(|a, b| cell(a) == cell(b)) {
        let Some(first) = rows.first() else { continue };
        let stream = if first.stream_chunks > 0 { format!(", {} chunks", first.stream_chunks) } else { String::new() };
        let _ = writeln!(
            text,
            "\n{} bytes, {} connections, {} workers{stream}, {} rounds",
            first.body_bytes, first.connections, first.workers, first.rounds
        );
        let _ = write!(text, "{}", table(rows));
    }
    if rows.is_empty() { table(rows).to_string() } else { text }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&HEAD);
    for row in rows {
        let of_router = |text: String| if row.cpu_us_per_request > 0.0 { text } else { "-".to_owned() };
        table.row([
            row.name(),
            format!("{:.0}", row.requests_per_s),
            of_router(format!("{:.1} us", row.cpu_us_per_request)),
            of_router(format!("{:.2}", row.cpu_ratio_to_envoy)),
            of_router(format!("{:.0} %", row.cpu_noise * 100.0)),
            format!("{:.2} ms", row.p50_ms),
            format!("{:.2} ms", row.p90_ms),
            format!("{:.2} ms", row.p99_ms),
            format!("{:.2}", row.rps_ratio_to_envoy),
            of_router(format!("{:.0} MB", row.rss_mb)),
        ]);
    }
    table
}

/// How much the machine is to be trusted.
pub(crate) fn machine(environment: &Environment) -> String {
    format!(
        "{} cores, load average {} before and {} after. envoy/round-robin's rounds lie up to {:.0} % apart.\n\
         CPU is user and system time of the router's processes; ratios are medians of those within each round.\n\
         The load, the workers and the router share the cores: requests/s is what is left, not a limit of the router.",
        environment.cores,
        environment.load_average_before,
        environment.load_average_after,
        environment.cpu_noise_max * 100.0
    )
}
