//! When to scrape whom: staggered, jittered, bounded. Only the VM that holds the pool's lease asks.

use crate::config::PollConfig;
use crate::rng::Rng;
use crate::time::Timestamp;

/// Scrapes under way at once, at the most: a large pool must not flood Envoy's event loop (1,000 calls at once block it
/// for 180 ms).
const POLLS_IN_FLIGHT_MAX: usize = 256;

/// Scrapes begun in one tick, at the most: with five ticks an interval enough for the largest pool, twice over.
const POLLS_PER_TICK_MAX: usize = 205;

/// A scrape whose answer has not come after this much more than its time-out will never come: its root context is gone.
const LOST_AFTER_MS: u64 = 2_000;

/// A scrape under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The host's number for the call.
    pub token: u32,
    /// The address of the worker that is asked. Not its place: the pool may be another one when the answer comes.
    pub worker: String,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// This gateway's own requests in flight there at that time, and those of them still without a first byte.
    pub in_flight: u32,
    /// See `in_flight`.
    pub prefilling: u32,
}

/// The scrapes of one pool: which are due, and which are under way.
#[derive(Debug, Default)]
pub struct PollSchedule {
    /// When each worker of the pool is due, by its place in it; `None` for a newcomer. Empty while this VM does not hold the
    /// lease.
    due_at: Vec<Option<Timestamp>>,
    under_way: Vec<Poll>,
}

impl PollSchedule {
    /// The workers to scrape now, by their places in the pool, which has them at `addresses`. Call it on each tick while
    /// holding the lease.
    ///
    /// The first round is spread over one interval, so that the workers do not answer all at once; later ones keep
    /// their distance, give or take a tenth of the interval, so that several gateways do not fall into step. Who comes into
    /// the pool later is asked at once, and many of them spread in the same way.
    pub fn due<'a>(
        &mut self,
        addresses: impl ExactSizeIterator<Item = &'a str>,
        poll: &PollConfig,
        now: Timestamp,
        rng: &mut Rng,
    ) -> Vec<usize> {
        self.drop_lost(poll, now);
        let interval_ms = interval_ms(addresses.len(), poll);
        self.due_at.resize(addresses.len(), None);
        self.spread_newcomers(interval_ms, now);
        let room = POLLS_IN_FLIGHT_MAX.saturating_sub(self.under_way.len()).min(POLLS_PER_TICK_MAX);
        // Further ahead than any schedule reaches: made before the clock stepped back.
        let is_due = |due_at: &Timestamp| *due_at <= now || due_at.ms_since(now) > 2 * interval_ms;
        let is_under_way = |address: &str| self.under_way.iter().any(|poll| poll.worker == address);
        let places = self.due_at.iter().zip(addresses).enumerate();
        let mut due: Vec<(Timestamp, usize)> = places
            .filter_map(|(member, (due_at, address))| Some((due_at.filter(is_due)?, member, address)))
            .filter(|(_, _, address)| !is_under_way(address))
            .map(|(due_at, member, _)| (due_at, member))
            .collect();
        // The longest overdue first: where there is no room for all, none is left out for good.
        due.sort_unstable();
        due.truncate(room);
        let next = now.plus_ms(interval_ms - interval_ms / 10);
        for &(_, member) in &due {
            if let Some(due_at) = self.due_at.get_mut(member) {
                *due_at = Some(next.plus_ms(u64::from(rng.below(interval_ms as u32 / 5 + 1))));
            }
        }
        due.into_iter().map(|(_, member)| member).collect()
    }

    /// Gives each newcomer a time of its own within one interval.
    fn spread_newcomers(&mut self, interval_ms: u64, now: Timestamp) {
        let count = self.due_at.iter().filter(|due_at| due_at.is_none()).count() as u64;
        let newcomers = self.due_at.iter_mut().filter(|due_at| due_at.is_none());
        for (place, due_at) in (0..count).zip(newcomers) {
            *due_at = Some(now.plus_ms(interval_ms * place / count));
        }
    }

    /// The pool is another one: `before` tells for each of its workers the place that it had, if any.
    pub fn regroup(&mut self, before: impl Iterator<Item = Option<usize>>) {
        if !self.due_at.is_empty() {
            self.due_at = before.map(|place| self.due_at.get(place?).copied().flatten()).collect();
        }
    }

    /// Forgets the schedule: another VM holds the lease. Scrapes under way still count when they are answered.
    pub fn rest(&mut self) {
        self.due_at.clear();
    }

    /// Notes a scrape that was sent.
    pub fn sent(&mut self, poll: Poll) {
        self.under_way.push(poll);
    }

    /// Takes out the scrape that the host answers under this token.
    pub fn answered(&mut self, token: u32) -> Option<Poll> {
        let index = self.under_way.iter().position(|poll| poll.token == token)?;
        Some(self.under_way.swap_remove(index))
    }

    fn drop_lost(&mut self, poll: &PollConfig, now: Timestamp) {
        let limit_ms = u64::from(poll.timeout_ms) + LOST_AFTER_MS;
        self.under_way.retain(|poll| now.ms_between(poll.sent_at) < limit_ms);
    }
}

