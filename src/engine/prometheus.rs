//! Reads the Prometheus text exposition format in one pass, without allocating.
//!
//! Source: "Exposition formats", text-based format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats), and what
//! OpenMetrics 1.0 adds to a sample's line (exemplars, `# EOF`). Tolerant on purpose: a line that cannot be read is
//! skipped, because one odd metric must not cost the load of a whole worker.

/// Bytes of a page that are read; what follows is ignored.
///
/// A page of vLLM 0.32.0 with one engine and one model has 58 KB; this leaves room for a node of 32 such engines.
pub const PAGE_BYTES_MAX: usize = 2 << 20;

/// Bytes of one line that are read; a longer line is skipped.
///
/// The longest line of vLLM 0.32.0 (`vllm:cache_config_info`) has 1.1 KB.
pub const LINE_BYTES_MAX: usize = 16 << 10;

/// One sample: one series and its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'p> {
    /// The metric's name, never empty.
    pub name: &'p [u8],
    /// What stands between the braces, as written; empty without braces.
    pub labels: &'p [u8],
    /// The value. `None`: it is NaN, infinite or no number at all, and means nothing that one could route by.
    pub value: Option<f64>,
}

/// The samples of `page` whose name `wants` has something for, in order, each with that.
///
/// Labels and values of other names are not looked at, which is most of the work on a page of histograms.
///
/// A last line without its line feed is ignored: the format demands one, so such a page was cut, and `1` may have been
/// `12`.
pub fn samples<'p, W>(page: &'p [u8], wants: impl Fn(&[u8]) -> Option<W>) -> impl Iterator<Item = (W, Sample<'p>)> {
    lines(page).filter_map(move |line| {
        let (name, rest) = split_name(line)?;
        let wanted = wants(name)?;
        let (labels, rest) = split_labels(rest)?;
        // A time stamp or an exemplar may follow the value; neither says anything about load.
        let value = rest.split(|&byte| is_blank(byte)).find(|token| !token.is_empty())?;
        Some((wanted, Sample { name, labels, value: number(value) }))
    })
}

/// Whether `page` names a metric that `is_wanted`: by a series of it, or by its HELP or TYPE before it has any.
pub fn names_any(page: &[u8], is_wanted: impl Fn(&[u8]) -> bool) -> bool {
    lines(page).any(|line| {
        let line = line.trim_ascii_start();
        let of_comment = COMMENTS.iter().find_map(|begin| line.strip_prefix(*begin));
        split_name(of_comment.unwrap_or(line)).is_some_and(|(name, _)| is_wanted(name))
    })
}

/// How the comments begin that a metric's name follows.
const COMMENTS: [&[u8]; 2] = [b"# HELP ", b"# TYPE "];

/// The finite number that `text` spells; `None` for NaN, infinities and everything else.
#[must_use]
pub fn number(text: &[u8]) -> Option<f64> {
    let number: f64 = str::from_utf8(text).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}

impl<'p> Sample<'p> {
    /// The value of the label `name`, escapes (`\\`, `\"`, `\n`) left as written; `None` if there is no such label or
    /// the labels cannot be read up to it. Of two labels of one name the first counts.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&'p [u8]> {
        let mut rest = self.labels;
        loop {
            let equals = rest.iter().position(|&byte| byte == b'=')?;
            let (key, after) = rest.split_at_checked(equals)?;
            let quoted = after.get(1..)?.trim_ascii_start().strip_prefix(b"\"")?;
            let (value, after) = quoted.split_at_checked(closing_quote(quoted)?)?;
            if key.trim_ascii() == name.as_bytes() {
                return Some(value);
            }
            rest = after.get(1..)?.trim_ascii_start();
            rest = rest.strip_prefix(b",").unwrap_or(rest);
        }
    }
}

/// Whole lines of the page's read part, without line end, of bounded length.
fn lines(page: &[u8]) -> impl Iterator<Item = &[u8]> {
    let page = page.get(..PAGE_BYTES_MAX).unwrap_or(page);
    let mut start = 0;
    memchr::memchr_iter(b'\n', page)
        .filter_map(move |end| page.get(std::mem::replace(&mut start, end + 1)..end))
        .filter(|line| line.len() < LINE_BYTES_MAX)
}

/// Splits a line into the metric's name and what follows; `None` for comments, blank lines and what starts otherwise.
fn split_name(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_start();
    let end = line.iter().position(|&byte| !is_name_byte(byte))?;
    let (name, rest) = line.split_at_checked(end)?;
    let starts_well = name.first().is_some_and(|first| !first.is_ascii_digit());
    let ends_well = rest.first().is_some_and(|&byte| byte == b'{' || is_blank(byte));
    (starts_well && ends_well).then_some((name, rest))
}

/// Splits what follows the name into labels (without their braces) and the rest; `None` if a brace is not closed.
fn split_labels(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_start();
    let Some(inner) = line.strip_prefix(b"{") else {
        return Some((&[], line));
    };
    let mut at = 0;
    loop {
        let tail = inner.get(at..)?;
        at += tail.iter().position(|&byte| byte == b'}' || byte == b'"')?;
        let (labels, tail) = inner.split_at_checked(at)?;
        let (delimiter, tail) = tail.split_first()?;
        if *delimiter == b'}' {
            return Some((labels, tail));
        }
        at += 1 + closing_quote(tail)? + 1;
    }
}

/// Where the first quote is that no backslash escapes.
fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut is_escaped = false;
    text.iter().position(|&byte| {
        let closes = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        closes
    })
}

pub(super) const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':')
}

