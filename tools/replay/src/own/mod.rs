//! The plugin's own core as a policy of the replay: its router, pages, hashing and bookkeeping, as in the filter.
//!
//! What the host does in Envoy is done here: the shared data is a map, scrapes are written into the fleet page, a change
//! of the pool is a new configuration over the same pages. Prompts are texts made up from their pieces' ids, so that
//! equal pieces are equal bytes, and are hashed as the filter hashes them.

mod scrapes;
mod text;

use std::collections::HashMap;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use warmroute::config::Config;
use warmroute::exchange::{Exchange, Source};
use warmroute::prefix::{PromptSink, seed};
use warmroute::response::Usage;
use warmroute::router::{Ask, Router};
use warmroute::shared::fleet::Fleet;
use warmroute::shared::learned::LearnedPage;
use warmroute::shared::store::{MemoryStore, update};
use warmroute::time::Timestamp;
use warmroute::worker::{DatedReport, LoadReport, WorkerId};

use crate::policy::{Outcome, Policy, Report, View};
use crate::request::Request;
use scrapes::OwnCounts;

/// One gateway with the plugin's core in it.
pub struct Own {
    settings: Settings,
    store: MemoryStore,
    /// One configuration after the other: the older ones live on in their requests, as in Envoy.
    routers: Vec<Router>,
    members: Vec<bool>,
    requests: HashMap<u64, InFlight>,
    counts: Vec<OwnCounts>,
    kv_tokens: u32,
    predictions: Predictions,
    /// The last tick, seconds.
    tick_s: f64,
    /// When the VMs' slots in the in-flight page were last kept alive, seconds.
    beat_s: f64,
    /// Scratch: the text of one piece.
    text: Vec<u8>,
}

/// Sums over the answers that told what was cached: what the index had said of their prompts, and what came true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predictions {
    /// Answers.
    pub answers: u64,
    /// Prompt tokens that their workers were believed to hold.
    pub predicted_tokens: u64,
    /// Prompt tokens that the engines found in their caches.
    pub cached_tokens: u64,
}

/// How the plugin is configured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The value of the key `policy`.
    pub policy: Value,
    /// Gateways that share the workers.
    pub gateways: usize,
    /// Between two scrapes of one worker, seconds; `None` = none ever.
    pub scrape_interval_s: Option<f64>,
    /// Of all random choices.
    pub seed: u64,
    /// Pages of the index.
    pub index_pages: u32,
}

struct InFlight {
    router: usize,
    worker: usize,
    exchange: Exchange,
    is_answered: bool,
}

