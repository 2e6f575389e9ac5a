//! Bodies that the plugin does not read: compressed ones and forms; and compressed ones that Envoy decompresses before.

use std::fs;
use std::io::Write;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use serde_json::json;
use warmroute_harness::artefacts::repository_root;
use warmroute_harness::client::Client;
use worker_sim::WorkerSim;

use crate::format_samples::{check_arrival, digest};
use crate::samples::{SampleEnvoy, sample_clients, write_samples};
use crate::world::{CHAT, World, instant};

/// A body as it is in some encoding.
struct Encoded {
    encoding: &'static str,
    body: Vec<u8>,
}

/// A file in `tests/testdata/encoded`.
fn file(name: &str) -> Result<Vec<u8>> {
    let path = repository_root().join("tests/testdata/encoded").join(name);
    fs::read(&path).with_context(|| path.display().to_string())
}

fn gzip(plain: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain)?;
    Ok(encoder.finish()?)
}

/// What HTTP calls deflate is the format of zlib.
fn deflate(plain: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain)?;
    Ok(encoder.finish()?)
}

/// A turn of the conversation in each encoding that clients use.
fn encoded(turn: usize) -> Result<Vec<Encoded>> {
    let plain = file(&format!("turn-{turn}.json"))?;
    Ok(vec![
        Encoded { encoding: "gzip", body: gzip(&plain)? },
        Encoded { encoding: "deflate", body: deflate(&plain)? },
        Encoded { encoding: "br", body: file(&format!("turn-{turn}.json.br"))? },
        Encoded { encoding: "zstd", body: file(&format!("turn-{turn}.json.zst"))? },
        Encoded { encoding: "deflate, gzip", body: gzip(&deflate(&plain)?)? },
    ])
}

#[tokio::test]
async fn compressed_bodies_are_routed_by_load_and_arrive_as_they_are() -> Result<()> {
    let world = World::of(3).plugin(json!({ "poll": {} })).start().await?;
    let bodies = [encoded(1)?, encoded(2)?].into_iter().flatten();
    let mut sent = 0;
    for Encoded { encoding, body } in bodies {
        let reply = world.client().post(CHAT, &[("content-encoding", encoding)], body.clone()).await?;
        check_arrival(&reply, &body).map_err(|what| anyhow::anyhow!("{encoding}: {what}"))?;
        assert_eq!(reply.status, 400, "{encoding}: the simulated worker reads none of them");
        sent += 1;
    }
    for counter in ["body_encoded_total", "routed_total", "answered_first_pick_total"] {
        assert_eq!(world.count(counter).await?, sent, "{counter}");
    }
    // No prefix was known of any, though the second turns begin as the first ones.
    assert_eq!(world.count("decision_warm_total").await?, 0);
    assert_eq!(world.count("decision_cold_total").await? + world.count("decision_no_prefix_total").await?, sent);
    world.end().await
}

#[tokio::test]
async fn compressed_bodies_of_one_session_stay_together() -> Result<()> {
    let plugin = json!({ "policy": "session", "session": { "header": "x-session-id" }, "poll": {} });
    let world = World::of(4).plugin(plugin).start().await?;
    let mut used = Vec::new();
    for session in 0..8 {
        let session = format!("session {session}");
        let mut workers = Vec::new();
        for Encoded { encoding, body } in encoded(1)?.into_iter().chain(encoded(2)?) {
            let headers = [("content-encoding", encoding), ("x-session-id", session.as_str())];
            let reply = world.client().post(CHAT, &headers, body.clone()).await?;
            check_arrival(&reply, &body).map_err(|what| anyhow::anyhow!("{encoding}: {what}"))?;
            workers.push(reply.header("x-worker").context("no worker")?.to_owned());
        }
        assert!(workers.iter().all(|worker| *worker == workers[0]), "{session}: {workers:?}");
        used.push(workers[0].clone());
    }
    used.sort();
    used.dedup();
    assert!(used.len() > 1, "sessions are spread: {used:?}");
    world.end().await
}

#[tokio::test]
async fn forms_are_left_alone() -> Result<()> {
    let world = World::of(2).start().await?;
    let form = [
        &b"--x\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--x\r\n"[..],
        b"content-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\ncontent-type: audio/wav\r\n\r\n",
        &(0..=255).cycle().take(400_000).collect::<Vec<u8>>(),
        b"\r\n--x--\r\n",
    ]
    .concat();
    let headers = [("content-type", "multipart/form-data; boundary=x")];
    for path in ["/v1/audio/transcriptions", "/v1/files", CHAT] {
        let reply = world.client().post(path, &headers, form.clone()).await?;
        check_arrival(&reply, &form).map_err(|what| anyhow::anyhow!("{path}: {what}"))?;
    }
    // Where one stands in the place of a prompt, Envoy's own policy chooses the worker.
    assert_eq!((world.count("requests_total").await?, world.count("routed_total").await?), (1, 0));
    assert_eq!(world.count("unrouted_unreadable_total").await?, 1);
    world.end().await
}

