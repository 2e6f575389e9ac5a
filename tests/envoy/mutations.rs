//! Requests of every format, mutated and sent in every framing: each is answered by a worker that got just these bytes.
//!
//! `make mutate REQUESTS=100000` runs more of them than the normal tests do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hyper::body::Bytes;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use warmroute::direct::BODY_HINTS;
use warmroute::request::wipe_hints;
use warmroute::rng::Rng;
use warmroute_harness::client::{Body, Client, body, channel_body};

use crate::format_samples::{FORMATS, Sample, check_arrival, samples};
use crate::world::World;

/// Unless the environment variable says otherwise: about ten seconds of a normal test.
const REQUESTS: u64 = 5_000;
const REQUESTS_VARIABLE: &str = "MUTATED_REQUESTS";

/// Each is kept alive, and used for one request after the other.
const CONNECTIONS: u64 = 32;

/// Progress is told so often, if at all: the normal run is over before.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(15);

/// What is spliced in: JSON's signs, keys that mean something, and values that mean too much.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u",
    "\\ud83d",
    "\\u0000",
    "null",
    "true",
    "-",
    "1e999",
    "9007199254740993",
    "\"messages\":",
    "\"prompt\":",
    "\"input\":",
    "\"content\":",
    "\"role\":\"user\"",
    "\"tools\":[{}],",
    "\"model\":7,",
    "\"stream\":true,",
    "\"text\":",
    "{\"type\":\"text\"}",
    "[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":",
    "\u{feff}",
    "\u{1f600}",
    "\r\n",
];

const CONTENT_TYPES: &[&str] = &[
    "application/json",
    "application/json; charset=utf-16",
    "text/plain",
    "multipart/form-data; boundary=x",
    "",
    "\u{9}json",
];

/// Up to four edits; sometimes none.
fn mutate(rng: &mut Rng, body: &mut Vec<u8>) {
    if rng.below(100) == 0 {
        body.clear();
    }
    for _ in 0..rng.below(5) {
        let at = below(rng, body.len() + 1);
        let end = (at + below(rng, 40)).min(body.len());
        match rng.below(8) {
            0 => body.truncate(at),
            1 => drop(body.drain(at..end)),
            2 => {
                let copy = body[at..end].to_vec();
                body.splice(at..at, copy);
            }
            3 => drop(body.splice(at..end, PIECES[below(rng, PIECES.len())].bytes())),
            4 => body[at..end].iter_mut().for_each(|byte| *byte ^= 1 << rng.below(8)),
            5 => body[at..end].iter_mut().for_each(|byte| *byte = rng.below(256) as u8),
            6 => {
                let space = vec![b' '; below(rng, 3_000)];
                body.splice(at..at, space);
            }
            _ => body.rotate_left(at),
        }
    }
}

fn below(rng: &mut Rng, bound: usize) -> usize {
    rng.below(u32::try_from(bound).unwrap_or(u32::MAX)) as usize
}

/// Request headers, some of them odd.
fn headers(rng: &mut Rng) -> Vec<(&'static str, String)> {
    let mut headers = vec![("content-type", CONTENT_TYPES[below(rng, CONTENT_TYPES.len())].to_owned())];
    let mut sometimes = |name, value: &dyn Fn(&mut Rng) -> String| {
        if rng.below(8) == 0 {
            headers.push((name, value(rng)));
        }
    };
    sometimes("content-encoding", &|rng| ["gzip", "br", "identity", "x", ""][below(rng, 5)].to_owned());
    sometimes("x-gateway-destination-endpoint", &|_| "127.0.0.1:1".to_owned());
    sometimes("x-session-id", &|rng| "s".repeat(below(rng, 2_000)));
    sometimes("cookie", &|rng| ["session=a; ;;=", "=", "session"][below(rng, 3)].to_owned());
    sometimes("x-worker", &|_| "me".to_owned());
    sometimes("authorization", &|_| "Bearer \u{9}x".to_owned());
    headers
}

/// Sends `sent` with its length, or in chunks of random sizes.
async fn send(client: &Client, rng: &mut Rng, path: &str, sent: &[u8]) -> Result<warmroute_harness::client::Reply> {
    let headers = headers(rng);
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    if rng.below(2) == 0 {
        return client.send("POST", path, &headers, body(sent.to_vec())).await;
    }
    let (mut sender, stream): (_, Body) = channel_body();
    let pieces: Vec<Bytes> = pieces(rng, sent);
    let feed = async move {
        for piece in pieces {
            // The gateway may have answered already.
            if sender.send_data(piece).await.is_err() {
                break;
            }
        }
    };
    let (reply, ()) = tokio::join!(client.send("POST", path, &headers, stream), feed);
    reply
}

fn pieces(rng: &mut Rng, sent: &[u8]) -> Vec<Bytes> {
    let longest = [1 + sent.len() / 4, 700, 90][below(rng, 3)];
    let (mut rest, mut pieces) = (sent, Vec::new());
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at((1 + below(rng, longest)).min(rest.len()));
        pieces.push(Bytes::copy_from_slice(piece));
        rest = behind;
    }
    pieces
}

