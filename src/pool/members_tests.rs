//! Tests of who is in a pool: what follows from the fleet page, who is asked for load, and whom an answer is from.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::config::{Config, HealthConfig};
use crate::worker::{Endpoint, Standing};

const NOW: Timestamp = Timestamp::from_ms(10_000_000);
const A: &str = "10.0.0.1:8000";
const B: &str = "10.0.0.2:8000";
const V6: &str = "[2001:db8::1]:8000";

fn config(pool: &str, discovery: &str) -> Config {
    let text = format!(
        r#"{{"poll": {{"cluster": "poll"}}, "discovery": {{{discovery}}}, "pools": [{{"cluster": "llm"{pool}}}]}}"#
    );
    Config::from_bytes(text.as_bytes()).unwrap()
}

fn discovered(rest: &str) -> (Pool, PollConfig) {
    let config = config(rest, r#""cluster": "admin""#);
    (Pool::configured(&config.pools[0], true, 1, 1), config.poll)
}

fn status(pool: &mut Pool) -> PoolStatus {
    let (poll, health) = (PollConfig::default(), HealthConfig::default());
    pool.status(&InflightPage::open(None).unwrap(), &Rules { poll: &poll, health: &health }, NOW)
}

fn endpoints(told: &[(&str, &str, Standing)]) -> Vec<Endpoint> {
    let endpoint = |&(address, hostname, standing): &(&str, &str, Standing)| Endpoint {
        address: address.to_owned(),
        hostname: hostname.to_owned(),
        priority: 0,
        standing,
    };
    let mut endpoints: Vec<Endpoint> = told.iter().map(endpoint).collect();
    endpoints.sort_by(|left, right| left.address.cmp(&right.address));
    endpoints
}

/// What the VM does that has asked Envoy, and what each other VM sees of it on its next tick.
fn tell(pool: &mut Pool, told: &[(&str, &str, Standing)], now: Timestamp) {
    let mut fleet = Fleet::decode(Some(&pool.fleet().encode())).unwrap();
    let endpoints = endpoints(told);
    fleet.take_in_endpoints(&endpoints, pool.admission(), now);
    pool.set_fleet(Fleet::decode(Some(&fleet.encode())).unwrap());
    pool.set_host_names(&endpoints);
}

fn addresses(pool: &Pool) -> Vec<&str> {
    pool.addresses().collect()
}

#[test]
fn a_worker_that_is_configured_to_drain_does_so_from_when_it_is_discovered() {
    let (mut pool, _) = discovered(&format!(r#", "draining": ["{V6}", "{B}"]"#));
    let healthy = |address| (address, "", Standing::Healthy);
    tell(&mut pool, &[healthy(A), healthy(B)], NOW);
    assert_eq!(status(&mut pool).draining_workers, 1);
    tell(&mut pool, &[healthy(A), healthy(B), healthy(V6)], NOW);
    assert_eq!(status(&mut pool).draining_workers, 2);
}

#[test]
fn the_workers_are_those_of_the_cluster_by_their_ids() {
    use Standing::{Degraded, Draining, Healthy, Unhealthy};
    let (mut pool, _) = discovered("");
    assert!(pool.is_discovered() && addresses(&pool).is_empty());
    tell(&mut pool, &[(B, "", Healthy)], NOW);
    tell(&mut pool, &[(A, "", Unhealthy), (B, "", Draining), (V6, "", Degraded)], NOW.plus_ms(1));
    assert_eq!(addresses(&pool), [B, A, V6]);
    tell(&mut pool, &[(A, "", Healthy), (V6, "", Healthy)], NOW.plus_ms(2));
    assert_eq!(addresses(&pool), [A, V6]);
    tell(&mut pool, &[], NOW.plus_ms(3));
    assert_eq!(addresses(&pool), [] as [&str; 0]);
    // What they were sent before they answer still.
    assert_eq!([A, B, V6].map(|address| pool.find(address)), [1, 0, 2].map(|id| Some(WorkerId(id))));
    assert_eq!(status(&mut pool).workers, 0);
    tell(&mut pool, &[(B, "", Healthy)], NOW.plus_ms(4));
    assert_eq!(status(&mut pool).workers, 1);
}

#[test]
fn what_is_in_flight_at_a_worker_that_left_is_counted_until_it_ends() {
    let (mut pool, _) = discovered("");
    tell(&mut pool, &[(A, "", Standing::Healthy), (B, "", Standing::Healthy)], NOW);
    let request = Held { requests: 1, ..Held::default() };
    pool.hold(WorkerId(0), request);
    tell(&mut pool, &[(B, "", Standing::Healthy)], NOW.plus_ms(1));
    assert_eq!(status(&mut pool).requests, 1);
    pool.release(WorkerId(0), request);
    assert_eq!(status(&mut pool).requests, 0);
}

#[test]
fn a_vm_that_begins_finds_the_workers_in_the_page() {
    let (mut first, _) = discovered("");
    tell(&mut first, &[(A, "", Standing::Healthy), (B, "", Standing::Unhealthy)], NOW);
    let (mut second, _) = discovered("");
    let mut fleet = Fleet::decode(Some(&first.fleet().encode())).unwrap();
    second.admit_to(&mut fleet, NOW.plus_ms(10_000));
    second.set_fleet(fleet);
    assert_eq!(addresses(&second), [A, B]);
    assert_eq!(second.find(B), first.find(B));
}

#[test]
fn listed_workers_stay_whatever_the_cluster_has_and_stand_as_envoy_says() {
    let list = format!(r#", "workers": [{{"address": "{A}"}}, {{"address": "{V6}"}}]"#);
    let standings = |is_told: bool| {
        let config = config(&list, r#""cluster": "admin""#);
        let mut pool = Pool::configured(&config.pools[0], is_told, 1, 1);
        let mut fleet = Fleet::default();
        assert!(pool.admit_to(&mut fleet, NOW));
        pool.set_fleet(fleet);
        tell(&mut pool, &[(B, "", Standing::Healthy), (V6, "", Standing::Unhealthy)], NOW);
        assert_eq!((addresses(&pool), pool.find(B)), (vec![A, V6], None));
        [A, V6].map(|address| pool.fleet().worker(pool.find(address).unwrap()).unwrap().standing)
    };
    assert_eq!(standings(true), [Standing::Gone, Standing::Unhealthy]);
    // What an earlier configuration was told counts for nothing where Envoy is not asked.
    assert_eq!(standings(false), [Standing::Untold; 2]);
}

#[test]
fn scrapes_ask_at_the_port_of_metrics_and_by_the_hosts_name() {
    let (mut pool, poll) = discovered(r#", "metrics": {"port": 9000}"#);
    tell(&mut pool, &[(A, "vllm-0", Standing::Healthy), (V6, "", Standing::Healthy)], NOW);
    let target = |worker, address, authority| Some(PollTarget { worker, address, authority, path: "/metrics" });
    assert_eq!(pool.poll_target(0, &poll), target(A, "10.0.0.1:9000", "vllm-0"));
    let v6 = "[2001:db8::1]:9000";
    assert_eq!(pool.poll_target(1, &poll), target(V6, v6, v6));
    tell(&mut pool, &[(A, "", Standing::Healthy), (V6, "vllm-1", Standing::Healthy)], NOW.plus_ms(1));
    assert_eq!(pool.poll_target(0, &poll), target(A, "10.0.0.1:9000", "10.0.0.1:9000"));
    assert_eq!(pool.poll_target(1, &poll), target(V6, v6, "vllm-1"));
    let (mut pool, _) = discovered("");
    tell(&mut pool, &[(A, "", Standing::Healthy)], NOW);
    assert_eq!(pool.poll_target(0, &poll), target(A, A, A));
}

#[test]
fn an_answer_is_of_who_was_asked_though_the_pool_is_another_one() {
    let (mut pool, poll) = discovered("");
    let mut rng = Rng::new(1);
    tell(&mut pool, &[(A, "", Standing::Healthy), (B, "", Standing::Healthy)], NOW);
    let due = pool.due_polls(&poll, NOW, &mut rng);
    assert_eq!(due, [0]);
    let worker = pool.poll_target(0, &poll).unwrap().worker.to_owned();
    pool.polls_mut().sent(Poll { token: 7, worker, sent_at: NOW, in_flight: 0, prefilling: 0 });
    // Now B is in the first place.
    tell(&mut pool, &[(B, "", Standing::Healthy), (V6, "", Standing::Healthy)], NOW.plus_ms(1));
    assert_eq!(pool.polls_mut().answered(7).map(|poll| poll.worker).as_deref(), Some(A));
    // B keeps its time, the newcomer is asked at once.
    assert_eq!(pool.due_polls(&poll, NOW.plus_ms(2), &mut rng), [1]);
    assert_eq!(pool.due_polls(&poll, NOW.plus_ms(250), &mut rng), [0]);
}

#[test]
fn who_stays_keeps_all_that_is_known() {
    let (mut pool, _) = discovered("");
    tell(&mut pool, &[(A, "", Standing::Healthy), (B, "vllm-1", Standing::Healthy)], NOW);
    let identity = |pool: &Pool, place: usize| pool.members[place].identity;
    let of_b = identity(&pool, 1);
    tell(&mut pool, &[(B, "vllm-1", Standing::Draining)], NOW.plus_ms(1));
    assert_eq!((identity(&pool, 0), pool.members[0].id), (of_b, Some(WorkerId(1))));
    assert_eq!(of_b, Pool::new("llm", &[B.to_owned()], 1, 1).members[0].identity, "the same as if it were listed");
}
