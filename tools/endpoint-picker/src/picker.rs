//! The core at work in one process: its router, its pages, and the scrapes that it asks for.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use warmroute::config::{Config, PoolConfig};
use warmroute::pool::{Poll, PoolStatus};
use warmroute::router::Router;
use warmroute::shared::fleet::Fleet;
use warmroute::shared::inflight::InflightPage;
use warmroute::shared::store::{MemoryStore, Store, update};
use warmroute::time::Timestamp;
use warmroute::worker::DatedReport;

thread_local! {
    /// The core is made for one thread, as the plugin is: no lock, and nothing that another thread could wait for.
    static PICKER: RefCell<Option<Picker>> = const { RefCell::new(None) };
}

/// One router with its pages. It serves one pool, as endpoint pickers do.
pub(crate) struct Picker {
    pub(crate) router: Router,
    pub(crate) store: MemoryStore,
    pub(crate) counts: Counts,
    next_token: u32,
    admitted_at: Timestamp,
    beat_at: Timestamp,
}

/// Makes this thread's picker.
///
/// # Errors
/// When the configuration is refused, or has not exactly one pool.
pub(crate) fn install(config: &[u8]) -> Result<()> {
    let picker = Picker::new(config)?;
    PICKER.with(|place| *place.borrow_mut() = Some(picker));
    Ok(())
}

/// Runs `act` on this thread's picker; `None` if it has none, or none any more.
pub(crate) fn with<T>(act: impl FnOnce(&mut Picker) -> T) -> Option<T> {
    PICKER.try_with(|picker| picker.try_borrow_mut().ok()?.as_mut().map(act)).ok()?
}

/// What a picker has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that got a decision.
    pub routed: u64,
    /// Requests to a routed path that got none.
    pub unrouted: u64,
    /// Answered scrapes.
    pub scrapes: u64,
    /// Prompt tokens that engines said were cached. 0 unless the answers' bodies are sent.
    pub cached_tokens: u64,
}

/// One scrape to make.
pub(crate) struct Scrape {
    pub(crate) token: u32,
    pub(crate) address: String,
    pub(crate) path: String,
    pub(crate) timeout_ms: u32,
}

impl Picker {
    fn new(config: &[u8]) -> Result<Self> {
        let config = Config::from_bytes(config)?;
        ensure!(config.pools.len() == 1, "pools has {} elements, an endpoint picker serves 1", config.pools.len());
        let mut picker = Self {
            router: Router::new(config, 1, now().as_ns()),
            store: MemoryStore::default(),
            counts: Counts::default(),
            next_token: 0,
            admitted_at: now(),
            beat_at: now(),
        };
        picker.update_fleet(|fleet, configured| fleet.admit(configured.addresses(), now()))?;
        Ok(picker)
    }

    /// What is due, a few times an interval: keeps pages alive and tells which workers to scrape now.
    pub(crate) fn tick(&mut self) -> Result<Vec<Scrape>> {
        let now = now();
        if now.ms_between(self.admitted_at) >= ADMIT_INTERVAL_MS {
            self.admitted_at = now;
            self.update_fleet(|fleet, configured| fleet.admit(configured.addresses(), now))?;
        }
        if now.ms_between(self.beat_at) >= HEARTBEAT_MS {
            self.beat_at = now;
            self.router.publish(&mut self.store, POOL, now);
        }
        self.router.flush(&mut self.store, POOL, now);
        self.status();
        let due = self.router.due_polls(POOL, now);
        Ok(due.into_iter().filter_map(|member| self.scrape(member, now)).collect())
    }

    fn scrape(&mut self, member: usize, now: Timestamp) -> Option<Scrape> {
        self.next_token = self.next_token.wrapping_add(1);
        let token = self.next_token;
        let poll = &self.router.config().poll;
        let timeout_ms = poll.timeout_ms;
        let pool = self.router.pool(POOL)?;
        let target = pool.poll_target(member, poll)?;
        let held = pool.total_at(target.worker);
        let (address, path, worker) = (target.address.to_owned(), target.path.to_owned(), target.worker.to_owned());
        let pool = self.router.pool_mut(POOL)?;
        let (in_flight, prefilling) = (held.requests, held.prefilling);
        pool.polls_mut().sent(Poll { token, worker, sent_at: now, in_flight, prefilling });
        Some(Scrape { token, address, path, timeout_ms })
    }

    /// Takes in what came of a scrape; `None` = it failed.
    pub(crate) fn scraped(&mut self, token: u32, page: Option<&[u8]>) -> Result<()> {
        self.status();
        let Some(pool) = self.router.pool_mut(POOL) else { return Ok(()) };
        let Some(poll) = pool.polls_mut().answered(token) else { return Ok(()) };
        let address = poll.worker;
        let held = pool.total_at(&address);
        // As the plugin does: the larger of the counts at question and answer.
        let (in_flight, prefilling) = (held.requests.max(poll.in_flight), held.prefilling.max(poll.prefilling));
        let report = page.and_then(|page| pool.read_page(&address, page).ok());
        let report = report.map(|report| DatedReport { taken_at: poll.sent_at, report });
        self.counts.scrapes += u64::from(report.is_some());
        let sent = self.router.read_adapters(&mut self.store, POOL);
        self.update_fleet(|fleet, _| {
            fleet.remember_sent(&sent);
            match report {
                Some(dated) => fleet.record_report(&address, dated, in_flight, prefilling),
                None => fleet.record_failure(&address),
            }
            true
        })
    }

    /// How the pool stands now.
    pub(crate) fn status(&mut self) -> PoolStatus {
        let key = self.router.pool(POOL).map(|pool| pool.keys().inflight.clone()).unwrap_or_default();
        let page = InflightPage::open(self.store.get(&key).0);
        page.map(|page| self.router.status(POOL, &page, now())).unwrap_or_default()
    }

    fn update_fleet(&mut self, mut change: impl FnMut(&mut Fleet, &PoolConfig) -> bool) -> Result<()> {
        let Some(configured) = self.router.config().pools.get(POOL) else { return Ok(()) };
        let key = self.router.pool(POOL).map(|pool| pool.keys().fleet.clone()).unwrap_or_default();
        let (fleet, _) = update(&mut self.store, &key, |bytes| {
            let mut fleet = Fleet::decode(bytes.as_deref())?;
            let is_changed = change(&mut fleet, configured);
            Ok((is_changed.then(|| fleet.encode()), fleet))
        })?;
        if let Some(pool) = self.router.pool_mut(POOL) {
            pool.set_fleet(fleet);
        }
        Ok(())
    }
}

/// The wall clock, as the plugin's host has it.
pub(crate) fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ns(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
}

/// The number of the only pool.
pub(crate) const POOL: usize = 0;

/// As in the plugin.
const ADMIT_INTERVAL_MS: u64 = 10_000;

/// As in the plugin.
const HEARTBEAT_MS: u64 = 1_000;
