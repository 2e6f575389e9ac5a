//! One panel: a frame with two axes, lines or dots of policies, and their names at the right, each joined to its end.

use super::scale::Scale;
use super::svg::{Anchor, GRID, INK, QUIET, Stroke, Svg};
use crate::report::select::{OURS, is_oracle};

/// Ours: blue of the Okabe-Ito palette, which all kinds of colour blindness tell apart.
pub(super) const OUR_COLOUR: &str = "#0072b2";
/// The oracles: green of the same palette.
pub(super) const ORACLE_COLOUR: &str = "#009e73";
/// The peers, muted.
pub(super) const PEER_COLOUR: &str = "#b4b9bf";
/// The peer that a title names: vermilion.
pub(super) const RIVAL_COLOUR: &str = "#d55e00";

/// A policy's points.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series<'a> {
    pub policy: &'a str,
    pub points: Vec<(f64, f64)>,
}

/// What a panel shows.
#[derive(Clone, Debug)]
pub(super) struct Panel<'a> {
    pub title: String,
    pub series: Vec<Series<'a>>,
    pub x: Scale,
    pub y: Scale,
    /// The axes' names, with units.
    pub x_name: &'static str,
    pub y_name: &'static str,
    /// How a value on the x axis is written.
    pub x_text: fn(f64) -> String,
    /// The peer to highlight.
    pub rival: Option<&'a str>,
}

/// Size of a panel with its axes and names.
pub(super) const WIDTH: f64 = 520.0;
/// As [`WIDTH`].
pub(super) const HEIGHT: f64 = 310.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 156.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
/// Between two names.
const NAME_HEIGHT: f64 = 13.0;

/// The colour of a policy, and whether it stands out.
pub(super) fn colour(policy: &str, rival: Option<&str>) -> (&'static str, bool) {
    match policy {
        OURS => (OUR_COLOUR, true),
        policy if is_oracle(policy) => (ORACLE_COLOUR, false),
        policy if rival == Some(policy) => (RIVAL_COLOUR, true),
        _ => (PEER_COLOUR, false),
    }
}

impl Panel<'_> {
    /// Draws the panel with its upper left corner there.
    pub(super) fn draw(&self, svg: &mut Svg, (left, top): (f64, f64)) {
        svg.bold_text((left + LEFT, top + 20.0), &self.title, 14.0, Anchor::Start, INK);
        self.draw_axes(svg, (left, top));
        let at = |(x, y): (f64, f64)| {
            let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
            (left + LEFT + self.x.place(x) * width, top + TOP + (1.0 - self.y.place(y)) * height)
        };
        // Those that stand out are drawn last, over the others.
        let mut series: Vec<&Series<'_>> = self.series.iter().filter(|series| !series.points.is_empty()).collect();
        series.sort_by_key(|series| (series.policy == OURS, colour(series.policy, self.rival).1));
        for series in &series {
            let (colour, stands_out) = colour(series.policy, self.rival);
            let places: Vec<(f64, f64)> = series.points.iter().map(|point| at(*point)).collect();
            let width = if stands_out { 2.5 } else { 1.25 };
            svg.path(&places, Stroke { colour, width, is_dashed: is_oracle(series.policy) });
            for place in places {
                svg.dot(place, if stands_out { 4.0 } else { 2.5 }, colour);
            }
        }
        let ends: Vec<(&str, (f64, f64))> =
            series.iter().filter_map(|series| Some((series.policy, at(*series.points.last()?)))).collect();
        self.draw_names(svg, (left, top), ends);
    }

    fn draw_axes(&self, svg: &mut Svg, (left, top): (f64, f64)) {
        let (right, bottom) = (left + WIDTH - RIGHT, top + HEIGHT - BOTTOM);
        let grid = Stroke { colour: GRID, width: 1.0, is_dashed: false };
        for tick in &self.y.ticks {
            let y = bottom - self.y.place(*tick) * (HEIGHT - TOP - BOTTOM);
            svg.line((left + LEFT, y), (right, y), grid);
            svg.text((left + LEFT - 6.0, y + 4.0), &number(*tick), 11.0, Anchor::End, QUIET);
        }
        for tick in &self.x.ticks {
            let x = left + LEFT + self.x.place(*tick) * (WIDTH - LEFT - RIGHT);
            svg.line((x, bottom), (x, bottom + 4.0), Stroke { colour: QUIET, ..grid });
            svg.text((x, bottom + 16.0), &(self.x_text)(*tick), 11.0, Anchor::Middle, QUIET);
        }
        svg.line((left + LEFT, bottom), (right, bottom), Stroke { colour: QUIET, ..grid });
        svg.text((f64::midpoint(left + LEFT, right), bottom + 34.0), self.x_name, 11.0, Anchor::Middle, QUIET);
        svg.upward_text((left + 22.0, f64::midpoint(top + TOP, bottom)), self.y_name, 11.0, QUIET);
    }

    /// Names at the right in the order of their ends, moved apart, each with a line to its end.
    fn draw_names(&self, svg: &mut Svg, (left, top): (f64, f64), mut ends: Vec<(&str, (f64, f64))>) {
        ends.sort_by(|a, b| a.1.1.total_cmp(&b.1.1));
        let wanted: Vec<f64> = ends.iter().map(|(_, (_, y))| *y).collect();
        let names_y = apart(&wanted, NAME_HEIGHT, (top + TOP - 8.0, top + HEIGHT - 6.0));
        let x = left + WIDTH - RIGHT + 28.0;
        for ((policy, end), name_y) in ends.iter().zip(names_y) {
            let (line_colour, stands_out) = colour(policy, self.rival);
            let text_colour = if line_colour == PEER_COLOUR { QUIET } else { line_colour };
            svg.line(*end, (x - 4.0, name_y), Stroke { colour: line_colour, width: 0.5, is_dashed: false });
            match stands_out {
                true => svg.bold_text((x, name_y + 4.0), policy, 12.0, Anchor::Start, text_colour),
                false => svg.text((x, name_y + 4.0), policy, 11.0, Anchor::Start, text_colour),
            }
        }
    }
}

/// Moves sorted places at least `distance` apart, as little as needed, inside `low..=high` while there is room.
fn apart(wanted: &[f64], distance: f64, (low, high): (f64, f64)) -> Vec<f64> {
    let mut places = wanted.to_vec();
    let mut lowest = low;
    for place in &mut places {
        *place = place.max(lowest);
        lowest = *place + distance;
    }
    let mut highest = high;
    for place in places.iter_mut().rev() {
        *place = place.min(highest);
        highest = *place - distance;
    }
    places
}

/// A number without needless digits.
pub(super) fn number(value: f64) -> String {
    // Ticks are multiples of powers of ten, so this rounding only removes what binary fractions add.
    format!("{}", (value * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_distance_and_their_order() {
        let places = apart(&[10.0, 11.0, 12.0, 99.0], 5.0, (0.0, 100.0));
        assert_eq!(places, [10.0, 15.0, 20.0, 99.0]);
        let at_the_end = apart(&[97.0, 98.0, 99.0], 5.0, (0.0, 100.0));
        assert_eq!(at_the_end, [90.0, 95.0, 100.0]);
    }
}
