//! Tests of what the fleet makes of Envoy's cluster: ids, lives, rows that are given up, and what lists do meanwhile.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::rng::Rng;
use crate::worker::Endpoint;

const NOW: Timestamp = Timestamp::from_ms(10_000_000);
const A: &str = "10.0.0.1:8000";
const B: &str = "10.0.0.2:8000";
const C: &str = "[2001:db8::1]:8000";

fn healthy(addresses: &[&str]) -> Vec<Endpoint> {
    let endpoint = |address: &&str| Endpoint {
        address: (*address).to_owned(),
        hostname: String::new(),
        priority: 0,
        standing: Standing::Healthy,
    };
    let mut endpoints: Vec<Endpoint> = addresses.iter().map(endpoint).collect();
    endpoints.sort_by(|left, right| left.address.cmp(&right.address));
    endpoints
}

fn discover(fleet: &mut Fleet, addresses: &[&str], ms: u64) -> EndpointChanges {
    let changes = fleet.take_in_endpoints(&healthy(addresses), Admission::All, NOW.plus_ms(ms));
    *fleet = Fleet::decode(Some(&fleet.encode())).unwrap();
    changes
}

/// Id, standing and generation of an address.
fn row(fleet: &Fleet, address: &str) -> (u16, Standing, u32) {
    let id = fleet.find(address).unwrap();
    let worker = fleet.worker(id).unwrap();
    (id.0, worker.standing, worker.generation)
}

fn report(ms: u64) -> DatedReport {
    DatedReport { taken_at: NOW.plus_ms(ms), report: LoadReport { waiting: Some(1.0), ..LoadReport::default() } }
}

#[test]
fn workers_come_go_and_come_back_under_their_ids_and_in_another_life() {
    let mut fleet = Fleet::default();
    assert_eq!(
        discover(&mut fleet, &[A, B, C], 0),
        EndpointChanges { added: 3, is_changed: true, ..EndpointChanges::default() }
    );
    assert!(!discover(&mut fleet, &[A, B, C], 1_000).is_changed, "nothing new is nothing to write");
    fleet.record_report(B, report(1_000), 2, 1);
    let removal = discover(&mut fleet, &[A, C], 2_000);
    assert_eq!((removal.added, removal.removed, removal.is_changed), (0, 1, true));
    assert_eq!(row(&fleet, B), (1, Standing::Gone, 1));
    assert_eq!(fleet.worker(WorkerId(1)).unwrap().report, None);
    assert!(!discover(&mut fleet, &[A, C], 3_000).is_changed);
    // Within a second, and another one takes no row of it.
    let back = discover(&mut fleet, &["10.0.0.9:1", A, B, C], 3_500);
    assert_eq!((back.added, back.removed), (2, 0));
    assert_eq!(
        [A, B, C].map(|address| row(&fleet, address)),
        [(0, Standing::Healthy, 0), (1, Standing::Healthy, 1), (2, Standing::Healthy, 0)]
    );
    assert_eq!(row(&fleet, "10.0.0.9:1").0, 3);
}

#[test]
fn an_empty_cluster_has_no_workers_and_all_come_back() {
    let mut fleet = Fleet::default();
    discover(&mut fleet, &[A, B], 0);
    assert_eq!(discover(&mut fleet, &[], 1_000).removed, 2);
    assert!(fleet.workers().all(|worker| worker.standing == Standing::Gone));
    assert_eq!(discover(&mut fleet, &[B, A], 2_000).added, 2);
    assert_eq!((row(&fleet, A), row(&fleet, B)), ((0, Standing::Healthy, 1), (1, Standing::Healthy, 1)));
}

#[test]
fn a_new_standing_priority_or_name_is_no_new_life() {
    let mut fleet = Fleet::default();
    discover(&mut fleet, &[A], 0);
    fleet.record_report(A, report(0), 0, 0);
    for (standing, priority, hostname) in
        [(Standing::Unhealthy, 0, ""), (Standing::Draining, 2, "vllm-0"), (Standing::Healthy, 0, "VLLM-0")]
    {
        let told = [Endpoint { address: A.to_owned(), hostname: hostname.to_owned(), priority, standing }];
        let changes = fleet.take_in_endpoints(&told, Admission::All, NOW.plus_ms(1));
        assert_eq!(changes, EndpointChanges { is_changed: true, ..EndpointChanges::default() });
        let worker = Fleet::decode(Some(&fleet.encode())).unwrap().worker(WorkerId(0)).unwrap().clone();
        let is = (worker.standing, worker.priority, worker.name_hash, worker.generation);
        assert_eq!(is, (standing, priority, Endpoint::name_hash(hostname), 0));
        assert!(worker.report.is_some());
    }
    assert_eq!(fleet.worker(WorkerId(0)).unwrap().name_hash, Endpoint::name_hash("vllm-0"));
}

#[test]
fn a_list_keeps_its_rows_and_gets_none_for_what_the_cluster_has_beside() {
    let mut fleet = Fleet::default();
    fleet.admit([A, B].into_iter(), NOW);
    let changes = fleet.take_in_endpoints(&healthy(&[A, C]), Admission::Known, NOW.plus_ms(1));
    assert_eq!((changes.added, changes.removed, changes.left_out), (1, 0, 0));
    assert_eq!((row(&fleet, A), row(&fleet, B)), ((0, Standing::Healthy, 0), (1, Standing::Gone, 1)));
    assert_eq!(fleet.find(C), None);
    // An old configuration that still lists both changes nothing of that, however long it goes on.
    for second in 0..1_000 {
        fleet.admit([A, B].into_iter(), NOW.plus_ms(second * 1_000));
        if second % 10 == 0 {
            fleet.take_in_endpoints(&healthy(&[A]), Admission::Known, NOW.plus_ms(second * 1_000));
        }
    }
    assert_eq!((row(&fleet, A), row(&fleet, B)), ((0, Standing::Healthy, 0), (1, Standing::Gone, 1)));
}

