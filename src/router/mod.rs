//! What outlives a request in one VM: the configuration, the pools, and scratch space for reading prompts.

use crate::config::Config;
use crate::pool::{Pool, PoolStatus};
use crate::prefix::{BlockHash, CUTS_MAX, Chain, seed};
use crate::request::{Api, ParseError, parse};
use crate::rng::Rng;
use crate::schedule::{Decision, Query};
use crate::shared::inflight::{Held, InflightPage};
use crate::shared::trunk::{Prompt, TrunkPage};
use crate::time::Timestamp;

/// Bytes of prompt that make about one token: for costs only, never for matching.
///
/// English text in the current tokenizers has 4 to 5; the routing study finds that errors of 50 % do not matter.
const BYTES_PER_TOKEN: u64 = 4;

/// One plugin configuration at work in one VM.
#[derive(Debug)]
pub struct Router {
    config: Config,
    pools: Vec<Pool>,
    /// This router's name in shared pages: its in-flight slot and its leases.
    owner: u64,
    rng: Rng,
    /// Scratch: the prompt that was read last.
    chain: Chain,
}

impl Router {
    /// A router for `config`. `owner` must differ from that of every other router of this Envoy, `random` may be any.
    #[must_use]
    pub fn new(config: Config, owner: u64, random: u64) -> Self {
        let pools = config.pools.iter().map(|pool| Pool::new(&pool.cluster, &pool.workers)).collect();
        Self { config, pools, owner, rng: Rng::new(random), chain: Chain::new() }
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// This router's name in shared pages.
    #[must_use]
    pub const fn owner(&self) -> u64 {
        self.owner
    }

    /// How many pools there are.
    #[must_use]
    pub fn pool_count(&self) -> usize {
        self.pools.len()
    }

    /// The number of the pool for a routed cluster; `None` if the cluster is not ours.
    #[must_use]
    pub fn find_pool(&self, cluster: &[u8]) -> Option<usize> {
        self.pools.iter().position(|pool| pool.cluster().as_bytes() == cluster)
    }

    /// A pool by its number.
    #[must_use]
    pub fn pool(&self, index: usize) -> Option<&Pool> {
        self.pools.get(index)
    }

    /// A pool by its number.
    pub fn pool_mut(&mut self, index: usize) -> Option<&mut Pool> {
        self.pools.get_mut(index)
    }

    /// Reads a body's prompt; returns about how many tokens it has. The prompt is then the one that
    /// [`Self::prefix`] speaks of.
    ///
    /// # Errors
    /// See [`ParseError`]: the body cannot be routed by its prompt.
    pub fn read_prompt(&mut self, api: Api, body: &[u8], is_truncated: bool) -> Result<u32, ParseError> {
        let request = parse(api, body, is_truncated)?;
        let salt = request.cache_salt.map(|salt| salt.decoded());
        self.chain.reset(seed(&request.model.decoded(), salt.as_deref()));
        request.feed_prompt(&mut self.chain);
        Ok(estimate_tokens(self.chain.prompt_bytes()))
    }

    /// The hash by which the prompt that was read last is known in the pool's traffic, which it is counted in; `None`
    /// for an empty prompt.
    pub fn prefix(&mut self, pool: usize, trunk: &mut TrunkPage) -> Option<u64> {
        let workers = self.pools.get(pool)?.addresses().len();
        trunk.observe(&ReadPrompt(&self.chain), workers)
    }

    /// Decides where a request of this pool goes, given what all VMs have in flight.
    pub fn decide(
        &mut self,
        pool: usize,
        prefix: Option<u64>,
        page: &InflightPage,
        now: Timestamp,
    ) -> Option<Decision> {
        let query = Query { prefix, random: self.rng.next_u64(), turn: 0 };
        self.pools.get_mut(pool)?.decide(self.config.policy.as_ref(), &query, page, &self.config.poll, now)
    }

    /// Adds up what all VMs have in flight in `page`, and tells how the pool stands.
    pub fn status(&mut self, pool: usize, page: &InflightPage, now: Timestamp) -> PoolStatus {
        let poll = &self.config.poll;
        self.pools.get_mut(pool).map(|pool| pool.status(page, poll, now)).unwrap_or_default()
    }

    /// The workers to scrape now, by their place in the pool's configuration. Only for the holder of the pool's lease.
    pub fn due_polls(&mut self, pool: usize, now: Timestamp) -> Vec<usize> {
        match self.pools.get_mut(pool) {
            Some(pool) if !self.config.poll.cluster.is_empty() => pool.due_polls(&self.config.poll, now, &mut self.rng),
            _ => Vec::new(),
        }
    }
}

/// The prompt that was read, as the trunk sees it.
struct ReadPrompt<'a>(&'a Chain);

