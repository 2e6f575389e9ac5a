//! Bodies of every shape and framing: each reaches its worker byte by byte, and those with a prompt are routed by it.

use anyhow::{Context, Result, ensure};
use hyper::HeaderMap;
use hyper::body::Bytes;
use serde_json::{Value, json};
use warmroute_harness::client::{Client, Socket, body, channel_body};
use worker_sim::{RequestRecord, SimConfig};
use xxhash_rust::xxh3::xxh3_64;

use crate::world::{CHAT, COMPLETIONS, WAIT_MAX, World, chat, instant, with_room};

const JSON: (&str, &str) = ("content-type", "application/json");

/// The worker that got this body, whole and unchanged, and what it noted. The body must be the only one of its kind.
fn arrival(world: &World, sent: &[u8]) -> Result<(usize, RequestRecord)> {
    let hash = format!("{:016x}", xxh3_64(sent));
    let stats = world.stats();
    let all = stats.iter().enumerate().flat_map(|(worker, stats)| stats.recent.iter().map(move |seen| (worker, seen)));
    let mut found = all.filter(|(_, seen)| seen.body_xxh3 == hash && seen.body_bytes == sent.len());
    let (worker, seen) = found.next().context("no worker got this body")?;
    ensure!(found.next().is_none(), "this body came twice");
    Ok((worker, seen.clone()))
}

/// The same prompt each time; only `user`, which is no part of it, tells the bodies apart.
fn content(framing: usize) -> Vec<u8> {
    let mut body =
        chat("You are asked in many ways.", &["always the same question, over one block long. ".repeat(8).as_str()]);
    body["user"] = format!("framing {framing}").into();
    body.to_string().into_bytes()
}

/// A request's head on a raw connection; `headers` with their line ends.
fn head(path: &str, headers: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n{headers}\r\n")
}

/// The body in chunks of 1 to 7 bytes.
fn tiny_chunks(content: &[u8]) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    let (mut rest, mut bytes) = (content, 1);
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at(bytes.min(rest.len()));
        chunks.push([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
        (rest, bytes) = (behind, bytes % 7 + 1);
    }
    chunks
}

/// A worker's answer to a routed request: its JSON ends so.
async fn read_answer(socket: &mut Socket) -> Result<String> {
    let answer = socket.read_until("}}").await?;
    ensure!(answer.contains("HTTP/1.1 200"), "{answer}");
    Ok(answer)
}

