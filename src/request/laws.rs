//! Laws that hold for any body: of cuts, of spelling, and of hostile bytes.

use super::media::AMPLIFICATION_MAX;
use super::recorder::Recorder;
use super::respell::{respelled, shuffled};
use super::samples::{all, fed};
use super::scan::{READ_BYTES, Scanner};
use super::{Api, parse};
use crate::prefix::{BLOCKS_MAX, BlockHash, CUTS_MAX, Chain, PromptSink};
use crate::rng::Rng;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn a_truncated_body_feeds_a_prefix_of_the_whole_at_every_cut() {
    for sample in all() {
        let (name, body) = (sample.name, sample.body.as_bytes());
        let whole = fed(sample.api(), body, false).unwrap();
        let mut fed_symbols = 0;
        for cut in 0..=body.len() {
            let Some(part) = fed(sample.api(), &body[..cut], true) else { continue };
            assert!(whole.symbols.starts_with(&part.symbols), "{name} cut at {cut}: {}", part.written());
            assert!(part.symbols.len() + 40 > fed_symbols, "{name} cut at {cut} feeds much less than the cut before");
            fed_symbols = fed_symbols.max(part.symbols.len());
        }
        assert_eq!(fed_symbols, whole.symbols.len(), "{name}");
    }
}

#[test]
fn in_any_order_of_keys_a_cut_body_feeds_a_prefix_of_what_it_reached() {
    for sample in all() {
        let (name, mut rng) = (sample.name, Rng::new(23));
        for _ in 0..3 {
            let body = shuffled(sample.body.trim_start_matches('\u{feff}'), &mut rng);
            let mut scanner = Scanner::new(body.as_bytes());
            scanner.enter(b'{');
            let (mut begin, mut before) = (0, None);
            while let Some(_member) = scanner.member().unwrap() {
                let end = scanner.offset();
                // Without messages tools are no prompt, but the front of one.
                let reached = fed(sample.api(), format!("{}}}", &body[..end]).as_bytes(), false);
                let cuts = if before.is_none() && reached.is_none() { end..end } else { begin..end };
                for cut in cuts {
                    let Some(part) = fed(sample.api(), &body.as_bytes()[..cut], true) else { continue };
                    let is_prefix = [&before, &reached]
                        .into_iter()
                        .flatten()
                        .any(|whole: &Recorder| whole.symbols.starts_with(&part.symbols));
                    assert!(is_prefix, "{name}: {}: {}", &body[..cut], part.written());
                }
                (begin, before) = (end, reached);
            }
        }
    }
}

