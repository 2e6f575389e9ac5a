//! Inputs that are the same in every run: bodies, answers, metrics pages, and a gateway with an index in use.

use std::sync::OnceLock;

use anyhow::{Context, Result};
use serde_json::json;
use warmroute::config::Config;
use warmroute::exchange::Exchange;
use warmroute::prefix::{BlockHash, Chain, seed};
use warmroute::request::{Api, parse};
use warmroute::rng::Rng;
use warmroute::router::{Ask, Body, Router};
use warmroute::shared::fleet::Fleet;
use warmroute::shared::learned::LearnedPage;
use warmroute::shared::store::MemoryStore;
use warmroute::time::Timestamp;
use warmroute::worker::{DatedReport, LoadReport, WorkerId};

/// The moment at which everything here happens.
pub const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

/// Bodies by size: a short chat, a chat with documents, a coding agent's context, and the largest that is read.
pub const BODY_SIZES: [(&str, usize); 4] =
    [("4KB", 4 << 10), ("64KB", 64 << 10), ("220KB", 220 << 10), ("1MB", 1 << 20)];

/// Pool sizes.
pub const WORKERS: [usize; 3] = [4, 64, 512];

/// Pages of the index: small enough to be filled in no time, the walks being the same.
const INDEX_PAGES: u32 = 512;

/// Prompts in the index besides those that are asked for. Each has 32 blocks, two stretches or three: of the 512 x 31
/// buckets about three in four are taken.
const RECORDED_PROMPTS: usize = 5_500;
const RECORDED_BLOCKS: usize = 32;
/// They are at workers that every pool has.
const SMALLEST_POOL: u32 = 4;

/// The whole prompt is one conversation's; each message about so long.
const MESSAGE_BYTES: usize = 1_500;

/// A chat completion request of about `bytes` bytes, as agents send them: prose and code with escaped line feeds and
/// quotes in the strings, and now and then a letter that is not ASCII.
#[must_use]
pub fn chat_body(bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut messages = vec![json!({ "role": "system", "content": text(&mut rng, (bytes / 4).min(8_000)) })];
    let mut written = (bytes / 4).min(8_000);
    while written + MESSAGE_BYTES / 2 < bytes {
        let role = if messages.len() % 2 == 1 { "user" } else { "assistant" };
        let content = text(&mut rng, MESSAGE_BYTES.min(bytes - written));
        written += content.len() + MESSAGE_OVERHEAD_BYTES;
        messages.push(json!({ "role": role, "content": content }));
    }
    let body = json!({ "model": "sim", "max_tokens": 16, "temperature": 0.7, "messages": messages });
    body.to_string().into_bytes()
}

/// Escapes and framing of a message, about.
const MESSAGE_OVERHEAD_BYTES: usize = 120;

/// So many bytes of lines of words.
fn text(rng: &mut Rng, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 80);
    let mut column = 0;
    while text.len() < bytes {
        let letters = rng.next_u64().to_le_bytes();
        let word_bytes = 2 + rng.below(7) as usize;
        text.extend(letters.iter().take(word_bytes).map(|letter| char::from(b'a' + letter % 26)));
        column += word_bytes + 1;
        match rng.below(24) {
            0 => text.push_str(" \"é\" "),
            1 => text.push_str(" = {"),
            _ => text.push(' '),
        }
        if column > 70 {
            text.push_str("\n    ");
            column = 0;
        }
    }
    text
}

/// A streamed answer of so many chunks, `usage` in the last.
#[must_use]
pub fn sse_answer(chunks: usize) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(3);
    let mut answer: Vec<Vec<u8>> = (1..chunks).map(|_| {
        let delta = json!({ "id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "sim",
            "choices": [{ "index": 0, "delta": { "content": text(&mut rng, 5) }, "logprobs": null, "finish_reason": null }] });
        format!("data: {delta}\n\n").into_bytes()
    }).collect();
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 1_000, "completion_tokens": chunks,
        "total_tokens": chunks + 1_000, "prompt_tokens_details": { "cached_tokens": 512 } } });
    answer.push(format!("data: {usage}\n\ndata: [DONE]\n\n").into_bytes());
    answer
}

