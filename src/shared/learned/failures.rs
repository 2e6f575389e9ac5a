//! What became of a worker's requests: when it is ejected for those that it failed, for how long, and what brings it back.
//!
//! ```text
//! in use      so many failures in a row, or too large a share of about the last 20 requests: ejected
//! ejected     no requests for a while, twice as long each time that it does not come back
//! half open   one request is the probe: served, and the worker is in use at once; failed, and it is ejected for longer
//! ```
//! A success of a request that was sent after the last failure always clears the mark, whoever sent it there.

use crate::config::HealthConfig;
use crate::time::Timestamp;

/// A worker's failed requests, and what follows from them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FailureRecord {
    /// Requests in a row that it failed.
    pub in_a_row: u8,
    /// The share of about its last 20 requests that it failed, 0.0 to 1.0, as of `rated_at`. Exactly 0 where it is
    /// negligible: then successes need not be told.
    pub share: f32,
    /// When `share` was right.
    pub rated_at: Timestamp,
    /// When it failed the last one.
    pub failed_at: Timestamp,
    /// Whether it was ejected and has served nothing since: it is out of use, or half open.
    pub is_marked: bool,
    /// How often in a row it was ejected without having served well for a while in between.
    pub ejections: u8,
    /// When it was ejected last.
    pub ejected_at: Timestamp,
    /// When it was tried again after that.
    pub probed_at: Timestamp,
}

impl FailureRecord {
    /// Whether it should get no requests. Once that is over it is tried with one.
    ///
    /// A time that lies far ahead is of before the clock stepped back, and counts as long ago.
    #[must_use]
    pub fn is_ejected(&self, now: Timestamp, health: &HealthConfig) -> bool {
        self.is_marked && now.ms_between(self.out_since()) < self.ejection_ms(health)
    }

    /// Whether whoever decides should know at once what others know of it: it is out of use, or somebody may be trying it.
    #[must_use]
    pub fn is_on_trial(&self, now: Timestamp, health: &HealthConfig) -> bool {
        self.is_marked && now.ms_between(self.out_since()) < self.ejection_ms(health) + TRIAL_MS
    }

