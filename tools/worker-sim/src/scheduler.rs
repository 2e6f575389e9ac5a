//! The engine's state and its step, without clock or I/O: continuous batching with chunked prefill, after vLLM V1.
//!
//! A step serves running requests first (one token each, or the next chunk of their prompt), then admits waiting ones in
//! order of arrival while budget, places and KV blocks last. Blocks are published when they are scheduled, so that
//! requests behind in the queue already hit. A request is admitted only when its whole length fits, hence no preemption.
//! One whose LoRA adapter finds no place in the batch is passed over, as in vLLM (`vllm/v1/core/sched/scheduler.py`).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use crate::adapters::{AdapterPlaces, AdapterSeries};
use crate::cache::{BlockId, BlockPool};
use crate::config::SimConfig;
use crate::prompt::Prompt;

/// What a request learns from a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Output tokens so far, at least 1.
    pub(crate) generated_tokens: usize,
    /// Prompt tokens found in the prefix cache at admission.
    pub(crate) cached_tokens: usize,
    /// Whether this is the last one.
    pub(crate) done: bool,
}

/// What the engine is asked to do. The output length must be at least 1.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) prompt: Prompt,
    /// The LoRA adapter that it is for.
    pub(crate) adapter: Option<Arc<str>>,
    pub(crate) max_tokens: usize,
    /// Report every token, and not only the last.
    pub(crate) every_token: bool,
}

/// The work of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepLoad {
    pub(crate) prefill_tokens: usize,
    pub(crate) decode_seqs: usize,
    pub(crate) adapter_loads: usize,
}

/// Totals since the start of the simulated process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) prompt_tokens: u64,
    pub(crate) generation_tokens: u64,
    pub(crate) cache_query_tokens: u64,
    pub(crate) cache_hit_tokens: u64,
    pub(crate) finished: u64,
    pub(crate) aborted: u64,
    pub(crate) adapter_loads: u64,
}

#[derive(Debug)]
struct Seq {
    id: u64,
    job: Job,
    /// Blocks for the whole request: prompt and output but its last token, whose KV is never computed.
    total_blocks: usize,
    held: Vec<BlockId>,
    published: usize,
    cached_tokens: usize,
    computed_tokens: usize,
    generated_tokens: usize,
    scheduled: bool,
    progress: UnboundedSender<Progress>,
}

impl Seq {
    fn is_prefill(&self) -> bool {
        self.computed_tokens < self.job.prompt.tokens
    }

    /// Schedules the next token or prompt chunk within the budget; the number of tokens.
    fn schedule(&mut self, pool: &mut BlockPool, budget_tokens: usize, block_size_tokens: usize) -> usize {
        let tokens = if self.is_prefill() {
            budget_tokens.min(self.job.prompt.tokens - self.computed_tokens)
        } else {
            // This step computes the KV of the token that the last one produced.
            self.job.prompt.push_output(self.computed_tokens - self.job.prompt.tokens);
            1
        };
        self.computed_tokens += tokens;
        self.scheduled = true;
        pool.grow(&mut self.held, self.computed_tokens.div_ceil(block_size_tokens));
        let full = self.computed_tokens / block_size_tokens;
        let fresh = self.held.iter().zip(&self.job.prompt.hashes).take(full).skip(self.published);
        fresh.for_each(|(&id, &hash)| pool.publish(id, hash));
        self.published = full;
        tokens
    }

    fn release(&self, pool: &mut BlockPool) {
        pool.release(&self.held, self.total_blocks - self.held.len());
    }
}

/// Waiting and running requests and the KV blocks that they hold.
#[derive(Debug)]
pub(crate) struct Scheduler {
    block_size_tokens: usize,
    step_budget_tokens: usize,
    max_running_seqs: usize,
    pool: BlockPool,
    adapters: AdapterPlaces,
    waiting: VecDeque<Seq>,
    running: Vec<Seq>,
    pub(crate) counters: Counters,
    /// Most requests that waited at once while the engine was busy.
    pub(crate) queue_max: usize,
}

