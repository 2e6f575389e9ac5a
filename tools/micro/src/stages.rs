//! The stages as closures on the native core, each ready to run any number of times.

use std::hint::black_box;

use anyhow::{Context, Result};
use warmroute::config::{Config, IndexConfig};
use warmroute::engine::{Engine, PageReader};
use warmroute::exchange::{Exchange, Source};
use warmroute::prefix::{Chain, seed};
use warmroute::request::{Api, parse};
use warmroute::response::{Usage, UsageReader};
use warmroute::rng::{Rng, mix};
use warmroute::router::Ask;
use warmroute::schedule::{Candidate, POLICIES, Picks, Query};
use warmroute::shared::fleet::Fleet;
use warmroute::shared::learned::LearnedPage;
use warmroute::shared::store::{Store, update};
use warmroute::shared::trunk::TrunkPage;
use warmroute::stage::Stage;
use warmroute::time::Timestamp;
use warmroute::worker::WorkerId;

use crate::inputs::{self, BODY_SIZES, Gateway, NOW, WORKERS};

/// One stage on one input.
pub struct NativeStage {
    /// The stage; that of the plugin where it has the same, see [`Stage::name`].
    pub stage: &'static str,
    /// The input, for example `64KB`.
    pub case: String,
    /// Runs it once; what it returns depends on all of its work.
    pub run: Box<dyn FnMut() -> u64>,
}

impl NativeStage {
    /// `stage/case`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.stage, self.case)
    }

    fn new(stage: &'static str, case: impl Into<String>, run: impl FnMut() -> u64 + 'static) -> Self {
        Self { stage, case: case.into(), run: Box::new(run) }
    }
}

/// All stages on all inputs.
///
/// # Errors
/// When an input is refused: then the core has changed, and the inputs have to follow.
pub fn all() -> Result<Vec<NativeStage>> {
    let mut stages = Vec::new();
    for (name, bytes) in BODY_SIZES {
        of_body(&mut stages, name, bytes)?;
    }
    for workers in WORKERS {
        of_pool(&mut stages, workers)?;
        of_policies(&mut stages, workers)?;
    }
    of_answers(&mut stages)?;
    Ok(stages)
}

/// What depends on the body's size, with 64 workers.
fn of_body(stages: &mut Vec<NativeStage>, name: &str, bytes: usize) -> Result<()> {
    let body = inputs::chat_body(bytes, 1);

    let copied = body.clone();
    stages.push(NativeStage::new(Stage::ReadBody.name(), name, move || {
        let copy: Vec<u8> = black_box(&copied).clone();
        black_box(&copy).len() as u64
    }));

    let parsed = body.clone();
    stages.push(NativeStage::new(Stage::Parse.name(), name, move || {
        let request = parse(Api::ChatCompletions, black_box(&parsed), false);
        u64::from(black_box(request).is_ok())
    }));

    let fed: &'static [u8] = body.clone().leak();
    let request = parse(Api::ChatCompletions, fed, false).context("the body is readable")?;
    let mut chain = Chain::new();
    stages.push(NativeStage::new(Stage::FeedAndHash.name(), name, move || {
        chain.reset(seed(b"sim", None));
        black_box(&request).feed_prompt(&mut chain);
        chain.blocks().last().map_or(0, |block| block.0)
    }));

    let mut gateway = Gateway::new("hybrid", 64)?;
    gateway.decide(&body)?;
    let blocks = inputs::chain(&body)?.blocks().to_vec();
    stages.push(NativeStage::new(Stage::FindMatches.name(), name, move || {
        let Gateway { router, store } = &mut gateway;
        let Some(pool) = router.pool_mut(0) else { return 0 };
        if let Ok(learned) = LearnedPage::open(None) {
            // Clears what the last walk found; its cost is that of `prepare`, and small beside the walk's.
            pool.prepare(&learned, &INDEX);
        }
        let found = pool.find_matches(store, black_box(&blocks));
        u64::from(found.is_ok()) + u64::from(pool.is_cold())
    }));

    let mut gateway = Gateway::new("hybrid", 64)?;
    let blocks = inputs::chain(&body)?.blocks().to_vec();
    let mut turn = 0;
    stages.push(NativeStage::new(Stage::RecordIndex.name(), name, move || {
        let Gateway { router, store } = &mut gateway;
        turn += 1;
        let worker = WorkerId(turn % 4);
        let Some(pool) = router.pool_mut(0) else { return 0 };
        pool.record(store, black_box(&blocks), worker, NOW).new_bytes
    }));

    let mut gateway = Gateway::new("hybrid", 64)?;
    stages.push(NativeStage::new("decision", name, move || {
        gateway.decide(black_box(&body)).map_or(0, |addresses| addresses.len() as u64)
    }));
    Ok(())
}

