//! Tests of all routers' words: what each header means, and what of hostile ones is left.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::request::{Headers, serialized};
use crate::rng::Rng;
use crate::worker::WORKERS_MAX;

fn directions(headers: &[(&str, &str)]) -> Directions {
    Directions::of_headers(Headers::new(&serialized(headers)), "").0
}

fn address(text: &str) -> Pin {
    Pin::Address(text.to_owned())
}

fn name(text: &str) -> Pin {
    Pin::Name(name_hash(text))
}

#[test]
fn each_routers_header_names_its_worker() {
    let cases: Vec<(&str, &str, Vec<Pin>)> = vec![
        ("x-warmroute-target-worker", "10.0.0.1:80", vec![address("10.0.0.1:80")]),
        ("x-warmroute-target-worker", " pod-1 , [::1]:9 ", vec![name("pod-1"), address("[::1]:9")]),
        ("x-warmroute-target-worker", "Pod-1", vec![name("pod-1")]),
        (
            "x-gateway-destination-endpoint",
            "10.0.0.2:80,10.0.0.1:80",
            vec![address("10.0.0.2:80"), address("10.0.0.1:80")],
        ),
        ("x-gateway-destination-endpoint", "[0::1]:80", vec![address("[::1]:80")]),
        ("x-worker-instance-id", "2173882273627495", vec![name("2173882273627495")]),
        ("x-dynamo-worker-instance-id", "7", vec![name("7")]),
        ("x-smg-target-worker", "0", vec![Pin::Place(0)]),
        ("x-smg-target-worker", "511", vec![Pin::Place(511)]),
    ];
    for (header, value, pins) in cases {
        let got = directions(&[(header, value)]);
        assert_eq!((&got.pins, got.is_malformed), (&pins, false), "{header}: {value}");
        assert!(!got.is_empty());
    }
}

#[test]
fn what_cannot_be_understood_is_a_wish_that_cannot_be_fulfilled() {
    let long = "x".repeat(257);
    let many = "10.0.0.1,".repeat(WORKERS_MAX + 1) + "10.0.0.1";
    let cases: &[(&str, &[&str])] = &[
        ("x-warmroute-target-worker", &["", ",", "a,", "a b", "ü", "a\tb", &long]),
        (
            "x-gateway-destination-endpoint",
            &["", "pod-1", "10.0.0.1", "10.0.0.1:80,", "10.0.0.1:99999", "http://10.0.0.1:80"],
        ),
        ("x-gateway-destination-endpoint-subset", &["", "pod-1", "10.0.0.1:80,,", "10.0.0.256", "10.0.0.0/8", &many]),
        ("x-worker-instance-id", &["", " ", "1,2", "a\0b"]),
        ("x-smg-target-worker", &["", "-1", "+1", "1.0", "0x1", "99999999999999999999999", "http://10.0.0.1:80"]),
        ("x-data-parallel-rank", &["", "-1", "one", "4294967296"]),
    ];
    for (header, values) in cases {
        for value in *values {
            let got = directions(&[(header, value)]);
            assert!(got.is_malformed && got.pins.is_empty() && got.rank.is_none(), "{header}: {value:?} {got:?}");
        }
    }
}

#[test]
fn what_is_said_twice_counts_if_it_is_the_same() {
    for hint in hints() {
        let value = if hint.meaning == Meaning::Place { "1" } else { "10.0.0.1:80" };
        let value = if hint.meaning == Meaning::Rank { "3" } else { value };
        let (other, empty) = (value.replace('1', "2").replace('3', "4"), "");
        let once = directions(&[(hint.name, value)]);
        assert_eq!(directions(&[(hint.name, value), (hint.name, value)]), once, "{}", hint.name);
        for second in [other.as_str(), empty] {
            for pair in [[value, second], [second, value]] {
                let bytes = serialized(&pair.map(|value| (hint.name, value)));
                let (got, contradicted) = Directions::of_headers(Headers::new(&bytes), "");
                assert_eq!(contradicted.iter().map(|(_, hint)| hint.name).collect::<Vec<_>>(), [hint.name]);
                assert_eq!(got.is_malformed, hint.meaning != Meaning::Other, "{}", hint.name);
                assert!(got.pins.is_empty() && got.rank.is_none() && !got.has_subset() && got.routing_key.is_none());
            }
        }
    }
}

#[test]
fn the_first_router_in_the_order_of_precedence_counts() {
    let all = [
        ("x-smg-target-worker", "1"),
        ("x-worker-instance-id", "old"),
        ("x-dynamo-worker-instance-id", "new"),
        ("x-gateway-destination-endpoint", "10.0.0.1:80"),
        ("x-warmroute-target-worker", "own"),
    ];
    let want = [Pin::Place(1), name("old"), name("new"), address("10.0.0.1:80"), name("own")];
    for (last, want) in want.into_iter().enumerate() {
        assert_eq!(directions(&all[..=last]).pins, [want]);
    }
    let ranks = [("x-data-parallel-rank", "1"), ("x-dp-rank", "2"), ("x-dynamo-dp-rank", "3")];
    for (last, want) in [1, 2, 3].into_iter().enumerate() {
        assert_eq!(directions(&ranks[..=last]).rank, Some(want));
    }
}