impl Scheduler {
    pub(crate) fn new(config: &SimConfig) -> Self {
        Self {
            block_size_tokens: config.block_size_tokens,
            step_budget_tokens: config.step_budget_tokens,
            max_running_seqs: config.max_running_seqs,
            pool: BlockPool::new(config.kv_blocks),
            adapters: AdapterPlaces::new(config.max_loras),
            waiting: VecDeque::new(),
            running: Vec::new(),
            counters: Counters::default(),
            queue_max: 0,
        }
    }

    /// Queues a request. Its length must fit the pool when empty, or it would wait for ever.
    pub(crate) fn submit(&mut self, id: u64, job: Job, progress: UnboundedSender<Progress>) {
        let total_blocks = (job.prompt.tokens + job.max_tokens - 1).div_ceil(self.block_size_tokens);
        self.waiting.push_back(Seq {
            id,
            job,
            total_blocks,
            held: Vec::new(),
            published: 0,
            cached_tokens: 0,
            computed_tokens: 0,
            generated_tokens: 0,
            scheduled: false,
            progress,
        });
        if !self.running.is_empty() {
            self.queue_max = self.queue_max.max(self.waiting.len());
        }
    }

    /// Removes a request wherever it is and frees its blocks. Unknown and finished ids are ignored.
    pub(crate) fn abort(&mut self, id: u64) {
        if let Some(at) = self.running.iter().position(|seq| seq.id == id) {
            self.running.remove(at).release(&mut self.pool);
        } else if let Some(at) = self.waiting.iter().position(|seq| seq.id == id) {
            self.waiting.remove(at);
        } else {
            return;
        }
        self.counters.aborted += 1;
    }

    /// Begins a step. `None` if there is nothing to do.
    pub(crate) fn plan(&mut self) -> Option<StepLoad> {
        let mut budget_tokens = self.step_budget_tokens;
        let mut load = StepLoad { prefill_tokens: 0, decode_seqs: 0, adapter_loads: 0 };
        let mut in_use = adapters_of(&self.running);
        in_use.iter().for_each(|adapter| _ = self.adapters.put_to_use(adapter));
        for seq in &mut self.running {
            if budget_tokens == 0 {
                break;
            }
            let prefill = seq.is_prefill();
            let tokens = seq.schedule(&mut self.pool, budget_tokens, self.block_size_tokens);
            budget_tokens -= tokens;
            if prefill {
                load.prefill_tokens += tokens;
            } else {
                load.decode_seqs += 1;
            }
        }
        while budget_tokens > 0 && self.running.len() < self.max_running_seqs {
            let Some(mut seq) = self.admit_next(&in_use) else { break };
            if let Some(adapter) = &seq.job.adapter {
                load.adapter_loads += usize::from(self.adapters.put_to_use(adapter));
                in_use.insert(Arc::clone(adapter));
            }
            let tokens = seq.schedule(&mut self.pool, budget_tokens, self.block_size_tokens);
            budget_tokens -= tokens;
            load.prefill_tokens += tokens;
            self.running.push(seq);
        }
        self.counters.adapter_loads += load.adapter_loads as u64;
        self.queue_max = self.queue_max.max(self.waiting.len());
        (budget_tokens < self.step_budget_tokens).then_some(load)
    }

    /// Takes the first of the queue whose adapter has a place, if its blocks fit; else nobody overtakes it.
    fn admit_next(&mut self, adapters_in_use: &BTreeSet<Arc<str>>) -> Option<Seq> {
        let has_place = |seq: &Seq| self.adapters.may_join(seq.job.adapter.as_ref(), adapters_in_use);
        let place = self.waiting.iter().position(has_place)?;
        let head = self.waiting.get(place)?;
        // The last prompt token is always computed: its output is the first token of the answer.
        let usable = (head.job.prompt.tokens - 1) / self.block_size_tokens;
        let hashes = head.job.prompt.hashes.get(..usable).unwrap_or_default();
        let held = self.pool.admit(hashes, head.total_blocks)?;
        let mut seq = self.waiting.remove(place)?;
        seq.published = held.len();
        seq.cached_tokens = held.len() * self.block_size_tokens;
        seq.computed_tokens = seq.cached_tokens;
        seq.held = held;
        self.counters.cache_query_tokens += seq.job.prompt.tokens as u64;
        self.counters.cache_hit_tokens += seq.cached_tokens as u64;
        Some(seq)
    }

