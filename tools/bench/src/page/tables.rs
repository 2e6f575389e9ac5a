//! The page's tables of rows.

use warmroute_report::number::significant;
use warmroute_report::table::Table;

use super::select::{Axis, BASE, Cell, NOOP, OURS, cells, names};
use crate::row::Row;

/// What stands where nothing was measured.
const NOTHING: &str = "–";

/// All paths in one cell; those of `expected` that were not run are named.
pub(super) fn cell_table(rows: &[Row], cell: Cell, expected: &[String]) -> Table {
    let mut table = Table::new(&[
        "path",
        "CPU, us",
        "over plain Envoy",
        "spread, %",
        "p50, ms",
        "p90, ms",
        "p99, ms",
        "requests/s",
        "over plain Envoy",
        "memory, MB",
    ]);
    for name in names(cell.rows(rows)) {
        if let Some(row) = cell.row(rows, &name) {
            // What is no router has no cost.
            let of_router = |text: String| if row.cpu_us_per_request > 0.0 { text } else { NOTHING.to_owned() };
            table.row([
                name,
                of_router(significant(row.cpu_us_per_request, 3)),
                of_router(ratio(row.cpu_ratio_to_envoy)),
                of_router(format!("{:.0}", 100.0 * row.cpu_noise)),
                significant(row.p50_ms, 3),
                significant(row.p90_ms, 3),
                significant(row.p99_ms, 3),
                format!("{:.0}", row.requests_per_s),
                ratio(row.rps_ratio_to_envoy),
                of_router(format!("{:.0}", row.rss_mb)),
            ]);
        }
    }
    for name in missing(rows, cell, expected) {
        table.row([name, "not run".to_owned()]);
    }
    table
}

/// The paths of `expected` that have no row in a cell.
pub(super) fn missing(rows: &[Row], cell: Cell, expected: &[String]) -> Vec<String> {
    expected.iter().filter(|name| cell.row(rows, name).is_none()).cloned().collect()
}

/// Along one axis: every cell, in it those paths that every run measures there, with what they add to plain Envoy.
pub(super) fn axis_table(rows: &[Row], axis: Axis, everywhere: &[String]) -> Table {
    let mut table = Table::new(&[
        axis.name,
        "path",
        "CPU, us",
        "added, us",
        "over plain Envoy",
        "spread, %",
        "p50, ms",
        "added, ms",
    ]);
    for cell in axis.cells(rows) {
        for row in everywhere.iter().filter_map(|name| cell.row(rows, name)) {
            table.row(axis_line((axis.x_text)((axis.x)(cell)), row, cell.row(rows, BASE)));
        }
    }
    table
}

fn axis_line(x: String, row: &Row, base: Option<&Row>) -> [String; 8] {
    let is_base = row.name() == BASE;
    let added = |of: fn(&Row) -> f64| match base {
        Some(base) if !is_base => significant(of(row) - of(base), 2),
        _ => NOTHING.to_owned(),
    };
    let of_router = |text: String| if row.cpu_us_per_request > 0.0 { text } else { NOTHING.to_owned() };
    [
        x,
        row.name(),
        of_router(significant(row.cpu_us_per_request, 3)),
        of_router(added(|row| row.cpu_us_per_request)),
        of_router(ratio(row.cpu_ratio_to_envoy)),
        of_router(format!("{:.0}", 100.0 * row.cpu_noise)),
        significant(row.p50_ms, 3),
        added(|row| row.p50_ms),
    ]
}