/// A metrics page as vLLM writes it, of about `bytes` bytes, most of them histograms that say nothing of the load.
#[must_use]
pub fn metrics_page(bytes: usize) -> Vec<u8> {
    let labels = r#"engine="0",model_name="sim""#;
    let mut page = format!(
        "# HELP vllm:num_requests_running Number of requests in model execution batches.\n# TYPE vllm:num_requests_running gauge\n\
         vllm:num_requests_running{{{labels}}} 7.0\nvllm:num_requests_waiting{{{labels}}} 2.0\n\
         vllm:kv_cache_usage_perc{{{labels}}} 0.43\nvllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"25000\"}} 1.0\n"
    );
    let mut series = 0;
    while page.len() < bytes {
        page.push_str(&format!(
            "vllm:time_to_first_token_seconds_bucket{{{labels},le=\"{}.5\"}} {}.0\n",
            series % 40,
            series * 3
        ));
        series += 1;
    }
    page.into_bytes()
}

/// A plugin configuration for so many workers.
#[must_use]
pub fn config_text(policy: &str, workers: usize) -> Vec<u8> {
    let rows: Vec<_> = (0..workers).map(|worker| json!({ "address": address(worker) })).collect();
    let mut config = json!({
        "policy": { "name": policy },
        "pools": [{ "cluster": "llm", "workers": rows }],
        "poll": { "cluster": "poll" },
        "index": { "pages": INDEX_PAGES },
    });
    if policy == "session" {
        config["session"] = json!({ "header": "x-session" });
    }
    config.to_string().into_bytes()
}

fn address(worker: usize) -> String {
    format!("10.0.{}.{}:8000", worker / 256, worker % 256)
}

/// The fleet page of so many workers, all with a report.
#[must_use]
pub fn fleet(workers: usize) -> Fleet {
    let addresses: Vec<String> = (0..workers).map(address).collect();
    let mut fleet = Fleet::default();
    fleet.admit(addresses.iter().map(String::as_str), NOW);
    let mut rng = Rng::new(5);
    for address in &addresses {
        let report = LoadReport {
            waiting: Some(f64::from(rng.below(4))),
            running: Some(f64::from(rng.below(40))),
            kv_usage: Some(f64::from(rng.below(100)) / 100.0),
            block_tokens: Some(16.0),
            kv_blocks: Some(25_000.0),
            ..LoadReport::default()
        };
        fleet.record_report(address, DatedReport { taken_at: NOW, report }, rng.below(8), 0);
    }
    fleet
}

/// The chain of a body's prompt.
///
/// # Errors
/// When the body cannot be read.
pub fn chain(body: &[u8]) -> Result<Chain> {
    let request = parse(Api::ChatCompletions, body, false).context("the body is readable")?;
    let mut chain = Chain::new();
    chain.reset(seed(b"sim", None));
    request.feed_prompt(&mut chain);
    Ok(chain)
}

/// A gateway's core and its pages, in use for a while.
#[derive(Debug)]
pub struct Gateway {
    /// The core.
    pub router: Router,
    /// The pages.
    pub store: MemoryStore,
}

