//! Workers that no list names: found in Envoy's own clusters, added, removed and added again while requests come.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use warmroute_harness::client::{Client, Reply, body};
use warmroute_harness::config::{WORKER_CLUSTER, cluster, http_manager};
use worker_sim::{SimConfig, WorkerSim};

use crate::eds::{ADMIN_CLUSTER, Eds, endpoint};
use crate::swap::swap_binary;
use crate::world::{CHAT, Setup, WAIT_MAX, World, chat, instant, reason_of, slow, worker_of};

/// A pool whose workers are discovered, every 100 ms.
fn discovered(policy: &str) -> Value {
    json!({
        "policy": policy,
        "responseHeaders": true,
        "pools": [{ "cluster": WORKER_CLUSTER }],
        "discovery": { "cluster": ADMIN_CLUSTER, "intervalMs": 100 },
    })
}

fn world(workers: usize, eds: &Arc<Eds>, plugin: Value) -> Setup {
    World::of(workers).plugin(plugin).envoy(eds.envoy())
}

fn addresses(world: &World) -> Vec<SocketAddr> {
    world.workers.iter().map(WorkerSim::addr).collect()
}

/// All workers but one.
fn others(world: &World, gone: usize) -> Vec<SocketAddr> {
    let mut addresses = addresses(world);
    addresses.remove(gone);
    addresses
}

/// Waits until the pool has so many workers, in all threads: each ticks several times while Envoy is asked three times.
async fn wait_workers(world: &World, workers: u64) -> Result<()> {
    world.wait_gauge("workers", workers).await?;
    wait_discoveries(world, 3).await
}

async fn wait_discoveries(world: &World, count: u64) -> Result<()> {
    let before = world.count("discoveries_succeeded_total").await?;
    world.wait_count("discoveries_succeeded_total", before + count).await.map(drop)
}

async fn ask(world: &World, request: &Value) -> Result<Reply> {
    let reply = world.client().post_json(CHAT, request).await?;
    ensure!(reply.status == 200, "status {}: {}\n{}", reply.status, reply.text(), world.envoy.log_tail());
    Ok(reply)
}

