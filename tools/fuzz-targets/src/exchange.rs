//! Requests from decision to end in any order of events, over pages that others damage: what `Router` must keep.

use warmroute::config::Config;
use warmroute::exchange::{Exchange, Source};
use warmroute::request::Api;
use warmroute::response::Usage;
use warmroute::router::{Ask, Body, Router};
use warmroute::schedule::POLICIES;
use warmroute::shared::PageKind;
use warmroute::shared::fleet::Fleet;
use warmroute::shared::inflight::{Held, InflightPage};
use warmroute::shared::store::{MemoryStore, Store};
use warmroute::time::Timestamp;
use warmroute::worker::{DatedReport, LoadReport, WorkerId};

use crate::choices::Choices;
use crate::pages::{NAMES, list, some_adapters};

/// Requests that are open at once.
const OPEN: usize = 6;

/// Events of one run: beyond, nothing new happens.
const EVENTS_MAX: usize = 100;

/// Lets anything happen to six requests in two VMs of one gateway.
///
/// # Panics
/// When a decision names no worker, an unknown one or one twice; when anything is counted in flight after the end.
pub fn exchange(data: &[u8]) {
    let mut choices = Choices::new(data);
    let Some(mut world) = World::new(&mut choices) else { return };
    for _ in 0..EVENTS_MAX {
        if choices.is_empty() {
            break;
        }
        world.step(&mut choices);
    }
    world.end();
}

struct World {
    routers: Vec<Router>,
    store: MemoryStore,
    now: Timestamp,
    workers: usize,
    /// Each belongs to the VM of its place, even or odd.
    open: Vec<Exchange>,
    is_damaged: bool,
}

impl World {
    fn new(choices: &mut Choices<'_>) -> Option<Self> {
        let workers = choices.below(6) + 1;
        let policy = POLICIES.get(choices.below(POLICIES.len()))?.name;
        let addresses: Vec<String> = (1..=workers).map(|worker| format!("10.0.0.{worker}:80")).collect();
        let listed: Vec<String> = addresses.iter().map(|address| format!(r#"{{"address":"{address}"}}"#)).collect();
        let listed = listed.join(",");
        let config = format!(
            r#"{{"policy":"{policy}","pools":[{{"cluster":"llm","workers":[{listed}]}}],"poll":{{"cluster":"poll"}},
            "session":{{"header":"x-session-id"}}}}"#
        );
        let now = Timestamp::from_ms(1_000_000_000);
        let mut fleet = Fleet::default();
        fleet.admit(addresses.iter().map(String::as_str), now);
        let router = |owner| {
            let config = Config::from_bytes(config.as_bytes());
            let Ok(config) = config else { panic!("{policy}: {config:?}") };
            let mut router = Router::new(config, owner, owner);
            if let Some(pool) = router.pool_mut(0) {
                pool.set_fleet(fleet.clone());
            }
            router
        };
        let open = (0..OPEN).map(|_| Exchange::default()).collect();
        let routers = vec![router(1), router(2)];
        Some(Self { routers, store: MemoryStore::default(), now, workers, open, is_damaged: false })
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let place = choices.below(OPEN);
        let (router, exchange) = (&mut self.routers[place % 2], &mut self.open[place]);
        match choices.below(12) {
            0..=2 => self.decide(place, choices),
            3 => {
                let source = source(choices, self.workers);
                let status = [200, 404, 500, 503, 0, u32::MAX][choices.below(6)];
                router.answered(&mut self.store, 0, exchange, source, status, self.now);
            }
            4 => router.first_byte(&mut self.store, 0, exchange, self.now),
            5 => {
                let usage = choices.is_set().then(|| usage(choices));
                _ = router.end(&mut self.store, 0, exchange, usage, self.now);
            }
            6 => router.flush(&mut self.store, 0, self.now),
            7 => self.now = tick(self.now, choices),
            8 => self.damage(choices),
            9 => {
                let worker = WorkerId(choices.below(self.workers) as u16);
                router.note_response(&mut self.store, 0, worker, choices.u64() % 4);
            }
            10 => {
                let sent = router.read_adapters(&mut self.store, 0);
                self.change_fleet(|fleet| fleet.remember_sent(&sent));
            }
            _ => self.scrape(choices),
        }
    }

