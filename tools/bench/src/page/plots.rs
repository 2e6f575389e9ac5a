//! The plots: SVG files whose titles say what they show.

use warmroute_report::number::significant;
use warmroute_report::plot::bars::{Bar, bars};
use warmroute_report::plot::panel::{Emphasis, Panel, Series};
use warmroute_report::plot::scale::Scale;
use warmroute_report::plot::{Plot, grid};

use super::growth;
use super::input::Results;
use super::select::{AXES, Axis, Cell, OURS, RIVAL, emphasis, short};
use super::stages::shown;
use crate::row::Row;

/// All plots, in the order of the page.
pub(super) fn plots(results: &Results, everywhere: &[String]) -> Vec<Plot> {
    let [cpu, latency] = growth::plots(&results.points);
    vec![cost(&results.rows), axes(&results.rows, everywhere), cpu, latency, stages(results)]
}

/// What ours costs, in a sentence.
pub(super) fn cost_in_words(rows: &[Row]) -> String {
    let ratio = |name| Cell::MAIN.row(rows, name).map(|row| row.cpu_ratio_to_envoy).filter(|ratio| *ratio > 0.0);
    match (ratio(OURS), ratio(RIVAL)) {
        (None, _) => "What hybrid costs was not measured".to_owned(),
        (Some(ours), None) => format!("For a 4 KB chat, hybrid takes {} times plain Envoy's CPU", significant(ours, 3)),
        (Some(ours), Some(theirs)) => format!(
            "For a 4 KB chat, hybrid takes {} times plain Envoy's CPU, and {} times that of {}",
            significant(ours, 3),
            significant(ours / theirs, 2),
            short(RIVAL)
        ),
    }
}

/// CPU of every path in the main cell.
fn cost(rows: &[Row]) -> Plot {
    let mut its: Vec<&Row> = Cell::MAIN.rows(rows).filter(|row| row.cpu_ratio_to_envoy > 0.0).collect();
    its.sort_by(|a, b| a.cpu_ratio_to_envoy.total_cmp(&b.cpu_ratio_to_envoy));
    let names: Vec<String> = its.iter().map(|row| row.name()).collect();
    let bars_of: Vec<Bar<'_>> = its
        .iter()
        .zip(&names)
        .map(|(row, name)| Bar {
            name,
            value: row.cpu_ratio_to_envoy,
            label: format!("{:.2}× ({:.0} us)", row.cpu_ratio_to_envoy, row.cpu_us_per_request),
            emphasis: emphasis(name),
        })
        .collect();
    let title = cost_in_words(rows);
    let what = format!("CPU for each request over plain Envoy's: {}. Shorter is better.", Cell::MAIN.words());
    Plot { file: "cost.svg", svg: bars(&title, &what, "×", &bars_of), title }
}

/// CPU and latency along each axis of the cells, of the paths that every run measures there.
fn axes(rows: &[Row], everywhere: &[String]) -> Plot {
    let ratios: Vec<f64> = AXES
        .iter()
        .flat_map(|axis| axis.cells(rows))
        .filter_map(|cell| Some(cell.row(rows, OURS)?.cpu_ratio_to_envoy))
        .filter(|ratio| *ratio > 0.0)
        .collect();
    let (low, high) = ratios.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), x| (low.min(*x), high.max(*x)));
    let title = if ratios.is_empty() {
        "What hybrid costs elsewhere was not measured".to_owned()
    } else {
        format!("Over bodies, connections and workers, hybrid takes {low:.2} to {high:.2} times plain Envoy's CPU")
    };
    let panels: Vec<Panel<'_>> = AXES
        .iter()
        .flat_map(|axis| {
            [
                panel(rows, *axis, everywhere, "CPU", "CPU for each request, us", |row| row.cpu_us_per_request),
                panel(rows, *axis, everywhere, "latency", "p50, ms", |row| row.p50_ms),
            ]
        })
        .collect();
    let what = format!("All else: {}; policies as in the tables. Lower is better.", Cell::MAIN.words());
    Plot { file: "cells.svg", svg: grid(&title, &what, &panels), title }
}