const INDEX: IndexConfig = IndexConfig { pages: 512, kv_tokens_assumed: 400_000 };

/// What depends on the number of workers, with the smallest body.
fn of_pool(stages: &mut Vec<NativeStage>, workers: usize) -> Result<()> {
    let case = format!("{workers}-workers");
    let body = inputs::chat_body(4 << 10, 1);

    let mut gateway = Gateway::new("hybrid", workers)?;
    stages.push(NativeStage::new("decision", case.clone(), move || {
        gateway.decide(black_box(&body)).map_or(0, |addresses| addresses.len() as u64)
    }));

    let mut gateway = Gateway::new("hybrid", workers)?;
    stages.push(NativeStage::new(Stage::Prepare.name(), case.clone(), move || {
        let Gateway { router, store } = &mut gateway;
        let Some(pool) = router.pool_mut(0) else { return 0 };
        let Ok(learned) = LearnedPage::open(store.get(&pool.keys().learned).0) else { return 0 };
        pool.prepare(black_box(&learned), &INDEX);
        u64::from(pool.is_cold())
    }));

    let mut gateway = Gateway::new("least-load", workers)?;
    stages.push(NativeStage::new("decision_unread", case.clone(), move || {
        let (Gateway { router, store }, mut exchange) = (&mut gateway, Exchange::default());
        let decision = router.decide(store, black_box(&Ask::default()), &mut exchange, NOW);
        router.pool_mut(0).map(|pool| exchange.handle_end(pool));
        u64::from(decision.is_some())
    }));

    let mut gateway = Gateway::new("hybrid", workers)?;
    let mut beats = 0;
    stages.push(NativeStage::new(Stage::WriteInflight.name(), case.clone(), move || {
        beats += 1;
        let now = Timestamp::from_ns(NOW.as_ns() + beats);
        u64::from(gateway.router.publish(&mut gateway.store, 0, black_box(now)))
    }));

    let mut gateway = Gateway::new("hybrid", workers)?;
    stages.push(NativeStage::new(Stage::WriteLearned.name(), case.clone(), move || {
        let Gateway { router, store } = &mut gateway;
        let Some(pool) = router.pool(0) else { return 0 };
        let (worker, generation) = (WorkerId(3), pool.generation(WorkerId(3)));
        let updated = update(store, &pool.keys().learned, |bytes| {
            let mut page = LearnedPage::open(bytes)?;
            page.learn_uncached_tokens(black_box(700.0));
            page.change(worker, generation, |row| row.odometer = row.odometer.wrapping_add(1));
            Ok((Some(page.into_bytes()), ()))
        });
        u64::from(updated.is_ok())
    }));

    let fleet = inputs::fleet(workers);
    let page = fleet.encode();
    stages.push(NativeStage::new("encode_fleet", case.clone(), move || black_box(&fleet).encode().len() as u64));
    stages.push(NativeStage::new("decode_fleet", case.clone(), move || {
        Fleet::decode(Some(black_box(&page))).map_or(0, |fleet| fleet.len() as u64)
    }));

    let config = inputs::config_text("hybrid", workers);
    stages.push(NativeStage::new("load_config", case, move || {
        Config::from_bytes(black_box(&config)).map_or(0, |config| config.pools.len() as u64)
    }));
    Ok(())
}

