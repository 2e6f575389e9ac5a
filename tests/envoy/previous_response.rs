//! Conversations that go on by `previous_response_id`: only the worker that made a response can go on from it, and all
//! others answer 404, as vLLM does.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;
use warmroute_harness::client::{Client, Reply};
use worker_sim::WorkerSim;

use crate::swap::swap_binary;
use crate::world::{WAIT_MAX, World, reason_of, worker_of};

const RESPONSES: &str = "/v1/responses";
const CONVERSATIONS: usize = 50;
const TURNS: usize = 5;

/// A conversation, as its client knows it.
#[derive(Clone, Debug, Default)]
struct Conversation {
    number: usize,
    turn: usize,
    /// Name of the last response, and who made it.
    previous: Option<(String, String)>,
}

impl Conversation {
    fn all() -> Vec<Self> {
        (0..CONVERSATIONS).map(|number| Self { number, ..Self::default() }).collect()
    }

    /// Every other conversation is streamed, and every other one has its input as a list.
    fn request(&self) -> Value {
        let text = format!("Turn {} of conversation {}. {}", self.turn, self.number, "And so on. ".repeat(20));
        let items = json!([{ "role": "user", "content": [{ "type": "input_text", "text": text }] }]);
        let previous = self.previous.as_ref().map(|(name, _)| name);
        json!({
            "model": "sim", "max_output_tokens": 4, "stream": self.number % 2 == 1, "previous_response_id": previous,
            "input": if self.number % 4 < 2 { Value::from(text) } else { items },
        })
    }

    /// The next turn; the answer must come from the worker that made the one before.
    async fn go_on(mut self, client: Client) -> Result<Self> {
        let reply = client.post_json(RESPONSES, &self.request()).await?;
        let worker = worker_of(&reply).with_context(|| format!("{self:?}"))?;
        if let Some((_, before)) = &self.previous {
            ensure!(worker == *before, "{self:?} went to {worker}");
            ensure!(reason_of(&reply) == "previous_response", "{self:?}: {}", reason_of(&reply));
        }
        self.previous = Some((name_of(&reply)?, worker));
        self.turn += 1;
        Ok(self)
    }
}

/// The name of the response: in the object, or in the first event.
fn name_of(reply: &Reply) -> Result<String> {
    let text = reply.text();
    let object: Value = match text.lines().find_map(|line| line.strip_prefix("data: ")) {
        Some(event) => serde_json::from_str::<Value>(event)?["response"].take(),
        None => serde_json::from_str(&text)?,
    };
    Ok(object["id"].as_str().context("no name")?.to_owned())
}

/// One turn of all conversations at once, each through a connection of its own and so through either thread.
async fn all_go_on(world: &World, conversations: Vec<Conversation>) -> Result<Vec<Conversation>> {
    let turns: JoinSet<_> = conversations.into_iter().map(|one| one.go_on(world.client())).collect();
    turns.join_all().await.into_iter().collect()
}

async fn start(policy: &str) -> Result<World> {
    World::of(4).plugin(json!({ "policy": policy, "responseHeaders": true })).start().await
}

#[tokio::test]
async fn no_turn_is_answered_404_whatever_the_policy() -> Result<()> {
    for policy in ["round-robin", "least-load", "hybrid"] {
        let world = start(policy).await?;
        let mut conversations = Conversation::all();
        for _ in 0..TURNS {
            conversations = all_go_on(&world, conversations).await.context(policy)?;
        }
        let workers: BTreeSet<_> =
            conversations.iter().map(|one| one.previous.clone().map(|(_, worker)| worker)).collect();
        assert!(workers.len() >= 3, "{policy}: the conversations are spread: {workers:?}");
        let follow_ups = CONVERSATIONS * (TURNS - 1);
        assert_eq!(world.count("decision_previous_response_total").await?, follow_ups as u64, "{policy}");
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn another_binary_knows_who_holds_what() -> Result<()> {
    let world = start("round-robin").await?;
    let mut conversations = all_go_on(&world, Conversation::all()).await?;
    for name in ["second", "third"] {
        swap_binary(&world, name).await?;
        conversations = all_go_on(&world, conversations).await.context(name)?;
    }
    assert_eq!(world.count("page_newer_total").await?, 0);
    world.end().await
}

#[tokio::test]
async fn where_the_holder_is_down_another_is_asked_and_its_404_reaches_the_client() -> Result<()> {
    let mut world = start("round-robin").await?;
    let mut conversations = all_go_on(&world, Conversation::all()).await?;
    let (_, gone) = conversations[0].previous.clone().context("no response")?;
    let place = world.workers.iter().position(|worker| worker.addr().to_string() == gone).context("who is it?")?;
    world.workers[place].stop().await;
    let (lost, kept): (Vec<_>, Vec<_>) =
        conversations.drain(..).partition(|one| one.previous.as_ref().is_some_and(|(_, worker)| *worker == gone));
    // Before anybody has noticed, and after.
    for round in 0..3 {
        for conversation in &lost {
            let reply = world.client().post_json(RESPONSES, &conversation.request()).await?;
            assert_eq!(reply.status, 404, "round {round}: {}", reply.text());
            assert!(reply.header("x-worker").is_some_and(|worker| worker != gone), "round {round}");
        }
        world.wait_scrapes(2).await?;
    }
    let kept = all_go_on(&world, kept).await?;

    // The holder comes back without what it held, and what it makes from now on is found.
    let address = world.workers[place].addr();
    world.workers[place].start_at(address)?;
    world.wait_gauge("known_workers", 4).await?;
    for conversation in &lost {
        let reply = world.client().post_json(RESPONSES, &conversation.request()).await?;
        assert_eq!(reply.status, 404, "{}", reply.text());
    }
    let served = |worker: &WorkerSim| worker.stats().recent.iter().filter(|record| record.status == 200).count();
    let before = served(&world.workers[place]);
    let mut conversations = all_go_on(&world, kept).await?;
    // It has failed requests, so it is left alone for some seconds, and then tried again, with new conversations.
    let deadline = Instant::now() + WAIT_MAX;
    while served(&world.workers[place]) == before {
        assert!(Instant::now() < deadline, "it is used again");
        conversations = all_go_on(&world, Conversation::all()).await?;
    }
    all_go_on(&world, conversations).await?;
    world.end().await
}
