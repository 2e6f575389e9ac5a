//! The plots: SVG files whose titles say what they show.

mod ratio;

use warmroute_report::number::trimmed;
use warmroute_report::plot::panel::{Emphasis, Panel, Series};
use warmroute_report::plot::scale::Scale;
use warmroute_report::plot::{Plot, grid};

use crate::report::row::Row;
use crate::report::select::{BATCHING, Cell, OURS, WORKLOADS, is_load, is_oracle, is_peer, policies};
use crate::report::table::{Distance, distances, ratio as ratio_text};

/// The load at which gateways and hit rates are compared, as a share of what the pool can serve.
pub const LOAD: f64 = 0.8;

/// All plots, in the order of the page.
#[must_use]
pub fn plots(rows: &[Row]) -> Vec<Plot> {
    let title = nearest_peer(rows);
    let ratio = Plot { file: "ratio.svg", svg: ratio::draw(rows, &title), title };
    vec![ratio, load(rows), cache(rows), gateways(rows)]
}

/// The peer with the lowest mean TTFT over all cells with one gateway.
fn rival(rows: &[Row]) -> Option<Distance<'_>> {
    distances(rows).into_iter().find(|distance| is_peer(distance.policy))
}

/// How far the nearest peer is, in a sentence.
#[must_use]
pub fn nearest_peer(rows: &[Row]) -> String {
    match rival(rows) {
        None => "No peer was run".to_owned(),
        Some(peer) if peer.ttft >= 1.0 => {
            format!("The nearest peer, {}, has {} times hybrid's mean TTFT", peer.policy, ratio_text(peer.ttft))
        }
        Some(peer) => {
            format!("{} is faster than hybrid: {} times its mean TTFT", peer.policy, ratio_text(peer.ttft))
        }
    }
}

/// Mean TTFT over the load, a panel for each workload.
fn load(rows: &[Row]) -> Plot {
    let one_gateway: Vec<&Row> = rows.iter().filter(|row| row.model == BATCHING && row.gateways == 1).collect();
    let loads = sorted(one_gateway.iter().map(|row| row.load));
    let highest = loads.last().copied().unwrap_or(1.0);
    let title = lead_in_words(rows, &format!("at load {highest}"), |workload| Cell::new(workload, highest, 1));
    let make = |workload| Panel {
        x: Scale::steps(loads.clone(), false),
        x_name: "offered load, share of what the pool can serve",
        x_text: trimmed,
        ..ttft_panel(rows, workload, &one_gateway, |row| row.load)
    };
    Plot { file: "load.svg", svg: panels(&title, "Mean TTFT over load, one gateway. Lower is better.", make), title }
}

/// Mean TTFT over the number of gateways, a panel for each workload.
fn gateways(rows: &[Row]) -> Plot {
    let at_load: Vec<&Row> = rows.iter().filter(|row| row.model == BATCHING && is_load(row.load, LOAD)).collect();
    let counts = sorted(at_load.iter().map(|row| f64::from(row.gateways)));
    let most = counts.last().copied().unwrap_or(1.0) as u32;
    let title = lead_in_words(rows, &format!("with {most} gateways"), |workload| Cell::new(workload, LOAD, most));
    let make = |workload| Panel {
        x: Scale::steps(counts.clone(), true),
        x_name: "gateways that share nothing",
        x_text: trimmed,
        ..ttft_panel(rows, workload, &at_load, |row| f64::from(row.gateways))
    };
    let what = format!("Mean TTFT over gateways at load {LOAD}. Lower is better.");
    Plot { file: "gateways.svg", svg: panels(&title, &what, make), title }
}

/// Mean TTFT over the hit rate, a panel for each workload.
fn cache(rows: &[Row]) -> Plot {
    let of_cells: Vec<&Row> =
        rows.iter().filter(|row| WORKLOADS.iter().any(|workload| Cell::new(workload, LOAD, 1).has(row))).collect();
    let wins = WORKLOADS.iter().filter_map(|workload| {
        let cell: Vec<&&Row> =
            of_cells.iter().filter(|row| row.workload == *workload && !is_oracle(&row.policy)).collect();
        let most_hits = cell.iter().max_by(|a, b| a.token_hit_rate.total_cmp(&b.token_hit_rate))?;
        let lowest_ttft = cell.iter().min_by(|a, b| a.ttft_mean_s.total_cmp(&b.ttft_mean_s))?;
        Some(most_hits.policy == lowest_ttft.policy)
    });
    let wins: Vec<bool> = wins.collect();
    let same = wins.iter().filter(|is_same| **is_same).count();
    let title = match wins.len() {
        0 => format!("No workload was run at load {LOAD}"),
        count => format!("The highest hit rate is also the lowest TTFT on {same} of {count} workloads"),
    };
    let make = |workload: &str| {
        let here: Vec<&Row> = of_cells.iter().copied().filter(|row| row.workload == workload).collect();
        Panel {
            x: Scale::share(here.iter().map(|row| row.token_hit_rate)),
            x_name: "prompt tokens found in a worker's cache, %",
            x_text: |share| trimmed(100.0 * share),
            ..ttft_panel(rows, workload, &here, |row| row.token_hit_rate)
        }
    };
    let what = format!("Mean TTFT over token hit rate at load {LOAD}, one gateway. Lower and further right is better.");
    Plot { file: "cache.svg", svg: panels(&title, &what, make), title }
}

