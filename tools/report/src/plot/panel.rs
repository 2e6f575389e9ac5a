//! One panel: a frame with two axes, lines of series, and their names at the right, each joined to its line's end.

use super::scale::Scale;
use super::svg::{Anchor, GRID, INK, QUIET, Stroke, Svg};
use crate::number::trimmed;

/// What a series is in the comparison that its panel makes; the last two are drawn over the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Emphasis {
    /// One of many.
    Muted,
    /// What nobody can have, or what was calculated: thin and dashed.
    Reference,
    /// The one to compare with.
    Rival,
    /// What the panel is about.
    Ours,
}

impl Emphasis {
    /// The colour of its lines: of the Okabe-Ito palette, which all kinds of colour blindness tell apart, or grey.
    #[must_use]
    pub const fn colour(self) -> &'static str {
        match self {
            Self::Muted => "#b4b9bf",
            Self::Reference => "#009e73",
            Self::Rival => "#d55e00",
            Self::Ours => "#0072b2",
        }
    }

    /// Grey that is good for a line is too weak for a name.
    const fn name_colour(self) -> &'static str {
        match self {
            Self::Muted => QUIET,
            Self::Reference | Self::Rival | Self::Ours => self.colour(),
        }
    }

    const fn stands_out(self) -> bool {
        matches!(self, Self::Rival | Self::Ours)
    }
}

/// A named line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series<'a> {
    /// Written at its end.
    pub name: &'a str,
    /// What it is here.
    pub emphasis: Emphasis,
    /// In the order in which the line joins them.
    pub points: Vec<(f64, f64)>,
}

/// What a panel shows.
#[derive(Clone, Debug)]
pub struct Panel<'a> {
    /// Above the frame.
    pub title: String,
    /// The lines; those without points are left out.
    pub series: Vec<Series<'a>>,
    /// The axis to the right.
    pub x: Scale,
    /// The axis upwards.
    pub y: Scale,
    /// The name of the axis to the right, with its unit.
    pub x_name: &'a str,
    /// The name of the axis upwards, with its unit.
    pub y_name: &'a str,
    /// How a value on the axis to the right is written.
    pub x_text: fn(f64) -> String,
}

/// Width of a panel with its axes and names, pixels.
pub const WIDTH: f64 = 520.0;
/// Height of a panel, pixels.
pub const HEIGHT: f64 = 310.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 156.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
/// Between two names.
const NAME_HEIGHT: f64 = 13.0;

impl Panel<'_> {
    /// Draws the panel with its upper left corner there.
    pub fn draw(&self, svg: &mut Svg, (left, top): (f64, f64)) {
        svg.bold_text((left + LEFT, top + 20.0), &self.title, 14.0, Anchor::Start, INK);
        self.draw_axes(svg, (left, top));
        let at = |(x, y): (f64, f64)| {
            let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
            (left + LEFT + self.x.place(x) * width, top + TOP + (1.0 - self.y.place(y)) * height)
        };
        // Those that stand out are drawn last, over the others.
        let mut series: Vec<&Series<'_>> = self.series.iter().filter(|series| !series.points.is_empty()).collect();
        series.sort_by_key(|series| series.emphasis.stands_out().then_some(series.emphasis));
        for series in &series {
            let (colour, stands_out) = (series.emphasis.colour(), series.emphasis.stands_out());
            let places: Vec<(f64, f64)> = series.points.iter().map(|point| at(*point)).collect();
            let width = if stands_out { 2.5 } else { 1.25 };
            svg.path(&places, Stroke { colour, width, is_dashed: series.emphasis == Emphasis::Reference });
            for place in places {
                svg.dot(place, if stands_out { 4.0 } else { 2.5 }, colour);
            }
        }
        let ends: Vec<(&Series<'_>, (f64, f64))> =
            series.into_iter().filter_map(|series| Some((series, at(*series.points.last()?)))).collect();
        self.draw_names(svg, (left, top), ends);
    }

    fn draw_axes(&self, svg: &mut Svg, (left, top): (f64, f64)) {
        let (right, bottom) = (left + WIDTH - RIGHT, top + HEIGHT - BOTTOM);
        let grid = Stroke { colour: GRID, width: 1.0, is_dashed: false };
        for tick in &self.y.ticks {
            let y = bottom - self.y.place(*tick) * (HEIGHT - TOP - BOTTOM);
            svg.line((left + LEFT, y), (right, y), grid);
            svg.text((left + LEFT - 6.0, y + 4.0), &trimmed(*tick), 11.0, Anchor::End, QUIET);
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
    fn draw_names(&self, svg: &mut Svg, (left, top): (f64, f64), mut ends: Vec<(&Series<'_>, (f64, f64))>) {
        ends.sort_by(|a, b| a.1.1.total_cmp(&b.1.1));
        let wanted: Vec<f64> = ends.iter().map(|(_, (_, y))| *y).collect();
        let names_y = apart(&wanted, NAME_HEIGHT, (top + TOP - 8.0, top + HEIGHT - 6.0));
        let x = left + WIDTH - RIGHT + 28.0;
        for ((series, end), name_y) in ends.into_iter().zip(names_y) {
            let Series { name, emphasis, .. } = series;
            svg.line(end, (x - 4.0, name_y), Stroke { colour: emphasis.colour(), width: 0.5, is_dashed: false });
            match emphasis.stands_out() {
                true => svg.bold_text((x, name_y + 4.0), name, 12.0, Anchor::Start, emphasis.name_colour()),
                false => svg.text((x, name_y + 4.0), name, 11.0, Anchor::Start, emphasis.name_colour()),
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