/// What one connection has seen.
#[derive(Default)]
struct Tally {
    sent: u64,
    sent_bytes: u64,
    refused: u64,
}

/// Sends every request of one connection, one after the other.
async fn send_all(
    client: Client,
    samples: Arc<Vec<Sample>>,
    first: u64,
    requests: u64,
    done: Arc<AtomicU64>,
) -> Result<Tally> {
    let mut tally = Tally::default();
    for seed in (first..requests).step_by(CONNECTIONS as usize) {
        let rng = &mut Rng::new(seed);
        let sample = &samples[below(rng, samples.len())];
        let mut content = sample.body.clone();
        mutate(rng, &mut content);
        // Now and then another format's path, or one with a query.
        let path = if rng.below(8) == 0 { FORMATS[below(rng, FORMATS.len())].path } else { sample.format.path };
        let path = if rng.below(16) == 0 { format!("{path}?q=%7B%22") } else { path.to_owned() };
        let reply = send(&client, rng, &path, &content).await.with_context(|| format!("seed {seed}, {path}"))?;
        // Envoy's own answers, 500 for a VM that has died among them, carry no digest.
        // Of where it goes a stranger's body says nothing: if it is read, and it is if it can be, that is wiped.
        let mut wiped = content.clone();
        let (members, _) = wipe_hints(&mut wiped, &BODY_HINTS);
        check_arrival(&reply, &content)
            .or_else(|what| if members > 0 { check_arrival(&reply, &wiped) } else { Err(what) })
            .map_err(|what| anyhow::anyhow!("seed {seed}, {path}: {what}: {}", reply.text()))?;
        ensure!([200, 400, 404].contains(&reply.status), "seed {seed}, {path}: status {}", reply.status);
        tally.sent += 1;
        tally.sent_bytes += content.len() as u64;
        tally.refused += u64::from(reply.status != 200);
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(tally)
}

async fn tell_progress(done: Arc<AtomicU64>, requests: u64) {
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        println!("{} of {requests} mutated requests answered", done.load(Ordering::Relaxed));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mutated_request_reaches_a_worker_byte_by_byte_and_is_answered() -> Result<()> {
    let requests = match std::env::var(REQUESTS_VARIABLE) {
        Ok(count) => count.parse().with_context(|| format!("{REQUESTS_VARIABLE} is {count}, must be a number"))?,
        Err(_) => REQUESTS,
    };
    let session = json!({ "header": "x-session-id", "cookie": "session", "bodyKey": "user" });
    let world = World::of(4).plugin(json!({ "session": session })).start().await?;
    let (samples, done, started) = (Arc::new(samples()?), Arc::new(AtomicU64::new(0)), Instant::now());
    let progress = tokio::spawn(tell_progress(Arc::clone(&done), requests));
    let mut connections = JoinSet::new();
    for first in 0..CONNECTIONS {
        connections.spawn(send_all(world.client(), Arc::clone(&samples), first, requests, Arc::clone(&done)));
    }
    let mut total = Tally::default();
    while let Some(finished) = connections.join_next().await {
        let tally = finished??;
        total.sent += tally.sent;
        total.sent_bytes += tally.sent_bytes;
        total.refused += tally.refused;
    }
    progress.abort();
    assert_eq!(total.sent, requests);
    for counter in ["downstream_rq_5xx", "downstream_cx_protocol_error", "downstream_cx_destroy_local"] {
        assert_eq!(world.envoy.stat(&format!("http.gateway.{counter}")).await?, 0, "{counter}");
    }
    let mut counts = Vec::new();
    for counter in
        ["requests_total", "routed_total", "unrouted_unreadable_total", "unrouted_no_body_total", "body_encoded_total"]
    {
        counts.push(world.count(counter).await?);
    }
    assert_eq!(counts[1..4].iter().sum::<u64>(), counts[0], "routed, unreadable or empty: {counts:?}");
    // The mutations would be poor ones if all of them were read, or none.
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    let connected = world.envoy.stat("http.gateway.downstream_cx_total").await?;
    // Envoy has closed none, see above. The client opens another where its next request is faster than its own pool.
    assert!(connected <= CONNECTIONS + requests / 100, "{connected} connections: they are kept alive");
    // Nothing in flight and no VM reloaded, or this fails.
    world.end().await?;
    println!(
        "{} requests, {} MB over {connected} connections in {:.1} s: all arrived unchanged and were answered, {} by a refusal of \
         the worker's; {} were the plugin's: {} routed ({} of them encoded), {} unreadable, {} empty; 0 VM reloads",
        total.sent,
        total.sent_bytes / 1_000_000,
        started.elapsed().as_secs_f64(),
        total.refused,
        counts[0],
        counts[1],
        counts[4],
        counts[2],
        counts[3],
    );
    Ok(())
}
