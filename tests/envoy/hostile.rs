//! Bodies made to break a reader: none may reload a VM, lose its answer or leave anything counted.

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;
use warmroute::rng::Rng;
use warmroute_harness::client::Client;

use crate::world::{CHAT, COMPLETIONS, World, chat};

const BODIES: u64 = 4_000;
const CONNECTIONS: u64 = 4;

/// A body that somebody sends to do harm; the same for the same seed.
fn hostile(seed: u64) -> Vec<u8> {
    let rng = &mut Rng::new(seed);
    let valid = chat("You are \u{1f600} an assistant.\n", &["Say \"hi\" \\ to \u{0} me", "hi"]).to_string();
    // Each connection, which has every fourth seed, gets every kind.
    match seed / CONNECTIONS % 16 {
        0 => cut(rng, valid.into_bytes()),
        1 => nested(rng),
        2 => format!(
            r#"{{"messages":[],"messages":{valid},"model":"a","model":{{}},"messages":[{{"role":"user","role":7}}]}}"#
        )
        .into(),
        3 => text_in_chat(pick(
            rng,
            &[r"\ud800", r"\udc00", r"\ud800\ud800", r"\ud83d\u0041", r"\uZZZZ", r"\u12", r"\x", "\\"],
        )),
        4 => number(rng).into(),
        5 => [&[0x1f, 0x8b, 0x08, 0][..], &noise(rng, 200)].concat(),
        6 => noise(rng, 2_000),
        7 => pick(
            rng,
            &[
                "",
                " ",
                "\n\t ",
                "\0",
                "{",
                "}",
                "[",
                "\"",
                "{\"",
                "{}",
                "[]",
                "null",
                "nul",
                "-",
                "0",
                "{\"messages\":",
            ],
        )
        .into(),
        8 => vec![0; rng.below(3_000) as usize],
        9 => giant(rng),
        10 => format!("[{valid},{valid}]").into(),
        11 => wrong_type(rng).into(),
        12 => [b"\xef\xbb\xbf", valid.as_bytes()].concat(),
        13 => flipped(rng, valid.into_bytes()),
        14 => shuffled(rng, &valid),
        _ => text_in_chat(&String::from_utf8_lossy(&noise(rng, 400))),
    }
}

fn pick<'a>(rng: &mut Rng, choices: &[&'a str]) -> &'a str {
    choices[rng.below(choices.len() as u32) as usize]
}

fn noise(rng: &mut Rng, bytes_max: u32) -> Vec<u8> {
    (0..rng.below(bytes_max)).map(|_| rng.below(256) as u8).collect()
}

fn cut(rng: &mut Rng, mut body: Vec<u8>) -> Vec<u8> {
    body.truncate(rng.below(body.len() as u32) as usize);
    body
}

/// Bits of a valid body turned over.
fn flipped(rng: &mut Rng, mut body: Vec<u8>) -> Vec<u8> {
    for _ in 0..=rng.below(8) {
        let at = rng.below(body.len() as u32) as usize;
        body[at] ^= 1 << rng.below(8);
    }
    body
}

/// JSON's own signs in no order, mixed with pieces of a valid body.
fn shuffled(rng: &mut Rng, valid: &str) -> Vec<u8> {
    let signs =
        ["{", "}", "[", "]", ",", ":", "\"", "\\", "\"messages\":", "\"content\":", "\"role\":\"user\"", "null", "1e9"];
    let mut body = String::from("{");
    for _ in 0..rng.below(60) {
        body += pick(rng, &signs);
    }
    body += valid;
    body.into()
}

