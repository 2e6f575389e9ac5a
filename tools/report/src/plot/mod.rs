//! Plots: SVG files of panels, with a sentence above that says what they show.

pub mod bars;
pub mod panel;
pub mod scale;
pub mod svg;

use self::panel::{HEIGHT, Panel, WIDTH};
use self::svg::{Anchor, INK, QUIET, Svg};

/// A plot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plot {
    /// Its file's name without folder.
    pub file: &'static str,
    /// What it shows, a sentence made from the numbers.
    pub title: String,
    /// The file's contents.
    pub svg: String,
}

/// Draws panels, two in a row, under a title and a line that says what is on the axes.
#[must_use]
pub fn grid(title: &str, what: &str, panels: &[Panel<'_>]) -> String {
    const COLUMNS: usize = 2;
    const TOP: f64 = 64.0;
    let lines = panels.len().div_ceil(COLUMNS) as f64;
    let mut svg = Svg::new(COLUMNS as f64 * WIDTH, TOP + lines * HEIGHT);
    svg.bold_text((20.0, 28.0), title, 17.0, Anchor::Start, INK);
    svg.text((20.0, 50.0), what, 12.0, Anchor::Start, QUIET);
    for (place, panel) in panels.iter().enumerate() {
        let corner = ((place % COLUMNS) as f64 * WIDTH, TOP + (place / COLUMNS) as f64 * HEIGHT);
        panel.draw(&mut svg, corner);
    }
    svg.finish(title)
}

#[cfg(test)]
mod tests {
    use super::panel::{Emphasis, Series};
    use super::scale::Scale;
    use super::*;
    use crate::number::trimmed;
    use crate::testing::texts;

    fn panel(series: Vec<Series<'_>>) -> Panel<'_> {
        let values = |of: fn(&(f64, f64)) -> f64| -> Vec<f64> {
            series.iter().flat_map(|series| series.points.iter().map(of)).collect()
        };
        Panel {
            title: "latency < 1 ms & falling".to_owned(),
            x: Scale::steps(values(|point| point.0), true),
            y: Scale::log(values(|point| point.1).into_iter()),
            x_name: "workers",
            y_name: "p50, ms",
            x_text: trimmed,
            series,
        }
    }

    #[test]
    fn every_series_with_points_is_drawn_and_named() {
        let line = |name, emphasis, points: &[(f64, f64)]| Series { name, emphasis, points: points.to_vec() };
        let panels = [
            panel(vec![
                line("ours", Emphasis::Ours, &[(1.0, 1.0), (8.0, 2.0)]),
                line("rival", Emphasis::Rival, &[(1.0, 3.0), (8.0, 4.0)]),
                line("one of many", Emphasis::Muted, &[(8.0, 9.0)]),
                line("bound", Emphasis::Reference, &[(1.0, 0.5), (8.0, 0.5)]),
                line("not run", Emphasis::Muted, &[]),
            ]),
            panel(Vec::new()),
            panel(Vec::new()),
        ];
        let svg = grid("It costs \"nothing\"", "Lower is better.", &panels);
        let texts = texts(&svg);
        for text in ["It costs \"nothing\"", "Lower is better.", "ours", "rival", "one of many", "bound", "p50, ms"] {
            assert!(texts.iter().any(|known| known == text), "{text} is not in {texts:?}");
        }
        assert!(!texts.iter().any(|text| text == "not run"));
        assert_eq!(texts.iter().filter(|text| *text == "latency < 1 ms & falling").count(), 3);
        let place = |colour: Emphasis| svg.find(&format!("stroke=\"{}\"", colour.colour())).unwrap();
        assert!(place(Emphasis::Muted) < place(Emphasis::Rival) && place(Emphasis::Rival) < place(Emphasis::Ours));
    }
}
