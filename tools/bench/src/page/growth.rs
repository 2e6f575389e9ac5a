//! How costs grow: curves of `growth.json`, and what the plugin adds to plain Envoy fitted along each.

use warmroute_report::fit::{Growth, growth};
use warmroute_report::number::trimmed;
use warmroute_report::plot::panel::{Panel, Series};
use warmroute_report::plot::scale::Scale;
use warmroute_report::plot::{Plot, grid};

use super::input::Point;
use super::select::{BASE, OURS, emphasis, short, size};

/// What a curve varies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Curve {
    /// Its name in the file.
    axis: &'static str,
    /// In words.
    pub name: &'static str,
    x_name: &'static str,
    x_text: fn(f64) -> String,
    /// How many of `x` one unit of the fit has, and its name.
    unit: (f64, &'static str),
    /// What CPU is counted for.
    pub each: &'static str,
    /// That with its unit, for a plot.
    cpu_name: &'static str,
    is_log: bool,
}

const fn curve(axis: &'static str, name: &'static str, x_name: &'static str, unit: &'static str) -> Curve {
    Curve {
        axis,
        name,
        x_name,
        x_text: trimmed,
        unit: (1.0, unit),
        each: "request",
        cpu_name: "CPU for each request, us",
        is_log: true,
    }
}

/// All curves, in the order of the page.
pub(super) const CURVES: [Curve; 5] = [
    Curve { x_text: size, unit: (1024.0, "KB"), ..curve("body_bytes", "body", "bytes of the request's body", "") },
    curve("workers", "workers", "workers in the pool", "worker"),
    curve("index_pages", "index", "pages of the index, 4 KB each", "page"),
    Curve { is_log: false, ..curve("threads", "threads", "worker threads of Envoy", "thread") },
    Curve {
        x_text: size,
        unit: (1024.0, "KB"),
        // Without any requests: all that the process does meanwhile.
        each: "scrape",
        cpu_name: "CPU for each scrape, us",
        ..curve("scrape_page_bytes", "scraped page", "bytes of a worker's metrics page", "")
    },
];

impl Curve {
    /// A path's points along the curve: `x`, and what `of` says of each.
    fn points(self, points: &[Point], name: &str, of: fn(&Point) -> Option<f64>) -> Vec<(f64, f64)> {
        let its = points.iter().filter(|point| point.axis == self.axis && point.name() == name);
        let mut found: Vec<(f64, f64)> = its.filter_map(|point| Some((point.x, of(point)?))).collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        found
    }

    /// What the plugin adds to plain Envoy wherever both were measured, `x` in units of the fit.
    fn added(self, points: &[Point], of: fn(&Point) -> Option<f64>) -> Vec<(f64, f64)> {
        let base = self.points(points, BASE, of);
        let base_at = |x: f64| base.iter().find(|(base_x, _)| (base_x - x).abs() < 1e-9).map(|(_, y)| *y);
        let ours = self.points(points, OURS, of).into_iter();
        ours.filter_map(|(x, y)| Some((x / self.unit.0, y - base_at(x)?))).collect()
    }

    /// How the CPU grows that the plugin adds.
    pub(super) fn added_cpu(self, points: &[Point]) -> Option<Growth> {
        growth(&self.added(points, cpu_us))
    }

    /// The growth of the CPU that the plugin adds, in words.
    pub(super) fn added_cpu_words(self, points: &[Point]) -> Option<String> {
        self.added_cpu(points).map(|growth| growth.words("us", self.unit.1).to_string())
    }

    fn panel<'a>(
        self,
        points: &[Point],
        names: &'a [String],
        of: fn(&Point) -> Option<f64>,
        y_name: &'a str,
    ) -> Panel<'a> {
        let series: Vec<Series<'a>> = names
            .iter()
            .map(|name| Series { name: short(name), emphasis: emphasis(name), points: self.points(points, name, of) })
            .collect();
        let all = || series.iter().flat_map(|series| series.points.iter().copied());
        let ys: Vec<f64> = all().map(|(_, y)| y).collect();
        let y = Scale::fitting(ys.into_iter());
        let title = match growth(&self.added(points, of)) {
            _ if series.iter().all(|series| series.points.is_empty()) => format!("{}: not run", self.name),
            Some(Growth::Flat { mean, .. }) if mean < 0.0 => format!("{}: adds nothing that can be seen", self.name),
            Some(growth @ Growth::Affine(_)) => format!("{}: adds {}", self.name, growth.words("us", self.unit.1)),
            Some(growth) => format!("{}: what is added {}", self.name, growth.words("us", self.unit.1)),
            None => format!("{}: too few points to tell", self.name),
        };
        let x = Scale::steps(all().map(|(x, _)| x).collect(), self.is_log).with_room(0.13);
        Panel { title, series, x, y, x_name: self.x_name, y_name, x_text: self.x_text }
    }
}

