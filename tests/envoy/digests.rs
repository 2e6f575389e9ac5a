//! Bodies of every format and length, in every framing: the worker gets what was sent.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use warmroute::rng::Rng;
use warmroute_harness::client::{Client, Socket};

use crate::format_samples::{FORMATS, Format, check_arrival, digest};
use crate::world::{World, with_room};

/// The lengths, bytes: less than one block of a prompt's hashes and a bit; more than the plugin reads; and what a
/// conversation with images has.
const SHORT: usize = 1_000;
const LONG: usize = 300_000;
const HUGE: usize = 20_000_000;

/// How a body is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Framing {
    /// Its length announced, in one write.
    Whole,
    /// Its length announced, in pieces that end within characters, escapes and keys.
    Pieces,
    /// In chunks of such sizes.
    Chunked,
    /// Its length announced, and sent only when the gateway gives leave.
    Expect,
}

/// Short pieces, so that each character, escape and key is cut somewhere; longer ones of what is long.
fn pieces(sent: &[u8]) -> Vec<&[u8]> {
    let longest = if sent.len() < 10_000 { 3 } else { 20_000 };
    let (mut rng, mut rest, mut pieces) = (Rng::new(sent.len() as u64), sent, Vec::new());
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at((1 + rng.below(longest) as usize).min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// Sends a body over a connection of its own and returns the head of the answer.
async fn send(world: &World, format: &Format, framing: Framing, sent: &[u8]) -> Result<String> {
    let framed = match framing {
        Framing::Chunked => "transfer-encoding: chunked".to_owned(),
        Framing::Expect => format!("content-length: {}\r\nexpect: 100-continue", sent.len()),
        Framing::Whole | Framing::Pieces => format!("content-length: {}", sent.len()),
    };
    let head = format!("POST {} HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n", format.path);
    let mut socket = Socket::connect(world.envoy.address()).await?;
    socket.write(format!("{head}connection: close\r\n{framed}\r\n\r\n").as_bytes()).await?;
    match framing {
        Framing::Whole => socket.write(sent).await?,
        Framing::Expect => {
            socket.read_until("100 Continue\r\n\r\n").await?;
            socket.write(sent).await?;
        }
        Framing::Pieces => {
            for piece in pieces(sent) {
                socket.write(piece).await?;
            }
        }
        Framing::Chunked => {
            for piece in pieces(sent) {
                socket.write(&[format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()).await?;
            }
            socket.write(b"0\r\n\r\n").await?;
        }
    }
    let answer = socket.read_rest(Duration::from_secs(15)).await?;
    Ok(answer.split("\r\n\r\n").next().unwrap_or_default().to_owned())
}

async fn check(world: &World, format: &Format, framing: Framing, bytes: usize) -> Result<()> {
    let sent = format.body(bytes, framing as usize);
    let what = || format!("{}, {bytes} bytes, {framing:?}", format.name);
    let head = send(world, format, framing, &sent).await.with_context(what)?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{}: {head}", what());
    ensure!(head.contains(&format!("x-body-digest: {}", digest(&sent))), "{}: {head}", what());
    Ok(())
}

#[tokio::test]
async fn every_format_arrives_unchanged_in_every_framing() -> Result<()> {
    let world = World::of(2).envoy(with_room).start().await?;
    for format in FORMATS {
        for framing in [Framing::Whole, Framing::Pieces, Framing::Chunked, Framing::Expect] {
            for bytes in [SHORT, LONG] {
                check(&world, format, framing, bytes).await?;
            }
        }
    }
    world.end().await
}

#[tokio::test]
async fn every_format_arrives_unchanged_at_twenty_megabytes() -> Result<()> {
    let world = World::of(2).envoy(with_room).start().await?;
    let client = Client::http1(world.envoy.address()).step_max(Duration::from_secs(30));
    for format in FORMATS {
        let sent = format.body(HUGE, 1);
        ensure!(sent.len().abs_diff(HUGE) < HUGE / 10, "{}: {} bytes", format.name, sent.len());
        let sent_digest = digest(&sent);
        let reply = client.post(format.path, &[], sent).await.with_context(|| format.name)?;
        // A worker may refuse a prompt that is longer than any context; it has read it by then.
        ensure!([200, 400].contains(&reply.status), "{}: {} {}", format.name, reply.status, reply.text());
        assert_eq!(reply.header("x-body-digest"), Some(sent_digest.as_str()), "{}", format.name);
    }
    world.end().await
}

#[tokio::test]
async fn formats_share_one_connection() -> Result<()> {
    let world = World::of(3).start().await?;
    let client = world.client();
    for round in 0..3 {
        for format in FORMATS {
            let sent = format.body(SHORT * (round + 1), round);
            let reply = client.post(format.path, &[], sent.clone()).await?;
            check_arrival(&reply, &sent).map_err(|what| anyhow::anyhow!("{}: {what}", format.name))?;
        }
    }
    assert_eq!(world.envoy.stat("http.gateway.downstream_cx_total").await?, 1);
    world.end().await
}