/// Between two scrapes of one worker: as configured, and longer in a large pool, where each scrape of a page as long as
/// vLLM's takes most of a millisecond of Envoy's time; but never so long that a report is too old before the next one, or the one after it where a scrape fails.
fn interval_ms(members: usize, poll: &PollConfig) -> u64 {
    let configured_ms = u64::from(poll.interval_ms);
    let spaced_ms = (members as u64).saturating_mul(SPACING_MS).min(poll.report_age_ms_max / 3);
    configured_ms.max(spaced_ms).min(u64::from(u32::MAX))
}

/// Between two scrapes of a pool, on average, at the least.
const SPACING_MS: u64 = 5;

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    const START: Timestamp = Timestamp::from_ms(1_000_000);

    fn config() -> PollConfig {
        PollConfig { interval_ms: 1_000, timeout_ms: 500, ..PollConfig::default() }
    }

    fn poll(token: u32, worker: &str, sent_at: Timestamp) -> Poll {
        Poll { token, worker: worker.to_owned(), sent_at, in_flight: 0, prefilling: 0 }
    }

    fn addresses(members: usize) -> Vec<String> {
        (0..members).map(|member| format!("10.0.0.1:{}", member + 1)).collect()
    }

    /// Who is due in a pool of workers at these addresses.
    fn due(
        schedule: &mut PollSchedule,
        addresses: &[String],
        poll: &PollConfig,
        now: Timestamp,
        rng: &mut Rng,
    ) -> Vec<usize> {
        schedule.due(addresses.iter().map(String::as_str), poll, now, rng)
    }

    /// Ticks every `tick_ms` for 20 s, answering each scrape at once; how often each worker was asked and the most a tick.
    fn run(members: usize, tick_ms: u64) -> (Vec<u32>, usize) {
        let (mut schedule, mut rng) = (PollSchedule::default(), Rng::new(1));
        let (mut asked, mut most, addresses) = (vec![0; members], 0, addresses(members));
        for tick in 0..20_000 / tick_ms {
            let due = due(&mut schedule, &addresses, &config(), START.plus_ms(tick * tick_ms), &mut rng);
            most = most.max(due.len());
            due.iter().for_each(|&member| asked[member] += 1);
        }
        (asked, most)
    }

    #[test]
    fn each_worker_is_asked_once_an_interval_and_never_all_at_once() {
        for members in [1, 4, 100, 512] {
            for tick_ms in [10, 100, 200] {
                let (asked, most) = run(members, tick_ms);
                let want = (20_000 / interval_ms(members, &config())) as u32;
                let is_near = |count: &u32| (want * 4 / 5..=want * 11 / 10 + 1).contains(count);
                assert!(asked.iter().all(is_near), "{members} every {tick_ms} ms: {asked:?}");
                assert!(most <= 3 + members / 2, "{members} every {tick_ms} ms: {most} in one tick");
            }
        }
    }

    #[test]
    fn a_large_pool_is_scraped_less_often_but_no_report_is_too_old_before_the_next_one() {
        let poll = |interval_ms, report_age_ms_max| PollConfig { interval_ms, report_age_ms_max, ..config() };
        for (members, poll, want_ms) in [
            (4, poll(500, 5_000), 500),
            (100, poll(500, 5_000), 500),
            (200, poll(500, 5_000), 1_000),
            (512, poll(500, 5_000), 1_666),
            (512, poll(500, 1_500), 500),
            (512, poll(10_000, 20_000), 10_000),
        ] {
            assert_eq!(interval_ms(members, &poll), want_ms, "{members} {poll:?}");
        }
    }

    #[test]
    fn a_worker_that_does_not_answer_is_not_asked_twice_at_once_and_a_lost_answer_is_given_up() {
        let (mut schedule, mut rng, one) = (PollSchedule::default(), Rng::new(1), addresses(1));
        assert_eq!(due(&mut schedule, &one, &config(), START, &mut rng), [0]);
        schedule.sent(poll(7, &one[0], START));
        assert_eq!(due(&mut schedule, &one, &config(), START.plus_ms(2_000), &mut rng), [] as [usize; 0]);
        assert_eq!(due(&mut schedule, &one, &config(), START.plus_ms(2_600), &mut rng), [0]);
        assert_eq!(schedule.answered(7), None);
    }

    #[test]
    fn scrapes_under_way_are_bounded() {
        let (mut schedule, mut rng, addresses) = (PollSchedule::default(), Rng::new(1), addresses(512));
        let (mut token, poll_config) = (0, PollConfig { report_age_ms_max: 2_000, ..config() });
        for tick in 0..100 {
            let now = START.plus_ms(tick * 10);
            for member in due(&mut schedule, &addresses, &poll_config, now, &mut rng) {
                token += 1;
                schedule.sent(poll(token, &addresses[member], now));
            }
        }
        assert_eq!(schedule.under_way.len(), POLLS_IN_FLIGHT_MAX);
        assert_eq!(schedule.answered(3).map(|poll| poll.token), Some(3));
    }

    #[test]
    fn scrapes_go_on_after_the_clock_stepped_back() {
        let (mut schedule, mut rng, two) = (PollSchedule::default(), Rng::new(1), addresses(2));
        due(&mut schedule, &two, &config(), START.plus_ms(3_600_000), &mut rng);
        let mut again = due(&mut schedule, &two, &config(), START, &mut rng);
        again.sort_unstable();
        assert_eq!(again, [0, 1]);
    }

    #[test]
    fn a_vm_that_gets_the_lease_back_begins_a_new_round() {
        let (mut schedule, mut rng, four) = (PollSchedule::default(), Rng::new(1), addresses(4));
        due(&mut schedule, &four, &config(), START, &mut rng);
        schedule.rest();
        assert_eq!(due(&mut schedule, &four, &config(), START.plus_ms(10), &mut rng), [0]);
    }

    #[test]
    fn who_comes_into_the_pool_is_asked_at_once_and_the_others_when_they_were_to_be() {
        let (mut schedule, mut rng, two) = (PollSchedule::default(), Rng::new(1), addresses(2));
        assert_eq!(due(&mut schedule, &two, &config(), START, &mut rng), [0]);
        schedule.sent(poll(7, &two[0], START));
        // The first one leaves while it is asked, another takes its place.
        let other = vec!["10.0.0.9:1".to_owned(), two[1].clone()];
        schedule.regroup([None, Some(1)].into_iter());
        assert_eq!(due(&mut schedule, &other, &config(), START.plus_ms(10), &mut rng), [0]);
        assert_eq!(due(&mut schedule, &other, &config(), START.plus_ms(499), &mut rng), [] as [usize; 0]);
        assert_eq!(due(&mut schedule, &other, &config(), START.plus_ms(500), &mut rng), [1]);
        assert_eq!(schedule.answered(7).map(|poll| poll.worker), Some(two[0].clone()));
    }
}