/// A panel of mean TTFT in which the x axis is still to be set.
fn ttft_panel<'a>(rows: &'a [Row], workload: &str, among: &[&'a Row], x: fn(&Row) -> f64) -> Panel<'a> {
    let here: Vec<&Row> = among.iter().copied().filter(|row| row.workload == workload).collect();
    let rival = rival(rows).map(|peer| peer.policy);
    let series = |policy| {
        let mut points: Vec<(f64, f64)> =
            here.iter().filter(|row| row.policy == policy).map(|row| (x(row), row.ttft_mean_s)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let emphasis = match policy {
            OURS => Emphasis::Ours,
            policy if is_oracle(policy) => Emphasis::Reference,
            policy if rival == Some(policy) => Emphasis::Rival,
            _ => Emphasis::Muted,
        };
        Series { name: policy, emphasis, points }
    };
    Panel {
        title: workload.to_owned(),
        series: policies(rows).into_iter().map(series).collect(),
        x: Scale::steps(Vec::new(), false),
        y: Scale::log(here.iter().map(|row| row.ttft_mean_s)),
        x_name: "",
        y_name: "mean TTFT, s",
        x_text: trimmed,
    }
}

/// On how many workloads our mean TTFT is the lowest in the given cells, oracles aside, in a sentence.
fn lead_in_words(rows: &[Row], place: &str, cell: impl Fn(&str) -> Cell) -> String {
    let leads = WORKLOADS.iter().filter_map(|workload| {
        let cell = cell(workload);
        let ours = cell.row(rows, OURS)?.ttft_mean_s;
        let theirs = rows.iter().filter(|row| cell.has(row) && is_peer(&row.policy)).map(|row| row.ttft_mean_s);
        theirs.reduce(f64::min).map(|best| ours < best)
    });
    let leads: Vec<bool> = leads.collect();
    match leads.len() {
        0 => format!("Nothing to compare {place}"),
        count => {
            let led = leads.iter().filter(|leads| **leads).count();
            format!("Hybrid has the lowest mean TTFT {place} on {led} of {count} workloads")
        }
    }
}

/// A panel for each workload.
fn panels<'a>(title: &str, what: &str, make: impl FnMut(&'a str) -> Panel<'a>) -> String {
    grid(title, what, &WORKLOADS.map(make))
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use warmroute_report::testing::texts;

    use super::*;
    use crate::report::select::testing::{full_run, row};

    #[test]
    fn every_plot_is_well_formed_and_names_every_policy() {
        let rows = full_run();
        for plot in plots(&rows) {
            let texts = texts(&plot.svg);
            for policy in policies(&rows) {
                assert!(texts.iter().any(|text| text == policy), "{} lacks {policy}", plot.file);
            }
            assert!(texts.contains(&plot.title), "{}", plot.file);
        }
    }

    #[test]
    fn plots_of_few_or_no_rows_are_well_formed_too() {
        let one = [row(OURS, "chat", 0.8, 1, 0.5, 0.4)];
        for rows in [&one[..], &[]] {
            for plot in plots(rows) {
                assert!(texts(&plot.svg).contains(&plot.title), "{}", plot.file);
            }
        }
    }

    #[test]
    fn titles_say_what_the_rows_say() {
        let mut rows = full_run();
        let titles = |rows: &[Row]| plots(rows).into_iter().map(|plot| plot.title).collect::<Vec<_>>();
        assert_eq!(titles(&rows)[0], "The nearest peer, round-robin, has 2.00 times hybrid's mean TTFT");
        assert_eq!(titles(&rows)[1], "Hybrid has the lowest mean TTFT at load 1.2 on 5 of 5 workloads");
        for row in rows.iter_mut().filter(|row| row.policy == "lmetric") {
            row.ttft_mean_s /= 4.0;
        }
        assert_eq!(titles(&rows)[0], "lmetric is faster than hybrid: 0.50 times its mean TTFT");
        assert_eq!(titles(&rows)[3], "Hybrid has the lowest mean TTFT with 8 gateways on 0 of 5 workloads");
    }
}