/// A running Envoy with `envoy/decompressor.yaml`, and workers behind it.
struct Decompressing {
    workers: Vec<WorkerSim>,
    admin: Client,
    gateway: Client,
    _envoy: SampleEnvoy,
    _directory: tempfile::TempDir,
}

impl Decompressing {
    async fn start() -> Result<Self> {
        let workers = vec![WorkerSim::start(instant())?, WorkerSim::start(instant())?];
        let directory = tempfile::tempdir()?;
        let addresses: Vec<_> = workers.iter().map(WorkerSim::addr).collect();
        let bootstraps = write_samples(directory.path(), &addresses)?;
        let is_ours = |path: &&std::path::PathBuf| path.ends_with("decompressor.yaml");
        let bootstrap = bootstraps.iter().find(is_ours).context("no decompressor.yaml")?;
        let telling = fs::read_to_string(bootstrap)?.replace("responseHeaders: false", "responseHeaders: true");
        fs::write(bootstrap, telling)?;
        let envoy = SampleEnvoy::start(bootstrap)?;
        let (admin, gateway, _) = sample_clients(bootstrap).await?;
        Ok(Self { workers, admin, gateway, _envoy: envoy, _directory: directory })
    }

    async fn stat(&self, name: &str) -> Result<u64> {
        let page = self.admin.get(&format!("/stats?filter={name}")).await?.text();
        Ok(page.lines().filter_map(|line| line.rsplit_once(": ")?.1.parse::<u64>().ok()).sum())
    }
}

#[tokio::test]
async fn behind_a_decompressor_compressed_prompts_are_routed_by_their_prefix() -> Result<()> {
    let world = Decompressing::start().await?;
    for encoding in ["gzip", "br", "zstd"] {
        // One conversation: what the first request left in the index the others find, however they are compressed.
        let mut workers = Vec::new();
        for turn in [1, 2] {
            let plain = file(&format!("turn-{turn}.json"))?;
            let of_encoding = |encoded: &Encoded| encoded.encoding == encoding;
            let body = encoded(turn)?.into_iter().find(of_encoding).context("no such encoding")?.body;
            ensure!(body.len() < plain.len(), "{encoding} makes it shorter");
            let reply = world.gateway.post(CHAT, &[("content-encoding", encoding)], body).await?;
            assert_eq!(reply.status, 200, "{encoding}: {}", reply.text());
            assert_eq!(
                reply.header("x-body-digest"),
                Some(digest(&plain).as_str()),
                "{encoding}: it arrives decompressed"
            );
            workers.push(reply.header("x-worker").context("no worker")?.to_owned());
            let is_first = encoding == "gzip" && turn == 1;
            let want = if is_first { "cold" } else { "warm" };
            assert_eq!(reply.header("x-warmroute-reason"), Some(want), "{encoding}, turn {turn}");
        }
        assert_eq!(workers[0], workers[1], "{encoding}");
    }
    // The encoding that was taken away is no longer named; one that nobody reads here stays.
    for (encoding, want) in [("gzip", None), ("deflate", Some("deflate"))] {
        let body = if encoding == "gzip" { gzip(b"plain")? } else { deflate(b"plain")? };
        let arrived = if encoding == "gzip" { b"plain".to_vec() } else { body.clone() };
        let reply = world.gateway.post("/other", &[("content-encoding", encoding)], body).await?;
        check_arrival(&reply, &arrived).map_err(|what| anyhow::anyhow!("{encoding}: {what}"))?;
        let echo = reply.json()?;
        assert_eq!(echo["headers"]["content-encoding"].as_str(), want, "{encoding}: {echo}");
        assert_eq!(echo["headers"]["content-length"].is_null(), encoding == "gzip", "{encoding}: {echo}");
    }
    assert_eq!(world.workers.iter().map(|worker| worker.stats().requests).sum::<u64>(), 6);
    Ok(())
}

#[tokio::test]
async fn a_body_that_inflates_without_end_harms_nobody_else() -> Result<()> {
    let world = Decompressing::start().await?;
    // 40 MB of spaces within a prompt, as 40 KB.
    let plain = [&br#"{"model":"sim","messages":[{"role":"user","content":""#[..], &vec![b' '; 40_000_000], br#""}]}"#]
        .concat();
    let bomb = gzip(&plain)?;
    assert!(bomb.len() < 60_000, "{} bytes", bomb.len());
    for _ in 0..3 {
        let reply = world.gateway.post(CHAT, &[("content-encoding", "gzip")], bomb.clone()).await?;
        // Envoy's for more than it buffers, or the worker's for more than it takes.
        assert!([400, 413, 500].contains(&reply.status), "{} {}", reply.status, reply.text());
    }
    let body = gzip(&file("turn-1.json")?)?;
    let reply = world.gateway.post(CHAT, &[("content-encoding", "gzip")], body).await?;
    assert_eq!((reply.status, reply.header("x-worker").is_some()), (200, true), "{}", reply.text());
    assert_eq!(world.stat("vm_reload").await?, 0);
    Ok(())
}