    /// Whether a success would change anything.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.is_marked || self.in_a_row > 0 || self.share > 0.0
    }

    /// It failed a request that was sent at `sent_at`; returns whether it is ejected for that now.
    ///
    /// One that was sent before the last ejection tells nothing new: all that hang at a worker fail together.
    pub fn fail(&mut self, sent_at: Timestamp, now: Timestamp, health: &HealthConfig) -> bool {
        if sent_at < self.ejected_at && self.ejected_at <= now {
            return false;
        }
        self.failed_at = now;
        self.in_a_row = self.in_a_row.saturating_add(1);
        let is_due = if self.is_marked {
            // It was tried, and failed. What is sent there all the same while it is out of use does not prolong that.
            let was_tried = self.probed_at > self.ejected_at && sent_at >= self.probed_at;
            was_tried || sent_at.ms_since(self.ejected_at) >= self.ejection_ms(health)
        } else {
            self.rate(1.0, now);
            u32::from(self.in_a_row) >= health.consecutive_failures
                || (health.failure_percent < 100 && f64::from(self.share) * 100.0 > f64::from(health.failure_percent))
        };
        if is_due {
            self.eject(now, health);
        }
        is_due
    }

    /// It broke off an answer that it had begun: what was counted as served when it began is none.
    pub fn take_back_success(&mut self, now: Timestamp) {
        if !self.is_marked {
            self.rate(1.0, now);
        }
    }

    /// It served a request that was sent at `sent_at`: counts it among the last ones, and see [`Self::clear`].
    pub fn succeed(&mut self, sent_at: Timestamp, now: Timestamp) {
        if !self.is_marked && self.share > 0.0 {
            self.rate(0.0, now);
        }
        self.clear(sent_at, now);
    }

    /// It is in use again, if the request that it served was sent after its last failure. What was sent before that says
    /// nothing of now: a worker may refuse new requests and finish the old ones.
    pub fn clear(&mut self, sent_at: Timestamp, now: Timestamp) {
        if sent_at < self.failed_at && self.failed_at <= now {
            return;
        }
        self.in_a_row = 0;
        if self.is_marked {
            // What it failed before is paid for; and it must not be ejected again for one request.
            (self.is_marked, self.share) = (false, 0.0);
        }
    }

    /// It refused a request that was sent at `sent_at` for the request's own fault. If that was to show whether it works
    /// again, it has not, and the next one may.
    pub fn refuse(&mut self, sent_at: Timestamp) {
        if self.is_marked && sent_at >= self.probed_at {
            self.probed_at = Timestamp::default();
        }
    }

    /// It is sent a request: if its time is over this is the one that shows whether it works again, and no other is sent
    /// for as long as it was out of use.
    pub fn probe(&mut self, now: Timestamp, health: &HealthConfig) {
        if self.is_marked && !self.is_ejected(now, health) {
            self.probed_at = now;
        }
    }

    fn eject(&mut self, now: Timestamp, health: &HealthConfig) {
        let has_served_well =
            !self.is_marked && now.ms_between(self.out_since()) >= self.ejection_ms(health).max(FORGET_MS_MIN);
        self.ejections = if has_served_well { 1 } else { self.ejections.saturating_add(1) };
        (self.is_marked, self.ejected_at) = (true, now);
    }

    /// When it was last taken out of use, or tried.
    fn out_since(&self) -> Timestamp {
        self.ejected_at.max(self.probed_at)
    }

    /// How long it is out of use.
    fn ejection_ms(&self, health: &HealthConfig) -> u64 {
        let doublings = u32::from(self.ejections.saturating_sub(1)).min(DOUBLINGS_MAX);
        (u64::from(health.ejection_ms) << doublings).min(u64::from(health.ejection_ms_max))
    }

    /// Counts one more of its requests, `sample` = 1.0 if it failed it, and 0.0 if not.
    fn rate(&mut self, sample: f32, now: Timestamp) {
        let faded = self.share * fading(now.ms_between(self.rated_at));
        let share = faded + SHARE_WEIGHT * (sample - faded);
        // Pages may hold anything, and NaN fails every comparison.
        self.share = if share >= SHARE_MIN { share.min(1.0) } else { 0.0 };
        self.rated_at = now;
    }
}

/// What is left of a share after so long: half after each [`HALF_LIFE_MS`], on straight lines in between, for powers are not
/// the same to the bit on all machines.
fn fading(ms: u64) -> f32 {
    let halvings = ms / HALF_LIFE_MS;
    if halvings >= 24 {
        return 0.0;
    }
    let rest = (ms % HALF_LIFE_MS) as f32 / HALF_LIFE_MS as f32;
    (1.0 - rest / 2.0) / (1_u32 << halvings) as f32
}

/// Weight of one more request in the share of failed ones: what 20 requests say together weighs 0.88.
const SHARE_WEIGHT: f32 = 0.1;

/// A smaller share is none: some 20 successes after a single failure.
const SHARE_MIN: f32 = 0.012;

/// After so long a share counts half: a rate of a minute ago says nothing of now.
const HALF_LIFE_MS: u64 = 10_000;

/// A worker that serves for so long, and for as long as it was last out of use, is ejected anew and not again. Envoy looks
/// as often whether to forget an ejection.
///
/// Source: Envoy's documentation, "Outlier detection": `interval`, 10 s by default.
const FORGET_MS_MIN: u64 = 10_000;

/// A worker that nobody has tried for so long after its time was over is in no pool, or gets no requests.
const TRIAL_MS: u64 = 60_000;

