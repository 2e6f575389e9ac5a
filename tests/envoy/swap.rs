//! A gateway that serves while it is changed: a load of which no request may fail, open streams, and other binaries.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use warmroute_harness::artefacts::Artefacts;
use warmroute_harness::client::{Client, Reply, Stream, body};

use crate::world::{CHAT, WAIT_MAX, World, chat};

/// A light load that goes on until it is stopped; each request must succeed.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    clients: JoinSet<Result<u64>>,
}

impl Load {
    /// Some clients, each with short conversations of its own and connections that are kept. All have the system prompt of
    /// [`shared_system`], so that it stays what everybody shares, however many requests the load makes.
    pub(crate) fn start(world: &World) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for client in 0..3 {
            clients.spawn(Self::client(world.client(), client, Arc::clone(&stop)));
        }
        Self { stop, clients }
    }

    async fn client(client: Client, number: usize, stop: Arc<AtomicBool>) -> Result<u64> {
        let mut served = 0;
        while !stop.load(Ordering::Relaxed) {
            let request = chat(&shared_system(), &[&format!("question {} of client {number}", served % 5)]);
            let reply = client.post_json(CHAT, &request).await.with_context(|| format!("after {served} requests"))?;
            ensure!(reply.status == 200, "status {} after {served} requests: {}", reply.status, reply.text());
            served += 1;
            sleep(Duration::from_millis(4)).await;
        }
        Ok(served)
    }

    /// Ends the load; how many requests there were. An error if one of them failed.
    pub(crate) async fn stop(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let mut served = 0;
        while let Some(client) = self.clients.join_next().await {
            served += client??;
        }
        Ok(served)
    }
}

pub(crate) fn policy_of(reply: &Reply) -> Option<&str> {
    reply.header("x-warmroute-policy")
}

/// Waits until all threads have the configuration with this policy: so many new connections in a row find it.
pub(crate) async fn wait_policy(world: &World, policy: &str) -> Result<()> {
    let deadline = Instant::now() + WAIT_MAX;
    let mut in_a_row = 0;
    while in_a_row < 16 {
        let reply = world.client().post_json(CHAT, &chat("s", &["hello"])).await?;
        ensure!(reply.status == 200, "status {}", reply.status);
        in_a_row = if policy_of(&reply) == Some(policy) { in_a_row + 1 } else { 0 };
        ensure!(Instant::now() < deadline, "{policy} is not in use: {:?}", policy_of(&reply));
    }
    Ok(())
}

/// The plugin's code as another file: a custom section changes nothing but the bytes, hence the VM.
fn other_binary(world: &World, name: &str) -> Result<PathBuf> {
    let mut code = fs::read(Artefacts::find()?.wasm()?)?;
    let name_bytes = u8::try_from(name.len())?;
    code.extend_from_slice(&[0, name_bytes + 1, name_bytes]);
    code.extend_from_slice(name.as_bytes());
    let path = world.envoy.directory().join(format!("{name}.wasm"));
    fs::write(&path, code)?;
    Ok(path)
}

/// Replaces the binary and waits until the main thread has taken it.
pub(crate) async fn swap_binary(world: &World, name: &str) -> Result<()> {
    swap_to(world, &other_binary(world, name)?).await
}

/// As [`swap_binary`], with the binary in a file.
pub(crate) async fn swap_to(world: &World, wasm: &Path) -> Result<()> {
    let before = world.envoy.config_updates().await?;
    world.envoy.push_plugin(&world.plugin, wasm)?;
    let after = world.envoy.wait_config(before.accepted + 1, before.rejected + 1).await?;
    ensure!(after.accepted > before.accepted, "the binary is refused; log:\n{}", world.envoy.log_tail());
    Ok(())
}

/// Opens a streamed answer of so many tokens.
pub(crate) async fn open_stream(world: &World, system: &str, max_tokens: u32) -> Result<Stream> {
    let mut request = chat(system, &["go on"]);
    request["stream"] = true.into();
    request["max_tokens"] = max_tokens.into();
    let headers = [("content-type", "application/json")];
    let mut stream = world.client().open("POST", CHAT, &headers, body(request.to_string())).await?;
    ensure!(stream.status == 200, "status {}", stream.status);
    stream.next().await?;
    Ok(stream)
}

pub(crate) async fn finish_stream(stream: Stream) -> Result<()> {
    let text = stream.finish().await?.text();
    ensure!(text.ends_with("data: [DONE]\n\n"), "the stream ends with {:?}", text.lines().last());
    Ok(())
}

pub(crate) fn shared_system() -> String {
    "You are helpful. ".repeat(40)
}

pub(crate) async fn created_vms(world: &World) -> Result<u64> {
    let stats = world.envoy.stats().await?;
    Ok(stats.iter().filter(|(name, _)| name.ends_with("v8.created")).map(|(_, count)| count).sum())
}