impl Gateway {
    /// A gateway of one pool with so many workers, other prompts in its index and one decision behind it.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn new(policy: &str, workers: usize) -> Result<Self> {
        static FILLED: OnceLock<MemoryStore> = OnceLock::new();
        let mut gateway = Self::empty(policy, workers)?;
        if FILLED.get().is_none() {
            let mut filler = Self::empty(policy, workers)?;
            filler.fill_index()?;
            FILLED.get_or_init(|| filler.store);
        }
        gateway.store = FILLED.get().cloned().unwrap_or_default();
        gateway.decide(&chat_body(4 << 10, 0))?;
        Ok(gateway)
    }

    fn empty(policy: &str, workers: usize) -> Result<Self> {
        let config = Config::from_bytes(&config_text(policy, workers)).map_err(|error| anyhow::anyhow!("{error}"))?;
        let mut gateway = Self { router: Router::new(config, 7, 11), store: MemoryStore::default() };
        gateway.router.pool_mut(0).context("has a pool")?.set_fleet(fleet(workers));
        Ok(gateway)
    }

    fn fill_index(&mut self) -> Result<()> {
        let index = self.router.config().index.clone();
        let pool = self.router.pool_mut(0).context("has a pool")?;
        pool.prepare(&LearnedPage::open(None)?, &index);
        let mut rng = Rng::new(13);
        for _ in 0..RECORDED_PROMPTS {
            let blocks: Vec<_> = (0..RECORDED_BLOCKS).map(|_| BlockHash(rng.next_u64())).collect();
            pool.record(&mut self.store, &blocks, WorkerId(rng.below(SMALLEST_POOL) as u16), NOW);
        }
        Ok(())
    }

    /// One whole decision, from the body to the picks' addresses, with all the pages that it reads and writes; the request
    /// has ended then, as far as this VM's counts go.
    ///
    /// # Errors
    /// When the body cannot be read or there is no worker.
    pub fn decide(&mut self, body: &[u8]) -> Result<String> {
        let mut exchange = self.send(body)?;
        let pool = self.router.pool_mut(0).context("has a pool")?;
        let picks = exchange.decision().context("is decided")?.picks;
        let addresses: Vec<&str> = picks.as_slice().iter().filter_map(|worker| pool.address(*worker)).collect();
        let addresses = addresses.join(",");
        exchange.handle_end(pool);
        Ok(addresses)
    }

    /// Reads a body and decides where it goes.
    ///
    /// # Errors
    /// When the body cannot be read or there is no worker.
    pub fn send(&mut self, body: &[u8]) -> Result<Exchange> {
        let reading =
            self.router.read_prompt(Api::ChatCompletions, &Body::whole(body), None).context("the body is readable")?;
        let ask = Ask {
            is_read: true,
            is_whole: reading.is_whole,
            prompt_bytes: reading.prompt_bytes,
            adapter: reading.adapter,
            ..Ask::default()
        };
        let mut exchange = Exchange::default();
        self.router.decide(&mut self.store, &ask, &mut exchange, NOW).context("has workers")?;
        Ok(exchange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_the_size_they_are_named_after_and_escaped_line_feeds() -> Result<()> {
        for (name, bytes) in BODY_SIZES {
            let body = chat_body(bytes, 1);
            assert!(body.len().abs_diff(bytes) < bytes / 8, "{name} has {} bytes", body.len());
            let line_feeds = body.windows(2).filter(|pair| pair == br"\n").count();
            assert!(line_feeds > bytes / 200, "{name} has {line_feeds} line feeds");
            assert_eq!(body, chat_body(bytes, 1), "the same in every run");
            assert!(!chain(&body)?.blocks().is_empty());
        }
        Ok(())
    }

    #[test]
    fn the_index_is_filled_to_about_three_quarters() -> Result<()> {
        let gateway = Gateway::new("hybrid", 4)?;
        let pages = gateway.store.iter().filter(|(key, _)| key.contains("/index/"));
        let (mut taken, mut all) = (0, 0);
        for (_, page) in pages {
            // 128 bytes in front of 31 buckets of 128; one that was never used is all zeros.
            for bucket in page.chunks(128).skip(1) {
                taken += usize::from(bucket.iter().any(|byte| *byte != 0));
                all += 1;
            }
        }
        assert_eq!(all, INDEX_PAGES as usize * 31);
        assert!((65..=85).contains(&(taken * 100 / all)), "{taken} of {all} buckets");
        Ok(())
    }

    #[test]
    fn a_prompt_that_was_sent_is_found_again() -> Result<()> {
        let mut gateway = Gateway::new("hybrid", 64)?;
        let body = chat_body(64 << 10, 1);
        let first = gateway.decide(&body)?;
        gateway.send(&body)?;
        assert!(!gateway.router.pool(0).context("has a pool")?.is_cold(), "who was picked first: {first}");
        Ok(())
    }
}
