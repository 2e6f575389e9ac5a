//! One decision: read the pages, find who holds the prompt, let the policy choose, write down what was chosen.

use std::sync::Arc;

use super::Router;
use super::lesson::{Event, Lesson};
use super::prompt::ReadPrompt;
use super::reading::Reading;
use crate::direct::{Directions, Wish};
use crate::exchange::{Credit, Exchange, PromptSize};
use crate::index::SPAN_BYTES;
use crate::pool::{Pool, RequestSizes, Rules};
use crate::prefix::prefix_bytes;
use crate::schedule::policy::Needs;
use crate::schedule::{Decision, Query};
use crate::shared::inflight::InflightPage;
use crate::shared::store::{Store, update};
use crate::shared::trunk::TrunkPage;
use crate::stage::{self, Stage};
use crate::time::Timestamp;
use crate::worker::{AskedAdapter, WorkerId};

/// What is asked of [`Router::decide`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// The pool's number.
    pub pool: usize,
    /// The policy's number in [`crate::config::Config::policies`].
    pub policy: usize,
    /// Whether the prompt that was read last is this request's.
    pub is_read: bool,
    /// Whether no prompt is wanted: what it computes is in no cache, or goes on from what is not in its body.
    pub is_promptless: bool,
    /// Bytes of the prompt, or the best estimate.
    pub prompt_bytes: u64,
    /// Whether all of the prompt was read.
    pub is_whole: bool,
    /// The adapter that the request may be for: its model's name, or what it names apart from it.
    pub adapter: Option<AskedAdapter>,
    /// Hash of the session that the client names.
    pub session: Option<u64>,
    /// Hash of the response that the request continues.
    pub previous: Option<u64>,
    /// Where a trusted hop says that it goes.
    pub directions: Option<Box<Directions>>,
}

impl Ask {
    /// Takes in what the body says; a session that was named before stays.
    pub fn take_in(&mut self, reading: &Reading) {
        // What is not computed is in no cache afterwards: it is decided by load, and recorded nowhere.
        self.is_read = reading.builds_cache;
        self.is_promptless = !reading.builds_cache || reading.previous.is_some();
        self.prompt_bytes = reading.prompt_bytes;
        self.is_whole = reading.is_whole;
        self.adapter = reading.adapter;
        self.session = self.session.or(reading.session);
        self.previous = reading.previous;
    }
}

impl Router {
    /// Decides where a request goes, counts it there and records in the index that its prompt is; `None` if the pool has
    /// no workers, or if the request is to go where it cannot: see [`Exchange::outcome`].
    ///
    /// The decision and its count in the in-flight page are one step: when another VM writes in between, the decision is
    /// made anew over what it wrote. So no two requests are decided on the same counts, unless all tries lose their race.
    /// Who holds the prompt is not asked again then: siblings within some 50 us on two threads may miss each other.
    pub fn decide(
        &mut self,
        store: &mut impl Store,
        ask: &Ask,
        exchange: &mut Exchange,
        now: Timestamp,
    ) -> Option<Decision> {
        let needs = self.config.policies.get(ask.policy)?.policy.needs();
        let foreign_share = self.foreign_share(ask.pool);
        // What is in the body of a request that continues a response stands behind a prompt that is not.
        let is_prompt = ask.is_read && ask.previous.is_none();
        stage::end(Stage::SetUp);
        let prefix = match needs {
            Needs::Nothing => None,
            _ if !is_prompt => None,
            // Nobody else to agree with: the key only breaks ties, and the trunk need not be read, counted and written.
            Needs::Match if foreign_share < FOREIGN_SHARE_MIN => Some(self.chain.root().0),
            Needs::Prefix | Needs::Match => self.find_prefix(store, ask.pool),
        };
        stage::end(Stage::Trunk);
        let learned = self.read_learned(store, ask.pool, now)?;
        let is_indexed = is_prompt && needs == Needs::Match;
        let mut is_blind = needs > Needs::Nothing && !is_prompt && !ask.is_promptless;
        if is_indexed {
            let found = self.pools.get_mut(ask.pool)?.find_matches(store, self.chain.blocks());
            is_blind |= !self.note(found.map(|()| true));
            stage::end(Stage::FindMatches);
        }
        // Nobody's prompt is longer than the largest cache; and what was not read but announced may be a lie.
        let cache_tokens = self.pools.get(ask.pool)?.kv_tokens_max(&self.config.index);
        let unread_tokens = learned.uncached_tokens.max(UNREAD_TOKENS_MIN);
        let tokens_max = if ask.is_read { cache_tokens } else { cache_tokens.min(unread_tokens) };
        let prompt_tokens = tokens(ask.prompt_bytes, learned.bytes_per_token).min(tokens_max);
        let is_whole = ask.is_whole && ask.is_read;
        let for_adapter = self.find_adapter(store, ask.pool, ask.adapter);
        let adapter = for_adapter.as_ref().map(|request| request.adapter);
        let prompt = PromptSize { bytes: ask.prompt_bytes, tokens: prompt_tokens as u32, is_whole };
        *exchange = Exchange::new(prompt, adapter, now);
        let query = Query {
            prefix,
            // Where nobody is known to hold it, those that continue the same response meet at least.
            session: ask.session.or(ask.previous),
            response_holder: ask.previous.and_then(|response| self.find_response(store, ask.pool, response)),
            is_blind,
            prompt_tokens,
            foreign_share,
            turn: 0,
            random: self.rng.next_u64(),
        };
        let sizes = RequestSizes {
            bytes_per_token: learned.bytes_per_token,
            uncached_tokens: learned.uncached_tokens,
            adapter,
        };
        let mut wish = Wish::new(ask.directions.as_deref(), self.config.direct_mode);
        let decision = self.decide_over_page(store, ask, &query, &sizes, (exchange, &mut wish), now);
        exchange.note_wish(&wish);
        let decision = decision?;
        if let (Some(request), Some(worker)) = (for_adapter, decision.picks.first()) {
            self.note_adapter(store, ask.pool, request, worker, now);
        }
        self.write_down(store, ask.pool, &decision, exchange, is_indexed, now);
        Some(decision)
    }