/// Enough for any configured length; bounds the shift.
const DOUBLINGS_MAX: u32 = 22;

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;

    const NOW: Timestamp = Timestamp::from_ms(1_000_000);

    fn health() -> HealthConfig {
        HealthConfig::default()
    }

    /// Fails a request that is sent and answered `ms` after [`NOW`].
    fn fail(record: &mut FailureRecord, ms: u64) -> bool {
        record.fail(NOW.plus_ms(ms), NOW.plus_ms(ms), &health())
    }

    fn is_ejected(record: &FailureRecord, ms: u64) -> bool {
        record.is_ejected(NOW.plus_ms(ms), &health())
    }

    /// A worker that was just ejected for three failures in a row.
    fn ejected() -> FailureRecord {
        let mut record = FailureRecord::default();
        assert_eq!([fail(&mut record, 0), fail(&mut record, 0), fail(&mut record, 0)], [false, false, true]);
        record
    }

    #[test]
    fn a_worker_that_fails_again_and_again_is_out_of_use_ever_longer_and_tried_once() {
        let mut record = ejected();
        assert!(!record.fail(Timestamp::from_ms(999_000), NOW.plus_ms(1), &health()), "sent before: nothing new");
        let mut begun_ms = 0;
        for length_ms in [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            let over_ms = begun_ms + length_ms;
            assert!(is_ejected(&record, over_ms - 1) && !is_ejected(&record, over_ms), "{length_ms} ms");
            record.probe(NOW.plus_ms(over_ms), &health());
            assert!(is_ejected(&record, over_ms + length_ms - 1), "one request is enough to find out");
            assert!(fail(&mut record, over_ms), "and it fails");
            begun_ms = over_ms;
        }
        record.probe(NOW.plus_ms(begun_ms + 30_000), &health());
        record.succeed(NOW.plus_ms(begun_ms + 30_000), NOW.plus_ms(begun_ms + 30_001));
        assert!(!is_ejected(&record, begun_ms + 30_001) && !record.has_failed());
    }

    #[test]
    fn a_probe_that_nobody_answers_is_followed_by_another() {
        let mut record = ejected();
        record.probe(NOW.plus_ms(1_000), &health());
        assert!(is_ejected(&record, 1_999) && !is_ejected(&record, 2_000));
    }

    #[test]
    fn what_is_sent_while_it_is_out_of_use_does_not_prolong_that() {
        let mut record = ejected();
        for ms in 1..1_000 {
            record.probe(NOW.plus_ms(ms), &health());
            assert!(!fail(&mut record, ms));
        }
        assert_eq!((record.ejections, is_ejected(&record, 1_000)), (1, false));
    }

    #[test]
    fn a_request_that_is_refused_for_its_own_fault_proves_nothing_and_the_next_one_may() {
        let mut record = ejected();
        record.refuse(NOW.plus_ms(10));
        assert!(is_ejected(&record, 10), "it is out of use all the same");
        record.probe(NOW.plus_ms(1_000), &health());
        record.refuse(NOW.plus_ms(1_000));
        assert!(record.is_marked && !is_ejected(&record, 1_001));
    }

    #[test]
    fn what_was_sent_before_a_failure_proves_nothing() {
        let mut record = ejected();
        record.succeed(Timestamp::from_ms(999_999), NOW.plus_ms(5));
        assert!(record.is_marked);
        record.succeed(NOW.plus_ms(1), NOW.plus_ms(5));
        assert!(!record.is_marked);
    }

    #[test]
    fn a_worker_that_has_served_well_for_a_while_is_ejected_anew_and_not_for_longer() {
        for (served_ms, length_ms) in [(9_000, 2_000), (11_000, 1_000)] {
            let mut record = ejected();
            record.succeed(NOW.plus_ms(1), NOW.plus_ms(2));
            (0..3).for_each(|_| _ = fail(&mut record, served_ms));
            assert!(is_ejected(&record, served_ms + length_ms - 1) && !is_ejected(&record, served_ms + length_ms));
        }
    }

    #[test]
    fn a_worker_that_fails_too_large_a_share_of_its_requests_is_ejected_though_not_in_a_row() {
        struct Case {
            name: &'static str,
            /// Of ten requests so many fail.
            failing: u64,
            failure_percent: u32,
            want: bool,
        }
        const CASES: &[Case] = &[
            Case { name: "half of them, and a third is allowed", failing: 5, failure_percent: 33, want: true },
            Case { name: "half of them, and two thirds are allowed", failing: 5, failure_percent: 66, want: false },
            Case { name: "one in ten, and a twentieth is allowed", failing: 1, failure_percent: 5, want: true },
            Case { name: "one in ten, and a quarter is allowed", failing: 1, failure_percent: 25, want: false },
            Case { name: "all of them, and any share is allowed", failing: 10, failure_percent: 100, want: false },
        ];
        for case in CASES {
            let rules = HealthConfig { consecutive_failures: 200, failure_percent: case.failure_percent, ..health() };
            let (mut record, mut is_out) = (FailureRecord::default(), false);
            for ms in 0..100 {
                let at = NOW.plus_ms(ms);
                if ms * case.failing % 10 < case.failing {
                    is_out |= record.fail(at, at, &rules);
                } else {
                    record.succeed(at, at);
                }
            }
            assert_eq!(is_out, case.want, "{}", case.name);
        }
    }

    #[test]
    fn a_worker_that_begins_each_answer_and_breaks_it_off_is_ejected_soon() {
        let (mut record, mut broken) = (FailureRecord::default(), 0);
        while !record.is_marked && broken < 100 {
            record.succeed(NOW, NOW);
            record.take_back_success(NOW);
            record.fail(NOW, NOW, &health());
            broken += 1;
        }
        assert!((4..10).contains(&broken), "{broken}");
    }

    #[test]
    fn an_old_share_means_nothing_and_a_small_one_is_none() {
        let mut record = FailureRecord::default();
        (0..8).for_each(|_| {
            fail(&mut record, 0);
            record.clear(NOW, NOW);
        });
        let before = record.share;
        record.succeed(NOW.plus_ms(10_000), NOW.plus_ms(10_000));
        assert!((record.share - before * 0.45).abs() < 0.01, "{before} and then {}", record.share);
        record.succeed(NOW.plus_ms(300_000), NOW.plus_ms(300_000));
        assert_eq!((record.share, record.has_failed()), (0.0, false));
        fail(&mut record, 400_000);
        let told = (1..).take_while(|ms| {
            record.succeed(NOW.plus_ms(400_000 + ms), NOW.plus_ms(400_000 + ms));
            record.has_failed()
        });
        assert!((15..25).contains(&told.count()), "a healthy worker's successes are told for a while only");
    }

    #[test]
    fn what_the_clock_said_before_it_stepped_back_keeps_nobody_out() {
        let record = ejected();
        let mut earlier = record;
        assert!(!record.is_ejected(Timestamp::from_ms(400_000), &health()));
        earlier.succeed(Timestamp::from_ms(400_000), Timestamp::from_ms(400_001));
        assert!(!earlier.is_marked);
    }

    #[test]
    fn whatever_happened_a_success_of_what_was_sent_after_the_last_failure_clears_the_mark() {
        for seed in 0..3_000 {
            let mut rng = Rng::new(seed);
            let rules = HealthConfig {
                consecutive_failures: 1 + rng.below(5),
                failure_percent: 1 + rng.below(100),
                ejection_ms: 10 + rng.below(2_000),
                ejection_ms_max: 2_010 + rng.below(60_000),
                ..health()
            };
            let (mut record, mut ms, mut last_failure_ms) = (FailureRecord::default(), 0, 0);
            for _ in 0..60 {
                ms += u64::from(rng.below(3_000));
                let sent_ms = ms.saturating_sub(u64::from(rng.below(4_000)));
                let (sent_at, now) = (NOW.plus_ms(sent_ms), NOW.plus_ms(ms));
                match rng.below(5) {
                    0 | 1 => {
                        let was_told = sent_at >= record.ejected_at;
                        record.fail(sent_at, now, &rules);
                        last_failure_ms = if was_told { ms } else { last_failure_ms };
                    }
                    2 => record.refuse(sent_at),
                    3 => record.probe(now, &rules),
                    _ => {
                        record.succeed(sent_at, now);
                        let is_proof = sent_ms >= last_failure_ms;
                        assert!(!is_proof || !record.is_ejected(now, &rules), "seed {seed}: {record:?}");
                        assert!(!is_proof || record.in_a_row == 0, "seed {seed}: {record:?}");
                    }
                }
                assert!((0.0..=1.0).contains(&record.share), "seed {seed}: {record:?}");
                // Nobody is out of use for longer than is configured, whatever happens.
                let at_most = now.plus_ms(u64::from(rules.ejection_ms_max));
                assert!(!record.is_ejected(at_most, &rules), "seed {seed}: {record:?}");
            }
        }
    }
}
