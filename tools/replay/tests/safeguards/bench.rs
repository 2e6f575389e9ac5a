//! What the safeguards are tried on: the plugin's core or a peer, eight engines, a few hundred requests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Value, json};
use warmroute::rng::mix;
use warmroute::shared::inflight::{Held, InflightPage};
use warmroute::shared::store::MemoryStore;
use warmroute::time::Timestamp;
use warmroute_replay::engine::batching::BatchingSetup;
use warmroute_replay::engine::step_time::M70;
use warmroute_replay::metrics::{RequestOutcome, Summary};
use warmroute_replay::own::{Own, Predictions, Settings};
use warmroute_replay::peer::{PEERS, PeerSetup};
use warmroute_replay::policy::{Outcome, Policy, Report, View};
use warmroute_replay::request::Request;
use warmroute_replay::simulation::{EngineSetup, Incident, Setup, run};
use warmroute_replay::workload::Workload;

/// Workers of a pool where a test does not say otherwise.
pub(crate) const WORKERS: usize = 8;

/// The engines and all that is not the policy: that of the plan's cells, with one gateway and exact token estimates.
pub(crate) fn setup(incidents: &[Incident]) -> Setup {
    Setup {
        workers: WORKERS,
        engine: EngineSetup::Batching(BatchingSetup::new(M70, 420_000)),
        gateways: 1,
        scrape_interval_s: Some(0.2),
        token_error: 0.0,
        seed: 1,
        incidents: incidents.to_vec(),
    }
}

/// The first `count` requests of a workload for so many workers.
pub(crate) fn first(workload: Workload, load: f64, workers: usize, count: usize) -> Vec<Request> {
    let mut requests = workload.requests(1, load, workers);
    requests.truncate(count);
    requests
}

/// `hybrid` as anybody gets it.
pub(crate) fn hybrid() -> Value {
    json!("hybrid")
}

/// `hybrid` without the term for what a prefill holds up.
pub(crate) fn without_interference() -> Value {
    json!({ "name": "hybrid", "prefillInterference": 0 })
}

/// A run of the plugin's core: how the requests went, and what is left in each gateway.
pub(crate) struct OwnRun {
    pub(crate) outcomes: Vec<RequestOutcome>,
    pub(crate) gateways: Vec<Rc<RefCell<Watched>>>,
}

/// Runs the plugin's core with this policy.
pub(crate) fn run_own(setup: &Setup, policy: &Value, requests: &[Request]) -> OwnRun {
    run_distorted(setup, policy, requests, |_, report| Some(report))
}

/// Makes another report of a worker's, or none.
pub(crate) type Distortion = fn(usize, Report) -> Option<Report>;

/// The same, where the gateways get other reports than the engines gave.
pub(crate) fn run_distorted(setup: &Setup, policy: &Value, requests: &[Request], distort: Distortion) -> OwnRun {
    let gateways = RefCell::new(Vec::new());
    let make = |gateway: usize| -> Box<dyn Policy> {
        let settings = Settings {
            policy: policy.clone(),
            gateways: setup.gateways,
            scrape_interval_s: setup.scrape_interval_s,
            seed: mix(setup.seed ^ mix(gateway as u64 + 1)),
            index_pages: 1_024,
        };
        let watched = Rc::new(RefCell::new(Watched::new(settings, setup.workers)));
        gateways.borrow_mut().push(Rc::clone(&watched));
        Box::new(Handle { watched, distort })
    };
    let outcomes = run(setup, requests, &make);
    OwnRun { outcomes, gateways: gateways.take() }
}

/// The same for a peer, by its name.
pub(crate) fn run_peer(setup: &Setup, name: &str, requests: &[Request]) -> Vec<RequestOutcome> {
    let peer = PEERS.iter().find(|peer| peer.name == name).unwrap();
    let make = |gateway: usize| -> Box<dyn Policy> {
        (peer.build)(PeerSetup { seed: mix(setup.seed ^ mix(gateway as u64 + 1)) })
    };
    run(setup, requests, &make)
}

/// The plugin's core, and after each of its steps what its pages say beside what is true.
pub(crate) struct Watched {
    pub(crate) own: Own,
    /// Each answer's prediction by the ticket.
    pub(crate) predictions: Vec<(u64, Predictions)>,
    /// The most requests in flight at once.
    pub(crate) in_flight_max: usize,
    /// Moments at which the in-flight page and the truth differed, seconds, with what the page and the truth said.
    pub(crate) miscounts: Vec<(f64, u32, u32)>,
    /// Where each open request is, and whether its first byte is still to come.
    open: HashMap<u64, (usize, bool)>,
    workers: usize,
}

impl Watched {
    fn new(settings: Settings, workers: usize) -> Self {
        Self {
            own: Own::new(settings),
            predictions: Vec::new(),
            in_flight_max: 0,
            miscounts: Vec::new(),
            open: HashMap::new(),
            workers,
        }
    }