/// Separates the parts of a line. The carriage return is one of them, so that CRLF line ends need no care of their own.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;

    fn read(page: &[u8]) -> Vec<(String, String, Option<f64>)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        samples(page, |_| Some(())).map(|((), sample)| (text(sample.name), text(sample.labels), sample.value)).collect()
    }

    #[test]
    fn a_metric_is_named_by_its_series_or_by_what_is_said_of_it() {
        for (page, is_named) in [
            ("a:b 1\n", true),
            ("x 1\n  a:b{x=\"1\"} NaN\n", true),
            ("# HELP a:b How many.\n", true),
            ("# TYPE a:b gauge\r\n", true),
            ("# a:b 1\n", false),
            ("# HELP x a:b is another\n", false),
            ("# TYPE  gauge\n", false),
            ("x{y=\"a:b 1\"} 1\n", false),
            ("a:b 1", false),
            ("", false),
        ] {
            assert_eq!(names_any(page.as_bytes(), |name| name.starts_with(b"a:")), is_named, "{page}");
        }
    }

    #[test]
    fn a_line_gives_at_most_one_sample() {
        type Case = (&'static str, &'static str, Option<(&'static str, &'static str, Option<f64>)>);
        const CASES: &[Case] = &[
            ("bare", "a 1\n", Some(("a", "", Some(1.0)))),
            ("labels", "a:b_c{x=\"1\",y=\"2\"} 2.5\n", Some(("a:b_c", "x=\"1\",y=\"2\"", Some(2.5)))),
            ("space around labels", "  a {x=\"1\"}\t3\n", Some(("a", "x=\"1\"", Some(3.0)))),
            ("no space before the value", "a{}4\n", Some(("a", "", Some(4.0)))),
            ("CRLF", "a 5\r\n", Some(("a", "", Some(5.0)))),
            ("time stamp", "a 6 1395066363000\n", Some(("a", "", Some(6.0)))),
            ("exemplar", "a{le=\"1\"} 7 # {trace=\"x\"} 0.5 1.0\n", Some(("a", "le=\"1\"", Some(7.0)))),
            ("exponent", "a 1.7e+09\n", Some(("a", "", Some(1.7e9)))),
            (
                "quote, brace and comma in a label",
                "a{x=\"\\\"},{\",y=\"\\\\\"} 8\n",
                Some(("a", "x=\"\\\"},{\",y=\"\\\\\"", Some(8.0))),
            ),
            ("NaN", "a NaN\n", Some(("a", "", None))),
            ("infinity", "a +Inf\n", Some(("a", "", None))),
            ("minus infinity", "a -Inf\n", Some(("a", "", None))),
            ("beyond doubles", "a 1e999\n", Some(("a", "", None))),
            ("no number", "a b\n", Some(("a", "", None))),
            ("no line feed", "a 12", None),
            ("blank", " \t\r\n", None),
            ("comment", "# HELP a b\n", None),
            ("end of OpenMetrics", "# EOF\n", None),
            ("no value", "a\n", None),
            ("no value after labels", "a{x=\"1\"} \n", None),
            ("unterminated label", "a{x=\"1} 9\n", None),
            ("unterminated labels", "a{x=\"1\" 9\n", None),
            ("digit first", "9a 1\n", None),
            ("HTML", "<p>a 1</p>\n", None),
        ];
        for (name, page, sample) in CASES {
            let want: Vec<_> =
                sample.map(|(name, labels, value)| (name.into(), labels.into(), value)).into_iter().collect();
            assert_eq!(read(page.as_bytes()), want, "{name}");
        }
    }

    #[test]
    fn a_label_is_found_by_its_whole_name() {
        const LABELS: &str = r#"hash_size="1",x="size=\"2\",size=\"3\"", size = "4\\",size="5",path="C:\\dir\n",odd"#;
        let sample = Sample { name: b"a", labels: LABELS.as_bytes(), value: None };
        assert_eq!(sample.label("size"), Some(br"4\\".as_slice()));
        assert_eq!(sample.label("hash_size"), Some(b"1".as_slice()));
        assert_eq!(sample.label("path"), Some(br"C:\\dir\n".as_slice()));
        assert_eq!(sample.label("odd"), None);
        assert_eq!(sample.label(""), None);
        for labels in ["", "=", "size", "size=", "size=4", "size=\"4", "size=\"4\\\"", "other=4,size=\"4\""] {
            let sample = Sample { name: b"a", labels: labels.as_bytes(), value: None };
            assert_eq!(sample.label("size"), None, "{labels}");
        }
    }

    #[test]
    fn a_long_line_is_skipped_and_the_next_one_read() {
        let mut page = format!("a{{x=\"{}\"}} 1\nb 2\n", "x".repeat(LINE_BYTES_MAX)).into_bytes();
        assert_eq!(read(&page), [("b".into(), String::new(), Some(2.0))]);
        page.resize(PAGE_BYTES_MAX - 2, b'\n');
        page.extend_from_slice(b"c 3\n");
        assert_eq!(read(&page).len(), 1, "the line across the bound is ignored");
    }

    #[test]
    fn any_bytes_are_survived() {
        const ALPHABET: &[u8] = b"a{}\"\\=, \n\r#1.e-\xff\0";
        for seed in 0..20_000 {
            let mut rng = Rng::new(seed);
            let page: Vec<u8> =
                (0..rng.below(40)).map(|_| ALPHABET[rng.below(ALPHABET.len() as u32) as usize]).collect();
            for ((), sample) in samples(&page, |_| Some(())) {
                assert!(!sample.name.is_empty() && sample.value.is_none_or(f64::is_finite), "seed {seed}");
                let _ = sample.label("a");
            }
        }
        assert_eq!(read(&vec![b'x'; 3_000_000]), []);
    }
}