    /// Ends a step: every scheduled request whose prompt is done has one more token. Requests that were aborted or
    /// restarted away meanwhile are no longer here.
    pub(crate) fn finish(&mut self) {
        let (pool, counters) = (&mut self.pool, &mut self.counters);
        self.running.retain_mut(|seq| {
            if !std::mem::take(&mut seq.scheduled) || seq.is_prefill() {
                return true;
            }
            seq.generated_tokens += 1;
            counters.generation_tokens += 1;
            if seq.generated_tokens == 1 {
                counters.prompt_tokens += seq.job.prompt.tokens as u64;
            }
            let done = seq.generated_tokens >= seq.job.max_tokens;
            if done {
                counters.finished += 1;
                seq.release(pool);
            }
            if done || seq.job.every_token {
                let (generated_tokens, cached_tokens) = (seq.generated_tokens, seq.cached_tokens);
                // A receiver that has gone is about to abort; that is its own business.
                let _ = seq.progress.send(Progress { generated_tokens, cached_tokens, done });
            }
            !done
        });
    }

    /// Tells the metrics which adapters run and wait now that a step has ended.
    pub(crate) fn tell_adapters(&mut self, now_s: f64) {
        self.adapters.tell(&adapters_of(&self.running), &adapters_of(&self.waiting), now_s);
    }

    pub(crate) fn adapter_series(&self) -> Vec<AdapterSeries> {
        self.adapters.series()
    }