    /// Counts the prompt that was read last in the pool's trunk; returns the hash by which it is known.
    fn find_prefix(&mut self, store: &mut impl Store, pool: usize) -> Option<u64> {
        let state = self.pools.get(pool)?;
        let (page, version) = store.get(&state.keys().trunk);
        let Ok(mut trunk) = TrunkPage::open(page) else {
            self.incidents.newer += 1;
            // Without knowing what is popular, the first part of the prompt it is.
            return self.prefix(pool, &mut TrunkPage::open(None).ok()?);
        };
        let prefix = trunk.observe(&ReadPrompt(&self.chain), state.addresses().len());
        // Best effort: what a lost race leaves uncounted is one sighting of many.
        store.set(&state.keys().trunk, trunk.as_bytes(), version);
        prefix
    }

    /// Brings what was learned up to date and prepares the pool with it; returns the averages.
    pub(super) fn read_learned(&mut self, store: &mut impl Store, pool: usize, now: Timestamp) -> Option<Averages> {
        let (state, learning) = (self.pools.get_mut(pool)?, self.learning.get_mut(pool)?);
        let (page, synced) = learning.page(store, &state.keys().learned, &self.config.health, now);
        stage::end(Stage::ReadLearned);
        let averages = Averages { bytes_per_token: page.bytes_per_token(), uncached_tokens: page.uncached_tokens() };
        state.prepare(page, &self.config.index);
        self.note(synced);
        stage::end(Stage::Prepare);
        Some(averages)
    }

    /// How much of the pool's load is other gateways': as the scrapes show it, else as configured.
    fn foreign_share(&self, pool: usize) -> f64 {
        let told = self.pools.get(pool).and_then(|pool| pool.fleet().foreign_share());
        told.unwrap_or_else(|| 1.0 - 1.0 / f64::from(self.config.gateways.max(1)))
    }

