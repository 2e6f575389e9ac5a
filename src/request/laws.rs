//! Laws that hold for any body: of cuts, of equal prompts, and of hostile bytes.

use super::recorder::Recorder;
use super::{Api, parse};
use crate::prefix::{BLOCKS_MAX, BlockHash, CUTS_MAX, Chain, PromptSink, seed};
use crate::rng::Rng;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

const BODIES: &[(Api, &str)] = &[
    (
        Api::ChatCompletions,
        r#"{"model":"m","tools":[{"type":"function","function":{"name":"f\n","p":[1, 2.5e3,true]}}],"messages":[
        {"role":"system","content":"be \u00e9 brief\\ \ud83d\ude00 \ud83d é"},
        {"role":"user","name":"ann","content":[{"type":"text","text":"a\"b"},{"type":"image_url","image_url":{"url":"data:x"}},
            {"text":"c","type":"text"},{"text":"d"},"e",12,null,{"type":"file","n":[1,{"a":"\u0022"}]}]},
        {"content":null,"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{\"a\": 1}"}}]},
        {"tool_call_id":"c1","role":"tool","content":"42","x":[[]]},
        {"role":"user","content":"why?"},"odd",17,{"role":3}], "stream":true,"cache_salt":"s"}"#,
    ),
    (
        Api::ChatCompletions,
        "\u{feff}{\"messages\" : [ {\"content\":\"hi\\u0041\",\"role\":\"user\"} , { } ] , \"model\" : \"m\" }",
    ),
    (Api::Completions, r#"{"model":"m","prompt":"a\u00e9\ud83d\ude00\/ and more","max_tokens":10}"#),
    (Api::Completions, r#"{"model":"m","prompt":["a","b\n",[1,2],null,"c"]}"#),
    (Api::Completions, r#"{"model":"m","prompt":[1, 22 ,333,4.5,-6,99999999999,"x",[7]],"stream":false}"#),
    (Api::Completions, r#"{"prompt":[[1,22],[333],[]]}"#),
];

fn fed(api: Api, body: &[u8], is_truncated: bool) -> Option<Recorder> {
    let mut recorder = Recorder::default();
    parse(api, body, is_truncated).ok()?.feed_prompt(&mut recorder);
    Some(recorder)
}

fn cuts(api: Api, body: &str) -> Vec<BlockHash> {
    let request = parse(api, body.as_bytes(), false).unwrap();
    let salt = request.cache_salt.map(|salt| salt.decoded());
    let mut chain = Chain::new();
    chain.reset(seed(&request.model.decoded(), salt.as_deref()));
    request.feed_prompt(&mut chain);
    chain.cuts().iter().map(|cut| cut.hash).collect()
}

fn chat(messages: &str) -> Vec<BlockHash> {
    cuts(Api::ChatCompletions, &format!("{{\"model\":\"m\",\"messages\":[{messages}]}}"))
}

#[test]
fn a_truncated_body_feeds_a_prefix_of_the_whole_at_every_cut() {
    for &(api, body) in BODIES {
        let whole = fed(api, body.as_bytes(), false).unwrap();
        let (mut seen, mut fed_symbols) = (0, 0);
        for cut in 0..=body.len() {
            let Some(part) = fed(api, &body.as_bytes()[..cut], true) else { continue };
            assert!(whole.symbols.starts_with(&part.symbols), "cut at {cut}: {}", part.written());
            seen += 1;
            assert!(part.symbols.len() + 40 > fed_symbols, "cut at {cut} feeds much less than the cut before");
            fed_symbols = fed_symbols.max(part.symbols.len());
        }
        assert!(seen > body.len() / 3, "most cuts give a prompt");
        assert_eq!(fed_symbols, whole.symbols.len());
    }
}

#[test]
fn a_cut_content_is_fed_as_far_as_it_goes() {
    let body = format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"{}", "x".repeat(5_000));
    let part = fed(Api::ChatCompletions, body.as_bytes(), true).unwrap();
    assert_eq!(part.text_bytes().len(), "user".len() + 5_000);
}

#[test]
fn a_long_cut_content_before_its_role_is_taken_to_be_the_users() {
    let text = "x".repeat(40_000);
    let whole = format!(r#"{{"messages":[{{"content":"{text}","role":"user"}}]}}"#);
    let whole = fed(Api::ChatCompletions, whole.as_bytes(), false).unwrap();
    let part = format!(r#"{{"messages":[{{"content":"{text}"#);
    let part = fed(Api::ChatCompletions, part.as_bytes(), true).unwrap();
    assert_eq!(part.text_bytes().len(), "user".len() + text.len());
    assert!(whole.symbols.starts_with(&part.symbols));
}

#[test]
fn tools_behind_the_messages_are_missed_only_by_a_body_cut_before_them() {
    let body = r#"{"messages":[{"role":"user","content":"a"}],"tools":[{"a":1},{"b":2}]}"#;
    let at = |cut: usize| fed(Api::ChatCompletions, &body.as_bytes()[..cut], true).unwrap().written();
    assert_eq!(at(body.len()), "<1>[{\"a\":1},{\"b\":2}]<2>user<3>a|!");
    assert_eq!(at(body.find("\"tools").unwrap()), "<2>user<3>a|!");
    assert_eq!(at(body.len() - 5), "<1>[{\"a\":1},{\"b\"", "cut tools: the messages come later");
}

#[test]
fn prompts_that_mean_the_same_hash_the_same() {
    let plain = chat(r#"{"role":"user","content":"A \"é\" b"},{"role":"assistant","content":"c"}"#);
    const SAME: &[(&str, &str)] = &[
        (
            "parts",
            r#"{"role":"user","content":[{"type":"text","text":"A \"é\" b"}]},{"role":"assistant","content":"c"}"#,
        ),
        (
            "escapes",
            r#"{"role":"us\u0065r","content":"\u0041\u0020\u0022\u00e9\u0022 b"},{"role":"assistant","content":"c"}"#,
        ),
        (
            "white space",
            " { \"role\" : \"user\" , \n\"content\" : \"A \\\"é\\\" b\" } , {\"role\":\"assistant\",\"content\":\"c\"}",
        ),
        ("key order", r#"{"content":"A \"é\" b","role":"user"},{"content":"c","role":"assistant"}"#),
        (
            "other keys",
            r#"{"role":"user","content":"A \"é\" b","x":{"role":"y"}},{"role":"assistant","content":"c","tool_calls":null}"#,
        ),
    ];
    for &(name, messages) in SAME {
        assert_eq!(chat(messages), plain, "{name}");
    }
}

#[test]
fn prompts_that_differ_hash_differently() {
    let all: Vec<Vec<BlockHash>> = [
        r#"{"role":"user","content":"ab"},{"role":"user","content":"c"}"#,
        r#"{"role":"user","content":"a"},{"role":"user","content":"bc"}"#,
        r#"{"role":"user","content":"c"},{"role":"user","content":"ab"}"#,
        r#"{"role":"user","content":"abc"}"#,
        r#"{"role":"usera","content":"bc"}"#,
        r#"{"role":"system","content":"ab"},{"role":"user","content":"c"}"#,
        r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"bc"}]}"#,
        r#"{"role":"user","content":[{"type":"text","text":"ab"},{"type":"text","text":"c"}]}"#,
        r#"{"role":"user","content":[{"type":"image_url","text":"abc"}]}"#,
        r#"{"role":"user","content":"","name":"abc"}"#,
        r#"{"role":"tool","content":"","tool_call_id":"abc"}"#,
        r#"{"role":"user","content":"","tool_calls":"abc"}"#,
    ]
    .map(chat)
    .into();
    for (index, these) in all.iter().enumerate() {
        for (other, those) in all[..index].iter().enumerate() {
            assert_ne!(these.last(), those.last(), "prompts {index} and {other}");
        }
    }
    let tools = r#"{"model":"m","messages":[{"role":"user","content":"abc"}],"tools":[]}"#;
    assert_ne!(cuts(Api::ChatCompletions, tools).last(), all[3].last());
    assert_ne!(cuts(Api::Completions, r#"{"model":"m","prompt":"abc"}"#).last(), all[3].last());
}

#[test]
fn model_and_salt_part_all_prompts_but_their_spelling_does_not() {
    let with = |head: &str| cuts(Api::Completions, &format!("{{{head},\"prompt\":\"{}\"}}", "x".repeat(600)));
    let plain = with(r#""model":"a/b""#);
    assert_eq!(with(r#""model":"a\/\u0062""#), plain);
    for other in [r#""model":"a""#, r#""model":"a/b","cache_salt":"s""#, r#""model":"a/b","cache_salt":"""#] {
        assert!(with(other).iter().all(|hash| !plain.contains(hash)), "{other}");
    }
}

#[test]
fn a_conversation_keeps_its_cuts_and_its_root_turn_by_turn() {
    let mut rng = Rng::new(5);
    for case in 0..60 {
        let mut messages = String::new();
        let mut before: Option<(Vec<BlockHash>, BlockHash)> = None;
        for turn in 0..8 {
            for role in ["user", "assistant"] {
                let text = "la\\n".repeat(rng.below(400) as usize);
                let comma = if messages.is_empty() { "" } else { "," };
                messages.push_str(&format!(r#"{comma}{{"role":"{role}","content":"{case} {turn} {text}"}}"#));
            }
            let body = format!("{{\"messages\":[{messages}],\"model\":\"m\"}}");
            let request = parse(Api::ChatCompletions, body.as_bytes(), false).unwrap();
            let mut chain = Chain::new();
            chain.reset(1);
            request.feed_prompt(&mut chain);
            let hashes: Vec<BlockHash> = chain.cuts().iter().map(|cut| cut.hash).collect();
            if let Some((cuts, root)) = before {
                assert!(hashes.starts_with(&cuts), "case {case} turn {turn}");
                assert_eq!(chain.root(), root, "case {case} turn {turn}");
            }
            before = Some((hashes, chain.root()));
        }
    }
}

/// One to four random edits: bytes changed, dropped, doubled, cut off, or replaced by what JSON is made of.
fn mutate(rng: &mut Rng, body: &mut Vec<u8>) {
    const PIECES: &[&[u8]] = &[
        b"\"",
        b"\\",
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
        b":",
        b"\\u",
        b"\\ud83d",
        b"null",
        b"\"messages\":",
        b"1e999",
        b"\xff",
        b"\0",
        b" ",
    ];
    for _ in 0..=rng.below(4) {
        let at = rng.below(body.len() as u32 + 1) as usize;
        let end = (at + rng.below(9) as usize).min(body.len());
        match rng.below(5) {
            0 => body.truncate(at),
            1 => drop(body.drain(at..end)),
            2 => {
                let copy = body[at..end].to_vec();
                body.splice(at..at, copy);
            }
            3 => {
                let piece = PIECES[rng.below(PIECES.len() as u32) as usize];
                body.splice(at..end, piece.iter().copied());
            }
            _ => body[at..end].iter_mut().for_each(|byte| *byte = rng.below(256) as u8),
        }
    }
}

#[test]
fn no_mutation_panics_and_what_is_fed_stays_in_bounds() {
    let mut chain = Chain::new();
    for case in 0..20_000 {
        let mut rng = Rng::new(case);
        let (api, body) = BODIES[rng.below(BODIES.len() as u32) as usize];
        let mut body = body.as_bytes().to_vec();
        mutate(&mut rng, &mut body);
        for is_truncated in [false, true] {
            let Ok(request) = parse(api, &body, is_truncated) else { continue };
            let mut recorder = Recorder::default();
            request.feed_prompt(&mut recorder);
            // The shortest that feeds the most: a token id `1,` gives four bytes.
            assert!(recorder.symbols.len() <= 8 * body.len(), "case {case}");
            chain.reset(case);
            request.feed_prompt(&mut chain);
            assert!(chain.blocks().len() <= BLOCKS_MAX && chain.cuts().len() <= CUTS_MAX);
        }
        let whole = fed(api, &body, false);
        let cut = rng.below(body.len() as u32 + 1) as usize;
        // A key written twice may count with another value in the cut body.
        if let (Some(whole), Some(part)) = (whole, fed(api, &body[..cut], true))
            && [&b"\"messages\""[..], b"\"prompt\"", b"\"tools\""].iter().all(|key| count(&body, key) < 2)
        {
            assert!(whole.symbols.starts_with(&part.symbols), "case {case} cut at {cut}: {}", part.written());
        }
    }
}

fn count(body: &[u8], word: &[u8]) -> usize {
    body.windows(word.len()).filter(|window| *window == word).count()
}

/// Counts what it is fed instead of keeping it.
#[derive(Default)]
struct Counter {
    calls: usize,
    bytes: usize,
}

impl PromptSink for Counter {
    fn text(&mut self, bytes: &[u8]) {
        self.calls += 1;
        self.bytes += bytes.len();
    }
    fn mark(&mut self, _kind: u8) {
        self.calls += 1;
    }
    fn end_of_message(&mut self) {
        self.calls += 1;
    }
    fn end_of_root(&mut self) {
        self.calls += 1;
    }
}

#[test]
fn hostile_shapes_cost_no_more_than_their_bytes() {
    let repeated = |head: &str, piece: &str, tail: &str| format!("{head}{}{tail}", piece.repeat(100_000));
    let bodies = [
        repeated("{\"messages\":[{}", ",{}", "]}"),
        repeated("{\"messages\":[1", ",1", "]}"),
        repeated("{\"messages\":[{\"content\":[1", ",1", "]}]}"),
        repeated("{\"messages\":[{\"content\":\"", "\\ud83d", "\"}]}"),
        repeated("{\"messages\":[{\"content\":[{\"type\":\"x\"}", ",{\"type\":[[1]]}", "]}]}"),
        repeated("{\"messages\":[],\"a\":1", ",\"\\u006dodel\":1", "}"),
        repeated("{\"messages\":[],\"\\u006d", "\\u006d", "\":1}"),
        repeated("{\"messages\":[{\"role\":\"user\",\"content\":1", "9", "}]}"),
    ];
    let mut chain = Chain::new();
    for body in &bodies {
        let request = parse(Api::ChatCompletions, body.as_bytes(), false).unwrap();
        let mut counter = Counter::default();
        request.feed_prompt(&mut counter);
        assert!(counter.calls <= body.len() * 2 + 10 && counter.bytes <= body.len() * 2, "{}", &body[..40]);
        chain.reset(0);
        request.feed_prompt(&mut chain);
        assert_eq!(request.model.raw(), b"");
    }
}
