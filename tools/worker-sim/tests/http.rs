//! A worker over real HTTP: raw bytes on loopback sockets, so that nothing tidies up what is sent or what comes back.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use worker_sim::{Faults, MetricsFault, SimConfig, Timing, WorkerSim};

/// Long enough to see that nothing comes.
const SOON: Duration = Duration::from_millis(300);
/// By when something must have come, also on a busy machine.
const LATEST: Duration = Duration::from_secs(10);

/// A worker that takes no time.
fn instant() -> WorkerSim {
    scaled(0.0)
}

fn scaled(time_scale: f64) -> WorkerSim {
    let timing = Timing { time_scale, ..Timing::default() };
    WorkerSim::start(SimConfig { timing, ..SimConfig::default() }).unwrap()
}

async fn open(addr: SocketAddr, method: &str, path: &str, headers: &[u8], body: &[u8]) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(addr).await?;
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: w\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    stream.write_all(&[head.as_bytes(), headers, b"\r\n", body].concat()).await?;
    Ok(stream)
}

/// Status, lower-case head, and body with its chunk framing.
async fn call(addr: SocketAddr, method: &str, path: &str, body: &[u8]) -> std::io::Result<(u16, String, String)> {
    let mut stream = open(addr, method, path, b"", body).await?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await?;
    let text = String::from_utf8_lossy(&all).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status = head.get(9..12).and_then(|status| status.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
    Ok((status, head.to_lowercase(), body.to_owned()))
}

async fn get(addr: SocketAddr, path: &str) -> (u16, String) {
    let (status, _, body) = call(addr, "GET", path, b"").await.unwrap();
    (status, body)
}

async fn post(addr: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let (status, _, body) = call(addr, "POST", path, body.to_string().as_bytes()).await.unwrap();
    (status, serde_json::from_str(&body).unwrap())
}

fn chat(prompt_bytes: usize, max_tokens: usize, stream: bool) -> Value {
    let messages = json!([{"role": "user", "content": "x".repeat(prompt_bytes)}]);
    let options = json!({"include_usage": true});
    json!({"model": "sim", "messages": messages, "max_tokens": max_tokens, "stream": stream, "stream_options": options})
}

fn metric(page: &str, name: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(name) && line.as_bytes().get(name.len()) == Some(&b'{'));
    line.and_then(|line| line.rsplit(' ').next()).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_repeated_prompt_is_cached_and_everything_is_counted() {
    let sim = instant();
    let body = chat(1600, 8, false);
    let (status, cold) = post(sim.addr(), "/v1/chat/completions", &body).await;
    let (_, warm) = post(sim.addr(), "/v1/chat/completions", &body).await;
    let prompt_tokens = cold["usage"]["prompt_tokens"].as_u64().unwrap();
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!((status, prompt_tokens, cached(&cold), cached(&warm)), (200, 405, 0, 400));
    assert_eq!(cold["choices"], warm["choices"]);
    let (_, page) = get(sim.addr(), "/metrics").await;
    assert!((metric(&page, "vllm:prefix_cache_hits_total") - 400.0).abs() < 1e-9);
    assert!((metric(&page, "vllm:generation_tokens_total") - 16.0).abs() < 1e-9);
    let stats = sim.stats();
    assert_eq!((stats.requests, stats.errors, stats.prompt_tokens, stats.cached_tokens), (2, 0, 810, 400));
    assert_eq!((stats.recent[1].status, stats.recent[1].cached_tokens), (200, Some(400)));
    let (_, over_http) = get(sim.addr(), "/sim/stats").await;
    assert_eq!(serde_json::from_str::<worker_sim::StatsSnapshot>(&over_http).unwrap(), stats);
    post(sim.addr(), "/sim/reset", &json!({})).await;
    assert_eq!(sim.stats().recent, []);
    assert_eq!(cached(&post(sim.addr(), "/v1/chat/completions", &body).await.1), 0);
}

#[tokio::test]
async fn a_stream_tells_of_cached_tokens_and_the_cache_forgets_beyond_its_capacity() {
    let timing = Timing { time_scale: 0.0, ..Timing::default() };
    let sim = WorkerSim::start(SimConfig { timing, kv_blocks: 64, ..SimConfig::default() }).unwrap();
    let (_, page) = get(sim.addr(), "/metrics").await;
    let config = page.lines().find(|line| line.starts_with("vllm:cache_config_info{")).unwrap();
    assert!(config.contains("block_size=\"16\"") && config.contains("num_gpu_blocks=\"64\""), "{config}");
    // A prompt of 650 tokens fills 40 blocks, so that two of them do not fit side by side.
    let mut cached = Vec::new();
    for name in ["a", "a", "b", "a", "a"] {
        let body = json!({"prompt": name.repeat(2600), "max_tokens": 2, "stream": true,
            "stream_options": {"include_usage": true}})
        .to_string();
        let (_, _, text) = call(sim.addr(), "POST", "/v1/completions", body.as_bytes()).await.unwrap();
        let event = text.lines().filter_map(|line| line.strip_prefix("data: ")).rfind(|event| *event != "[DONE]");
        let last: Value = serde_json::from_str(event.unwrap()).unwrap();
        cached.push(last["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap());
    }
    assert_eq!((cached[0], cached[1], cached[2], cached[4]), (0, 640, 0, 640));
    assert!(cached[3] < 640 - 16 * 10, "b took the room of a's end: {cached:?}");
}

#[tokio::test]
async fn an_answer_sent_back_in_the_next_turn_is_cached_too() {
    let sim = instant();
    let user = json!({"role": "user", "content": "x".repeat(401)});
    let (_, first) = post(sim.addr(), "/v1/chat/completions", &json!({"messages": [user], "max_tokens": 200})).await;
    let answer = &first["choices"][0]["message"];
    let next = json!({"messages": [user, {"role": "assistant", "content": answer["content"]}, user]});
    let (_, second) = post(sim.addr(), "/v1/chat/completions", &next).await;
    // 106 tokens of prompt and 199 of output have KV: 305, or 19 blocks.
    assert_eq!(second["usage"]["prompt_tokens_details"]["cached_tokens"], 19 * 16);
}

#[tokio::test]
async fn a_stream_has_role_tokens_end_usage_and_done() {
    let sim = instant();
    let body = chat(100, 3, true).to_string();
    let (status, head, text) = call(sim.addr(), "POST", "/v1/chat/completions", body.as_bytes()).await.unwrap();
    assert!(status == 200 && head.contains("content-type: text/event-stream"), "{head}");
    assert!(head.contains(&format!("x-worker: {}", sim.addr())), "{head}");
    let events: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(events.len(), 1 + 3 + 1 + 1, "{text}");
    assert_eq!(events[5], "[DONE]");
    let json: Vec<Value> = events[..5].iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(json[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(json[3]["choices"][0]["finish_reason"], "length");
    assert_eq!(json[4]["usage"]["completion_tokens"], 3);
    let body = json!({"prompt": [1, 2, 3], "stream": true, "max_tokens": 2}).to_string();
    let (_, _, text) = call(sim.addr(), "POST", "/v1/completions", body.as_bytes()).await.unwrap();
    assert_eq!(text.matches("data: ").count(), 2 + 1, "no role chunk and no usage unless asked: {text}");
}

#[tokio::test]
async fn bad_bodies_big_bodies_and_odd_headers_are_survived() {
    let sim = instant();
    let (status, _, body) = call(sim.addr(), "POST", "/v1/chat/completions", b"{").await.unwrap();
    assert!(status == 400 && body.contains("json_invalid"), "{body}");
    let (status, _) = post(sim.addr(), "/v1/chat/completions", &chat(1 << 20, 1, false)).await;
    assert_eq!(status, 200);
    let big = vec![b'x'; (32 << 20) + 1];
    let (status, _, body) = call(sim.addr(), "POST", "/any", &big[1..]).await.unwrap();
    assert!(status == 200 && body.contains("\"body_bytes\":33554432"), "{body}");
    let mut stream =
        open(sim.addr(), "PUT", "/any/path?q=1", b"x-odd: a\xff\xfeb\r\nx-test-id: \xff7\r\n", b"hi").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("\"path\":\"/any/path?q=1\"") && answer.contains("\"x-odd\":\"a\u{fffd}\u{fffd}b\""));
    let record = sim.stats().recent.pop().unwrap();
    assert_eq!((record.test_id.as_deref(), record.body_bytes), (Some("\u{fffd}7"), 2));
    let (_, _, models) = call(sim.addr(), "GET", "/v1/models", b"").await.unwrap();
    assert!(models.contains("\"id\":\"sim\"") && get(sim.addr(), "/health").await.0 == 200);
}

#[tokio::test]
async fn routers_that_ask_for_more_are_told_what_vllm_would_tell_them() {
    let sim = instant();
    let body = chat(1000, 1, false);
    let (status, tokens) = post(sim.addr(), "/tokenize", &body).await;
    let (_, answer) = post(sim.addr(), "/v1/chat/completions", &body).await;
    assert_eq!((status, &tokens["count"]), (200, &answer["usage"]["prompt_tokens"]));
    let (_, same) = post(sim.addr(), "/tokenize", &json!({ "prompt": tokens["tokens"] })).await;
    assert_eq!(same["tokens"], tokens["tokens"], "ids are taken as they are given");
    assert_eq!(post(sim.addr(), "/tokenize", &json!({})).await.0, 400);
    assert_eq!(post(sim.addr(), "/v1/chat/completions/render", &body).await.0, 403);
    let scale_out = WorkerSim::start(SimConfig { enable_scale_out: true, ..SimConfig::default() }).unwrap();
    let (status, rendered) = post(scale_out.addr(), "/v1/chat/completions/render", &body).await;
    assert_eq!((status, &rendered["token_ids"]), (200, &tokens["tokens"]));
    for path in ["/get_server_info", "/get_model_info", "/server_info", "/kv_event_sources"] {
        assert_eq!(get(sim.addr(), path).await.0, 404, "{path}");
    }
    assert_eq!(sim.stats().requests, 1, "only inference is counted");
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_place() {
    let sim = scaled(1.0);
    for stream in [true, false] {
        let body = chat(100, 10_000, stream).to_string();
        let mut client = open(sim.addr(), "POST", "/v1/chat/completions", b"", body.as_bytes()).await.unwrap();
        if stream {
            client.read_exact(&mut [0; 200]).await.unwrap();
        }
        until(|| sim.stats().running == 1).await;
        drop(client);
        until(|| sim.stats().running == 0).await;
    }
    let (_, page) = get(sim.addr(), "/metrics").await;
    assert!(page.contains("finished_reason=\"abort\",model_name=\"sim\"} 2.0"), "{page}");
}

#[tokio::test]
async fn faults_are_injected_and_healed() {
    let sim = instant();
    let addr = sim.addr();
    let good = chat(10, 1, false);
    let set = |faults: Value| async move { post(addr, "/sim/faults", &faults).await.0 };
    assert_eq!(set(json!({"errorRate": 1})).await, 200);
    assert_eq!(post(addr, "/v1/chat/completions", &good).await.0, 500);
    assert_eq!((get(addr, "/health").await.0, sim.stats().errors), (200, 1));
    assert_eq!(set(json!({"startDelayMs": 100})).await, 200);
    assert_eq!((get(addr, "/health").await.0, get(addr, "/metrics").await.0), (503, 503));
    sleep(Duration::from_millis(120)).await;
    assert_eq!(post(addr, "/v1/chat/completions", &good).await.0, 200);
    for (kind, status) in [("garbage", 200), ("nan", 200), ("missing", 200), ("notFound", 404), ("ok", 200)] {
        assert_eq!(set(json!({ "metrics": kind })).await, 200);
        assert_eq!(get(addr, "/metrics").await.0, status, "{kind}");
    }
    assert_eq!(set(json!({"errorRate": 2})).await, 400);
    assert_eq!(set(json!({"nonsense": true})).await, 400);
}

#[tokio::test]
async fn a_hang_answers_nothing_until_it_ends() {
    let sim = instant();
    let addr = sim.addr();
    sim.set_faults(Faults { metrics: MetricsFault::Hang, ..Faults::default() }).unwrap();
    assert!(timeout(SOON, get(addr, "/metrics")).await.is_err());
    assert_eq!(get(addr, "/health").await.0, 200);
    sim.set_faults(Faults { hang: true, ..Faults::default() }).unwrap();
    let held = tokio::spawn(async move { get(addr, "/health").await.0 });
    assert!(timeout(SOON, get(addr, "/metrics")).await.is_err());
    assert!(!held.is_finished());
    assert_eq!(post(addr, "/sim/faults", &json!({})).await.0, 200);
    assert_eq!(held.await.unwrap(), 200);
}

#[tokio::test]
async fn a_restart_cuts_connections_and_begins_anew() {
    let sim = scaled(1.0);
    let addr = sim.addr();
    post(addr, "/v1/chat/completions", &chat(1000, 1, false)).await;
    let start_time = |page: &str| page.lines().find(|line| line.starts_with("process_start")).unwrap().to_owned();
    let before = start_time(&get(addr, "/metrics").await.1);
    let body = chat(100, 10_000, true).to_string();
    let streaming = tokio::spawn(async move { call(addr, "POST", "/v1/chat/completions", body.as_bytes()).await });
    let body = chat(100, 10_000, false).to_string();
    let waiting = tokio::spawn(async move { call(addr, "POST", "/v1/chat/completions", body.as_bytes()).await });
    until(|| sim.stats().running == 2).await;
    assert_eq!(post(addr, "/sim/restart", &json!({})).await.0, 200);
    assert!(waiting.await.unwrap().is_err(), "no answer, only the end of the connection");
    assert!(!streaming.await.unwrap().is_ok_and(|(_, _, text)| text.contains("[DONE]")));
    let (_, page) = get(addr, "/metrics").await;
    assert_ne!(start_time(&page), before);
    assert!(metric(&page, "vllm:prompt_tokens_total").abs() < 1e-9);
    assert_eq!((sim.stats().running, sim.stats().requests), (0, 3));
    let (_, again) = post(addr, "/v1/chat/completions", &chat(1000, 1, false)).await;
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

#[tokio::test]
async fn a_stopped_worker_is_gone_and_comes_back_on_its_port() {
    let mut sim = scaled(1.0);
    let addr = sim.addr();
    let body = chat(100, 10_000, true).to_string();
    let mut client = open(addr, "POST", "/v1/chat/completions", b"", body.as_bytes()).await.unwrap();
    client.read_exact(&mut [0; 200]).await.unwrap();
    sim.stop().await;
    assert!(TcpStream::connect(addr).await.is_err());
    let mut rest = Vec::new();
    let ended = timeout(LATEST, client.read_to_end(&mut rest)).await.expect("the connection is cut");
    assert!(ended.is_err() || !String::from_utf8_lossy(&rest).contains("[DONE]"));
    sim.start_at(addr).unwrap();
    assert!(sim.start_at(addr).is_err());
    assert_eq!((sim.addr(), get(addr, "/health").await.0), (addr, 200));
    drop(sim);
    timeout(LATEST, async { while TcpStream::connect(addr).await.is_ok() {} }).await.expect("a drop stops it as well");
}

#[tokio::test]
async fn http2_without_tls_is_spoken() {
    let sim = instant();
    let mut stream = TcpStream::connect(sim.addr()).await.unwrap();
    // The preface and an empty SETTINGS frame; the answer begins with the server's SETTINGS (type 4).
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).await.unwrap();
    assert_eq!(frame[3], 4);
}

/// Waits for what must come to be.
async fn until(mut holds: impl FnMut() -> bool) {
    timeout(LATEST, async {
        while !holds() {
            sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("in time");
}
