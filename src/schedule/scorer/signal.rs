//! Signals that not every worker tells, read so that unknown is never better than known.

use crate::schedule::Candidate;

/// The signal if it is told, is a number, and is not negative: lower is better.
pub(in crate::schedule) fn known(signal: Option<f64>) -> Option<f64> {
    signal.filter(|number| number.is_finite() && *number >= 0.0)
}

/// The highest value of a signal that any candidate tells, which stands for those that do not tell; `None` if nobody does.
pub(in crate::schedule) fn worst<'c>(
    candidates: impl IntoIterator<Item = &'c Candidate>,
    signal: impl Fn(&Candidate) -> Option<f64>,
) -> Option<f64> {
    candidates.into_iter().filter_map(|candidate| known(signal(candidate))).reduce(f64::max)
}

/// Scores the lowest value of a signal 1.0 and the highest 0.0, linearly between; all equal 1.0.
///
/// Who does not tell is scored as the highest that is told; if nobody tells, all are scored 0.0.
pub(super) fn score_lowest_best(
    candidates: &[Candidate],
    scores: &mut [f64],
    signal: impl Fn(&Candidate) -> Option<f64>,
) {
    let Some(highest) = worst(candidates, &signal) else {
        scores.fill(0.0);
        return;
    };
    let lowest = candidates.iter().filter_map(|candidate| known(signal(candidate))).fold(highest, f64::min);
    for (score, candidate) in scores.iter_mut().zip(candidates) {
        let value = known(signal(candidate)).unwrap_or(highest);
        *score = if highest > lowest { (highest - value) / (highest - lowest) } else { 1.0 };
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::schedule::policy::testing::candidate;

    #[test]
    fn the_lowest_is_best_and_unknown_is_as_the_highest() {
        struct Case {
            name: &'static str,
            signals: &'static [Option<f64>],
            scores: &'static [f64],
        }
        const CASES: &[Case] = &[
            Case { name: "no workers", signals: &[], scores: &[] },
            Case { name: "equals are all best", signals: &[Some(3.0), Some(3.0)], scores: &[1.0, 1.0] },
            Case { name: "linear between", signals: &[Some(0.0), Some(5.0), Some(10.0)], scores: &[1.0, 0.5, 0.0] },
            Case { name: "unknown", signals: &[None, Some(5.0), Some(10.0)], scores: &[0.0, 1.0, 0.0] },
            Case { name: "one tells", signals: &[None, Some(5.0)], scores: &[1.0, 1.0] },
            Case { name: "nobody tells", signals: &[None, None], scores: &[0.0, 0.0] },
            Case { name: "no number", signals: &[Some(f64::NAN), Some(1.0), Some(2.0)], scores: &[0.0, 1.0, 0.0] },
            Case { name: "negative", signals: &[Some(-1.0), Some(1.0), Some(2.0)], scores: &[0.0, 1.0, 0.0] },
            Case { name: "extremes", signals: &[Some(0.0), Some(f64::MAX)], scores: &[1.0, 0.0] },
        ];
        for case in CASES {
            let with_signal =
                |(id, &waiting): (usize, &Option<f64>)| Candidate { waiting, ..candidate(id as u16, 0.0) };
            let candidates: Vec<Candidate> = case.signals.iter().enumerate().map(with_signal).collect();
            let mut scores = vec![f64::NAN; candidates.len()];
            score_lowest_best(&candidates, &mut scores, |candidate| candidate.waiting);
            assert_eq!(scores, case.scores, "{}", case.name);
        }
    }
}