fn panel<'a>(
    rows: &[Row],
    axis: Axis,
    names: &'a [String],
    what: &str,
    y_name: &'static str,
    of: fn(&Row) -> f64,
) -> Panel<'a> {
    let cells = axis.cells(rows);
    let series: Vec<Series<'a>> = names
        .iter()
        .map(|name| {
            let points = cells.iter().filter_map(|cell| Some(((axis.x)(*cell), of(cell.row(rows, name)?))));
            Series { name: short(name), emphasis: emphasis(name), points: points.collect() }
        })
        .collect();
    let values: Vec<(f64, f64)> = series.iter().flat_map(|series| series.points.clone()).collect();
    Panel {
        title: format!("{what} over {}{}", axis.name, if values.is_empty() { ": not run" } else { "" }),
        x: Scale::steps(values.iter().map(|(x, _)| *x).collect(), true).with_room(0.13),
        y: Scale::fitting(values.into_iter().map(|(_, y)| y).collect::<Vec<f64>>().into_iter()),
        x_name: axis.x_name,
        y_name,
        x_text: axis.x_text,
        series,
    }
}

/// The stages of a request in the plugin.
fn stages(results: &Results) -> Plot {
    let its = shown(&results.stages);
    let total_us: f64 = its.iter().map(|row| row.us_per_request).sum();
    let longest = its.iter().max_by(|a, b| a.us_per_request.total_cmp(&b.us_per_request));
    let title = longest.map_or_else(
        || "Where the microseconds go was not measured".to_owned(),
        |row| {
            format!(
                "Of {} us in the plugin, {} takes {} us: the longest stage",
                significant(total_us, 2),
                row.name,
                significant(row.us_per_request, 2)
            )
        },
    );
    let bars_of: Vec<Bar<'_>> = its
        .iter()
        .map(|row| Bar {
            name: &row.name,
            value: row.us_per_request,
            label: format!(
                "{} us, {} in host calls",
                significant(row.us_per_request, 2),
                significant(row.host_us_per_request, 2)
            ),
            emphasis: if Some(row) == longest { Emphasis::Ours } else { Emphasis::Muted },
        })
        .collect();
    let what = its.first().map_or_else(String::new, |row| {
        format!("Microseconds for each request, {} bytes of body, {} workers.", row.body_bytes, row.workers)
    });
    Plot { file: "stages.svg", svg: bars(&title, &what, " us", &bars_of), title }
}

#[cfg(test)]
mod tests {
    use warmroute_report::testing::texts;

    use super::super::select::BASE;
    use super::super::testing::{change, full_results};
    use super::*;

    fn everywhere() -> Vec<String> {
        [OURS, BASE, RIVAL].map(str::to_owned).to_vec()
    }

    #[test]
    fn every_plot_is_well_formed_and_says_its_title() {
        let mut partial = full_results();
        partial.rows.retain(|row| row.name() == OURS);
        for results in [full_results(), partial, Results::default()] {
            for plot in plots(&results, &everywhere()) {
                assert!(texts(&plot.svg).contains(&plot.title), "{}", plot.file);
            }
        }
    }

    #[test]
    fn titles_say_what_the_rows_say() {
        let mut results = full_results();
        let titles =
            |results: &Results| plots(results, &everywhere()).into_iter().map(|plot| plot.title).collect::<Vec<_>>();
        let full = titles(&results);
        assert_eq!(
            full[0],
            "For a 4 KB chat, hybrid takes 1.40 times plain Envoy's CPU, and 0.47 times that of sglang-router"
        );
        assert_eq!(full[1], "Over bodies, connections and workers, hybrid takes 1.40 to 1.40 times plain Envoy's CPU");
        assert_eq!(full[4], "Of 5.0 us in the plugin, parse takes 3.0 us: the longest stage");
        change(&mut results.rows, Cell { workers: 512, ..Cell::MAIN }, OURS, |row| row.cpu_ratio_to_envoy = 2.5);
        results.rows.retain(|row| row.name() != RIVAL);
        results.stages.clear();
        let other = titles(&results);
        assert_eq!(other[0], "For a 4 KB chat, hybrid takes 1.40 times plain Envoy's CPU");
        assert_eq!(other[1], "Over bodies, connections and workers, hybrid takes 1.40 to 2.50 times plain Envoy's CPU");
        assert_eq!(other[4], "Where the microseconds go was not measured");
        let none = titles(&Results::default());
        assert_eq!(none[0], "What hybrid costs was not measured");
    }

    #[test]
    fn the_bars_name_every_path_with_a_cost() {
        let rows = full_results().rows;
        let texts = texts(&cost(&rows).svg);
        for name in [OURS, BASE, RIVAL, "envoy-noop", "warmroute/least-load"] {
            assert!(texts.iter().any(|text| text == name), "{name} is not in {texts:?}");
        }
        assert!(!texts.iter().any(|text| text == "direct"), "{texts:?}");
    }
}
