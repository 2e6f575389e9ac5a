//! The stored instruction counts, and whether new ones are still within them.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

/// Instructions by stage.
pub type Counts = BTreeMap<String, u64>;

/// A stage may grow by this share. The same build counts the same to a few instructions in a million.
pub const TOLERANCE: f64 = 0.03;

/// With another compiler the same source is other code.
pub const TOLERANCE_OTHER_COMPILER: f64 = 0.20;

/// Of a stage of some hundred instructions a handful says nothing.
const TOLERANCE_INSTRUCTIONS: u64 = 20;

/// Counts, and what they depend on besides the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// As `rustc --version` says.
    pub compiler: String,
    /// The processor's architecture: counts of different ones do not compare.
    pub architecture: String,
    /// By stage.
    pub instructions: Counts,
}

/// What came of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether nothing grew beyond the tolerance.
    pub is_ok: bool,
    /// For people, several lines.
    pub message: String,
}

impl Baseline {
    /// The baseline in a JSON text.
    ///
    /// # Errors
    /// When it is none.
    pub fn from_json(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let word = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned).context(name.to_owned());
        let counts = value.get("instructions").and_then(Value::as_object).context("instructions")?;
        let count = |(name, count): (&String, &Value)| Some((name.clone(), count.as_u64()?));
        Ok(Self {
            compiler: word("compiler")?,
            architecture: word("architecture")?,
            instructions: counts.iter().map(count).collect::<Option<_>>().context("a count is no number")?,
        })
    }

    /// As JSON text, one stage a line.
    #[must_use]
    pub fn to_json(&self) -> String {
        let counts: Map<String, Value> =
            self.instructions.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
        let value = json!({ "compiler": self.compiler, "architecture": self.architecture, "instructions": counts });
        format!("{value:#}\n")
    }

    /// Compares `new` with this.
    #[must_use]
    pub fn compare(&self, new: &Self) -> Verdict {
        if self.architecture != new.architecture {
            let message =
                format!("not compared: the baseline is of {}, this is {}", self.architecture, new.architecture);
            return Verdict { is_ok: true, message };
        }
        let is_same_compiler = self.compiler == new.compiler;
        let tolerance = if is_same_compiler { TOLERANCE } else { TOLERANCE_OTHER_COMPILER };
        let mut message = String::new();
        if !is_same_compiler {
            message = format!(
                "the baseline is of {}, this is {}: {:.0} % are tolerated instead of {:.0} %\n",
                self.compiler,
                new.compiler,
                TOLERANCE_OTHER_COMPILER * 100.0,
                TOLERANCE * 100.0
            );
        }
        let (mut is_ok, mut is_better) = (true, false);
        for (name, &count) in &new.instructions {
            let Some(&before) = self.instructions.get(name) else {
                is_ok = false;
                let _ = writeln!(message, "{name}: {count} instructions, not in the baseline");
                continue;
            };
            let change = count as f64 / before.max(1) as f64 - 1.0;
            if change.abs() <= tolerance || count.abs_diff(before) <= TOLERANCE_INSTRUCTIONS {
                continue;
            }
            is_ok &= change < 0.0;
            is_better |= change < 0.0;
            let verb = if change > 0.0 { "GREW" } else { "shrank" };
            let _ =
                writeln!(message, "{name} {verb} by {:.1} %: {before} -> {count} instructions", change.abs() * 100.0);
        }
        for name in self.instructions.keys().filter(|name| !new.instructions.contains_key(*name)) {
            is_ok = false;
            let _ = writeln!(message, "{name}: in the baseline, and not counted any more");
        }
        if !is_ok || is_better {
            message.push_str(
                "To take these counts as the baseline, with the change that causes them: make instructions ACCEPT=1\n",
            );
        }
        let _ = write!(message, "{} stages compared, {:.0} % tolerated", new.instructions.len(), tolerance * 100.0);
        Verdict { is_ok, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(compiler: &str, counts: &[(&str, u64)]) -> Baseline {
        Baseline {
            compiler: compiler.to_owned(),
            architecture: "x86_64".to_owned(),
            instructions: counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        }
    }

    #[test]
    fn a_stage_that_grows_fails_and_is_named_with_its_growth_and_the_way_to_accept_it() {
        let before = baseline("rustc 1", &[("parse/4KB", 100_000), ("score/hybrid", 500)]);
        struct Case {
            parse: u64,
            score: u64,
            compiler: &'static str,
            is_ok: bool,
            says: &'static [&'static str],
        }
        let cases = [
            Case { parse: 100_000, score: 500, compiler: "rustc 1", is_ok: true, says: &["2 stages compared"] },
            Case { parse: 102_900, score: 519, compiler: "rustc 1", is_ok: true, says: &[] },
            Case {
                parse: 110_000,
                score: 500,
                compiler: "rustc 1",
                is_ok: false,
                says: &["parse/4KB GREW by 10.0 %: 100000 -> 110000", "make instructions ACCEPT=1"],
            },
            Case {
                parse: 100_000,
                score: 550,
                compiler: "rustc 1",
                is_ok: false,
                says: &["score/hybrid GREW by 10.0 %"],
            },
            Case {
                parse: 60_000,
                score: 500,
                compiler: "rustc 1",
                is_ok: true,
                says: &["shrank by 40.0 %", "ACCEPT=1"],
            },
            Case { parse: 110_000, score: 500, compiler: "rustc 2", is_ok: true, says: &["20 % are tolerated"] },
            Case { parse: 125_000, score: 500, compiler: "rustc 2", is_ok: false, says: &["GREW by 25.0 %"] },
        ];
        for case in cases {
            let verdict =
                before.compare(&baseline(case.compiler, &[("parse/4KB", case.parse), ("score/hybrid", case.score)]));
            assert_eq!(verdict.is_ok, case.is_ok, "{}", verdict.message);
            for part in case.says {
                assert!(verdict.message.contains(part), "no {part:?} in {}", verdict.message);
            }
        }
    }

    #[test]
    fn a_stage_that_comes_or_goes_fails_until_it_is_accepted() {
        let (one, two) = (baseline("rustc 1", &[("a", 1_000)]), baseline("rustc 1", &[("a", 1_000), ("b", 1_000)]));
        assert!(one.compare(&two).message.contains("b: 1000 instructions, not in the baseline"));
        assert!(!one.compare(&two).is_ok && !two.compare(&one).is_ok);
    }

    #[test]
    fn counts_of_another_architecture_are_not_compared_and_it_says_so() {
        let before = baseline("rustc 1", &[("a", 1_000)]);
        let other = Baseline { architecture: "aarch64".to_owned(), ..baseline("rustc 1", &[("a", 9_000)]) };
        let verdict = before.compare(&other);
        assert!(verdict.is_ok && verdict.message.contains("not compared"));
    }

    #[test]
    fn a_baseline_survives_its_file() -> Result<()> {
        let before = baseline("rustc 1", &[("a", 1_000), ("b", 7)]);
        assert_eq!(Baseline::from_json(&before.to_json())?, before);
        Ok(())
    }
}
