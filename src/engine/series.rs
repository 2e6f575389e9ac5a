//! Series that the configuration names: of a metric that was renamed on its way, or of an engine that nobody knows here.

use super::prometheus::{self, Sample};

/// A metric by its whole name, or those of its series that have one label with one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The metric's whole name.
    pub metric: String,
    /// The label and the value that it must have; an empty value is that of an absent label.
    pub only: Option<(String, String)>,
}

impl Series {
    /// Reads `name` or `name{label="value"}`. `None` for all else: several labels, other comparisons, escapes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (metric, only) = match text.split_once('{') {
            None => (text, None),
            Some((metric, labels)) => {
                let (label, quoted) = labels.strip_suffix('}')?.split_once('=')?;
                let value = quoted.strip_prefix('"')?.strip_suffix('"')?;
                let is_plain = is_name(label) && !label.contains(':') && !value.contains(['"', '\\', '\n']);
                (metric, Some(is_plain.then(|| (label.to_owned(), value.to_owned()))?))
            }
        };
        is_name(metric).then(|| Self { metric: metric.to_owned(), only })
    }
}

/// Whether the sample has the label with the value.
pub(super) fn has_label(sample: &Sample<'_>, label: &str, value: &str) -> bool {
    sample.label(label).unwrap_or_default() == value.as_bytes()
}

fn is_name(text: &str) -> bool {
    text.bytes().next().is_some_and(|first| !first.is_ascii_digit()) && text.bytes().all(prometheus::is_name_byte)
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    #[test]
    fn a_series_is_a_name_and_at_most_one_label() {
        type Case = (&'static str, Option<(&'static str, Option<(&'static str, &'static str)>)>);
        const CASES: &[Case] = &[
            ("vllm:num_requests_waiting", Some(("vllm:num_requests_waiting", None))),
            ("a{b=\"c\"}", Some(("a", Some(("b", "c"))))),
            ("a{b=\"\"}", Some(("a", Some(("b", ""))))),
            ("a{b=\"x=y{}, z\"}", Some(("a", Some(("b", "x=y{}, z"))))),
            ("", None),
            ("9a", None),
            ("a b", None),
            ("a{}", None),
            ("a{b}", None),
            ("a{b=c}", None),
            ("a{b=\"c\"", None),
            ("a{b=\"}", None),
            ("a{b:c=\"d\"}", None),
            ("a{b=\"c\",d=\"e\"}", None),
            ("a{b!=\"c\"}", None),
            ("a{b=\"\\\\\"}", None),
            ("{b=\"c\"}", None),
        ];
        for (text, want) in CASES {
            let want = want.map(|(metric, only)| Series {
                metric: metric.to_owned(),
                only: only.map(|(label, value)| (label.to_owned(), value.to_owned())),
            });
            assert_eq!(Series::parse(text), want, "{text}");
        }
    }
}