/// Streams: CPU for each chunk.
pub(super) fn stream_table(rows: &[Row]) -> Table {
    let mut table = Table::new(&["cell", "path", "CPU for each chunk, us", "added, us", "spread, %"]);
    for cell in cells(rows).into_iter().filter(|cell| cell.stream_chunks > 0) {
        let chunk_us = |row: &Row| row.cpu_us_per_request / f64::from(cell.stream_chunks);
        let base = cell.row(rows, BASE);
        for row in names(cell.rows(rows)).iter().filter_map(|name| cell.row(rows, name)) {
            let added = match base {
                Some(base) if row.name() != BASE => significant(chunk_us(row) - chunk_us(base), 2),
                _ => NOTHING.to_owned(),
            };
            let noise = format!("{:.0}", 100.0 * row.cpu_noise);
            table.row([cell.words(), row.name(), significant(chunk_us(row), 2), added, noise]);
        }
    }
    table
}

/// A request's CPU in the main cell, layer by layer: plain Envoy, a plugin that does nothing, and the rest of ours.
pub(super) fn layers(rows: &[Row]) -> Table {
    let cpu_us = |name: &str| Cell::MAIN.row(rows, name).map(|row| row.cpu_us_per_request);
    let noop = Cell::MAIN.rows(rows).find(|row| row.path == NOOP).map(|row| row.cpu_us_per_request);
    let (base, ours) = (cpu_us(BASE), cpu_us(OURS));
    let minus = |from: Option<f64>, what: Option<f64>| Some(from? - what?);
    let mut table = Table::new(&["layer", "CPU, us"]);
    for (name, us) in [
        ("plain Envoy", base),
        ("a WebAssembly plugin that does nothing", minus(noop, base)),
        ("what ours does", minus(ours, noop)),
        ("**all of it**", ours),
    ] {
        table.row([name.to_owned(), us.map_or_else(|| "not run".to_owned(), |us| significant(us, 3))]);
    }
    table
}

/// A ratio; what has none says so.
fn ratio(value: f64) -> String {
    if value > 0.0 { format!("{value:.2}") } else { NOTHING.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::select::{AXES, RIVAL};
    use super::super::testing::full_run;
    use super::*;

    #[test]
    fn what_was_not_run_is_named() {
        let expected = [OURS, RIVAL, "vllm-router/cache_aware"].map(str::to_owned);
        let mut rows = full_run();
        let table = cell_table(&rows, Cell::MAIN, &expected).markdown();
        assert!(table.contains("| warmroute/hybrid | 129 | 1.40 | 4 | 0.193 |"), "{table}");
        assert!(table.contains("| direct | – | – | – |"), "{table}");
        assert!(table.contains("| vllm-router/cache_aware | not run |"), "{table}");
        rows.retain(|row| row.name() != RIVAL);
        assert_eq!(missing(&rows, Cell::MAIN, &expected), [RIVAL, "vllm-router/cache_aware"]);
    }

    #[test]
    fn an_axis_has_every_cell_and_what_is_added() {
        let rows = full_run();
        let everywhere = [OURS, BASE, RIVAL].map(str::to_owned);
        let [body, connections, workers] = AXES.map(|axis| axis_table(&rows, axis, &everywhere).markdown());
        assert!(body.contains("| 1 MB | warmroute/hybrid | 4413 | 1261 | 1.40 | 4 |"), "{body}");
        assert!(body.contains("| 4 KB | envoy/round-robin | 92.0 | – | 1.00 |"), "{body}");
        assert!(!body.contains("least-load"), "{body}");
        assert!(connections.contains("| 64 | warmroute/hybrid | 129 | 37 |"), "{connections}");
        assert!(workers.contains("| 512 | sglang-router/cache_aware |"), "{workers}");
        let streams = stream_table(&rows).markdown();
        assert!(streams.contains("| warmroute/hybrid | 3.5 | 1.0 | 4 |"), "{streams}");
    }

    #[test]
    fn layers_add_up_and_say_what_is_missing() {
        let mut rows = full_run();
        let all = layers(&rows).markdown();
        assert!(all.contains("does nothing | 18.4 |") && all.contains("what ours does | 18.4 |"), "{all}");
        rows.retain(|row| row.path != NOOP);
        let some = layers(&rows).markdown();
        assert!(some.contains("what ours does | not run |") && some.contains("| **all of it** | 129 |"), "{some}");
    }
}