    /// A request is decided once; the stream of the one before at this place has ended by then.
    fn decide(&mut self, place: usize, choices: &mut Choices<'_>) {
        let (router, exchange) = (&mut self.routers[place % 2], &mut self.open[place]);
        router.end(&mut self.store, 0, exchange, None, self.now);
        let text = ["a", "b ", "\u{e9}"][choices.below(3)].repeat(choices.below(1_000));
        let model = NAMES[choices.below(NAMES.len())];
        let adapter = if choices.below(4) == 0 { r#""lora_path":"e","# } else { "" };
        let body = format!(r#"{{{adapter}"model":"{model}","prompt":"{text} {}"}}"#, choices.byte());
        let body =
            Body { bytes: body.as_bytes(), is_truncated: choices.is_set(), announced_bytes: Some(choices.u64()) };
        let reading = router.read_prompt(Api::Completions, &body, None);
        let reading = reading.unwrap_or_default();
        let ask = Ask {
            is_read: choices.is_set(),
            prompt_bytes: if choices.below(8) == 0 { choices.u64() } else { reading.prompt_bytes },
            is_whole: reading.is_whole,
            adapter: reading.adapter,
            session: choices.is_set().then(|| choices.u64()),
            previous: (choices.below(4) == 0).then(|| choices.u64() % 4),
            ..Ask::default()
        };
        let Some(decision) = router.decide(&mut self.store, &ask, exchange, self.now) else {
            assert!(self.is_damaged, "there are workers");
            return;
        };
        let picks = decision.picks.as_slice();
        assert!(!picks.is_empty(), "somebody is picked");
        assert!(picks.iter().all(|pick| usize::from(pick.0) < self.workers), "{picks:?}");
        assert!((1..picks.len()).all(|at| !picks[..at].contains(&picks[at])), "{picks:?}");
    }

    fn damage(&mut self, choices: &mut Choices<'_>) {
        let keys: Vec<String> = self.store.iter().map(|(key, _)| key.to_owned()).collect();
        let Some(key) = keys.get(choices.below(keys.len())) else { return };
        let (page, version) = self.store.get(key);
        if let Some(page) = choices.damage(page.unwrap_or_default()) {
            self.store.set(key, &page, version);
            self.is_damaged = true;
        }
    }

    /// A report of one worker, or a failed scrape, as both VMs then read it.
    fn scrape(&mut self, choices: &mut Choices<'_>) {
        let address = format!("10.0.0.{}:80", choices.below(self.workers) + 1);
        let now = self.now;
        self.change_fleet(|fleet| {
            if choices.is_set() {
                fleet.record_failure(&address);
                return;
            }
            let mut number = || choices.is_set().then(|| f64::from(choices.u32() >> (choices.byte() % 32)));
            let (waiting, running, kv_blocks, started_at_s) = (number(), number(), number(), number());
            let block_tokens = Some(16.0);
            let report = LoadReport { waiting, running, kv_blocks, block_tokens, started_at_s, ..LoadReport::UNKNOWN };
            let report = LoadReport { adapters: some_adapters(choices), models: list(choices, 2), ..report };
            fleet.record_report(&address, DatedReport { taken_at: now, report }, choices.u32() % 100, 0);
        });
    }

    /// Changes the fleet of both VMs.
    fn change_fleet(&mut self, change: impl FnOnce(&mut Fleet)) {
        let Some(mut fleet) = self.routers[0].pool(0).map(|pool| pool.fleet().clone()) else { return };
        change(&mut fleet);
        for router in &mut self.routers {
            if let Some(pool) = router.pool_mut(0) {
                pool.set_fleet(fleet.clone());
            }
        }
    }

    /// Whatever happened: all streams end, and nothing is left.
    fn end(mut self) {
        for (place, exchange) in self.open.iter_mut().enumerate() {
            self.routers[place % 2].end(&mut self.store, 0, exchange, None, self.now);
        }
        for router in &mut self.routers {
            let held = router.pool(0).map(|pool| pool.held().to_vec()).unwrap_or_default();
            assert!(held.iter().all(|held| *held == Held::default()), "still held: {held:?}");
            router.flush(&mut self.store, 0, self.now);
        }
        let (page, _) = self.store.get(&PageKind::Inflight.key("llm"));
        let Ok(page) = InflightPage::open(page) else { return };
        let mut totals = vec![Held::default(); self.workers];
        page.add_up(u64::MAX, &[], self.now, &mut totals);
        let is_empty = totals.iter().all(|held| *held == Held::default());
        assert!(self.is_damaged || is_empty, "still counted: {totals:?}");
    }
}

fn source(choices: &mut Choices<'_>, workers: usize) -> Source {
    let worker = WorkerId(choices.below(workers) as u16);
    match choices.below(6) {
        0 => Source::Stranger,
        1 => Source::Host { tried: choices.is_set().then_some(worker) },
        2 => Source::Worker(WorkerId(choices.u32() as u16)),
        _ => Source::Worker(worker),
    }
}

fn usage(choices: &mut Choices<'_>) -> Usage {
    let mut number = || choices.is_set().then(|| choices.u32() >> (choices.byte() % 32));
    Usage { prompt_tokens: number(), completion_tokens: number(), cached_tokens: number() }
}

/// The clock goes on, mostly; it may step anywhere.
fn tick(now: Timestamp, choices: &mut Choices<'_>) -> Timestamp {
    match choices.below(8) {
        0 => Timestamp::from_ns(choices.u64()),
        1 => now.plus_ms(u64::from(choices.u32() % 100_000)),
        _ => now.plus_ms(u64::from(choices.byte())),
    }
}
