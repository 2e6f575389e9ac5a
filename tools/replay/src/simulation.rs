//! One run: requests arrive, gateways route them, engines answer, reports travel.
//!
//! Gateways share nothing; each request reaches one of them at random, which is the worst case for what they know. Each
//! gateway reads all workers' metrics at its own phase of the scrape interval.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use warmroute::rng::Rng;

use crate::engine::batching::{BatchingEngine, BatchingSetup};
use crate::engine::serial::{SerialEngine, SerialSetup};
use crate::engine::{Engine, EngineEvent, Progress};
use crate::metrics::RequestOutcome;
use crate::policy::{Exact, Outcome, Policy, Report, View};
use crate::request::Request;

/// From an engine's page to a gateway's table, seconds.
const SCRAPE_DELAY_S: f64 = 0.010;

/// How long a failing worker takes to refuse a request, seconds.
const REFUSAL_S: f64 = 0.005;

/// Which model the workers are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EngineSetup {
    /// See [`serial`](crate::engine::serial).
    Serial(SerialSetup),
    /// See [`batching`](crate::engine::batching).
    Batching(BatchingSetup),
}

/// Something that happens to a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Incident {
    /// It runs at another speed from the start; batching engines only.
    Speed {
        /// The worker's number.
        worker: usize,
        /// 0.5 = half as fast as the others.
        speed: f64,
    },
    /// It loses its cache and its requests, and goes on at once.
    Restart {
        /// The worker's number.
        worker: usize,
        /// Seconds.
        at_s: f64,
    },
    /// It is not in the pool before.
    Join {
        /// The worker's number.
        worker: usize,
        /// Seconds.
        at_s: f64,
    },
    /// It gets no more requests, and finishes those that it has.
    Leave {
        /// The worker's number.
        worker: usize,
        /// Seconds.
        at_s: f64,
    },
    /// It refuses each request after 5 ms, and looks idle.
    Refuse {
        /// The worker's number.
        worker: usize,
        /// Seconds.
        from_s: f64,
        /// Seconds; from here on it serves again.
        to_s: f64,
    },
}

/// All that defines a run beside its requests and its policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Workers that ever take part, at least 1.
    pub workers: usize,
    /// What they are.
    pub engine: EngineSetup,
    /// Gateways, at least 1.
    pub gateways: usize,
    /// Seconds between two scrapes of a worker; `None`: reports never come.
    pub scrape_interval_s: Option<f64>,
    /// The gateways' token estimates are off by a factor within `1 - token_error ..= 1 + token_error`.
    pub token_error: f64,
    /// For the gateways' choice and for token errors.
    pub seed: u64,
    /// What goes wrong.
    pub incidents: Vec<Incident>,
}

/// Runs `requests`, which are sorted by arrival, to the last answer. One outcome for each, in order. A failed request is
/// not retried.
///
/// # Panics
/// If a policy picks a worker that is not in the pool.
#[must_use]
pub fn run(setup: &Setup, requests: &[Request], make_policy: &dyn Fn(usize) -> Box<dyn Policy>) -> Vec<RequestOutcome> {
    let mut run = Run::new(setup, requests, make_policy);
    for (ticket, request) in requests.iter().enumerate() {
        run.until(request.arrival_s);
        run.arrive(ticket, request);
    }
    while run.in_flight > 0 && run.next() {}
    run.outcomes
}

struct Run<'a> {
    setup: &'a Setup,
    requests: &'a [Request],
    gateways: Vec<Gateway>,
    fleet: Fleet,
    is_member: Vec<bool>,
    agenda: BinaryHeap<Entry>,
    entries: u64,
    rng: Rng,
    outcomes: Vec<RequestOutcome>,
    in_flight: usize,
    events: Vec<EngineEvent>,
    kv_tokens: u32,
}

struct Gateway {
    policy: Box<dyn Policy>,
    reports: Vec<Option<Report>>,
}

/// The workers, as they are.
struct Fleet {
    engines: Vec<Box<dyn Engine>>,
    now_s: f64,
}

impl Exact for Fleet {
    fn cached_tokens(&self, worker: usize, request: &Request) -> u32 {
        self.engines[worker].cached_tokens(request)
    }

