//! A little of SVG: shapes and texts, written by hand, shown by every browser and by GitHub.

use std::fmt::Write as _;

/// The colour of titles and axes' names.
pub const INK: &str = "#202124";
/// The colour of ticks and of what is said beside.
pub const QUIET: &str = "#5f6368";
/// The colour of grid lines.
pub const GRID: &str = "#e8eaed";

/// A drawing with a white ground.
#[derive(Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text's position is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// At its left end.
    Start,
    /// In its middle.
    Middle,
    /// At its right end.
    End,
}

/// How a line or a shape looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stroke {
    /// As SVG writes it.
    pub colour: &'static str,
    /// In pixels.
    pub width: f64,
    /// Whether it has gaps.
    pub is_dashed: bool,
}

impl Svg {
    /// An empty drawing of this size in pixels.
    #[must_use]
    pub const fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: Stroke) {
        self.path(&[from, to], stroke);
    }

    /// A line through all points.
    pub fn path(&mut self, points: &[(f64, f64)], stroke: Stroke) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dashes = if stroke.is_dashed { " stroke-dasharray=\"5 3\"" } else { "" };
        let (colour, width) = (stroke.colour, stroke.width);
        let _ = writeln!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"{dashes}/>",
            points.join(" ")
        );
    }

    /// A filled circle.
    pub fn dot(&mut self, (x, y): (f64, f64), radius: f64, fill: &str) {
        let _ = writeln!(self.body, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\"/>");
    }

    /// A circle that is not filled.
    pub fn ring(&mut self, (x, y): (f64, f64), radius: f64, colour: &str) {
        let _ = writeln!(
            self.body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"#ffffff\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        );
    }

    /// A text on one line.
    pub fn text(&mut self, (x, y): (f64, f64), text: &str, size: f64, anchor: Anchor, colour: &str) {
        self.styled_text((x, y), text, size, anchor, colour, "");
    }

    /// A text that stands out.
    pub fn bold_text(&mut self, (x, y): (f64, f64), text: &str, size: f64, anchor: Anchor, colour: &str) {
        self.styled_text((x, y), text, size, anchor, colour, " font-weight=\"600\"");
    }

    /// A text that reads upwards, centred.
    pub fn upward_text(&mut self, (x, y): (f64, f64), text: &str, size: f64, colour: &str) {
        let turn = format!(" transform=\"rotate(-90 {x:.1} {y:.1})\"");
        self.styled_text((x, y), text, size, Anchor::Middle, colour, &turn);
    }

    fn styled_text(&mut self, (x, y): (f64, f64), text: &str, size: f64, anchor: Anchor, colour: &str, extra: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{colour}\"{extra}>{}</text>",
            escape(text)
        );
    }

    /// The whole file; `description` is for those who cannot see it.
    #[must_use]
    pub fn finish(self, description: &str) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" font-family=\"system-ui, -apple-system, \
             'Segoe UI', Helvetica, Arial, sans-serif\">\n<title>{}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n",
            escape(description)
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