impl Prompt for ReadPrompt<'_> {
    /// All message ends, and block ends at distances that grow: the trunk is learned some places at a time, so a long one
    /// must not have many.
    fn prefixes(&self) -> impl Iterator<Item = u64> {
        let cuts = self.0.cuts();
        let mut blocks = self.0.blocks().iter().zip(1_u32..).peekable();
        let milestones = cuts.iter().filter(move |cut| match blocks.next_if(|(block, _)| **block == cut.hash) {
            Some((_, blocks)) => is_milestone(blocks),
            None => true,
        });
        let are_not_all = cuts.len() == CUTS_MAX || (cuts.is_empty() && self.0.prompt_bytes() > 0);
        milestones.map(|cut| cut.hash.0).chain(are_not_all.then(|| self.beyond_cuts()))
    }

    fn end(&self) -> u64 {
        let last_cut = self.0.cuts().last().filter(|_| self.0.cuts().len() < CUTS_MAX);
        last_cut.map_or_else(|| self.beyond_cuts(), |cut| cut.hash.0)
    }

    fn last_block(&self) -> u64 {
        self.0.blocks().last().map_or(0, |block| block.0)
    }

    fn begins_with(&self, hash: u64) -> bool {
        self.0.blocks().iter().any(|block| block.0 == hash) || self.0.cuts().iter().any(|cut| cut.hash.0 == hash)
    }
}

impl ReadPrompt<'_> {
    /// What tells prompts apart where the shared part is longer than the cuts reach: the end of the first user message,
    /// which all turns have, or, where that lies within the cuts or was not read, the last block.
    fn beyond_cuts(&self) -> u64 {
        let is_beyond = |root: &BlockHash| self.0.cuts().iter().all(|cut| cut.hash != *root);
        let root = self.0.told_root().filter(is_beyond).or_else(|| self.0.blocks().last().copied());
        root.unwrap_or_else(|| self.0.root()).0
    }
}

/// Whether the end of the `blocks`-th block is a place where prompts are told apart.
const fn is_milestone(blocks: u32) -> bool {
    blocks <= 4 || blocks.is_power_of_two() || (blocks.is_multiple_of(3) && (blocks / 3).is_power_of_two())
}

/// About how many tokens a prompt of so many bytes has; at least one.
#[must_use]
pub fn estimate_tokens(prompt_bytes: u64) -> u32 {
    u32::try_from(prompt_bytes / BYTES_PER_TOKEN).unwrap_or(u32::MAX).max(1)
}