    fn backlog_tokens(&self, worker: usize) -> f64 {
        self.engines[worker].backlog_tokens(self.now_s)
    }

    fn requests(&self, worker: usize) -> u32 {
        self.engines[worker].requests()
    }

    fn ttft_s(&self, worker: usize, request: &Request) -> f64 {
        self.engines[worker].ttft_s(request, self.now_s)
    }
}

/// What is to happen.
#[derive(Clone, Copy, Debug)]
enum Due {
    Engine { worker: usize },
    Refused { ticket: usize },
    Scrape { gateway: usize },
    Report { gateway: usize, worker: usize, report: Report },
    Restart { worker: usize },
    Member { worker: usize, is_member: bool },
}

struct Entry {
    at_s: f64,
    /// Among things at the same moment, the one that was planned first comes first.
    number: u64,
    due: Due,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at_s.total_cmp(&self.at_s).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl<'a> Run<'a> {
    fn new(setup: &'a Setup, requests: &'a [Request], make_policy: &dyn Fn(usize) -> Box<dyn Policy>) -> Self {
        let engines: Vec<_> = (0..setup.workers).map(|worker| engine(setup, worker)).collect();
        let gateway = |number| Gateway { policy: make_policy(number), reports: vec![None; setup.workers] };
        let mut run = Self {
            setup,
            requests,
            gateways: (0..setup.gateways).map(gateway).collect(),
            kv_tokens: engines.first().map_or(0, |engine| engine.kv_tokens()),
            fleet: Fleet { engines, now_s: 0.0 },
            is_member: vec![true; setup.workers],
            agenda: BinaryHeap::new(),
            entries: 0,
            rng: Rng::new(setup.seed),
            outcomes: Vec::with_capacity(requests.len()),
            in_flight: 0,
            events: Vec::new(),
        };
        run.plan_incidents();
        if let Some(interval_s) = setup.scrape_interval_s {
            for gateway in 0..setup.gateways {
                let phase = (gateway + 1) as f64 / setup.gateways as f64;
                run.plan(interval_s * phase, Due::Scrape { gateway });
            }
        }
        run
    }

    fn plan_incidents(&mut self) {
        for &incident in &self.setup.incidents {
            match incident {
                Incident::Restart { worker, at_s } => self.plan(at_s, Due::Restart { worker }),
                Incident::Leave { worker, at_s } => self.plan(at_s, Due::Member { worker, is_member: false }),
                Incident::Join { worker, at_s } => {
                    self.is_member[worker] = false;
                    self.plan(at_s, Due::Member { worker, is_member: true });
                }
                Incident::Speed { .. } | Incident::Refuse { .. } => {}
            }
        }
    }

    fn plan(&mut self, at_s: f64, due: Due) {
        self.entries += 1;
        self.agenda.push(Entry { at_s, number: self.entries, due });
    }

    fn plan_engine(&mut self, worker: usize) {
        if let Some(at_s) = self.fleet.engines[worker].next_event_s() {
            self.plan(at_s, Due::Engine { worker });
        }
    }

    fn until(&mut self, arrival_s: f64) {
        while self.agenda.peek().is_some_and(|entry| entry.at_s <= arrival_s) {
            self.next();
        }
        self.fleet.now_s = arrival_s;
    }

    /// Does what is due next; `false`: nothing is.
    fn next(&mut self) -> bool {
        let Some(Entry { at_s, due, .. }) = self.agenda.pop() else { return false };
        self.fleet.now_s = at_s;
        match due {
            // Plans are not withdrawn: an engine whose next event is another one by now is left alone.
            Due::Engine { worker } => {
                if self.fleet.engines[worker].next_event_s() == Some(at_s) {
                    self.fleet.engines[worker].advance(at_s, &mut self.events);
                    self.plan_engine(worker);
                }
            }
            Due::Refused { ticket } => {
                self.events.push(EngineEvent { ticket: ticket as u64, progress: Progress::Failed });
            }
            Due::Scrape { gateway } => self.scrape(gateway),
            Due::Report { gateway, worker, report } => {
                let gateway = &mut self.gateways[gateway];
                gateway.reports[worker] = Some(report);
                gateway.policy.report(worker, &report, at_s);
            }
            Due::Restart { worker } => self.fleet.engines[worker].restart(at_s, &mut self.events),
            Due::Member { worker, is_member } => self.is_member[worker] = is_member,
        }
        self.tell(at_s);
        true
    }

    fn scrape(&mut self, gateway: usize) {
        let now_s = self.fleet.now_s;
        for worker in 0..self.setup.workers {
            if self.is_member[worker] {
                let report = self.fleet.engines[worker].report(now_s);
                self.plan(now_s + SCRAPE_DELAY_S, Due::Report { gateway, worker, report });
            }
        }
        if let Some(interval_s) = self.setup.scrape_interval_s {
            self.plan(now_s + interval_s, Due::Scrape { gateway });
        }
    }

    fn arrive(&mut self, ticket: usize, request: &Request) {
        let now_s = request.arrival_s;
        let gateway = self.rng.below(self.setup.gateways as u32) as usize;
        let unit = self.rng.next_u64() as f64 / u64::MAX as f64;
        let Gateway { policy, reports } = &mut self.gateways[gateway];
        let view = View {
            now_s,
            is_member: &self.is_member,
            reports,
            kv_tokens: self.kv_tokens,
            token_error: 1.0 + self.setup.token_error * (2.0 * unit - 1.0),
            exact: &self.fleet,
        };
        let worker = policy.route(ticket as u64, request, &view);
        assert!(self.is_member[worker], "policy picked worker {worker}, which is not in the pool at {now_s} s");
        self.outcomes.push(RequestOutcome::sent(request, gateway, worker));
        self.in_flight += 1;
        if self.refuses(worker, now_s) {
            self.plan(now_s + REFUSAL_S, Due::Refused { ticket });
            return;
        }
        let next_before = self.fleet.engines[worker].next_event_s();
        self.fleet.engines[worker].submit(ticket as u64, request, now_s, &mut self.events);
        if self.fleet.engines[worker].next_event_s() != next_before {
            self.plan_engine(worker);
        }
        self.tell(now_s);
    }

    fn refuses(&self, worker: usize, now_s: f64) -> bool {
        self.setup.incidents.iter().any(|incident| match *incident {
            Incident::Refuse { worker: refusing, from_s, to_s } => {
                refusing == worker && (from_s..to_s).contains(&now_s)
            }
            _ => false,
        })
    }

    /// Tells the gateways what the engines did, and notes it.
    fn tell(&mut self, now_s: f64) {
        for EngineEvent { ticket, progress } in self.events.drain(..) {
            let noted = &mut self.outcomes[ticket as usize];
            let request = &self.requests[ticket as usize];
            let policy = &mut self.gateways[noted.gateway].policy;
            let (is_answered, cached_tokens) = match progress {
                Progress::FirstByte => {
                    noted.ttft_s = now_s - request.arrival_s;
                    policy.first_byte(ticket, now_s);
                    continue;
                }
                Progress::Finished { cached_tokens } => (true, cached_tokens),
                Progress::Failed => (false, 0),
            };
            noted.e2e_s = now_s - request.arrival_s;
            noted.is_answered = is_answered;
            noted.cached_tokens = cached_tokens;
            let outcome = Outcome {
                is_answered,
                cached_tokens: is_answered.then_some(cached_tokens),
                prompt_tokens: request.prompt_tokens,
                output_tokens: if is_answered { request.output_tokens } else { 0 },
            };
            policy.finished(ticket, &outcome, now_s);
            self.in_flight -= 1;
        }
    }
}

fn engine(setup: &Setup, worker: usize) -> Box<dyn Engine> {
    let speed = setup.incidents.iter().find_map(|incident| match *incident {
        Incident::Speed { worker: slow, speed } if slow == worker => Some(speed),
        _ => None,
    });
    match setup.engine {
        EngineSetup::Serial(serial) => Box::new(SerialEngine::new(serial)),
        EngineSetup::Batching(batching) => {
            Box::new(BatchingEngine::new(BatchingSetup { speed: speed.unwrap_or(batching.speed), ..batching }))
        }
    }
}
