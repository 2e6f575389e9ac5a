//! Tests of the trunk: what is skipped, what is kept, how fast it is learned and forgotten.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::rng::{Rng, mix};

const WORKERS: usize = 4;

/// The prefixes' hashes, short to long; the last one is the end.
struct Hashes<'a>(&'a [u64]);

impl Prompt for Hashes<'_> {
    fn prefixes(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied()
    }

    fn end(&self) -> u64 {
        self.0.last().copied().unwrap_or_default()
    }

    fn last_block(&self) -> u64 {
        0
    }

    fn begins_with(&self, hash: u32) -> bool {
        self.0.iter().any(|prefix| *prefix as u32 == hash)
    }
}

fn empty() -> TrunkPage {
    TrunkPage::open(None).unwrap()
}

/// A trunk of so many places, as hashes that differ from those of other trunks.
fn trunk(name: u64, places: u64) -> Vec<u64> {
    (0..places).map(|place| mix(name * 1_000 + place)).collect()
}

#[test]
fn a_system_prompt_that_all_share_is_skipped() {
    let mut page = empty();
    for conversation in 0..200 {
        let own = mix(1_000_000 + conversation);
        let key = page.observe(&Hashes(&[1, 2, own]), WORKERS);
        assert!(conversation < 40 || key == Some(own), "request {conversation}: {key:?}");
    }
}

#[test]
fn several_long_system_prompts_are_learned_in_a_few_hundred_requests() {
    // Shares as applications have them; the line is at 12.5 %.
    const SHARES: [(u64, u32); 5] = [(1, 35), (2, 25), (3, 20), (4, 10), (5, 10)];
    let (mut page, mut rng) = (empty(), Rng::new(1));
    let (mut wrong, mut moves, mut before) = (0, 0, [None; 6]);
    for request in 0..1_200 {
        let mut draw = rng.below(100);
        let name = SHARES
            .iter()
            .find(|(_, share)| {
                draw < *share || {
                    draw -= share;
                    false
                }
            })
            .unwrap()
            .0;
        let (shared, own) = (trunk(name, 9), rng.next_u64());
        let key = page.observe(&Hashes(&[shared.as_slice(), &[own]].concat()), WORKERS);
        if request >= 300 && name <= 3 {
            wrong += u32::from(key != Some(own));
        }
        // Those near the line may be on either side, as long as they stay there.
        let before = &mut before[name as usize];
        moves += u32::from(name >= 4 && before.is_some_and(|before| before != (key == Some(own))));
        *before = Some(key == Some(own));
    }
    assert!(moves <= 8, "{moves} moves of prompts near the line");
    assert!(wrong < 20, "{wrong} of some 700 prompts under popular system prompts had no key of their own");
}

#[test]
fn a_prefix_near_the_line_does_not_move_to_and_fro() {
    let (mut page, mut rng) = (empty(), Rng::new(7));
    let (mut moves, mut before) = (0, None);
    for _ in 0..20_000 {
        let is_near = rng.below(8) == 0;
        let own = rng.next_u64();
        let key = page.observe(&Hashes(&[if is_near { 1 } else { rng.next_u64() }, own]), WORKERS);
        if is_near {
            let is_popular = key == Some(own);
            moves += u32::from(before.is_some_and(|before| before != is_popular));
            before = Some(is_popular);
        }
    }
    assert!(moves <= 3, "{moves} moves");
}

#[test]
fn the_only_conversation_of_a_quiet_evening_keeps_its_key() {
    let mut page = empty();
    let mut turns = vec![1, 2];
    for turn in 0..500 {
        turns.push(mix(turn));
        assert_eq!(page.observe(&Hashes(&turns), WORKERS), Some(1), "turn {turn}");
    }
}

#[test]
fn one_prompt_that_all_send_keeps_its_key() {
    let mut page = empty();
    for _ in 0..500 {
        assert_eq!(page.observe(&Hashes(&[1, 2, 3]), WORKERS), Some(1));
    }
}

#[test]
fn prompts_that_share_all_but_their_last_message_are_told_apart() {
    let mut page = empty();
    let examples = trunk(1, 6);
    for request in 0..400 {
        let own = mix(1_000_000 + request);
        let key = page.observe(&Hashes(&[examples.as_slice(), &[own]].concat()), WORKERS);
        assert!(request < 100 || key == Some(own), "request {request}: {key:?}");
    }
}

#[test]
fn rare_prefixes_are_the_key_themselves() {
    let mut page = empty();
    let mut rng = Rng::new(3);
    for _ in 0..5_000 {
        let document = mix(u64::from(rng.below(100)) + 1);
        assert_eq!(page.observe(&Hashes(&[document, rng.next_u64()]), WORKERS), Some(document));
    }
}

#[test]
fn a_prompt_that_is_popular_to_its_end_is_known_by_its_end() {
    let mut page = empty();
    for conversation in 0..100 {
        page.observe(&Hashes(&[1, 2, mix(conversation)]), WORKERS);
    }
    assert_eq!(page.observe(&Hashes(&[1, 2]), WORKERS), Some(2));
    assert_eq!(page.observe(&Hashes(&[]), WORKERS), None);
}

#[test]
fn what_was_popular_is_forgotten() {
    let mut page = empty();
    for conversation in 0..500 {
        page.observe(&Hashes(&[1, mix(conversation)]), WORKERS);
    }
    let mut rng = Rng::new(5);
    for _ in 0..20 * HALVING_REQUESTS {
        page.observe(&Hashes(&[rng.next_u64()]), WORKERS);
    }
    assert_eq!(page.observe(&Hashes(&[1, 9]), WORKERS), Some(1));
}

#[test]
fn the_page_comes_back_from_its_bytes_and_is_small() {
    let mut page = empty();
    page.observe(&Hashes(&[1, 2]), WORKERS);
    let again = TrunkPage::open(Some(page.as_bytes().to_vec())).unwrap();
    assert_eq!(again.as_bytes(), page.as_bytes());
    assert!(page.as_bytes().len() <= 8_192, "{}", page.as_bytes().len());
    assert!(TrunkPage::open(Some(b"WRTR".to_vec())).is_ok());
}