/// One turn of a conversation that has nothing in common with others, some 700 tokens in the first turn.
fn turn(conversation: usize, number: usize) -> Value {
    let system = format!("Conversation {conversation}. {}", "These rules are its own and of nobody else. ".repeat(60));
    let turns: Vec<String> = (0..=2 * number).map(|turn| format!("message {turn} of {conversation}")).collect();
    chat(&system, &turns.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Conversations that grow until they are stopped, each of a client of its own; each request must be decided and served.
struct Load {
    stop: Arc<AtomicBool>,
    clients: JoinSet<Result<u64>>,
}

impl Load {
    fn start(world: &World, clients: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |number| Self::client(world.client(), number, Arc::clone(&stop));
        let clients = (0..clients).map(client).collect();
        Self { stop, clients }
    }

    async fn client(client: Client, number: usize, stop: Arc<AtomicBool>) -> Result<u64> {
        let mut served = 0;
        while !stop.load(Ordering::Relaxed) {
            let (conversation, turns) = (1_000 * number + served / 12, served % 12);
            let reply = client.post_json(CHAT, &turn(conversation, turns)).await;
            let reply = reply.with_context(|| format!("client {number} after {served} requests"))?;
            ensure!(reply.status == 200, "status {} after {served} requests: {}", reply.status, reply.text());
            ensure!(reply.header("x-warmroute-picks").is_some(), "not decided after {served} requests");
            served += 1;
            sleep(Duration::from_millis(2)).await;
        }
        Ok(served as u64)
    }

    /// Ends the load; how many requests there were. An error if one of them failed.
    async fn stop(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let mut served = 0;
        while let Some(client) = self.clients.join_next().await {
            served += client??;
        }
        Ok(served)
    }
}

#[tokio::test]
async fn the_workers_are_those_of_the_cluster() -> Result<()> {
    let eds = Eds::new()?;
    let world = world(3, &eds, discovered("round-robin")).start().await?;
    wait_workers(&world, 3).await?;
    world.wait_gauge("known_workers", 3).await?;
    let before = world.served();
    for _ in 0..12 {
        ask(&world, &chat("s", &["hello"])).await?;
    }
    let served: Vec<u64> = world.served().iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(served, [4, 4, 4]);
    assert_eq!(world.count("workers_added_total").await?, 3);
    assert_eq!(world.count("answered_first_pick_total").await?, 12);
    assert_eq!(world.count("discoveries_failed_total").await?, 0);

    // Envoy itself passes over whom it does not have: so the picks are looked at, and not only who is asked.
    eds.put_workers(others(&world, 1))?;
    wait_workers(&world, 2).await?;
    let gone = addresses(&world)[1].to_string();
    for _ in 0..12 {
        let reply = ask(&world, &chat("s", &["hello"])).await?;
        let picks = reply.header("x-warmroute-picks").context("no picks are told")?;
        assert!(!picks.contains(&gone) && picks.contains(','), "{gone} is among {picks}");
    }
    world.end().await
}

#[tokio::test]
async fn workers_that_come_go_and_come_back_cost_no_request() -> Result<()> {
    const ROUNDS: usize = 8;
    let eds = Eds::new()?;
    let world = world(4, &eds, discovered("hybrid")).sim(&slow(2)).start().await?;
    wait_workers(&world, 4).await?;
    let load = Load::start(&world, 8);
    for round in 0..ROUNDS {
        eds.put_workers(others(&world, round % 4))?;
        world.wait_gauge("workers", 3).await?;
        eds.put_workers(addresses(&world))?;
        world.wait_gauge("workers", 4).await?;
    }
    // And all but one at once.
    eds.put_workers(addresses(&world).into_iter().take(1))?;
    wait_workers(&world, 1).await?;
    let before = world.served();
    world.wait_count("routed_total", world.count("routed_total").await? + 50).await?;
    assert_eq!(world.served()[1..], before[1..], "who left the cluster gets no more");
    eds.put_workers(addresses(&world))?;
    world.wait_gauge("workers", 4).await?;
    let served = load.stop().await?;
    assert!(served > 200, "{served} requests are no load");
    let rounds = ROUNDS as u64;
    assert_eq!(world.count("workers_added_total").await?, 4 + rounds + 3);
    assert_eq!(world.count("workers_removed_total").await?, rounds + 3);
    assert_eq!(world.count("unrouted_no_workers_total").await?, 0);
    world.end().await
}

#[tokio::test]
async fn who_comes_back_is_not_believed_warm_and_the_others_are() -> Result<()> {
    const CONVERSATIONS: usize = 16;
    let eds = Eds::new()?;
    let mut plugin = discovered("hybrid");
    // A scrape may show a short request as somebody else's; here all are to be idle.
    plugin["poll"] = json!({});
    let world = world(4, &eds, plugin).start().await?;
    wait_workers(&world, 4).await?;
    let mut homes = Vec::new();
    for conversation in 0..CONVERSATIONS {
        homes.push(worker_of(&ask(&world, &turn(conversation, 0)).await?)?);
    }
    let gone = world.workers.iter().position(|worker| worker.addr().to_string() == homes[0]).context("a worker")?;
    eds.put_workers(others(&world, gone))?;
    world.wait_gauge("workers", 3).await?;
    eds.put_workers(addresses(&world))?;
    wait_workers(&world, 4).await?;
    assert!(homes.iter().any(|home| *home != homes[0]), "one worker has all conversations");
    for (conversation, home) in homes.iter().enumerate() {
        let reply = ask(&world, &turn(conversation, 1)).await?;
        if *home == homes[0] {
            assert_eq!(reason_of(&reply), "cold", "conversation {conversation} of the one that was gone");
        } else {
            assert_eq!((worker_of(&reply)?, reason_of(&reply)), (home.clone(), "warm"), "conversation {conversation}");
        }
    }
    world.end().await
}

#[tokio::test]
async fn the_stream_of_a_worker_that_left_finishes() -> Result<()> {
    let eds = Eds::new()?;
    let world = world(3, &eds, discovered("round-robin")).sim(&slow(10)).start().await?;
    wait_workers(&world, 3).await?;
    let mut request = chat("system", &["go on"]);
    (request["stream"], request["max_tokens"]) = (true.into(), 400.into());
    let headers = [("content-type", "application/json")];
    let mut stream = world.client().open("POST", CHAT, &headers, body(request.to_string())).await?;
    stream.next().await?;
    let gone = world.workers.iter().position(|worker| worker.stats().running == 1).context("who has the stream")?;
    eds.put_workers(others(&world, gone))?;
    wait_workers(&world, 2).await?;
    let served = world.served()[gone];
    for _ in 0..10 {
        ask(&world, &chat("s", &["hello"])).await?;
    }
    assert_eq!(world.served()[gone], served, "it gets nothing new");
    assert_eq!(world.workers[gone].stats().running, 1, "and goes on with what it has");
    world.wait_gauge("inflight_requests", 1).await?;
    assert!(stream.finish().await?.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(world.count("answered_other_total").await?, 0);
    world.end().await
}

#[tokio::test]
async fn a_request_whose_worker_has_just_left_goes_to_the_next_pick() -> Result<()> {
    let eds = Eds::new()?;
    let mut plugin = discovered("prefix-hash");
    // Asked once: after that the plugin does not know what the test does to the cluster.
    plugin["discovery"]["intervalMs"] = 60_000.into();
    let world = world(3, &eds, plugin).start().await?;
    world.wait_gauge("workers", 3).await?;
    world.wait_scrapes(2).await?;
    let request = chat("the system", &["hello"]);
    let home = worker_of(&ask(&world, &request).await?)?;
    let gone = world.workers.iter().position(|worker| worker.addr().to_string() == home).context("a worker")?;
    eds.put_workers(others(&world, gone))?;
    let clusters = format!("cluster.{WORKER_CLUSTER}.membership_total");
    let deadline = Instant::now() + WAIT_MAX;
    while world.envoy.stat(&clusters).await? != 2 {
        ensure!(Instant::now() < deadline, "Envoy does not take the file");
    }
    for _ in 0..20 {
        let reply = ask(&world, &request).await?;
        assert_ne!(worker_of(&reply)?, home);
    }
    // It is picked first all the same, until that has failed three times.
    assert!(world.count("answered_later_pick_total").await? >= 3);
    world.end().await
}

#[tokio::test]
async fn names_are_resolved_by_envoy() -> Result<()> {
    for host in ["127.0.0.1", "localhost"] {
        let eds = Eds::new()?;
        let with_admin = eds.admin_envoy();
        let by_name = move |bootstrap: &mut Value| {
            let Some(workers) = cluster(bootstrap, WORKER_CLUSTER) else { return };
            (workers["type"], workers["dns_lookup_family"]) = ("STRICT_DNS".into(), "V4_ONLY".into());
            let endpoints = workers["load_assignment"]["endpoints"][0]["lb_endpoints"].as_array_mut();
            for endpoint in endpoints.into_iter().flatten() {
                endpoint["endpoint"]["address"]["socket_address"]["address"] = host.into();
            }
        };
        let setup = World::of(2).plugin(discovered("round-robin"));
        let world = setup.envoy(move |envoy| with_admin(envoy).edit(by_name)).start().await?;
        wait_workers(&world, 2).await?;
        for _ in 0..4 {
            ask(&world, &chat("s", &["hello"])).await?;
        }
        assert_eq!(world.served(), [2, 2], "{host}");
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn workers_may_have_addresses_of_either_family() -> Result<()> {
    let eds = Eds::new()?;
    let v6 = WorkerSim::start(SimConfig { addr: "[::1]:0".parse()?, ..instant() })?;
    let world = world(1, &eds, discovered("round-robin")).start().await?;
    eds.put_workers([addresses(&world)[0], v6.addr()])?;
    wait_workers(&world, 2).await?;
    world.wait_gauge("known_workers", 2).await?;
    let before = [world.served()[0], v6.stats().requests];
    for _ in 0..8 {
        ask(&world, &chat("s", &["hello"])).await?;
    }
    assert_eq!([world.served()[0] - before[0], v6.stats().requests - before[1]], [4, 4]);
    assert_eq!(world.count("answered_other_total").await?, 0);
    world.end().await
}

#[tokio::test]
async fn each_pool_has_the_workers_of_its_cluster_and_other_clusters_are_left_alone() -> Result<()> {
    const CODE: &str = "outbound|8000||code.models.svc.cluster.local";
    let eds = Eds::new()?;
    let mut plugin = discovered("round-robin");
    plugin["pools"] = json!([{ "cluster": WORKER_CLUSTER }, { "cluster": CODE }]);
    let (config, files) = (eds.envoy(), Arc::clone(&eds));
    let more = move |bootstrap: &mut Value| {
        let Some(workers) = cluster(bootstrap, WORKER_CLUSTER).map(|workers| workers.clone()) else { return };
        for name in [CODE, "nobodys"] {
            let mut more = workers.clone();
            more["name"] = name.into();
            files.make_eds(&mut more);
            files.put(name, &[]).expect("a file");
            bootstrap["static_resources"]["clusters"].as_array_mut().expect("a list").push(more);
        }
        let routes = &mut http_manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"];
        let default = routes[0].clone();
        let by_header =
            |name: &str| json!({ "prefix": "/", "headers": [{ "name": "x-pool", "string_match": { "exact": name } }] });
        let to = |name: &str| json!({ "match": by_header(name), "route": { "cluster": name } });
        *routes = json!([to(CODE), to("nobodys"), default]);
    };
    let world = World::of(4).plugin(plugin).envoy(|envoy| config(envoy).edit(more)).start().await?;
    let at = addresses(&world);
    eds.put_workers(at[..2].to_vec())?;
    eds.put(CODE, &[endpoint(at[2]), endpoint(at[3])])?;
    eds.put("nobodys", &[endpoint(at[0])])?;
    wait_workers(&world, 2).await?;
    let code = format!("wasmcustom.warmroute_pool.{CODE}.workers");
    world.envoy.wait_stat(&code, 2, WAIT_MAX).await?;
    wait_discoveries(&world, 3).await?;
    let client = world.client();
    let before = world.served();
    for pool in [WORKER_CLUSTER, CODE] {
        for _ in 0..4 {
            let reply = client.post(CHAT, &[("x-pool", pool)], chat("s", &["hello"]).to_string()).await?;
            assert_eq!((reply.status, reply.header("x-warmroute-picks").is_some()), (200, true), "{pool}");
        }
    }
    let served: Vec<u64> = world.served().iter().zip(&before).map(|(after, before)| after - before).collect();
    assert_eq!(served, [2, 2, 2, 2]);
    let requests = world.count("requests_total").await?;
    let reply = client.post(CHAT, &[("x-pool", "nobodys")], chat("s", &["hello"]).to_string()).await?;
    assert_eq!((reply.status, reply.header("x-warmroute-picks")), (200, None));
    assert_eq!(world.count("requests_total").await?, requests, "an unknown cluster is not ours");
    world.end().await
}

#[tokio::test]
async fn workers_that_envoy_takes_for_ill_stay_in_the_pool_and_get_nothing_new() -> Result<()> {
    let eds = Eds::new()?;
    let world = world(3, &eds, discovered("round-robin")).start().await?;
    wait_workers(&world, 3).await?;
    let at = addresses(&world);
    let flagged = |address: SocketAddr, health: &str| {
        let mut endpoint = endpoint(address);
        endpoint["health_status"] = health.into();
        endpoint
    };
    eds.put(WORKER_CLUSTER, &[endpoint(at[0]), flagged(at[1], "UNHEALTHY"), flagged(at[2], "DRAINING")])?;
    wait_workers(&world, 3).await?;
    assert_eq!(world.count("workers_removed_total").await?, 0);
    world.wait_gauge("draining_workers", 1).await?;
    world.wait_gauge("available_workers", 1).await?;
    // Each thread has it with its next tick.
    world.wait_scrapes(2).await?;
    let before = world.served();
    for _ in 0..6 {
        ask(&world, &chat("s", &["hello"])).await?;
    }
    assert_eq!(world.served()[1..], before[1..]);
    world.end().await
}

#[tokio::test]
async fn while_the_admin_endpoint_is_away_what_was_known_goes_on_to_count() -> Result<()> {
    let eds = Eds::new()?;
    let world = world(3, &eds, discovered("round-robin")).start().await?;
    wait_workers(&world, 3).await?;
    let load = Load::start(&world, 2);
    // Somebody answers who has no such page: that tells nothing.
    eds.put(ADMIN_CLUSTER, &[endpoint(addresses(&world)[0])])?;
    world.envoy.wait_stat(&format!("cluster.{ADMIN_CLUSTER}.membership_change"), 2, WAIT_MAX).await?;
    let failed = world.count("discoveries_failed_total").await?;
    world.wait_count("discoveries_failed_total", failed + 3).await?;
    assert_eq!(world.gauge("workers").await?, 3);
    // Nobody answers.
    let nobody = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    eds.put(ADMIN_CLUSTER, &[endpoint(nobody)])?;
    let failed = world.count("discoveries_failed_total").await?;
    world.wait_count("discoveries_failed_total", failed + 3).await?;
    assert_eq!(world.gauge("workers").await?, 3);
    eds.put_workers(others(&world, 0))?;
    let failed = world.count("discoveries_failed_total").await?;
    world.wait_count("discoveries_failed_total", failed + 3).await?;
    assert_eq!(world.gauge("workers").await?, 3, "nobody told of it");
    eds.put(ADMIN_CLUSTER, &[endpoint(eds.admin())])?;
    world.wait_gauge("workers", 2).await?;
    assert!(load.stop().await? > 0);
    assert_eq!(world.envoy.log().matches("discovery fails").count(), 1, "told once:\n{}", world.envoy.log());
    world.end().await
}

#[tokio::test]
async fn an_empty_cluster_is_filled_and_emptied_again() -> Result<()> {
    let eds = Eds::new()?;
    let (config, files) = (eds.envoy(), Arc::clone(&eds));
    let empty = move |_: &mut Value| files.put(WORKER_CLUSTER, &[]).expect("a file");
    let world = World::of(2).plugin(discovered("least-load")).envoy(|envoy| config(envoy).edit(empty)).start().await?;
    world.wait_count("discoveries_succeeded_total", 2).await?;
    let reply = world.client().post_json(CHAT, &chat("s", &["hello"])).await?;
    assert_eq!(reply.status, 503, "Envoy has nobody to send it to");
    assert_eq!(world.count("unrouted_no_workers_total").await?, 1);
    for _ in 0..2 {
        eds.put_workers(addresses(&world))?;
        wait_workers(&world, 2).await?;
        let reply = ask(&world, &chat("s", &["hello"])).await?;
        assert!(reply.header("x-warmroute-picks").is_some());
        eds.put_workers([])?;
        wait_workers(&world, 0).await?;
    }
    eds.put_workers(addresses(&world))?;
    wait_workers(&world, 2).await?;
    world.end().await
}

#[tokio::test]
async fn another_binary_has_the_workers_from_its_first_request_on() -> Result<()> {
    let eds = Eds::new()?;
    let mut plugin = discovered("hybrid");
    // What the new binary knows at first is what the old one left it.
    plugin["discovery"]["intervalMs"] = 5_000.into();
    let world = world(3, &eds, plugin).start().await?;
    world.wait_gauge("workers", 3).await?;
    world.wait_scrapes(2).await?;
    let load = Load::start(&world, 4);
    for name in ["second", "third"] {
        swap_binary(&world, name).await?;
        world.wait_scrapes(2).await?;
    }
    assert!(load.stop().await? > 0);
    assert_eq!(world.count("workers_removed_total").await?, 0);
    world.end().await
}
