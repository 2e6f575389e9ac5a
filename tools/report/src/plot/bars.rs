//! Bars that lie on each other, each with its name at the left and what it stands for at its end.

use super::panel::Emphasis;
use super::scale::Scale;
use super::svg::{Anchor, GRID, INK, QUIET, Stroke, Svg};
use crate::number::trimmed;

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar<'a> {
    /// Written at the left.
    pub name: &'a str,
    /// Its length; below 0 it is drawn as 0, as its label tells.
    pub value: f64,
    /// Written at its end.
    pub label: String,
    /// What it is here.
    pub emphasis: Emphasis,
}

const WIDTH: f64 = 1040.0;
const LEFT: f64 = 230.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 72.0;
const LINE: f64 = 24.0;

/// Draws bars from above to below as they are given, under a title and a line that says what their length is.
///
/// `unit` is written behind the numbers of the axis. Every bar begins at 0: lengths can be compared.
#[must_use]
pub fn bars(title: &str, what: &str, unit: &str, bars: &[Bar<'_>]) -> String {
    let bottom = TOP + LINE * bars.len() as f64 + 8.0;
    let mut svg = Svg::new(WIDTH, bottom + 32.0);
    svg.bold_text((20.0, 28.0), title, 17.0, Anchor::Start, INK);
    svg.text((20.0, 50.0), what, 12.0, Anchor::Start, QUIET);
    let scale = Scale::linear(bars.iter().map(|bar| bar.value.max(0.0)));
    let x = |value: f64| LEFT + scale.place(value) * (WIDTH - LEFT - RIGHT);
    for tick in &scale.ticks {
        svg.line((x(*tick), TOP - 4.0), (x(*tick), bottom), Stroke { colour: GRID, width: 1.0, is_dashed: false });
        svg.text((x(*tick), bottom + 16.0), &format!("{}{unit}", trimmed(*tick)), 11.0, Anchor::Middle, QUIET);
    }
    for (number, bar) in bars.iter().enumerate() {
        let y = TOP + LINE * (number as f64 + 0.5);
        let end = x(bar.value.max(0.0));
        svg.line((x(0.0), y), (end, y), Stroke { colour: bar.emphasis.colour(), width: 12.0, is_dashed: false });
        svg.text((end + 8.0, y + 4.0), &bar.label, 11.0, Anchor::Start, QUIET);
        let name_at = (LEFT - 12.0, y + 4.0);
        match bar.emphasis {
            Emphasis::Muted => svg.text(name_at, bar.name, 12.0, Anchor::End, INK),
            emphasis => svg.bold_text(name_at, bar.name, 12.0, Anchor::End, emphasis.colour()),
        }
    }
    svg.finish(title)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::texts;

    #[test]
    fn every_bar_has_its_name_and_label_and_none_is_shorter_than_nothing() {
        let bar = |name, value| Bar { name, value, label: format!("{value} us"), emphasis: Emphasis::Muted };
        let svg = bars("What takes long", "Microseconds.", " us", &[bar("parse", 12.0), bar("noise", -0.5)]);
        let texts = texts(&svg);
        for text in ["What takes long", "Microseconds.", "parse", "12 us", "noise", "-0.5 us", "10 us"] {
            assert!(texts.iter().any(|known| known == text), "{text} is not in {texts:?}");
        }
        assert!(svg.contains("points=\"230.0,108.0 230.0,108.0\""), "{svg}");
    }

    #[test]
    fn no_bars_are_well_formed_too() {
        assert!(texts(&bars("Nothing was run", "", "", &[])).iter().any(|text| text == "Nothing was run"));
    }
}