/// 2 MB: what one worker's KV cache holds only if it is made large. Written by hand, as clients write it: of a message
/// that is cut off the text counts only if its role stands before it.
fn large_body() -> (SimConfig, String) {
    let text = (0..300_000).map(|word| format!("w{word} ")).collect::<String>();
    let message = format!(r#"{{"role":"user","content":"{}"}}"#, &text[..2 << 20]);
    let body = format!(r#"{{"model":"sim","max_tokens":4,"messages":[{message}]}}"#);
    (SimConfig { kv_blocks: 100_000, ..instant() }, body)
}

#[tokio::test]
async fn a_body_larger_than_envoys_buffer_arrives_whole_and_is_routed_by_its_beginning() -> Result<()> {
    let (sim, large) = large_body();
    let setup = World::of(3)
        .plugin(json!({ "poll": {} }))
        .sim(&sim)
        .envoy(|envoy| with_room(envoy.connection_buffer_bytes_max(1 << 20)));
    let world = setup.start().await?;
    for client in [world.client(), Client::http2(world.envoy.address())] {
        let reply = client.post(CHAT, &[], large.clone()).await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    // Just below what the plugin waits for, and, once that is buffered, all the rest at once.
    let (begin, rest) = large.as_bytes().split_at(250_000);
    let head = head(CHAT, &format!("content-length: {}\r\n", large.len()));
    let received = "http.gateway.downstream_cx_rx_bytes_total";
    let before = world.envoy.stat(received).await?;
    let mut socket = Socket::connect(world.envoy.address()).await?;
    socket.write(&[head.as_bytes(), begin].concat()).await?;
    world.envoy.wait_stat(received, before + u64::try_from(head.len() + begin.len())?, WAIT_MAX).await?;
    socket.write(rest).await?;
    read_answer(&mut socket).await?;

    let hash = format!("{:016x}", xxh3_64(large.as_bytes()));
    let arrived = world.arrived();
    assert!(arrived.iter().all(|seen| (seen.body_bytes, &seen.body_xxh3) == (large.len(), &hash)), "{arrived:?}");
    // The first one builds the cache, and the others follow it by the part that is read.
    assert_eq!((arrived.len(), world.count("decision_cold_total").await?), (3, 1));
    assert_eq!(world.count("decision_warm_total").await?, 2);
    assert_eq!(world.count("body_truncated_total").await?, 3);
    assert_eq!(world.served().iter().filter(|&&served| served > 0).count(), 1);
    world.end().await
}

#[tokio::test]
async fn a_body_that_envoy_refuses_leaves_nothing_behind() -> Result<()> {
    // Well below what the plugin would wait for: the body is refused while it is being collected.
    let world = World::of(2).envoy(|envoy| envoy.connection_buffer_bytes_max(32_768)).start().await?;
    let body = chat("Long.", &["x".repeat(200_000).as_str()]).to_string();
    // HTTP/1 only: the limit of an HTTP/2 stream is its window, 16 MB unless set.
    for _ in 0..3 {
        let reply = world.client().post(CHAT, &[], body.clone()).await?;
        assert_eq!(reply.status, 413, "{}", reply.text());
    }
    assert_eq!(world.client().post_json(CHAT, &chat("Short.", &["hello"])).await?.status, 200);
    assert_eq!(world.served().iter().sum::<u64>(), 1);
    world.end().await
}

#[tokio::test]
async fn a_prompt_is_known_however_its_body_is_framed() -> Result<()> {
    let world = World::of(4).plugin(json!({ "poll": {} })).start().await?;
    let address = world.envoy.address();
    let mut homes = Vec::new();
    let mut note = |number: usize| {
        let (worker, seen) = arrival(&world, &content(number))?;
        homes.push(worker);
        assert_eq!((seen.path.as_str(), seen.status), (CHAT, 200));
        anyhow::Ok(())
    };

    assert_eq!(world.client().post(CHAT, &[], content(0)).await?.status, 200);
    note(0)?;

    let mut socket = Socket::connect(address).await?;
    socket.write(head(CHAT, "transfer-encoding: chunked\r\n").as_bytes()).await?;
    for chunk in tiny_chunks(&content(1)) {
        socket.write(&chunk).await?;
    }
    socket.write(b"0\r\n\r\n").await?;
    read_answer(&mut socket).await?;
    note(1)?;

    // The same connection again: length announced, and then a trickle of pieces.
    let sent = content(2);
    socket.write(head(CHAT, &format!("content-length: {}\r\n", sent.len())).as_bytes()).await?;
    for piece in sent.chunks(5) {
        socket.write(piece).await?;
    }
    read_answer(&mut socket).await?;
    note(2)?;

    let mut socket = Socket::connect(address).await?;
    socket.write(head(CHAT, "transfer-encoding: chunked\r\ntrailer: x-sum\r\n").as_bytes()).await?;
    for chunk in tiny_chunks(&content(3)) {
        socket.write(&chunk).await?;
    }
    socket.write(b"0\r\nx-sum: 3\r\n\r\n").await?;
    read_answer(&mut socket).await?;
    note(3)?;

    // No data frame is the last one: only the trailers say that the body is whole.
    let (mut sender, stream) = channel_body();
    let client = Client::http2(address);
    let feed = async {
        for piece in content(4).chunks(100) {
            sender.send_data(Bytes::copy_from_slice(piece)).await?;
        }
        sender.send_trailers(HeaderMap::from_iter([("x-sum".parse()?, "3".parse()?)])).await?;
        drop(sender);
        anyhow::Ok(())
    };
    let (reply, fed) = tokio::join!(client.send("POST", CHAT, &[JSON], stream), feed);
    fed?;
    assert_eq!(reply?.status, 200);
    note(4)?;

    let sent = content(5);
    let mut socket = Socket::connect(address).await?;
    let expect = format!("expect: 100-continue\r\ncontent-length: {}\r\n", sent.len());
    socket.write(head(CHAT, &expect).as_bytes()).await?;
    // The plugin waits for the body and the client for leave to send it: somebody must speak first.
    socket.read_until("100 Continue\r\n\r\n").await?;
    socket.write(&sent).await?;
    read_answer(&mut socket).await?;
    note(5)?;

    // Two requests in one segment.
    let mut socket = Socket::connect(address).await?;
    let [first, second] = [6, 7].map(content);
    let lengths = [&first, &second].map(|sent| head(CHAT, &format!("content-length: {}\r\n", sent.len())));
    socket.write(&[lengths[0].as_bytes(), &first, lengths[1].as_bytes(), &second].concat()).await?;
    let mut answers = String::new();
    while answers.matches("HTTP/1.1 200").count() < 2 {
        answers += &read_answer(&mut socket).await.with_context(|| answers.clone())?;
    }
    note(6)?;
    note(7)?;

    assert!(homes.iter().all(|home| *home == homes[0]), "{homes:?}");
    // The index knows the prompt again in each framing: the first request alone is new to it.
    for (counter, want) in
        [("requests_total", 8), ("routed_total", 8), ("decision_cold_total", 1), ("decision_warm_total", 7)]
    {
        assert_eq!(world.count(counter).await?, want, "{counter}");
    }
    world.end().await
}

#[tokio::test]
async fn everything_else_passes_untouched() -> Result<()> {
    struct Case {
        method: &'static str,
        path: &'static str,
        content: Vec<u8>,
    }
    let case = |method, path, content: &[u8]| Case { method, path, content: content.to_vec() };
    let json = chat("a", &["b"]).to_string().into_bytes();
    let binary: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let cases = [
        case("GET", CHAT, b""),
        case("GET", "/", b""),
        case("GET", "/a/b%20c?q=%7B%7D&x=1", b""),
        case("PUT", CHAT, &json),
        case("DELETE", CHAT, b""),
        case("PATCH", COMPLETIONS, &json),
        case("OPTIONS", CHAT, b""),
        case("POST", "/v1/audio/transcriptions", &json),
        case("POST", "/v1/chat/completions/", &json),
        case("POST", "/v1/chat/Completions", &json),
        case("POST", "/v1/chat/completions%20", &json),
        case("POST", "/v1/no-completions", &json),
        case("POST", "/other", b""),
        case("POST", "/other", &binary),
        case("POST", "/other", b"\0\xff\xfe not text"),
    ];
    let world = World::of(2).start().await?;
    let headers = [("x-own", "a, b"), ("authorization", "Bearer secret"), ("content-type", "text/odd"), ("te", "x")];
    let (through, direct) = (world.client(), Client::http1(world.workers[0].addr()));
    for case in &cases {
        let mut echoes = Vec::new();
        for client in [&through, &direct] {
            let reply = client.send(case.method, case.path, &headers, body(case.content.clone())).await?;
            assert_eq!(reply.status, 200, "{} {}", case.method, case.path);
            echoes.push(reply.json()?);
        }
        let (through, direct) = (&echoes[0], &echoes[1]);
        for key in ["path", "method", "body_bytes", "body_xxh3"] {
            assert_eq!(through[key], direct[key], "{} {} {key}", case.method, case.path);
        }
        for (name, value) in direct["headers"].as_object().context("no headers")? {
            let is_hop_by_hop = ["host", "te", "content-length", "transfer-encoding"].contains(&name.as_str());
            assert!(is_hop_by_hop || through["headers"][name] == *value, "{} {} {name}", case.method, case.path);
        }
        assert!(!through["headers"].to_string().contains("warmroute"), "{through}");
    }
    assert_eq!(world.count("requests_total").await?, 0);
    // An empty body on a routed path is the worker's to refuse, also one that only trailers end.
    assert_eq!(world.client().post(CHAT, &[], "").await?.status, 400);
    let (mut sender, nothing) = channel_body();
    sender.send_trailers(HeaderMap::from_iter([("x-sum".parse()?, "0".parse()?)])).await?;
    drop(sender);
    let reply = Client::http2(world.envoy.address()).send("POST", CHAT, &[JSON], nothing).await?;
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert_eq!((world.count("requests_total").await?, world.count("unrouted_no_body_total").await?), (2, 2));
    world.end().await
}

#[tokio::test]
async fn header_values_that_are_not_utf_8_pass_and_harm_nobody() -> Result<()> {
    let world = World::of(2).start().await?;
    let content = chat("a", &["b"]).to_string();
    let mut socket = Socket::connect(world.envoy.address()).await?;
    for bad in [
        &b"x-bad: a\xa1\r\n"[..],
        b"content-encoding: \xa1\r\n",
        b"x-gateway-destination-endpoint: \xff\xfe\r\n",
        b"content-type: \xa1\r\nuser-agent: \xc3\x28\r\n",
    ] {
        let request = head(CHAT, &format!("content-length: {}\r\n", content.len()));
        let (request, _) = request.rsplit_once("\r\n").context("no end of headers")?;
        socket.write(&[request.as_bytes(), bad, b"\r\n", content.as_bytes()].concat()).await?;
        let answer = read_answer(&mut socket).await?;
        assert!(answer.contains("x-worker: "), "{bad:?}: {answer}");
    }
    socket.write(b"POST /other HTTP/1.1\r\nhost: gateway\r\ncontent-length: 2\r\nx-bad: a\xa1\r\n\r\nhi").await?;
    let answer = socket.read_until("\"path\":\"/other\"}").await?;
    assert!(answer.contains("a\u{fffd}"), "the echo shows what is no text as U+FFFD: {answer}");
    // Whatever Envoy makes of a path that is not ASCII, it answers.
    socket.write(b"GET /v1/chat/completions\xff HTTP/1.1\r\nhost: gateway\r\n\r\n").await?;
    socket.read_until("HTTP/1.1 ").await?;
    assert_eq!(world.count("routed_total").await?, 4);
    // An encoding that nobody can read is still one.
    assert_eq!(world.count("body_encoded_total").await?, 1);
    world.end().await
}

#[tokio::test]
async fn completions_are_routed_by_their_prompt_in_each_of_its_forms() -> Result<()> {
    const COLD: u64 = 2;
    let world = World::of(4).plugin(json!({ "poll": {} })).start().await?;
    let text = "Once upon a time there was a gateway. ".repeat(10);
    let ids: Vec<u32> = (0..300).map(|id| id * 7).collect();
    let prompts = [json!(text), json!([text, "and another"]), json!(ids), json!([ids, [1, 2, 3]])];
    let mut routed = 0;
    for prompt in prompts {
        let mut workers = Vec::new();
        for end in ["", " More of it.", " Still more of it."] {
            // A prompt that goes on keeps its worker.
            let prompt = prompt.as_str().map_or_else(|| prompt.clone(), |text| Value::from(format!("{text}{end}")));
            let reply = world.client().post_json(COMPLETIONS, &json!({ "prompt": prompt, "max_tokens": 2 })).await?;
            assert_eq!(reply.status, 200, "{}", reply.text());
            workers.push(reply.header("x-worker").context("no worker")?.to_owned());
            routed += 1;
        }
        assert!(workers.iter().all(|worker| *worker == workers[0]), "{workers:?}");
    }
    // Both texts begin alike, and so do both lists of ids.
    assert_eq!(world.count("decision_warm_total").await?, routed - COLD);
    assert_eq!(world.count("decision_cold_total").await?, COLD);
    // A chat's body on the completions path has no prompt: it goes where the load is least.
    assert_eq!(world.client().post_json(COMPLETIONS, &chat("a", &["b"])).await?.status, 400);
    assert_eq!(world.count("routed_total").await?, routed + 1);
    assert_eq!(world.count("unrouted_unreadable_total").await?, 0);
    world.end().await
}

#[tokio::test]
async fn an_encoded_body_is_routed_by_load_and_not_decoded() -> Result<()> {
    let world = World::of(2).plugin(json!({ "policy": "prefix-hash" })).start().await?;
    // The header of a gzip member; nothing on the way reads further.
    let gzip: Vec<u8> =
        [0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0, 0, 0xff].into_iter().chain((0..=255).cycle().take(5_000)).collect();
    let reply = world.client().post(CHAT, &[("content-encoding", "gzip")], gzip.clone()).await?;
    assert_eq!(reply.status, 400, "the simulated worker reads no gzip: {}", reply.text());
    assert_eq!(arrival(&world, &gzip)?.1.status, 400);
    for counter in ["body_encoded_total", "routed_total", "decision_no_prefix_total", "answered_first_pick_total"] {
        assert_eq!(world.count(counter).await?, 1, "{counter}");
    }
    // `identity` is no encoding.
    let reply = world.client().post(CHAT, &[("content-encoding", "Identity")], chat("a", &["b"]).to_string()).await?;
    assert_eq!(reply.status, 200);
    assert_eq!(world.count("decision_home_total").await?, 1);
    world.end().await
}

#[tokio::test]
async fn a_conversation_that_outgrows_the_scan_limit_stays_where_it_is() -> Result<()> {
    // By the prefix's home: the index would know the conversation again by its beginning alone.
    let plugin = json!({ "policy": "prefix-hash", "request": { "scanBytesMax": 4096 } });
    let world = World::of(4).plugin(plugin).start().await?;
    // Written by hand for its order: what stands behind the cut cannot be read, and the key depends on the model.
    let request = |question: &str| {
        format!(
            r#"{{"model":"sim","max_tokens":2,"messages":[{{"role":"system","content":"One for all."}},{{"role":"user","content":"{question}"}}]}}"#
        )
    };
    let client = world.client();
    // Until the system prompt is known to be everybody's, it is what conversations are known by.
    for user in 0..40 {
        assert_eq!(client.post(CHAT, &[], request(&format!("short question {user}"))).await?.status, 200);
    }
    let lengths = [2_000, 3_950, 4_050, 10_000, 60_000];
    for conversation in 0..32 {
        let text = format!("Document {conversation}: {}", "words and more words ".repeat(3_000));
        let mut workers = Vec::new();
        // Two below the limit, one just above, two far above.
        for bytes in lengths {
            let reply = world.client().post(CHAT, &[], request(&text[..bytes])).await?;
            assert_eq!(reply.status, 200, "{}", reply.text());
            workers.push(reply.header("x-worker").context("no worker")?.to_owned());
        }
        assert!(workers.iter().all(|worker| *worker == workers[0]), "conversation {conversation}: {workers:?}");
    }
    assert_eq!(world.count("body_truncated_total").await?, 32 * 3);
    assert_eq!(world.count("decision_home_total").await?, 40 + 32 * 5);
    assert!(world.served().iter().all(|&served| served > 0), "{:?}", world.served());
    world.end().await
}
