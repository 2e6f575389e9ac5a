//! The worker that served a conversation serves its next turn, as long as it still has the cache of it.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use warmroute_harness::client::Reply;
use worker_sim::SimConfig;

use crate::world::{CHAT, World, chat, instant, reason_of, worker_of};

const CONVERSATIONS: usize = 16;

/// Reports would be of no use here: see [`crate::world::Setup::plugin`].
fn unscraped() -> Value {
    json!({ "responseHeaders": true, "poll": {} })
}

/// How an answer is asked for.
#[derive(Clone, Copy, Debug)]
enum Form {
    Whole,
    Streamed { usage: bool },
}

/// One turn of a conversation that has nothing in common with others, some 700 tokens in the first turn.
fn turn(conversation: usize, number: usize, form: Form) -> Value {
    let system = format!("Conversation {conversation}. {}", "These rules are its own and of nobody else. ".repeat(60));
    let turns: Vec<String> = (0..=2 * number).map(|turn| format!("message {turn} of {conversation}")).collect();
    let mut request = chat(&system, &turns.iter().map(String::as_str).collect::<Vec<_>>());
    if let Form::Streamed { usage } = form {
        request["stream"] = true.into();
        request["stream_options"] = json!({ "include_usage": usage });
    }
    request
}

async fn ask(world: &World, request: &Value) -> Result<Reply> {
    let reply = world.client().post_json(CHAT, request).await?;
    ensure!(reply.status == 200, "status {}: {}", reply.status, reply.text());
    Ok(reply)
}

/// Two turns of each conversation, all first turns before all second ones; each second turn must find its worker.
async fn converse(world: &World, form: impl Fn(usize) -> Form) -> Result<()> {
    let mut served = Vec::new();
    for conversation in 0..CONVERSATIONS {
        let reply = ask(world, &turn(conversation, 0, form(conversation))).await?;
        ensure!(reason_of(&reply) == "cold", "conversation {conversation}: {}", reason_of(&reply));
        served.push(worker_of(&reply)?);
    }
    for (conversation, worker) in served.iter().enumerate() {
        let reply = ask(world, &turn(conversation, 1, form(conversation))).await?;
        let told = (worker_of(&reply)?, reason_of(&reply).to_owned());
        ensure!(told == (worker.clone(), "warm".to_owned()), "conversation {conversation}: {told:?}, not {worker}");
    }
    Ok(())
}

/// Prompt tokens that the engines found in their caches.
fn cached_tokens(world: &World) -> u64 {
    world.stats().iter().map(|stats| stats.cached_tokens).sum()
}

async fn counted(world: &World) -> Result<(u64, u64)> {
    Ok((world.count("predicted_cached_tokens_total").await?, world.count("cached_tokens_total").await?))
}

#[tokio::test]
async fn the_next_turn_finds_its_cache_and_what_was_predicted_comes_true() -> Result<()> {
    let world = World::of(4).plugin(unscraped()).start().await?;
    let form = |conversation| if conversation % 2 == 0 { Form::Whole } else { Form::Streamed { usage: true } };
    converse(&world, form).await?;
    // Each second turn had some 700 tokens of its first in the cache.
    let cached = cached_tokens(&world);
    assert!(cached > 600 * CONVERSATIONS as u64, "{cached}");
    world.wait_count("cached_tokens_total", cached).await?;
    let (predicted, counted) = counted(&world).await?;
    assert_eq!(counted, cached, "each answer's usage is read, whole or streamed");
    // The index knows blocks of 64 tokens, the engine such of 16.
    assert!(predicted.abs_diff(counted) <= 80 * CONVERSATIONS as u64, "{predicted} predicted, {counted} cached");
    assert_eq!(world.count("decision_warm_total").await?, CONVERSATIONS as u64);
    world.end().await
}

#[tokio::test]
async fn engines_that_tell_no_cached_tokens_lose_nothing() -> Result<()> {
    let engines = [
        (SimConfig { no_prompt_tokens_details: true, ..instant() }, Form::Whole),
        (SimConfig { no_prompt_tokens_details: true, ..instant() }, Form::Streamed { usage: true }),
        (instant(), Form::Streamed { usage: false }),
    ];
    for (sim, form) in engines {
        let world = World::of(4).sim(&sim).plugin(unscraped()).start().await?;
        converse(&world, |_| form).await?;
        assert!(cached_tokens(&world) > 600 * CONVERSATIONS as u64, "{form:?}");
        assert_eq!(counted(&world).await?, (0, 0), "{form:?}: nothing was told, so nothing is compared");
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_engine_that_tells_hits_only_is_read_as_none_where_it_is_silent() -> Result<()> {
    let sim = SimConfig { omit_zero_cached_tokens: true, ..instant() };
    let world = World::of(4).sim(&sim).plugin(unscraped()).start().await?;
    converse(&world, |_| Form::Whole).await?;
    let cached = cached_tokens(&world);
    assert_eq!(world.wait_count("cached_tokens_total", cached).await?, cached);
    world.end().await
}

#[tokio::test]
async fn a_worker_that_restarted_in_place_is_not_believed_to_be_warm() -> Result<()> {
    let world = World::of(4).plugin(json!({ "responseHeaders": true })).start().await?;
    let mut homes = Vec::new();
    for conversation in 0..CONVERSATIONS {
        homes.push(worker_of(&ask(&world, &turn(conversation, 0, Form::Whole)).await?)?);
    }
    // Each request that is looked at closely comes to a pool that all reports show idle.
    world.wait_scrapes(2).await?;
    let reply = ask(&world, &turn(0, 1, Form::Whole)).await?;
    assert_eq!((worker_of(&reply)?, reason_of(&reply)), (homes[0].clone(), "warm"));

    let restarted = world.workers.iter().find(|worker| worker.addr().to_string() == homes[0]);
    restarted.context("a worker of another world")?.restart();
    world.wait_scrapes(3).await?;
    // The same prompt again: its cache is gone, and nobody else ever had it.
    let before = cached_tokens(&world);
    assert_eq!(reason_of(&ask(&world, &turn(0, 1, Form::Whole)).await?), "cold");
    assert_eq!(cached_tokens(&world), before);
    world.wait_scrapes(2).await?;
    assert_eq!(reason_of(&ask(&world, &turn(0, 1, Form::Whole)).await?), "warm", "and is built again");

    let other = homes.iter().position(|home| *home != homes[0]).context("all are at one worker")?;
    world.wait_scrapes(2).await?;
    let reply = ask(&world, &turn(other, 1, Form::Whole)).await?;
    assert_eq!((worker_of(&reply)?, reason_of(&reply)), (homes[other].clone(), "warm"), "others lose nothing");
    world.end().await
}