/// A request that was just sent, with a prompt of about so many tokens.
#[must_use]
pub fn new_request(prompt_tokens: u32) -> Held {
    Held { requests: 1, prefilling: 1, prefill_tokens: prompt_tokens, context_tokens: prompt_tokens }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    fn router() -> Router {
        let config = br#"{"pools": [{"cluster": "llm", "workers": [
            {"address": "10.0.0.1:8000"}, {"address": "10.0.0.2:8000"}, {"address": "10.0.0.3:8000"}]}]}"#;
        Router::new(Config::from_bytes(config).unwrap(), 1, 1)
    }

    fn chat(system: &str, turns: &[&str]) -> String {
        let message = |(index, content): (usize, &&str)| {
            let role = ["user", "assistant"][index % 2];
            format!(r#",{{"role":"{role}","content":"{content}"}}"#)
        };
        let turns: String = turns.iter().enumerate().map(message).collect();
        format!(r#"{{"model":"m","messages":[{{"role":"system","content":"{system}"}}{turns}]}}"#)
    }

    fn prefix_of(router: &mut Router, trunk: &mut TrunkPage, body: &str) -> Option<u64> {
        router.read_prompt(Api::ChatCompletions, body.as_bytes(), false).unwrap();
        router.prefix(0, trunk)
    }

    #[test]
    fn pools_are_found_by_the_routed_cluster() {
        assert_eq!(router().find_pool(b"llm"), Some(0));
        assert_eq!(router().find_pool(b"other"), None);
    }

    #[test]
    fn turns_of_a_conversation_keep_their_key_though_everybody_shares_the_system_prompt() {
        for system_bytes in [0, 40, 256, 300, 3_000, 60_000] {
            let (mut router, mut trunk) = (router(), TrunkPage::open(None).unwrap());
            let system = "s".repeat(system_bytes);
            let mut first_keys = Vec::new();
            for user in 0..400 {
                let question = format!("question {user}");
                first_keys.push(prefix_of(&mut router, &mut trunk, &chat(&system, &[&question])));
            }
            let mut distinct = first_keys[200..].to_vec();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), 200, "system prompt of {system_bytes} bytes");
            for (user, first_key) in first_keys.iter().enumerate().skip(300) {
                let question = format!("question {user}");
                let answer = "an answer of some length ".repeat(20);
                let turns = [question.as_str(), &answer, "and the next question"];
                let later = prefix_of(&mut router, &mut trunk, &chat(&system, &turns));
                assert_eq!(later, *first_key, "system prompt of {system_bytes} bytes, user {user}");
            }
        }
    }

    #[test]
    fn the_text_of_a_lone_completions_session_keeps_its_key_as_it_grows() {
        let (mut router, mut trunk) = (router(), TrunkPage::open(None).unwrap());
        let (mut text, mut keys) = (String::from("once upon a time "), Vec::new());
        // As far as the cuts reach: of longer texts it cannot be told whether the last part of a block grew or differs.
        for turn in 0..40 {
            text += &format!("and then, in chapter {turn}, ").repeat(20);
            router.read_prompt(Api::Completions, format!(r#"{{"prompt":"{text}"}}"#).as_bytes(), false).unwrap();
            keys.push(router.prefix(0, &mut trunk));
        }
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }

    #[test]
    fn a_document_that_fills_all_that_is_read_does_not_hide_who_asks() {
        let (mut router, mut trunk) = (router(), TrunkPage::open(None).unwrap());
        let system = "s".repeat(40_000);
        let mut keys = Vec::new();
        for document in 0..300 {
            let document = format!("document {document} ").repeat(8_000);
            let body = chat(&system, &[&document]);
            router.read_prompt(Api::ChatCompletions, &body.as_bytes()[..100_000], true).unwrap();
            keys.push(router.prefix(0, &mut trunk));
        }
        keys.drain(..200);
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 100);
    }

    #[test]
    fn examples_that_all_prompts_share_do_not_make_them_one() {
        let (mut router, mut trunk) = (router(), TrunkPage::open(None).unwrap());
        let mut keys = Vec::new();
        for user in 0..300 {
            let turns = ["an example question", "an example answer", &format!("what user {user} asks")];
            keys.push(prefix_of(&mut router, &mut trunk, &chat("You are helpful.", &turns)));
        }
        keys.drain(..200);
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 100);
    }

    #[test]
    fn a_longer_prompt_has_more_tokens_and_an_empty_one_still_costs() {
        assert_eq!([estimate_tokens(0), estimate_tokens(4_000), estimate_tokens(u64::MAX)], [1, 1_000, u32::MAX]);
    }
}
