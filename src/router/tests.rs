//! The router's reading of prompts, and the keys that it gives them.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::request::Api;

fn router() -> Router {
    let config = br#"{"pools": [{"cluster": "llm", "workers": [
        {"address": "10.0.0.1:8000"}, {"address": "10.0.0.2:8000"}, {"address": "10.0.0.3:8000"}]}]}"#;
    Router::new(Config::from_bytes(config).unwrap(), 1, 1)
}

fn chat(system: &str, turns: &[&str]) -> String {
    let message = |(index, content): (usize, &&str)| {
        let role = ["user", "assistant"][index % 2];
        format!(r#",{{"role":"{role}","content":"{content}"}}"#)
    };
    let turns: String = turns.iter().enumerate().map(message).collect();
    format!(r#"{{"model":"m","messages":[{{"role":"system","content":"{system}"}}{turns}]}}"#)
}

fn prefix_of(router: &mut Router, trunk: &mut TrunkPage, body: &str) -> Option<u64> {
    router.read_prompt(Api::ChatCompletions, &Body::whole(body.as_bytes()), None).unwrap();
    router.prefix(0, trunk)
}

#[test]
fn pools_are_found_by_the_routed_cluster() {
    assert_eq!(router().find_pool(b"llm"), Some(0));
    assert_eq!(router().find_pool(b"other"), None);
}

#[test]
fn turns_of_a_conversation_keep_their_key_though_everybody_shares_the_system_prompt() {
    for system_bytes in [0, 40, 256, 300, 3_000, 60_000] {
        let (mut router, mut trunk) = (router(), TrunkPage::open(None).unwrap());
        let system = "s".repeat(system_bytes);
        let mut first_keys = Vec::new();
        for user in 0..400 {
            let question = format!("question {user}");
            first_keys.push(prefix_of(&mut router, &mut trunk, &chat(&system, &[&question])));
        }
        let mut distinct = first_keys[200..].to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 200, "system prompt of {system_bytes} bytes");
        for (user, first_key) in first_keys.iter().enumerate().skip(300) {
            let question = format!("question {user}");
            let answer = "an answer of some length ".repeat(20);
            let turns = [question.as_str(), &answer, "and the next question"];
            let later = prefix_of(&mut router, &mut trunk, &chat(&system, &turns));
            assert_eq!(later, *first_key, "system prompt of {system_bytes} bytes, user {user}");
        }
    }
}

#[test]
fn the_text_of_a_lone_completions_session_keeps_its_key_as_it_grows() {
    let (mut router, mut trunk) = (router(), TrunkPage::open(None).unwrap());
    let (mut text, mut keys) = (String::from("once upon a time "), Vec::new());
    // As far as the cuts reach: of longer texts it cannot be told whether the last part of a block grew or differs.
    for turn in 0..40 {
        text += &format!("and then, in chapter {turn}, ").repeat(20);
        router
            .read_prompt(Api::Completions, &Body::whole(format!(r#"{{"prompt":"{text}"}}"#).as_bytes()), None)
            .unwrap();
        keys.push(router.prefix(0, &mut trunk));
    }
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[test]
fn a_document_that_fills_all_that_is_read_does_not_hide_who_asks() {
    let (mut router, mut trunk) = (router(), TrunkPage::open(None).unwrap());
    let system = "s".repeat(40_000);
    let mut keys = Vec::new();
    for document in 0..300 {
        let document = format!("document {document} ").repeat(8_000);
        let body = chat(&system, &[&document]);
        router.read_prompt(Api::ChatCompletions, &Body::cut(&body.as_bytes()[..100_000], None), None).unwrap();
        keys.push(router.prefix(0, &mut trunk));
    }
    keys.drain(..200);
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 100);
}

#[test]
fn examples_that_all_prompts_share_do_not_make_them_one() {
    let (mut router, mut trunk) = (router(), TrunkPage::open(None).unwrap());
    let mut keys = Vec::new();
    for user in 0..300 {
        let turns = ["an example question", "an example answer", &format!("what user {user} asks")];
        keys.push(prefix_of(&mut router, &mut trunk, &chat("You are helpful.", &turns)));
    }
    keys.drain(..200);
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 100);
}
