//! Which fault comes when and to whom: all of it follows from the seed.

use warmroute::rng::Rng;

use crate::fault::{FAULTS, Fault, Victim};
use crate::options::Options;

/// The longest time between two lulls.
const STRETCH_MS: u64 = 20_000;
/// Before the first fault of a stretch.
const QUIET_MS: u64 = 300;
/// From the end of a fault until the worker counts as healthy again: by then the plugin has seen it scraped.
const RECOVERY_MS: u64 = 1_500;
/// Between two breaking faults: how long the plugin may take to see that a worker hangs (two scrapes that time out).
///
/// A request has three attempts. So one may be at a worker that has just broken, another at one that is tried once more to
/// see whether it has recovered, and the third is answered.
const BREAK_INTERVAL_MS: u64 = 1_500;

/// A time between two lulls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// How long it is.
    pub length_ms: u64,
    /// In the order of their beginning.
    pub faults: Vec<Planned>,
}

/// One fault that will be injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Its row in [`FAULTS`].
    pub row: usize,
    /// The worker's number, spares after the others; `None`: the gateway.
    pub worker: Option<usize>,
    /// From the beginning of the stretch.
    pub at_ms: u64,
    /// Until it is healed.
    pub lasts_ms: u64,
}

impl Planned {
    /// The kind of fault.
    #[must_use]
    pub fn fault(&self) -> &'static Fault {
        &FAULTS[self.row]
    }

    fn end_ms(&self) -> u64 {
        self.at_ms + self.lasts_ms
    }
}

/// The whole run's faults. Every kind comes once before any comes again.
#[must_use]
pub fn plan(options: &Options) -> Vec<Stretch> {
    let total_ms = u64::try_from(options.length().as_millis()).unwrap_or(u64::MAX);
    let stretches = total_ms.div_ceil(STRETCH_MS).max(2);
    let mut dealer = Dealer::new(options);
    (0..stretches).map(|_| stretch(options, &mut dealer, total_ms / stretches)).collect()
}

/// Deals the kinds of faults like cards, from a deck that is shuffled when it is used up.
struct Dealer {
    rng: Rng,
    rows: Vec<usize>,
    deck: Vec<usize>,
}

impl Dealer {
    fn new(options: &Options) -> Self {
        let is_felt = |row: &usize| !options.listed || !FAULTS[*row].inject.needs_discovery();
        Self { rng: Rng::new(options.seed), rows: (0..FAULTS.len()).filter(is_felt).collect(), deck: Vec::new() }
    }

    fn deal(&mut self) -> usize {
        if self.deck.is_empty() {
            self.deck.clone_from(&self.rows);
            for last in (1..self.deck.len()).rev() {
                let other = self.below(last as u64 + 1) as usize;
                self.deck.swap(last, other);
            }
        }
        self.deck.pop().unwrap_or_default()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(u32::try_from(bound).unwrap_or(u32::MAX)).into()
    }
}

fn stretch(options: &Options, dealer: &mut Dealer, length_ms: u64) -> Stretch {
    let (mut faults, mut at_ms) = (Vec::<Planned>::new(), QUIET_MS);
    loop {
        at_ms += 100 + dealer.below(900);
        let row = dealer.deal();
        let (shortest, longest) = FAULTS[row].lasts_ms;
        let lasts_ms = u64::from(shortest) + dealer.below(u64::from(longest - shortest) + 1);
        let Some(planned) = place(options, dealer, &faults, Planned { row, worker: None, at_ms, lasts_ms }, length_ms)
        else {
            dealer.deck.push(row);
            return Stretch { length_ms, faults };
        };
        at_ms = planned.at_ms;
        faults.push(planned);
    }
}