#[test]
fn neither_spelling_nor_the_order_of_keys_changes_a_prompt() {
    for sample in all() {
        let (api, mut rng) = (sample.api(), Rng::new(17));
        let body = sample.body.trim_start_matches('\u{feff}');
        let whole = fed(api, body.as_bytes(), false).unwrap();
        for _ in 0..20 {
            let (shuffled, respelled) = (shuffled(body, &mut rng), respelled(body, &mut rng));
            let of_shuffled = fed(api, shuffled.as_bytes(), false).unwrap();
            assert_eq!(of_shuffled.written(), whole.written(), "{}: {shuffled}", sample.name);
            assert_eq!(fed(api, respelled.as_bytes(), false).unwrap(), whole, "{}: {respelled}", sample.name);
        }
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
fn a_long_cut_text_before_its_type_is_taken_to_be_text() {
    let text = "x".repeat(40_000);
    let bodies = [
        (Api::ChatCompletions, r#"{"messages":[{"role":"user","content":[{"text":""#, r#"","type":"text"}]}]}"#),
        (Api::ChatCompletions, r#"{"messages":[{"content":[{"text":""#, r#"","type":"text"}],"role":"user"}]}"#),
        (Api::Responses, r#"{"input":[{"role":"user","content":[{"text":""#, r#"","type":"input_text"}]}]}"#),
        (Api::AnthropicMessages, r#"{"messages":[],"system":[{"text":""#, r#"","type":"text"}]}"#),
    ];
    for (api, head, tail) in bodies {
        let body = format!("{head}{text}{tail}");
        let whole = fed(api, body.as_bytes(), false).unwrap();
        for cut in [head.len() + 20_000, head.len() + text.len(), head.len() + text.len() + 3] {
            let part = fed(api, &body.as_bytes()[..cut], true).unwrap();
            assert!(part.text_bytes().len() >= (cut - head.len()).min(text.len()), "{head} cut at {cut}");
            assert!(whole.symbols.starts_with(&part.symbols), "{head} cut at {cut}");
        }
        let part = fed(api, &body.as_bytes()[..head.len() + 10_000], true).unwrap();
        assert!(part.text_bytes().len() < 100, "{head}: a short text may yet be something else");
    }
}

#[test]
fn tools_behind_the_messages_are_missed_only_by_a_body_cut_before_them() {
    let body = r#"{"messages":[{"role":"user","content":"a"}],"tools":[{"a":1},{"b":2}]}"#;
    let at = |cut: usize| fed(Api::ChatCompletions, &body.as_bytes()[..cut], true).unwrap().written();
    assert_eq!(at(body.len()), "<1><12><18>a<19>1<12><18>b<19>2<2>user<3>a|!");
    assert_eq!(at(body.find("\"tools").unwrap()), "<2>user<3>a|!");
    assert_eq!(at(body.len() - 5), "<1><12><18>a<19>1<12>", "cut tools: the messages come later");
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
    let samples: Vec<_> = all().collect();
    let mut chain = Chain::new();
    for case in 0..20_000 {
        let mut rng = Rng::new(case);
        let sample = samples[rng.below(samples.len() as u32) as usize];
        let (api, mut body) = (sample.api(), sample.body.as_bytes().to_vec());
        mutate(&mut rng, &mut body);
        for is_truncated in [false, true] {
            let Ok(request) = parse(api, &body, is_truncated) else { continue };
            let mut recorder = Recorder::default();
            request.feed_prompt(&mut recorder);
            // What feeds the most: an image that says that it is huge. Of all else it is a token id: `1,` gives four bytes.
            assert!(recorder.symbols.len() <= (AMPLIFICATION_MAX + 8) * body.len(), "case {case}");
            chain.reset(case);
            request.feed_prompt(&mut chain);
            assert!(chain.blocks().len() <= BLOCKS_MAX && chain.cuts().len() <= CUTS_MAX);
        }
        let whole = fed(api, &body, false);
        let cut = rng.below(body.len() as u32 + 1) as usize;
        // A key written twice may count with another value in the cut body.
        if let (Some(whole), Some(part)) = (whole, fed(api, &body[..cut], true))
            && TOP_KEYS.iter().all(|key| count(&body, key) < 2)
        {
            assert!(whole.symbols.starts_with(&part.symbols), "case {case} cut at {cut}: {}", part.written());
        }
    }
}

/// What a mutation can double or hide.
const TOP_KEYS: &[&[u8]] = &[b"\"messages\"", b"\"prompt\"", b"\"tools\"", b"\"text\"", b"\"input\""];

fn count(body: &[u8], word: &[u8]) -> usize {
    body.windows(word.len()).filter(|window| *window == word).count()
}

/// How many bytes scanners pass to parse a body and to feed its prompt, and how much is fed.
fn work(api: Api, body: &str, chain: &mut Chain) -> (usize, Counter) {
    let mut counter = Counter::default();
    READ_BYTES.set(0);
    let request = parse(api, body.as_bytes(), false).unwrap();
    request.feed_prompt(&mut counter);
    let read_bytes = READ_BYTES.get();
    chain.reset(0);
    request.feed_prompt(chain);
    (read_bytes, counter)
}

/// Each byte is read so often at the most: where the value stands that it is in, and in each level of shapes around it.
const READS_MAX: usize = 16;

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
    let repeated = |head: &str, piece: &str, tail: &str| format!("{head}{}{tail}", piece.repeat(20_000));
    let bodies = [
        repeated("{\"messages\":[{}", ",{}", "]}"),
        repeated("{\"messages\":[1", ",1", "]}"),
        repeated("{\"messages\":[{\"content\":[1", ",1", "]}]}"),
        repeated("{\"messages\":[{\"content\":\"", "\\ud83d", "\"}]}"),
        repeated("{\"messages\":[{\"content\":[{\"type\":\"x\"}", ",{\"type\":[[1]]}", "]}]}"),
        repeated("{\"messages\":[],\"a\":1", ",\"\\u006dodel\":1", "}"),
        repeated("{\"messages\":[],\"\\u006d", "\\u006d", "\":1}"),
        repeated("{\"messages\":[{\"role\":\"user\",\"content\":1", "9", "}]}"),
        repeated("{\"messages\":[{\"content\":{\"a\":[\"\"", ",\"b\",\"\"", "]}}]}"),
        repeated("{\"messages\":[{\"content\":[1", ",{\"text\":{},\"a\":1,\"image\":2}", "]}]}"),
        repeated("{\"messages\":[{\"tools\":[{}", ",{\"function\":{\"x\":1}}", "],\"function_call\":{}}]}"),
    ];
    let mut chain = Chain::new();
    for body in &bodies {
        let (read_bytes, counter) = work(Api::ChatCompletions, body, &mut chain);
        assert!(read_bytes <= READS_MAX * body.len(), "{} read {} times", &body[..40], read_bytes / body.len());
        assert!(counter.calls <= body.len() * 2 + 10 && counter.bytes <= body.len() * 2, "{}", &body[..40]);
        assert_eq!(parse(Api::ChatCompletions, body.as_bytes(), false).unwrap().model.raw(), b"");
    }
}

#[test]
fn images_that_lie_about_their_size_feed_no_more_than_the_bound() {
    // The shortest headers that say that they are huge, names of any length, and nothing at all.
    let contents = ["R0lGODlh////", "iVBORw0KGgoAAAANSUhEUgD//wAA//8=", "a", "", "https://a.example/b.png"];
    let mut chain = Chain::new();
    for content in contents {
        let list = vec![format!("\"{content}\""); 5_000].join(",");
        let bodies = [
            (Api::Generate, format!(r#"{{"text":"","image_data":[{list}]}}"#)),
            (Api::Generate, format!(r#"{{"text":"","video_data":[{list}]}}"#)),
            (Api::OllamaChat, format!(r#"{{"messages":[{{"role":"user","images":[{list}]}}]}}"#)),
        ];
        for (api, body) in &bodies {
            let request = parse(*api, body.as_bytes(), false).unwrap();
            let mut counter = Counter::default();
            request.feed_prompt(&mut counter);
            assert!(counter.bytes <= AMPLIFICATION_MAX * body.len(), "{content}: {} of {}", counter.bytes, body.len());
            chain.reset(0);
            request.feed_prompt(&mut chain);
            assert!(chain.blocks().len() <= BLOCKS_MAX);
        }
    }
}

#[test]
fn what_nests_deeply_is_read_a_bounded_number_of_times() {
    let shapes = [
        (r#"{"type":"tool_result","content":["#, "]}"),
        (r#"{"type":"tool_result","content":"#, "}"),
        (r#"{"type":"document","source":{"type":"content","content":"#, "}}"),
    ];
    let text = "x ".repeat(20_000);
    let mut chain = Chain::new();
    for (open, close) in shapes {
        for levels in [1, 6, 100, 200] {
            let (open, close) = (open.repeat(levels), close.repeat(levels));
            let body = format!(r#"{{"messages":[{{"role":"user","content":[{open}"{text}"{close}]}}]}}"#);
            let (read_bytes, counter) = work(Api::AnthropicMessages, &body, &mut chain);
            // Below the depth that is followed all is fed as one JSON value.
            assert!(counter.calls < 40 && counter.bytes <= body.len(), "{levels} levels: {} calls", counter.calls);
            let reads = read_bytes / body.len();
            assert!(reads <= READS_MAX, "{levels} levels of {open}: each byte is read {reads} times");
        }
    }
}