impl Own {
    /// A gateway that knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            store: MemoryStore::default(),
            routers: Vec::new(),
            members: Vec::new(),
            requests: HashMap::new(),
            counts: Vec::new(),
            kv_tokens: 0,
            predictions: Predictions::default(),
            tick_s: 0.0,
            beat_s: 0.0,
            text: Vec::new(),
        }
    }

    /// The pages, and how often they were read and written.
    #[must_use]
    pub const fn store(&self) -> &MemoryStore {
        &self.store
    }

    /// How what was predicted of prompts came true so far.
    #[must_use]
    pub const fn predictions(&self) -> Predictions {
        self.predictions
    }

    /// Takes over the pool's members: a new configuration, if they changed.
    fn configure(&mut self, view: &View<'_>) -> Result<()> {
        self.kv_tokens = view.kv_tokens;
        if self.members == view.is_member {
            return Ok(());
        }
        self.members = view.is_member.to_vec();
        self.counts.resize_with(self.members.len(), OwnCounts::default);
        let addresses = (0..self.members.len()).filter(|worker| self.members.get(*worker) == Some(&true));
        let workers: Vec<Value> = addresses.map(|worker| json!({ "address": address(worker) })).collect();
        let interval_ms = (self.settings.scrape_interval_s.unwrap_or(1.0) * 1_000.0).clamp(50.0, 60_000.0) as u64;
        let config = json!({
            "policy": self.settings.policy,
            "pools": [{ "cluster": "llm", "workers": workers }],
            "poll": {
                "cluster": if self.settings.scrape_interval_s.is_some() { "scrape" } else { "" },
                "intervalMs": interval_ms,
                "reportMaxAgeMs": 5_000_u64.max(interval_ms * 3),
            },
            "index": { "pages": self.settings.index_pages },
            "gateways": self.settings.gateways,
            "session": { "header": "x-session-id" },
        });
        let config = Config::from_bytes(config.to_string().as_bytes())?;
        let owner = self.routers.len() as u64 + 1;
        self.routers.push(Router::new(config, owner, self.settings.seed ^ owner));
        self.write_fleet(view.now_s, |_| {})
    }

    /// Admits all members, changes the fleet page and takes in what it then says.
    fn write_fleet(&mut self, now_s: f64, change: impl Fn(&mut Fleet)) -> Result<()> {
        let now = timestamp(now_s);
        let router = self.routers.last_mut().context("a configuration")?;
        let pool = router.pool_mut(0).context("a pool")?;
        let (fleet, _) = update(&mut self.store, &pool.keys().fleet, |bytes| {
            let mut fleet = Fleet::decode(bytes.as_deref())?;
            fleet.admit(pool.addresses(), now);
            change(&mut fleet);
            Ok((Some(fleet.encode()), fleet))
        })?;
        pool.set_fleet(fleet);
        Ok(())
    }

    /// Sets the bytes a token that the gateway believes, so that its estimates are wrong by a factor of `error`.
    fn mistake_tokens(&mut self, error: f64) -> Result<()> {
        let pool = self.routers.last().and_then(|router| router.pool(0)).context("a pool")?;
        update(&mut self.store, &pool.keys().learned, |bytes| {
            let mut page = LearnedPage::open(bytes)?;
            page.set_bytes_per_token(text::BYTES_PER_TOKEN as f64 / error);
            Ok((Some(page.into_bytes()), ()))
        })?;
        Ok(())
    }

    fn decide(&mut self, ticket: u64, request: &Request, view: &View<'_>) -> Result<usize> {
        self.configure(view)?;
        self.mistake_tokens(view.token_error)?;
        let router_index = self.routers.len() - 1;
        let router = self.routers.last_mut().context("a configuration")?;
        let text = &mut self.text;
        let prompt_bytes = router.read_with(seed(b"model", None), |chain| {
            for (piece, tokens) in text::pieces(request) {
                text::write(piece, tokens, text);
                chain.text(text);
            }
            chain.end_of_message();
        });
        let ask = Ask { is_read: true, is_whole: true, prompt_bytes, ..Ask::default() };
        let mut exchange = Exchange::default();
        let decision = router.decide(&mut self.store, &ask, &mut exchange, timestamp(view.now_s));
        let first = decision.and_then(|decision| decision.picks.first()).context("a worker")?;
        let worker = router.pool(0).and_then(|pool| pool.address(first)).and_then(worker_at).context("a member")?;
        self.requests.insert(ticket, InFlight { router: router_index, worker, exchange, is_answered: false });
        self.count(worker, view.now_s, 1, 1);
        Ok(worker)
    }

    /// What the filter's ticks do: writes what the pages do not say yet, and keeps the slots in the in-flight page alive,
    /// also those of configurations that only wait for their last requests to end.
    fn tick(&mut self, now_s: f64) {
        if now_s < self.tick_s + TICK_INTERVAL_S {
            return;
        }
        self.tick_s = now_s;
        self.flush(now_s);
        if now_s < self.beat_s + BEAT_INTERVAL_S {
            return;
        }
        self.beat_s = now_s;
        for router in &mut self.routers {
            router.publish(&mut self.store, 0, timestamp(now_s));
        }
    }

    /// Writes what the pages do not say yet, as the next decision or tick does anyway. A test that compares pages with the
    /// truth calls it first.
    pub fn flush(&mut self, now_s: f64) {
        for router in &mut self.routers {
            router.flush(&mut self.store, 0, timestamp(now_s));
        }
    }

    /// Notes that so many more requests of ours are at `worker`, or fewer, and so many of them without a first byte.
    fn count(&mut self, worker: usize, now_s: f64, requests: i32, prefilling: i32) {
        if let Some(counts) = self.counts.get_mut(worker) {
            counts.change(now_s, requests, prefilling);
        }
    }

    fn id(&self, router: usize, worker: usize) -> Option<WorkerId> {
        self.routers.get(router)?.pool(0)?.fleet().find(&address(worker))
    }
}

impl Policy for Own {
    #[expect(clippy::panic, reason = "a replay whose configuration is refused has nothing to show")]
    fn route(&mut self, ticket: u64, request: &Request, view: &View<'_>) -> usize {
        self.tick(view.now_s);
        self.decide(ticket, request, view)
            .unwrap_or_else(|error| panic!("the plugin's core does not decide: {error:#}"))
    }