#[test]
fn a_subset_allows_addresses_and_ips_and_nothing_else() {
    let got =
        directions(&[("x-gateway-destination-endpoint-subset", "10.0.0.1:80, 10.0.0.2,[2001:db8::1]:80,2001:db8::2")]);
    let cases = [
        ("10.0.0.1:80", true),
        ("10.0.0.1:81", false),
        ("10.0.0.2:80", true),
        ("10.0.0.2:81", true),
        ("10.0.0.3:80", false),
        ("[2001:db8::1]:80", true),
        ("[2001:db8::1]:81", false),
        ("[2001:db8::2]:9", true),
    ];
    for (address, want) in cases {
        assert_eq!(got.allows(address), want, "{address}");
    }
    let mut both = got;
    both.add_subset_metadata(b"10.0.0.1,10.0.0.3");
    let allowed = cases
        .iter()
        .filter(|(address, _)| both.allows(address) && both.gateway_allows(address))
        .map(|(address, _)| *address);
    assert_eq!(allowed.collect::<Vec<_>>(), ["10.0.0.1:80"], "a header does not widen what the gateway allows");
}

#[test]
fn the_gateways_metadata_are_a_list_or_a_text() {
    let list = serialized(&[("10.0.0.1:80", ""), ("10.0.0.2:80", "")]);
    for value in [&list[..], b"10.0.0.1:80,10.0.0.2:80"] {
        let mut got = Directions::default();
        got.add_subset_metadata(value);
        assert!(["10.0.0.1:80", "10.0.0.2:80"].into_iter().all(|address| got.gateway_allows(address)));
        assert!(!got.gateway_allows("10.0.0.3:80") && got.allows("10.0.0.3:80") && !got.has_subset());
    }
    for value in [&b""[..], b"\x01", &1.0_f64.to_le_bytes(), &serialized(&[("pod", "")]), &serialized(&[])] {
        let mut got = Directions::default();
        got.add_subset_metadata(value);
        assert!(got.has_gateway_subset() && !got.is_malformed && !got.is_empty(), "{value:?}");
        assert!(!got.gateway_allows("10.0.0.1:80"), "nobody is allowed: {value:?}");
    }
    let mut partly = Directions::default();
    partly.add_subset_metadata(b"pod-1, 10.0.0.1:80");
    assert!(partly.gateway_allows("10.0.0.1:80") && !partly.gateway_allows("10.0.0.2:80"));
}

#[test]
fn a_routing_key_names_a_session_and_chooses_no_worker() {
    let got = directions(&[("x-smg-routing-key", "user 7")]);
    assert_eq!((got.routing_key.as_deref(), got.is_empty()), (Some(&b"user 7"[..]), true));
    assert_eq!(directions(&[("x-smg-routing-key", "")]), Directions::default());
}

#[test]
fn a_routing_key_where_all_clients_name_their_sessions_is_no_hint() {
    let named = |header: &str, session_header: &str| HintSet::place(header.as_bytes(), session_header).is_some();
    assert!(named("x-smg-routing-key", "") && named("x-smg-routing-key", "x-session-id"));
    assert!(!named("x-smg-routing-key", "x-smg-routing-key"));
    // Nothing else is given away by being called a session.
    assert!(hints().filter(|hint| hint.meaning != Meaning::RoutingKey).all(|hint| named(hint.name, hint.name)));
}