    /// After each step the page has to hold what is open, no more and no less, once what waits for the next decision or
    /// tick is written. No decision is another one for that: each begins by writing it, and knows what it holds itself.
    fn check(&mut self, now_s: f64) {
        self.own.flush(now_s);
        self.in_flight_max = self.in_flight_max.max(self.open.len());
        let held = in_flight(self.own.store(), now_s, self.workers);
        let prefilling = self.open.values().filter(|open| open.1).count() as u32;
        if (held.requests, held.prefilling) != (self.open.len() as u32, prefilling) {
            self.miscounts.push((now_s, held.requests, self.open.len() as u32));
        }
    }
}

/// What the in-flight page of the only pool says at `now_s`, over all workers.
fn in_flight(store: &MemoryStore, now_s: f64, workers: usize) -> Held {
    let page = store.iter().find(|(key, _)| key.contains("inflight")).map(|(_, bytes)| bytes.to_vec());
    let mut totals = vec![Held::default(); workers];
    // The replay's clock begins a million seconds after the epoch.
    let now = Timestamp::from_ms(1_000_000_000 + (now_s * 1e3) as u64);
    InflightPage::open(page).unwrap().add_up(u64::MAX, &[], now, &mut totals);
    totals.into_iter().fold(Held::default(), |mut sum, held| {
        sum.add(held);
        sum
    })
}

/// A gateway that the test keeps an eye on.
struct Handle {
    watched: Rc<RefCell<Watched>>,
    distort: Distortion,
}

impl Policy for Handle {
    fn route(&mut self, ticket: u64, request: &Request, view: &View<'_>) -> usize {
        let mut watched = self.watched.borrow_mut();
        let worker = watched.own.route(ticket, request, view);
        watched.open.insert(ticket, (worker, true));
        watched.check(view.now_s);
        worker
    }

    fn first_byte(&mut self, ticket: u64, now_s: f64) {
        let mut watched = self.watched.borrow_mut();
        watched.own.first_byte(ticket, now_s);
        watched.open.get_mut(&ticket).unwrap().1 = false;
        watched.check(now_s);
    }

    fn finished(&mut self, ticket: u64, outcome: &Outcome, now_s: f64) {
        let mut watched = self.watched.borrow_mut();
        let before = watched.own.predictions();
        watched.own.finished(ticket, outcome, now_s);
        let after = watched.own.predictions();
        if after.answers > before.answers {
            let one = Predictions {
                answers: 1,
                predicted_tokens: after.predicted_tokens - before.predicted_tokens,
                cached_tokens: after.cached_tokens - before.cached_tokens,
            };
            watched.predictions.push((ticket, one));
        }
        watched.open.remove(&ticket);
        watched.check(now_s);
    }

    fn report(&mut self, worker: usize, report: &Report, now_s: f64) {
        if let Some(report) = (self.distort)(worker, *report) {
            self.watched.borrow_mut().own.report(worker, &report, now_s);
        }
    }
}

/// The figures of a run on [`WORKERS`].
pub(crate) fn summary(outcomes: &[RequestOutcome]) -> Summary {
    Summary::of(outcomes, WORKERS)
}

/// The outcomes of the requests that came within `from_s..to_s`.
pub(crate) fn between(outcomes: &[RequestOutcome], from_s: f64, to_s: f64) -> Vec<RequestOutcome> {
    outcomes.iter().filter(|outcome| (from_s..to_s).contains(&outcome.arrival_s)).copied().collect()
}

/// What a worker got of `outcomes`, as a share of the mean of all [`WORKERS`].
pub(crate) fn share_of_mean(outcomes: &[RequestOutcome], worker: usize) -> f64 {
    by_worker(outcomes, WORKERS)[worker] as f64 * WORKERS as f64 / outcomes.len() as f64
}

/// Requests by worker.
pub(crate) fn by_worker(outcomes: &[RequestOutcome], workers: usize) -> Vec<usize> {
    let mut counts = vec![0; workers];
    outcomes.iter().for_each(|outcome| counts[outcome.worker] += 1);
    counts
}

/// A request with these pieces of 64 tokens, the last of which is whole.
pub(crate) fn request(arrival_s: f64, pieces: Vec<u64>, output_tokens: u32) -> Request {
    Request {
        arrival_s,
        piece_tokens: 64,
        prompt_tokens: 64 * pieces.len() as u32,
        output_tokens,
        session: pieces.last().copied().unwrap_or_default(),
        pieces: pieces.into(),
        output_pieces: Arc::from([]),
    }
}

/// Pieces that nothing else has.
pub(crate) fn pieces(content: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |piece| content * 1_000_000 + piece)
}
