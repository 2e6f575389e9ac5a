//! Faults that a test can switch on in a running worker, by call or by `POST /sim/faults`.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// The faults in force. A new value replaces the old one whole; the default is a healthy worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Faults {
    /// Share of requests (0 to 1) that are answered 500; the control paths (/health, /metrics, ...) are spared
    #[arg(long, default_value_t = 0.0)]
    pub error_rate: f64,
    /// Stand still like a process under SIGSTOP: accept connections, answer nothing, run no step
    #[arg(long)]
    pub hang: bool,
    /// Answer 503 on every path for so many milliseconds after the start, a restart or the setting of this fault
    #[arg(long, default_value_t = 0)]
    pub start_delay_ms: u64,
    /// What `/metrics` answers
    #[arg(long = "metrics-fault", value_enum, default_value_t = MetricsFault::Ok)]
    pub metrics: MetricsFault,
}

impl Faults {
    /// Refuses what has no meaning.
    ///
    /// # Errors
    /// If `error_rate` is outside 0 to 1.
    pub fn validate(&self) -> Result<()> {
        ensure!((0.0..=1.0).contains(&self.error_rate), "errorRate must be 0 to 1, got {}", self.error_rate);
        Ok(())
    }
}

/// What `/metrics` answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
#[value(rename_all = "camelCase")]
pub enum MetricsFault {
    /// The true values.
    #[default]
    Ok,
    /// 200 with a page that is not in the exposition format (and not UTF-8).
    Garbage,
    /// 200, with `NaN` for every gauge of the engine.
    Nan,
    /// 200, without any series of the engine; only the `process_` ones.
    Missing,
    /// 404.
    NotFound,
    /// No answer.
    Hang,
}

/// Draws which requests fail, repeatably for a seed (SplitMix64).
#[derive(Debug)]
pub(crate) struct ErrorDice(u64);

impl ErrorDice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Whether the next request fails. Never at rate 0, always at rate 1.
    pub(crate) fn fails(&mut self, rate: f64) -> bool {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        // The upper 53 bits are a uniform f64 in [0, 1).
        (((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64) < rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_read_camel_case_and_refuse_unknown_keys() {
        let faults: Faults = serde_json::from_str(r#"{"errorRate":0.5,"startDelayMs":7,"metrics":"nan"}"#).unwrap();
        let want = Faults { error_rate: 0.5, start_delay_ms: 7, metrics: MetricsFault::Nan, hang: false };
        assert_eq!(faults, want);
        assert_eq!(serde_json::from_str::<Faults>("{}").unwrap(), Faults::default());
        assert!(serde_json::from_str::<Faults>(r#"{"errorrate":1}"#).is_err());
        assert!(Faults { error_rate: 1.1, ..Faults::default() }.validate().is_err());
    }

    #[test]
    fn the_dice_keep_the_rate_and_the_seed() {
        let draw = |seed, rate| {
            let mut dice = ErrorDice::new(seed);
            (0..10_000).filter(|_| dice.fails(rate)).count()
        };
        assert_eq!((draw(1, 0.0), draw(1, 1.0)), (0, 10_000));
        assert!((2_800..3_200).contains(&draw(1, 0.3)));
        assert_eq!(draw(7, 0.3), draw(7, 0.3));
    }
}