fn cpu_us(point: &Point) -> Option<f64> {
    Some(point.cpu_us_per_request)
}

/// Microseconds, as what is added is a small part of a millisecond.
fn p50_us(point: &Point) -> Option<f64> {
    point.p50_ms.map(|ms| ms * 1e3)
}

/// The curves of CPU and of latency.
pub(super) fn plots(points: &[Point]) -> [Plot; 2] {
    let mut names: Vec<String> = Vec::new();
    for name in points.iter().map(Point::name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let body = CURVES[0].added_cpu_words(points);
    let cpu_title = body.map_or_else(
        || "How CPU grows with the body was not measured".to_owned(),
        |words| format!("With the body, what the plugin adds to plain Envoy's CPU {}", verb(&words)),
    );
    let body = growth(&CURVES[0].added(points, p50_us)).map(|growth| growth.words("us", "KB").to_string());
    let latency_title = body.map_or_else(
        || "How latency grows with the body was not measured".to_owned(),
        |words| format!("With the body, what the plugin adds to plain Envoy's p50 {}", verb(&words)),
    );
    let cpu = CURVES.map(|curve| curve.panel(points, &names, cpu_us, curve.cpu_name));
    let cpu =
        grid(&cpu_title, "CPU. Panels' titles: what the plugin adds to plain Envoy, fitted. Lower is better.", &cpu);
    // Nobody waits for a scrape.
    let latency = CURVES.iter().filter(|curve| curve.each == "request");
    let latency: Vec<Panel<'_>> = latency.map(|curve| curve.panel(points, &names, p50_us, "p50, us")).collect();
    let latency = grid(
        &latency_title,
        "Median latency. Panels' titles: what the plugin adds to plain Envoy, fitted. Lower is better.",
        &latency,
    );
    [
        Plot { file: "growth-cpu.svg", title: cpu_title, svg: cpu },
        Plot { file: "growth-latency.svg", title: latency_title, svg: latency },
    ]
}

/// A growth's words as the end of a sentence.
fn verb(words: &str) -> String {
    if words.starts_with(|first: char| first.is_alphabetic()) { words.to_owned() } else { format!("is {words}") }
}

#[cfg(test)]
mod tests {
    use warmroute_report::testing::texts;

    use super::super::testing::full_results;
    use super::*;

    #[test]
    fn titles_tell_the_fitted_growth() {
        let points = full_results().points;
        let [cpu, latency] = plots(&points);
        assert_eq!(cpu.title, "With the body, what the plugin adds to plain Envoy's CPU is 12 us + 0.10 us per KB");
        assert_eq!(latency.title, "With the body, what the plugin adds to plain Envoy's p50 is 12 us + 0.10 us per KB");
        let texts = texts(&cpu.svg);
        for text in [
            "body: adds 12 us + 0.10 us per KB",
            "workers: adds 12 us + 0.050 us per worker",
            "index: what is added stays at 12 us",
            "threads: not run",
            "warmroute",
            "sglang-router",
            "64 KB",
        ] {
            assert!(texts.iter().any(|known| known == text), "{text} is not in {texts:?}");
        }
    }

    #[test]
    fn other_numbers_make_other_titles() {
        let mut points = full_results().points;
        for point in points.iter_mut().filter(|point| point.name() == OURS && point.axis == "body_bytes") {
            point.cpu_us_per_request = 80.0 + point.x / 1024.0 + (point.x / 1024.0).powf(1.5);
        }
        let [cpu, _] = plots(&points);
        assert_eq!(cpu.title, "With the body, what the plugin adds to plain Envoy's CPU grows as KB^1.50");
        points.retain(|point| point.name() != BASE);
        let [cpu, _] = plots(&points);
        assert_eq!(cpu.title, "How CPU grows with the body was not measured");
        assert!(texts(&cpu.svg).iter().any(|text| text == "body: too few points to tell"));
    }
}
