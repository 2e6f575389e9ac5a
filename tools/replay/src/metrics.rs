//! What a run was worth: figures over its requests, and their spread over seeds.

use crate::request::Request;

/// Time to first token within which an answer is good, seconds.
pub const GOOD_TTFT_S: f64 = 2.0;

/// Time per output token within which an answer is good, seconds.
pub const GOOD_TPOT_S: f64 = 0.050;

/// How one request went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestOutcome {
    /// When it came, seconds.
    pub arrival_s: f64,
    /// The gateway that got it.
    pub gateway: usize,
    /// The worker it was sent to.
    pub worker: usize,
    /// From arrival to the first byte, seconds; NaN if none came.
    pub ttft_s: f64,
    /// From arrival to the end, seconds.
    pub e2e_s: f64,
    /// Tokens of the prompt that the engine had in its cache.
    pub cached_tokens: u32,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// Whether it was answered to the end.
    pub is_answered: bool,
}

impl RequestOutcome {
    /// A request that is on its way.
    #[must_use]
    pub const fn sent(request: &Request, gateway: usize, worker: usize) -> Self {
        Self {
            arrival_s: request.arrival_s,
            gateway,
            worker,
            ttft_s: f64::NAN,
            e2e_s: f64::NAN,
            cached_tokens: 0,
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.output_tokens,
            is_answered: false,
        }
    }

    /// Whether it was answered with TTFT and time per output token within the limits.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let tpot_s = (self.e2e_s - self.ttft_s) / f64::from(self.output_tokens.saturating_sub(1).max(1));
        self.is_answered && self.ttft_s <= GOOD_TTFT_S && tpot_s <= GOOD_TPOT_S
    }
}

/// A run in figures. Times are over the answered requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Seconds; lower is better.
    pub ttft_mean_s: f64,
    /// Half of the requests wait no longer, seconds.
    pub ttft_p50_s: f64,
    /// Seconds.
    pub ttft_p90_s: f64,
    /// Seconds.
    pub ttft_p99_s: f64,
    /// To the end of the answer, seconds; lower is better.
    pub e2e_mean_s: f64,
    /// Share of prompt tokens that were in a cache, 0 to 1; higher is better.
    pub token_hit: f64,
    /// Share of all requests with TTFT <= 2 s and time per output token <= 50 ms, 0 to 1; higher is better.
    pub good_share: f64,
    /// Requests of the worker that got most, over the mean; 1 is even.
    pub requests_max_over_mean: f64,
    /// Requests that were not answered.
    pub failed: usize,
}

impl Summary {
    /// Of a run on `workers`.
    #[must_use]
    pub fn of(outcomes: &[RequestOutcome], workers: usize) -> Self {
        let answered = || outcomes.iter().filter(|outcome| outcome.is_answered);
        let mut ttft_s: Vec<f64> = answered().map(|outcome| outcome.ttft_s).collect();
        ttft_s.sort_by(f64::total_cmp);
        let count = ttft_s.len().max(1) as f64;
        let tokens = |of: fn(&RequestOutcome) -> u32| answered().map(|outcome| f64::from(of(outcome))).sum::<f64>();
        let mut by_worker = vec![0_usize; workers];
        outcomes.iter().for_each(|outcome| by_worker[outcome.worker] += 1);
        let most = by_worker.iter().copied().max().unwrap_or_default();
        let all = outcomes.len().max(1) as f64;
        Self {
            ttft_mean_s: ttft_s.iter().sum::<f64>() / count,
            ttft_p50_s: percentile(&ttft_s, 0.50),
            ttft_p90_s: percentile(&ttft_s, 0.90),
            ttft_p99_s: percentile(&ttft_s, 0.99),
            e2e_mean_s: answered().map(|outcome| outcome.e2e_s).sum::<f64>() / count,
            token_hit: tokens(|outcome| outcome.cached_tokens) / tokens(|outcome| outcome.prompt_tokens).max(1.0),
            good_share: outcomes.iter().filter(|outcome| outcome.is_good()).count() as f64 / all,
            requests_max_over_mean: most as f64 * workers as f64 / all,
            failed: outcomes.len() - ttft_s.len(),
        }
    }
}

/// The value below which a share `at` (0 to 1) of the `sorted` values lies; 0 if there are none.
#[must_use]
pub fn percentile(sorted: &[f64], at: f64) -> f64 {
    let place = (at * sorted.len() as f64) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// A mean over seeds, and how far the true one may be from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half of the 95 % confidence interval by Student's t; 0 for a single value.
    pub half: f64,
}

impl Interval {
    /// Over one value for each seed.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count.max(1) as f64;
        if count < 2 {
            return Self { mean, half: 0.0 };
        }
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (squares / ((count - 1) * count) as f64).sqrt();
        // Beyond 30 degrees of freedom the normal distribution is near enough.
        let t = T_95.get(count - 2).copied().unwrap_or(1.96);
        Self { mean, half: t * error }
    }
}

/// 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom; any statistics table.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(worker: usize, ttft_s: f64, e2e_s: f64, is_answered: bool) -> RequestOutcome {
        RequestOutcome {
            arrival_s: 0.0,
            gateway: 0,
            worker,
            ttft_s,
            e2e_s,
            cached_tokens: 25,
            prompt_tokens: 100,
            output_tokens: 11,
            is_answered,
        }
    }

    #[test]
    fn good_needs_both_limits_and_an_answer() {
        struct Case {
            name: &'static str,
            outcome: RequestOutcome,
            is_good: bool,
        }
        let cases = [
            Case { name: "both at their limits", outcome: outcome(0, 2.0, 2.5, true), is_good: true },
            Case { name: "late first byte", outcome: outcome(0, 2.01, 2.5, true), is_good: false },
            Case { name: "slow stream", outcome: outcome(0, 1.0, 1.51, true), is_good: false },
            Case { name: "broken stream", outcome: outcome(0, 1.0, 1.1, false), is_good: false },
        ];
        for case in cases {
            assert_eq!(case.outcome.is_good(), case.is_good, "{}", case.name);
        }
    }

    #[test]
    fn a_summary_leaves_failures_out_of_times_and_in_shares() {
        let outcomes = [outcome(0, 1.0, 1.2, true), outcome(0, 3.0, 3.2, true), outcome(0, f64::NAN, 0.005, false)];
        let summary = Summary::of(&outcomes, 2);
        assert_eq!(summary.failed, 1);
        assert!((summary.ttft_mean_s - 2.0).abs() < 1e-12);
        assert!((summary.good_share - 1.0 / 3.0).abs() < 1e-12);
        assert!((summary.token_hit - 0.25).abs() < 1e-12);
        assert!((summary.requests_max_over_mean - 2.0).abs() < 1e-12);
    }

    #[test]
    fn the_interval_is_that_of_a_textbook() {
        // Mean 3, standard deviation 1.5811, error 0.70711, t(4) = 2.776.
        let interval = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((interval.mean - 3.0).abs() < 1e-12);
        assert!((interval.half - 1.9629).abs() < 1e-4);
        assert_eq!(Interval::of(&[7.0]), Interval { mean: 7.0, half: 0.0 });
    }
}