fn text_in_chat(text: &str) -> Vec<u8> {
    format!(r#"{{"model":"{text}","max_tokens":1,"messages":[{{"role":"user","content":"{text}"}}]}}"#).into()
}

/// Depths up to a hundred thousand, closed or not.
fn nested(rng: &mut Rng) -> Vec<u8> {
    let depth = [10, 127, 129, 1_000, 100_000][rng.below(5) as usize];
    let (open, close) = if rng.below(2) == 0 { ("[", "]") } else { ("{\"a\":", "}") };
    let close = if rng.below(2) == 0 { close.repeat(depth) } else { String::new() };
    let key = pick(rng, &["messages", "prompt", "tools", "model", "else"]);
    format!(r#"{{"{key}":{}1{close},"messages":[{{"role":"user","content":"x"}}]}}"#, open.repeat(depth)).into()
}

fn giant(rng: &mut Rng) -> Vec<u8> {
    let text = pick(rng, &["a", "\\n", "\\u0041", "\u{1f600}", "\\\\"]).repeat(50_000);
    match rng.below(3) {
        0 => format!(r#"{{"{text}":1,"messages":[]}}"#).into(),
        1 => format!(r#"{{"model":"{text}","messages":[{{"role":"{text}"}}]}}"#).into(),
        _ => format!(r#"{{"messages":[{{"content":"{text}"#).into(),
    }
}

fn number(rng: &mut Rng) -> String {
    let digits = "9".repeat(1 + rng.below(5_000) as usize);
    let number = match rng.below(6) {
        0 => format!("1e{digits}"),
        1 => format!("-{digits}"),
        2 => format!("0.{digits}"),
        3 => digits,
        4 => "NaN".to_owned(),
        _ => "-Infinity".to_owned(),
    };
    format!(r#"{{"model":{number},"max_tokens":{number},"prompt":[{number},-1,1e400],"messages":[{number}]}}"#)
}

fn wrong_type(rng: &mut Rng) -> String {
    let values = [
        "null",
        "true",
        "1",
        "\"x\"",
        "[]",
        "{}",
        "[null]",
        "[[]]",
        "[{}]",
        "[1.5]",
        "[\"a\",1,null]",
        "[[1],[\"a\"]]",
    ];
    let [model, messages, prompt, tools, salt, stream] = [0; 6].map(|_| pick(rng, &values));
    format!(
        r#"{{"cache_salt":{salt},"stream":{stream},"model":{model},"messages":{messages},"prompt":{prompt},"tools":{tools}}}"#
    )
}

/// Sends the bodies of one connection one after the other.
async fn send_all(client: Client, first: u64) -> Result<u64> {
    let mut sent = 0;
    for seed in (first..BODIES).step_by(CONNECTIONS as usize) {
        let path = if Rng::new(!seed).below(4) == 0 { COMPLETIONS } else { CHAT };
        let reply = client.post(path, &[], hostile(seed)).await.with_context(|| format!("seed {seed}"))?;
        // Envoy's own answers, 500 for a VM that has died among them, name no worker.
        ensure!(reply.header("x-worker").is_some(), "seed {seed}: status {}, {}", reply.status, reply.text());
        ensure!([200, 400].contains(&reply.status), "seed {seed}: status {}, {}", reply.status, reply.text());
        sent += 1;
    }
    Ok(sent)
}

#[tokio::test]
async fn no_body_breaks_a_vm_or_goes_without_its_workers_answer() -> Result<()> {
    let world = World::of(3).start().await?;
    let mut connections = JoinSet::new();
    for first in 0..CONNECTIONS {
        let client = if first == 0 { Client::http2(world.envoy.address()) } else { world.client() };
        connections.spawn(send_all(client, first));
    }
    let mut sent = 0;
    while let Some(done) = connections.join_next().await {
        sent += done??;
    }
    assert_eq!(sent, BODIES);
    for closed in ["downstream_cx_destroy_local", "downstream_cx_protocol_error", "downstream_rq_5xx"] {
        assert_eq!(world.envoy.stat(&format!("http.gateway.{closed}")).await?, 0, "{closed}");
    }
    let counts = ["requests_total", "routed_total", "unrouted_unreadable_total", "unrouted_no_body_total"];
    let mut counted = Vec::new();
    for counter in counts {
        counted.push(world.count(counter).await?);
    }
    assert_eq!(counted[0], BODIES);
    assert_eq!(counted[1..].iter().sum::<u64>(), BODIES, "{counted:?}");
    // The generator would be a poor one if it reached only one of the ends.
    assert!(counted.iter().all(|&count| count > 0), "{counted:?}");
    world.wait_inflight_zero().await?;

    world.wait_scrapes(2).await?;
    // Whatever those taught the index, a normal conversation is known again in it.
    let warm = world.count("decision_warm_total").await?;
    let normal =
        chat("And now a normal one.", &["a question over one block long, as users have them. ".repeat(8).as_str()]);
    for _ in 0..2 {
        let reply = world.client().post_json(CHAT, &normal).await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(world.count("decision_warm_total").await?, warm + 1);
    world.end().await
}