/// Each policy over so many candidates.
fn of_policies(stages: &mut Vec<NativeStage>, workers: usize) -> Result<()> {
    let mut rng = Rng::new(17);
    let candidates: Vec<Candidate> = (0..workers as u16).map(|worker| candidate(worker, &mut rng)).collect();
    for policy in POLICIES {
        let config =
            Config::from_bytes(&inputs::config_text(policy.name, 1)).map_err(|error| anyhow::anyhow!("{error}"))?;
        let candidates = candidates.clone();
        let mut turn = 0;
        stages.push(NativeStage::new(Stage::Score.name(), format!("{}-{workers}-workers", policy.name), move || {
            turn += 1;
            let query = Query {
                prefix: Some(7),
                session: Some(9),
                prompt_tokens: 4_000.0,
                turn,
                random: mix(u64::from(turn)),
                ..Query::default()
            };
            let mut picks = Picks::default();
            for policy in &config.policies {
                policy.policy.pick(black_box(&query), &candidates, &mut picks);
            }
            picks.first().map_or(0, |worker| worker.0.into())
        }));
    }
    Ok(())
}

fn candidate(worker: u16, rng: &mut Rng) -> Candidate {
    let own_requests = rng.below(8);
    Candidate {
        worker: WorkerId(worker),
        identity: rng.next_u64(),
        load_requests: f64::from(own_requests + rng.below(30)),
        own_requests,
        backlog_tokens: f64::from(rng.below(20_000)),
        matched_tokens: if worker.is_multiple_of(5) { f64::from(rng.below(4_000)) } else { 0.0 },
        is_known: true,
        waiting: Some(f64::from(rng.below(4))),
        running: Some(f64::from(rng.below(40))),
        kv_usage: Some(f64::from(rng.below(100)) / 100.0),
        adapter: None,
        cold_pick_at: NOW,
    }
}

/// What answers and metrics pages cost.
fn of_answers(stages: &mut Vec<NativeStage>) -> Result<()> {
    let answer = inputs::sse_answer(SSE_CHUNKS);
    let mut reader = UsageReader::default();
    let mut chunk = 0;
    stages.push(NativeStage::new(Stage::ReadUsage.name(), "chunk", move || {
        chunk = (chunk + 1) % SSE_CHUNKS;
        reader.feed(answer.get(chunk).map_or(&[], |bytes| black_box(bytes)));
        u64::from(reader.usage().is_some())
    }));

    for (name, bytes) in [("60KB", 60_000), ("500KB", 500_000)] {
        let page = inputs::metrics_page(bytes);
        let reader = PageReader::new(Engine::Auto, &[]);
        stages.push(NativeStage::new("read_report", name, move || {
            reader.read(black_box(&page), None).map_or(0, |report| report.running.unwrap_or_default() as u64)
        }));
    }

    let body = inputs::chat_body(4 << 10, 1);
    let mut gateway = Gateway::new("hybrid", 4)?;
    gateway.send(&body)?;
    stages.push(NativeStage::new(Stage::Trunk.name(), "4KB", move || {
        let Gateway { router, store } = &mut gateway;
        let Some(key) = router.pool(0).map(|pool| pool.keys().trunk.clone()) else { return 0 };
        let (page, version) = store.get(&key);
        let Ok(mut trunk) = TrunkPage::open(page) else { return 0 };
        let prefix = router.prefix(0, &mut trunk).unwrap_or_default();
        store.set(&key, trunk.as_bytes(), version);
        prefix
    }));

    let mut gateway = Gateway::new("hybrid", 64)?;
    let usage = Usage { prompt_tokens: Some(1_000), completion_tokens: Some(16), cached_tokens: Some(512) };
    stages.push(NativeStage::new("exchange", "4KB-64-workers", move || {
        let Ok(mut exchange) = gateway.send(&body) else { return 0 };
        let Some(worker) = exchange.decision().and_then(|decision| decision.picks.first()) else { return 0 };
        let Gateway { router, store } = &mut gateway;
        router.answered(store, 0, &mut exchange, Source::Worker(worker), 200, NOW);
        router.first_byte(store, 0, &mut exchange, NOW);
        router.end(store, 0, &mut exchange, Some(usage), NOW).map_or(0, |told| told.predicted_tokens.into())
    }));
    Ok(())
}

const SSE_CHUNKS: usize = 10_000;