    /// Empties the prefix cache; running requests go on.
    pub(crate) fn clear_cache(&mut self) {
        self.pool.clear();
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn kv_usage(&self) -> f64 {
        self.pool.usage()
    }
}

fn adapters_of<'s>(seqs: impl IntoIterator<Item = &'s Seq>) -> BTreeSet<Arc<str>> {
    seqs.into_iter().filter_map(|seq| seq.job.adapter.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::PromptText;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    fn scheduler(kv_blocks: usize, step_budget_tokens: usize, max_running_seqs: usize) -> Scheduler {
        Scheduler::new(&SimConfig { kv_blocks, step_budget_tokens, max_running_seqs, ..SimConfig::default() })
    }

    /// Queues a prompt of so many tokens, distinct for each `name`.
    fn submit(to: &mut Scheduler, name: u8, tokens: usize, max_tokens: usize) -> UnboundedReceiver<Progress> {
        submit_for(to, None, name, tokens, max_tokens)
    }

    fn submit_for(
        to: &mut Scheduler,
        adapter: Option<&str>,
        name: u8,
        tokens: usize,
        max_tokens: usize,
    ) -> UnboundedReceiver<Progress> {
        let mut text = PromptText::default();
        text.push(&vec![name; tokens * 4]);
        let prompt = Prompt::new(text, to.block_size_tokens, "m", "");
        let (sender, receiver) = unbounded_channel();
        to.submit(
            u64::from(name),
            Job { prompt, adapter: adapter.map(Arc::from), max_tokens, every_token: true },
            sender,
        );
        receiver
    }

    fn step(of: &mut Scheduler) -> Option<(usize, usize)> {
        let load = of.plan()?;
        of.finish();
        Some((load.prefill_tokens, load.decode_seqs))
    }

    #[test]
    fn prefill_is_chunked_and_shares_the_step_with_decodes() {
        let mut engine = scheduler(1000, 100, 8);
        let mut a = submit(&mut engine, b'a', 150, 3);
        assert_eq!(step(&mut engine), Some((100, 0)));
        let _b = submit(&mut engine, b'b', 120, 2);
        assert_eq!(step(&mut engine), Some((100, 0)), "50 left of a, then 50 of b");
        assert_eq!(a.try_recv().unwrap().generated_tokens, 1);
        assert_eq!(step(&mut engine), Some((70, 1)));
        assert_eq!(step(&mut engine), Some((0, 2)));
        assert_eq!(step(&mut engine), None);
        assert_eq!(engine.counters.generation_tokens, 5);
        assert_eq!(engine.counters.prompt_tokens, 270);
        assert!(engine.kv_usage().abs() < 1e-9);
    }

    #[test]
    fn the_same_prompt_hits_all_full_blocks_but_recomputes_the_last_token() {
        for (tokens, want_cached) in [(15, 0), (16, 0), (17, 16), (32, 16), (33, 32), (100, 96)] {
            let mut engine = scheduler(1000, 8192, 8);
            submit(&mut engine, b'a', tokens, 1);
            step(&mut engine);
            let mut again = submit(&mut engine, b'a', tokens, 1);
            assert_eq!(step(&mut engine), Some((tokens - want_cached, 0)), "{tokens} tokens");
            assert_eq!(again.try_recv().unwrap().cached_tokens, want_cached, "{tokens} tokens");
            assert_eq!(engine.counters.cache_hit_tokens, want_cached as u64);
        }
    }

    #[test]
    fn siblings_in_one_step_share_the_prefix() {
        let mut engine = scheduler(1000, 8192, 8);
        let _first = submit(&mut engine, b'a', 160, 1);
        let mut sibling = submit(&mut engine, b'a', 160, 1);
        assert_eq!(step(&mut engine), Some((160 + 16, 0)));
        assert_eq!(sibling.try_recv().unwrap().cached_tokens, 144);
    }

    #[test]
    fn places_and_blocks_are_given_in_order_of_arrival() {
        let mut engine = scheduler(10, 8192, 2);
        let _a = submit(&mut engine, b'a', 80, 17); // 6 blocks
        let _b = submit(&mut engine, b'b', 80, 17); // 6 blocks: must wait
        let _c = submit(&mut engine, b'c', 16, 1); // would fit, but does not overtake
        step(&mut engine);
        assert_eq!((engine.running(), engine.waiting(), engine.queue_max), (1, 2, 2));
        engine.abort(u64::from(b'a'));
        step(&mut engine);
        assert_eq!((engine.running(), engine.waiting()), (1, 0), "c is already done");
        assert_eq!((engine.counters.aborted, engine.counters.finished), (1, 1));
    }

    #[test]
    fn a_request_whose_adapter_has_no_place_waits_and_is_overtaken() {
        let mut engine = Scheduler::new(&SimConfig { max_loras: 1, ..SimConfig::default() });
        let loads = |engine: &mut Scheduler| engine.plan().map(|load| load.adapter_loads);
        let _a = submit_for(&mut engine, Some("a"), b'a', 16, 2);
        let _b = submit_for(&mut engine, Some("b"), b'b', 16, 1);
        let _base = submit(&mut engine, b'c', 16, 1);
        let _again = submit_for(&mut engine, Some("a"), b'd', 16, 1);
        assert_eq!(loads(&mut engine), Some(1), "a is loaded once for both");
        assert_eq!((engine.running(), engine.waiting()), (3, 1));
        engine.finish();
        assert_eq!((loads(&mut engine), engine.waiting()), (Some(0), 1), "a still runs");
        engine.finish();
        assert_eq!((loads(&mut engine), engine.waiting()), (Some(1), 0));
        engine.finish();
        let _later = submit_for(&mut engine, Some("b"), b'e', 16, 1);
        assert_eq!(loads(&mut engine), Some(0), "it stays in memory");
        assert_eq!(engine.counters.adapter_loads, 2);
    }

    #[test]
    fn an_abort_in_mid_step_frees_the_place_and_the_blocks() {
        let mut engine = scheduler(100, 8192, 1);
        let mut a = submit(&mut engine, b'a', 80, 5);
        let mut b = submit(&mut engine, b'b', 80, 1);
        engine.plan();
        engine.abort(u64::from(b'a'));
        engine.finish();
        assert!(a.try_recv().is_err() && engine.kv_usage().abs() < 1e-9);
        step(&mut engine);
        assert!(b.try_recv().unwrap().done);
    }

    #[test]
    fn output_tokens_take_blocks_as_they_come() {
        let mut engine = scheduler(4, 8192, 1);
        let _a = submit(&mut engine, b'a', 16, 33); // 48 tokens of KV: 3 blocks
        let mut usage = Vec::new();
        while engine.plan().is_some() {
            usage.push((engine.kv_usage() * 4.0) as usize);
            engine.finish();
        }
        assert_eq!((usage[0], usage[1], usage[16], usage[17], usage[32]), (1, 2, 2, 3, 3));
        assert_eq!(usage.len(), 33);
    }
}