#[test]
fn workers_stay_while_envoy_does_not_answer() {
    let mut fleet = Fleet::default();
    discover(&mut fleet, &[A, B], 0);
    discover(&mut fleet, &[A], 1_000);
    for second in (10..3_600).step_by(10) {
        fleet.admit_told(NOW.plus_ms(second * 1_000));
    }
    discover(&mut fleet, &[C, A], 3_600_000);
    // The one that left long ago has given its row to the newcomer.
    assert_eq!((row(&fleet, A), row(&fleet, C)), ((0, Standing::Healthy, 0), (1, Standing::Healthy, 2)));
    assert_eq!((fleet.find(B), fleet.len()), (None, 2));
}

#[test]
fn a_pool_that_nobody_had_for_long_is_taken_for_new_and_keeps_its_workers() {
    let mut fleet = Fleet::default();
    discover(&mut fleet, &[A], 0);
    assert!(fleet.admit_told(NOW.plus_ms(RECLAIM_MS)));
    assert_eq!(row(&fleet, A), (0, Standing::Healthy, 1));
    let mut fleet = Fleet::default();
    discover(&mut fleet, &[A], 0);
    discover(&mut fleet, &[A], RECLAIM_MS);
    assert_eq!(row(&fleet, A), (0, Standing::Healthy, 1));
}

#[test]
fn a_roll_out_of_a_large_pool_finds_room() {
    let pods = |from: usize, count: usize| -> Vec<String> {
        (from..from + count).map(|pod| format!("10.{}.{}.{}:8000", pod / 65_536, pod / 256 % 256, pod % 256)).collect()
    };
    let take = |fleet: &mut Fleet, addresses: &[String], ms: u64| {
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        discover(fleet, &addresses, ms)
    };
    let mut fleet = Fleet::default();
    assert_eq!(take(&mut fleet, &pods(0, WORKERS_MAX), 0).added, 512);
    // Every second a tenth is replaced, one pod a second time over.
    for step in 1..40 {
        let changes = take(&mut fleet, &pods(step * 51, WORKERS_MAX), step as u64 * 1_000);
        assert_eq!((changes.added, changes.removed, changes.left_out), (51, 51, 0), "{step}");
    }
    assert_eq!(fleet.len(), WORKERS_MAX);
    let changes = take(&mut fleet, &pods(39 * 51, WORKERS_MAX + 7), 40_000);
    assert_eq!((changes.added, changes.removed, changes.left_out), (0, 0, 7));
    let changes = take(&mut fleet, &pods(39 * 51 + 7, WORKERS_MAX), 41_000);
    assert_eq!((changes.added, changes.removed, changes.left_out), (7, 7, 0), "who leaves makes room");
}

#[test]
fn what_envoy_told_can_be_forgotten() {
    let mut fleet = Fleet::default();
    fleet.admit([A].into_iter(), NOW);
    let untold = fleet.clone();
    let told = [Endpoint { address: A.to_owned(), hostname: "a".into(), priority: 3, standing: Standing::Unhealthy }];
    fleet.take_in_endpoints(&told, Admission::Known, NOW);
    assert_ne!(fleet, untold);
    fleet.forget_standings();
    assert_eq!(fleet, untold);
}

/// Whatever comes and goes: who is in the cluster has one row, an id stays while the worker does, and each return is another
/// life.
#[test]
fn any_sequence_keeps_the_laws() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let (mut fleet, mut now_ms) = (Fleet::default(), 0);
        let addresses: Vec<String> = (0..12).map(|port| format!("10.0.0.1:{}", 1_000 + port)).collect();
        let mut before: Vec<(String, WorkerId, u32)> = Vec::new();
        let mut lives: Vec<Option<u32>> = vec![None; addresses.len()];
        for step in 0..60 {
            now_ms += u64::from(rng.below(9_000));
            if rng.below(4) == 0 {
                fleet.admit(addresses.iter().filter(|_| rng.below(3) == 0).map(String::as_str), NOW.plus_ms(now_ms));
            }
            let present: Vec<&str> = addresses.iter().filter(|_| rng.below(3) > 0).map(String::as_str).collect();
            discover(&mut fleet, &present, now_ms);
            let told: Vec<_> = fleet.workers().filter(|worker| worker.standing.is_in_cluster()).collect();
            assert_eq!(told.len(), present.len(), "seed {seed} step {step}");
            let mut after = Vec::new();
            for (address, life) in addresses.iter().zip(&mut lives) {
                if !present.contains(&address.as_str()) {
                    continue;
                }
                let (id, _, generation) = row(&fleet, address);
                let stayed = before.iter().find(|(known, _, _)| known == address);
                match stayed {
                    Some(stayed) => assert_eq!((stayed.1, stayed.2), (WorkerId(id), generation), "seed {seed} {step}"),
                    None => assert_ne!(*life, Some(generation), "seed {seed} step {step} {address}"),
                }
                *life = Some(generation);
                after.push((address.clone(), WorkerId(id), generation));
            }
            before = after;
        }
    }
}
