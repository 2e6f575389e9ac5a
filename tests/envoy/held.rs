//! Streams that are held open: load that stays where it was sent.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::task::JoinSet;
use warmroute_harness::client::{Client, Stream, body};

use crate::world::{CHAT, World};

/// Long enough that no test sees the end of such a stream: at 50 ms a token, over a minute.
const HELD_TOKENS: u32 = 1_500;

/// Open streams, and who serves how many.
pub(crate) struct Held {
    pub(crate) streams: Vec<Stream>,
    pub(crate) by_worker: BTreeMap<String, usize>,
}

/// Starts one streamed answer that goes on until it is dropped.
pub(crate) async fn hold(client: Client, request: Value) -> Result<(Stream, String)> {
    hold_with(client, &[], request).await
}

/// Holds `count` streams open, all started at once and each on a connection of its own.
pub(crate) async fn hold_many(world: &World, count: usize, request: impl Fn(usize) -> Value) -> Result<Held> {
    hold_many_with(world, count, &[], request).await
}

/// As [`hold_many`], with more headers.
pub(crate) async fn hold_many_with(
    world: &World,
    count: usize,
    headers: &'static [(&'static str, &'static str)],
    request: impl Fn(usize) -> Value,
) -> Result<Held> {
    let mut opening = JoinSet::new();
    for index in 0..count {
        opening.spawn(hold_with(world.client(), headers, request(index)));
    }
    let mut held = Held { streams: Vec::new(), by_worker: BTreeMap::new() };
    while let Some(opened) = opening.join_next().await {
        let (stream, worker) = opened??;
        held.streams.push(stream);
        *held.by_worker.entry(worker).or_default() += 1;
    }
    Ok(held)
}

async fn hold_with(client: Client, headers: &[(&str, &str)], mut request: Value) -> Result<(Stream, String)> {
    request["stream"] = true.into();
    request["max_tokens"] = HELD_TOKENS.into();
    let headers = [headers, &[("content-type", "application/json")]].concat();
    let stream = client.open("POST", CHAT, &headers, body(request.to_string())).await?;
    ensure!(stream.status == 200, "status {}", stream.status);
    let worker = stream.headers.get("x-worker").context("no worker answered")?.to_str()?.to_owned();
    Ok((stream, worker))
}