    fn decide_over_page(
        &mut self,
        store: &mut impl Store,
        ask: &Ask,
        query: &Query,
        sizes: &RequestSizes,
        (exchange, wish): (&mut Exchange, &mut Wish<'_>),
        now: Timestamp,
    ) -> Option<Decision> {
        let state = self.pools.get_mut(ask.pool)?;
        let policy = self.config.policies.get(ask.policy)?.policy.as_ref();
        let (rules, owner, key) = (Rules::of(&self.config), self.owner, Arc::clone(&state.keys().inflight));
        let mut decide = |state: &mut Pool, page: &InflightPage| {
            let decision = state.decide_as_wished(policy, query, (sizes, wish), page, &rules, now)?;
            exchange.handle_decision(state, decision);
            Some(decision)
        };
        let updated = update(store, &key, |bytes| {
            let mut page = InflightPage::open(bytes)?;
            stage::end(Stage::ReadInflight);
            let decision = decide(state, &page);
            if decision.is_some() {
                page.write_slot(owner, state.held(), now);
                page.advance_turn();
            }
            Ok((decision.is_some().then(|| page.into_bytes()), decision))
        });
        stage::end(Stage::WriteInflight);
        match updated {
            Ok((decision, is_stored)) => {
                if is_stored && decision.is_some() {
                    state.note_slot_written(now);
                }
                self.note(Ok(is_stored));
                decision
            }
            Err(newer) => {
                // On our own: what this VM has in flight is all that is known.
                let mut own = InflightPage::open(None).ok()?;
                own.write_slot(owner, state.held(), now);
                let decision = decide(state, &own);
                self.note(Err(newer));
                decision
            }
        }
    }

    /// Records the prompt at the worker that was picked, and what follows from the pick.
    fn write_down(
        &mut self,
        store: &mut impl Store,
        pool: usize,
        decision: &Decision,
        exchange: &mut Exchange,
        is_indexed: bool,
        now: Timestamp,
    ) {
        let Some(worker) = decision.picks.first() else { return };
        let is_probe = self.pools.get(pool).is_some_and(|state| state.failures(worker).is_marked);
        let (mut spans, mut is_cold) = (0, false);
        if is_indexed {
            is_cold = self.pools.get(pool).is_some_and(Pool::is_cold);
            exchange.note_blocks(self.chain.blocks());
            let matched_bytes = self.pools.get(pool).map_or(0, |pool| pool.matched_bytes(worker));
            let credit = Credit { matched_bytes, ..self.record(store, pool, worker, exchange, now) };
            spans = credit.spans;
            exchange.set_credit(Some(credit));
            stage::end(Stage::RecordIndex);
        } else if !is_probe {
            return;
        }
        let uncached_tokens = exchange.prompt().tokens.saturating_sub(decision.matched_tokens);
        let is_whole = is_indexed && exchange.prompt().is_whole;
        let uncached_tokens = is_whole.then(|| f64::from(uncached_tokens));
        let Some(generation) = self.pools.get(pool).map(|state| state.generation(worker)) else { return };
        let sent = Event::Sent { spans, uncached_tokens, is_cold, now };
        self.teach(store, pool, Lesson { worker, generation, event: sent }, now);
        if is_probe {
            // It is tried with this one request, and the others must know.
            self.sync_learned(store, pool, now);
        }
        stage::end(Stage::WriteLearned);
    }

    /// Notes what happened at a worker; others see it with the next sync.
    pub(super) fn teach(&mut self, store: &mut impl Store, pool: usize, lesson: Lesson, now: Timestamp) {
        let Some(learning) = self.learning.get_mut(pool) else { return };
        if learning.note(lesson, &self.config.health) {
            self.sync_learned(store, pool, now);
        }
    }

    /// Writes what was learned here, and reads what others learned.
    pub(super) fn sync_learned(&mut self, store: &mut impl Store, pool: usize, now: Timestamp) {
        let (Some(state), Some(learning)) = (self.pools.get(pool), self.learning.get_mut(pool)) else { return };
        let synced = learning.sync(store, &state.keys().learned, &self.config.health, now);
        self.note(synced);
    }

    /// Records the request's blocks at `worker`; the credit for them, by what was recorded there before.
    pub(super) fn record(
        &mut self,
        store: &mut impl Store,
        pool: usize,
        worker: WorkerId,
        exchange: &Exchange,
        now: Timestamp,
    ) -> Credit {
        let blocks = exchange.blocks();
        let recorded =
            self.pools.get_mut(pool).map(|state| state.record(store, blocks, worker, now)).unwrap_or_default();
        self.incidents.conflicts += recorded.lost_pages;
        let spans = u32::try_from(recorded.new_bytes / SPAN_BYTES).unwrap_or(u32::MAX);
        let matched_bytes = prefix_bytes(blocks.len()).saturating_sub(recorded.new_bytes);
        let generation = self.pools.get(pool).map_or(0, |state| state.generation(worker));
        Credit { worker, generation, matched_bytes, recorded, spans }
    }
}

/// Below this share of others' requests this gateway is taken to be the only one: scrapes and own counts are never of the
/// very same moment.
const FOREIGN_SHARE_MIN: f64 = 0.02;

/// A prompt that was not read counts at most as many tokens as others have uncached on average, or so many.
const UNREAD_TOKENS_MIN: f64 = 2_000.0;

/// What the pool's requests are like, on average.
#[derive(Clone, Copy, Debug)]
pub(super) struct Averages {
    bytes_per_token: f64,
    uncached_tokens: f64,
}

/// About how many tokens so many bytes of prompt are; at least one.
fn tokens(prompt_bytes: u64, bytes_per_token: f64) -> f64 {
    (prompt_bytes as f64 / bytes_per_token).clamp(1.0, f64::from(u32::MAX))
}
