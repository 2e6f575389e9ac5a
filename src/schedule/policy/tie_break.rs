//! What decides between workers that are alike in what a policy looks at first.

use crate::rng::mix;
use crate::schedule::{Candidate, Query, rendezvous_weight};

/// The tie-break of workers that are alike in all: the lowest first.
///
/// By the rendezvous order of the request's key, so that gateways that do not talk agree; at random without a key.
pub(super) fn tie_break(query: &Query, candidate: &Candidate) -> u64 {
    match query.key() {
        // The order begins at the highest weight.
        Some(key) => !rendezvous_weight(key, candidate.identity),
        None => mix(query.random ^ candidate.identity),
    }
}

/// The tie-break of workers that are alike in the first cost: the lower `cost`, to seven digits, then the lower
/// `tie_break`, of which its upper half is left.
pub(super) fn second_cost(cost: f64, tie_break: u64) -> u64 {
    // Adding zero makes -0.0 one with 0.0.
    let bits = (cost as f32 + 0.0).to_bits();
    let ascending = match (cost.is_nan(), cost.is_sign_negative()) {
        (true, _) => u32::MAX,
        (false, true) if cost < 0.0 => !bits,
        (false, _) => bits | SIGN_BIT,
    };
    (u64::from(ascending) << 32) | (tie_break >> 32)
}

const SIGN_BIT: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::schedule::policy::testing::candidate;

    #[test]
    fn the_second_cost_decides_and_only_equal_ones_leave_it_to_the_tie_break() {
        let ascending = [f64::NEG_INFINITY, -1e9, -2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 65_536.0, f64::INFINITY, f64::NAN];
        for pair in ascending.windows(2) {
            assert!(second_cost(pair[0], u64::MAX) < second_cost(pair[1], 0), "{pair:?}");
        }
        assert_eq!(second_cost(-0.0, 7 << 32), second_cost(0.0, 7 << 32));
        assert!(second_cost(1.0, 1 << 32) < second_cost(1.0, 2 << 32));
        assert_eq!(second_cost(-f64::NAN, 0), second_cost(f64::NAN, 0));
    }

    #[test]
    fn requests_with_a_key_agree_whatever_their_random_bits_and_others_spread() {
        let firsts = |prefix: Option<u64>| -> Vec<u16> {
            let first = |random: u64| {
                let query = Query { prefix, random: mix(random), ..Query::default() };
                (0..4_u16).min_by_key(|&id| tie_break(&query, &candidate(id, 0.0))).unwrap()
            };
            (0..400).map(first).collect()
        };
        let with_key = firsts(Some(5));
        assert!(with_key.iter().all(|&first| first == with_key[0]));
        let without = firsts(None);
        for id in 0..4 {
            let count = without.iter().filter(|&&first| first == id).count();
            assert!((70..130).contains(&count), "worker {id} came first {count} times of 400");
        }
    }
}
