//! The plot of distances: each policy's mean TTFT over ours, with its worst cell.

use warmroute_report::number::trimmed;
use warmroute_report::plot::panel::Emphasis;
use warmroute_report::plot::scale::Scale;
use warmroute_report::plot::svg::{Anchor, GRID, INK, QUIET, Stroke, Svg};

use crate::report::row::Row;
use crate::report::select::{OURS, is_oracle, is_peer};
use crate::report::table::{Distance, distances, ratio};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 60.0;
const TOP: f64 = 84.0;
const LINE: f64 = 25.0;

/// Draws the plot; `title` states what it shows.
pub(super) fn draw(rows: &[Row], title: &str) -> String {
    let distances = distances(rows);
    let rival = distances.iter().find(|distance| is_peer(distance.policy)).map(|distance| distance.policy);
    let ours = distances.iter().position(|distance| distance.ttft >= 1.0).unwrap_or(distances.len());
    let height = TOP + LINE * (distances.len() as f64 + 1.0) + 52.0;
    let bottom = height - 48.0;
    let mut svg = Svg::new(WIDTH, height);
    svg.bold_text((20.0, 28.0), title, 17.0, Anchor::Start, INK);
    let what =
        "Mean TTFT over hybrid's, one gateway. Dot: geometric mean over all workloads and loads. Ring: the worst cell.";
    svg.text((20.0, 50.0), what, 12.0, Anchor::Start, QUIET);

    let values: Vec<f64> = distances.iter().flat_map(|d| [d.ttft, d.worst.0, d.best.0]).chain([1.0]).collect();
    let scale = Scale::log(values.iter().copied());
    let x = |value: f64| LEFT + scale.place(value) * (WIDTH - LEFT - RIGHT);
    let grid = Stroke { colour: GRID, width: 1.0, is_dashed: false };
    for tick in &scale.ticks {
        svg.line((x(*tick), TOP - 6.0), (x(*tick), bottom), grid);
        svg.text((x(*tick), bottom + 16.0), &format!("{}×", trimmed(*tick)), 11.0, Anchor::Middle, QUIET);
    }
    svg.line(
        (x(1.0), TOP - 6.0),
        (x(1.0), bottom),
        Stroke { colour: Emphasis::Ours.colour(), width: 1.5, is_dashed: false },
    );
    let (faster, slower) = ("← faster than hybrid", "slower than hybrid →");
    svg.text((x(1.0) - 6.0, bottom + 34.0), faster, 11.0, Anchor::End, QUIET);
    svg.text((x(1.0) + 6.0, bottom + 34.0), slower, 11.0, Anchor::Start, QUIET);

    let line_y = |line: usize| TOP + LINE * (line as f64 + 0.5);
    for (line, distance) in distances.iter().enumerate() {
        let y = line_y(if line >= ours { line + 1 } else { line });
        draw_line(&mut svg, distance, rival, y, &x);
    }
    svg.bold_text((LEFT - 12.0, line_y(ours) + 4.0), OURS, 13.0, Anchor::End, Emphasis::Ours.colour());
    svg.dot((x(1.0), line_y(ours)), 6.0, Emphasis::Ours.colour());
    svg.finish(title)
}

fn draw_line(svg: &mut Svg, distance: &Distance<'_>, rival: Option<&str>, y: f64, x: &dyn Fn(f64) -> f64) {
    let colour = match distance.policy {
        policy if is_oracle(policy) => Emphasis::Reference.colour(),
        policy if rival == Some(policy) => Emphasis::Rival.colour(),
        _ => "#80868b",
    };
    let name_colour = if is_oracle(distance.policy) || rival == Some(distance.policy) { colour } else { INK };
    svg.text((LEFT - 12.0, y + 4.0), distance.policy, 12.0, Anchor::End, name_colour);
    let reach = Stroke { colour: Emphasis::Muted.colour(), width: 2.0, is_dashed: false };
    svg.line((x(distance.best.0), y), (x(distance.worst.0), y), reach);
    svg.ring((x(distance.worst.0), y), 4.5, colour);
    svg.dot((x(distance.ttft), y), 5.0, colour);
    svg.text(
        (x(distance.worst.0) + 9.0, y + 4.0),
        &format!("{}×", ratio(distance.worst.0)),
        11.0,
        Anchor::Start,
        QUIET,
    );
    svg.text((x(distance.ttft), y - 8.0), &ratio(distance.ttft), 10.0, Anchor::Middle, colour);
}