#[test]
fn the_body_counts_where_no_header_says_more() {
    struct Case {
        headers: &'static [(&'static str, &'static str)],
        extension: &'static str,
        pins: Vec<Pin>,
        rank: Option<u32>,
        is_malformed: bool,
    }
    let case = |headers, extension, pins, rank| Case { headers, extension, pins, rank, is_malformed: false };
    let malformed = |extension| Case { headers: &[], extension, pins: vec![], rank: None, is_malformed: true };
    let cases = [
        case(&[], r#"{"backend_instance_id": 7}"#, vec![name("7")], None),
        case(&[], r#"{"decode_worker_id":8,"prefill_worker_id":9,"backend_instance_id":7}"#, vec![name("8")], None),
        case(&[], r#"{"decode_worker_id":null,"backend_instance_id":7,"dp_rank":2}"#, vec![name("7")], Some(2)),
        case(&[], r#"{"prefill_worker_id":9,"token_data":[1,2,3],"agent_hints":{"dp_rank":4}}"#, vec![], None),
        case(&[], r#"{"d\u0070_rank":5,"dp_rank":6}"#, vec![], Some(6)),
        case(&[("x-worker-instance-id", "1")], r#"{"decode_worker_id":8,"dp_rank":2}"#, vec![name("1")], Some(2)),
        case(&[("x-dp-rank", "1")], r#"{"decode_worker_id":8,"dp_rank":2}"#, vec![name("8")], Some(1)),
        case(&[], "null", vec![], None),
        case(&[], "[7]", vec![], None),
        malformed(r#"{"decode_worker_id":"8"}"#),
        malformed(r#"{"decode_worker_id":-8}"#),
        malformed(r#"{"decode_worker_id":{}}"#),
        malformed(r#"{"dp_rank":1.0}"#),
    ];
    for Case { headers, extension, pins, rank, is_malformed } in cases {
        let mut got = directions(headers);
        got.add_body(format!(r#"{{"model":"m","nvext":{extension},"messages":[]}}"#).as_bytes());
        assert_eq!((got.pins, got.rank, got.is_malformed), (pins, rank, is_malformed), "{extension}");
    }
}

#[test]
fn a_rank_in_the_engines_own_words_counts_as_one() {
    type Case = (&'static [(&'static str, &'static str)], &'static str, Option<u32>, bool);
    let cases: &[Case] = &[
        (&[], r#"{"routed_dp_rank":3}"#, Some(3), false),
        (&[], r#"{"data_parallel_rank":3,"a":[]}"#, Some(3), false),
        (&[], r#"{"data_parallel_rank":3,"routed_dp_rank":4}"#, Some(4), false),
        (&[], r#"{"routed_dp_rank":null,"data_parallel_rank":3}"#, Some(3), false),
        (&[], r#"{"routed_dp_rank":3,"nvext":{"dp_rank":5,"routed_dp_rank":6}}"#, Some(5), false),
        (&[("x-data-parallel-rank", "1")], r#"{"routed_dp_rank":3}"#, Some(1), false),
        (&[], r#"{"dp_rank":3,"bootstrap_room":7,"kv_transfer_params":{"routed_dp_rank":1}}"#, None, false),
        (&[], r#"{"routed_dp_rank":[3]}"#, None, true),
        (&[], r#"{"routed_dp_rank":3"#, None, true),
    ];
    for (headers, body, rank, is_malformed) in cases {
        let mut got = directions(headers);
        got.add_body(body.as_bytes());
        assert_eq!((got.rank, got.is_malformed, got.pins.len()), (*rank, *is_malformed, 0), "{body}");
    }
}

#[test]
fn wherever_a_body_is_cut_no_other_worker_is_read_than_it_names() {
    for members in [
        r#""decode_worker_id":702,"dp_rank":13"#,
        r#""backend_instance_id":11,"decode_worker_id":702,"dp_rank":13"#,
        r#""dp_rank":1,"decode_worker_id":70,"dp_rank":13,"decode_worker_id":702"#,
    ] {
        let body = format!(r#"{{"model":"m","nvext":{{{members}}},"messages":[]}}"#);
        for cut in 0..=body.len() {
            let mut got = Directions::default();
            got.add_body(&body.as_bytes()[..cut]);
            let is_whole = cut > body.find('}').unwrap();
            let want = if is_whole { (vec![name("702")], Some(13)) } else { (vec![], None) };
            assert_eq!((got.pins, got.rank), want, "{}", &body[..cut]);
            assert!(!is_whole || !got.is_malformed);
        }
    }
    let mut got = Directions::default();
    got.add_body(br#"{"routed_dp_rank":1"#);
    assert!(got.is_malformed && got.rank.is_none());
}

#[test]
fn names_are_told_apart_and_begin_as_hints_do() {
    let mut names: Vec<&str> = hints().map(|hint| hint.name).collect();
    assert!(names.iter().all(|name| name.starts_with("x-") && *name == name.to_ascii_lowercase()));
    for (place, hint) in hints().enumerate() {
        assert_eq!(HintSet::place(hint.name.as_bytes(), ""), Some(place));
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), HINTS);
}

#[test]
fn whatever_comes_is_read_within_bounds() {
    let pieces =
        ["10.0.0.1:80", ",", " ", "pod-1", "[::1]:9", "::1", "\u{0}", "ü", "-", "7", "99999999999", "%", "\"", "{"];
    let names: Vec<&str> = hints().map(|hint| hint.name).chain(["x-other", "x-", ""]).collect();
    for seed in 0..20_000 {
        let mut rng = Rng::new(seed);
        let mut draw = |count: usize| rng.below(count as u32) as usize;
        let values: Vec<String> =
            (0..draw(6)).map(|_| (0..draw(9)).map(|_| pieces[draw(pieces.len())]).collect()).collect();
        let headers: Vec<_> = values.iter().map(|value| (names[draw(names.len())], value.as_str())).collect();
        let mut bytes = serialized(&headers);
        if draw(3) == 0 && !bytes.is_empty() {
            let at = draw(bytes.len());
            bytes[at] = draw(256) as u8;
        }
        let (mut got, contradicted) = Directions::of_headers(Headers::new(&bytes), "");
        let body: String = (0..draw(12)).map(|_| pieces[draw(pieces.len())]).collect();
        got.add_body(format!(r#"{{"nvext":{{"decode_worker_id":{body},"dp_rank":{body}}}"#).as_bytes());
        got.add_subset_metadata(&bytes);
        assert!(got.pins.len() <= PINS_MAX, "seed {seed}");
        assert!(contradicted.is_empty() || headers.len() > 1 || bytes != serialized(&headers), "seed {seed}");
        assert!(!got.gateway_allows(&body) || body.contains("10.0.0.1"), "seed {seed}");
    }
}