    fn first_byte(&mut self, ticket: u64, now_s: f64) {
        self.tick(now_s);
        let Some(request) = self.requests.get_mut(&ticket) else { return };
        let (router, worker) = (request.router, request.worker);
        let Some(id) = self.id(router, worker) else { return };
        if let (Some(request), Some(router)) = (self.requests.get_mut(&ticket), self.routers.get_mut(router)) {
            let now = timestamp(now_s);
            router.answered(&mut self.store, 0, &mut request.exchange, Source::Worker(id), 200, now);
            router.first_byte(&mut self.store, 0, &mut request.exchange, now);
            request.is_answered = true;
        }
        self.count(worker, now_s, 0, -1);
    }

    fn finished(&mut self, ticket: u64, outcome: &Outcome, now_s: f64) {
        self.tick(now_s);
        let Some(mut request) = self.requests.remove(&ticket) else { return };
        let (now, id) = (timestamp(now_s), self.id(request.router, request.worker));
        if let Some(router) = self.routers.get_mut(request.router) {
            if !outcome.is_answered && !request.is_answered {
                router.answered(&mut self.store, 0, &mut request.exchange, Source::Host { tried: id }, 0, now);
            }
            let usage = outcome.is_answered.then_some(Usage {
                prompt_tokens: Some(outcome.prompt_tokens),
                completion_tokens: Some(outcome.output_tokens),
                cached_tokens: outcome.cached_tokens,
            });
            if let Some(prediction) = router.end(&mut self.store, 0, &mut request.exchange, usage, now) {
                self.predictions.answers += 1;
                self.predictions.predicted_tokens += u64::from(prediction.predicted_tokens);
                self.predictions.cached_tokens += u64::from(prediction.cached_tokens);
            }
        }
        self.count(request.worker, now_s, -1, if request.is_answered { 0 } else { -1 });
    }

    #[expect(clippy::panic, reason = "the pages of a replay are of its own version")]
    fn report(&mut self, worker: usize, report: &Report, now_s: f64) {
        if self.routers.is_empty() {
            return;
        }
        self.tick(now_s);
        let (requests, prefilling) =
            self.counts.get_mut(worker).map_or((0, 0), |counts| counts.most_since(report.taken_at_s));
        let report = LoadReport {
            waiting: Some(f64::from(report.waiting)),
            running: Some(f64::from(report.running)),
            kv_usage: Some(report.kv_usage),
            block_tokens: Some(BLOCK_TOKENS),
            kv_blocks: Some(f64::from(self.kv_tokens) / BLOCK_TOKENS),
            started_at_s: Some(1.0 + f64::from(report.life)),
            ..LoadReport::default()
        };
        let dated = DatedReport { taken_at: timestamp(now_s), report };
        let written =
            self.write_fleet(now_s, |fleet| fleet.record_report(&address(worker), dated, requests, prefilling));
        written.unwrap_or_else(|error| panic!("the fleet page is not written: {error:#}"));
    }
}

/// Between two ticks, seconds: as in the filter, whose ticks come up to twice as often where scrapes do.
const TICK_INTERVAL_S: f64 = 0.1;

/// Between two heartbeats, seconds: as in the filter.
const BEAT_INTERVAL_S: f64 = 1.0;

/// Tokens of an engine's KV-cache block.
const BLOCK_TOKENS: f64 = 16.0;

fn timestamp(now_s: f64) -> Timestamp {
    // The epoch means "never" in some pages.
    Timestamp::from_ns((1_000_000.0 + now_s).mul_add(1e9, 0.0) as u64)
}

fn address(worker: usize) -> String {
    format!("10.0.{}.{}:8000", worker / 250, worker % 250 + 1)
}

/// The worker at an address that [`address`] made.
fn worker_at(address: &str) -> Option<usize> {
    let mut parts = address.strip_suffix(":8000")?.split('.').skip(2).map(str::parse::<usize>);
    let (high, low) = (parts.next()?.ok()?, parts.next()?.ok()?);
    Some(high * 250 + low.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_that_of_its_worker_only() {
        for worker in [0, 1, 249, 250, 251, 499, 500, 511, 4_095] {
            assert_eq!(worker_at(&address(worker)), Some(worker), "{}", address(worker));
        }
        for other in ["10.0.0.1:80", "10.0.0.0:8000", "10.0.0:8000", "10.0.x.1:8000", ""] {
            assert_eq!(worker_at(other), None, "{other:?}");
        }
    }
}