/// Finds the victim, and the first time from `wanted` on that harms too few workers to lose a request; `None` if that is
/// too late for this stretch.
fn place(
    options: &Options,
    dealer: &mut Dealer,
    faults: &[Planned],
    wanted: Planned,
    length_ms: u64,
) -> Option<Planned> {
    let broken_ms = faults.iter().filter(|fault| fault.fault().is_breaking).map(|fault| fault.at_ms).max();
    let earliest_ms = match broken_ms {
        Some(broken_ms) if wanted.fault().is_breaking => wanted.at_ms.max(broken_ms + BREAK_INTERVAL_MS),
        _ => wanted.at_ms,
    };
    (earliest_ms..)
        .step_by(100)
        .map(|at_ms| Planned { at_ms, ..wanted })
        .take_while(|fault| fault.end_ms() < length_ms)
        .find_map(|fault| {
            let (numbers, busy_max) = match fault.fault().inject.victim() {
                Victim::Gateway => return Some(fault),
                Victim::Worker => (0..options.workers, options.workers - options.healthy_min),
                Victim::Spare => (options.workers..options.workers + options.spares, options.spares),
            };
            let is_busy = |number: usize| {
                faults.iter().any(|other| other.worker == Some(number) && other.end_ms() + RECOVERY_MS > fault.at_ms)
            };
            let idle: Vec<usize> = numbers.clone().filter(|&number| !is_busy(number)).collect();
            if numbers.len() - idle.len() >= busy_max {
                return None;
            }
            let worker = idle.get(dealer.below(idle.len() as u64) as usize).copied();
            Some(Planned { worker, ..fault })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The workers that a fault touches or has touched just before `at_ms`.
    fn touched(stretch: &Stretch, at_ms: u64, workers: usize) -> usize {
        let is_touched = |number: usize| {
            stretch.faults.iter().any(|fault| {
                fault.worker == Some(number) && fault.at_ms <= at_ms && at_ms < fault.end_ms() + RECOVERY_MS
            })
        };
        (0..workers).filter(|&number| is_touched(number)).count()
    }

    #[test]
    fn one_seed_gives_one_plan() {
        let of = |seed| plan(&Options { seed, ..Options::default() });
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn enough_workers_are_healthy_at_any_time_and_breaks_keep_their_distance() {
        for (seed, workers) in (0..40).flat_map(|seed| [3, 5, 8].map(|workers| (seed, workers))) {
            let options = Options { seed, workers, minutes: 2.0, listed: seed % 2 == 0, ..Options::default() };
            for stretch in plan(&options) {
                for at_ms in (0..stretch.length_ms).step_by(50) {
                    let healthy = workers - touched(&stretch, at_ms, workers);
                    assert!(healthy >= options.healthy_min, "seed {seed}: {healthy} of {workers} at {at_ms} ms");
                }
                let breaks: Vec<u64> =
                    stretch.faults.iter().filter(|fault| fault.fault().is_breaking).map(|fault| fault.at_ms).collect();
                assert!(
                    breaks.windows(2).all(|pair| pair[0] + BREAK_INTERVAL_MS <= pair[1]),
                    "seed {seed}: {breaks:?}"
                );
                assert!(stretch.faults.iter().all(|fault| fault.end_ms() < stretch.length_ms), "seed {seed}");
            }
        }
    }

    #[test]
    fn no_worker_has_two_faults_at_once() {
        for seed in 0..40 {
            for stretch in plan(&Options { seed, minutes: 2.0, ..Options::default() }) {
                for (index, fault) in stretch.faults.iter().enumerate() {
                    let clashes = |other: &Planned| {
                        other.worker.is_some()
                            && other.worker == fault.worker
                            && other.end_ms() + RECOVERY_MS > fault.at_ms
                    };
                    assert!(!stretch.faults[..index].iter().any(clashes), "seed {seed}: {fault:?}");
                }
            }
        }
    }

    #[test]
    fn half_a_minute_has_every_kind_of_fault() {
        for (seed, listed) in (0..200).flat_map(|seed| [(seed, false), (seed, true)]) {
            let options = Options { seed, listed, minutes: 0.5, workers: 5, spares: 1, ..Options::default() };
            let planned: Vec<Planned> = plan(&options).into_iter().flat_map(|stretch| stretch.faults).collect();
            for (row, fault) in FAULTS.iter().enumerate() {
                let is_planned = planned.iter().any(|planned| planned.row == row);
                assert_eq!(is_planned, !listed || !fault.inject.needs_discovery(), "seed {seed}: {}", fault.name);
            }
        }
    }
}
