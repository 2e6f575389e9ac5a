//! What the reader accepts, what it says of what it does not, and what it tells of itself.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use serde_json::json;

use super::*;

#[derive(Debug, PartialEq)]
struct Config {
    enabled: bool,
    interval_ms: u64,
    retries: u32,
    share: f64,
    policy: &'static str,
    block_bytes: u32,
    headers: Vec<String>,
    pools: Vec<(String, Vec<String>)>,
}

/// One key of each kind, nested as a real configuration is.
fn read_all(s: &mut Section<'_>) -> Config {
    let (interval_ms, retries, share) = s.section("poll", "How load is read.", |s| {
        (
            s.u64("intervalMs", 1_000, 50..=60_000, "Milliseconds between two scrapes of one worker."),
            s.u32("retries", 2, 0..=10, "Further attempts."),
            s.f64("jitterShare", 0.1, 0.0..=0.5, "Share by which the interval varies."),
        )
    });
    let (policy, block_bytes) = s.text_or_section("policy", "name", "How a worker is chosen.", |s| {
        let name = s.one_of("name", &["hybrid", "prefix-hash"], "hybrid", "The policy.");
        let is_asked = name == "prefix-hash" || s.is_describing();
        (name, if is_asked { s.u32("blockBytes", 256, 16..=4096, "Bytes in one prompt block.") } else { 0 })
    });
    Config {
        enabled: s.bool("enabled", true, "Whether requests are routed at all."),
        interval_ms,
        retries,
        share,
        policy,
        block_bytes,
        headers: s.strings("trustedHeaders", &["x-a"], 0..=2, 1..=8, "Headers that are believed."),
        pools: s.list("pools", 1..=2, "The pools.", |s, _| {
            let cluster = s.required_string("cluster", 1..=16, "Name of the Envoy cluster.");
            s.string("note", "", 1..=4, "For people.");
            let workers = s.list("workers", 0..=3, "Its workers.", |s, _| s.address("address", "Where it listens."));
            (cluster, workers)
        }),
    }
}

fn error_of(config: &Value) -> String {
    read(config, read_all).map_or_else(|error| error.to_string(), |config| format!("accepted as {config:?}"))
}

#[test]
fn an_absent_key_has_its_default() {
    let config = read(&json!({ "pools": [{ "cluster": "a" }] }), read_all);
    let want = Config {
        enabled: true,
        interval_ms: 1_000,
        retries: 2,
        share: 0.1,
        policy: "hybrid",
        block_bytes: 0,
        headers: vec!["x-a".to_string()],
        pools: vec![("a".to_string(), vec![])],
    };
    assert_eq!(config, Ok(want));
}

#[test]
fn numbers_may_come_as_doubles() {
    let text = r#"{"poll": {"intervalMs": 5e3, "retries": 3.0, "jitterShare": 0}, "enabled": false, "trustedHeaders": [],
        "policy": {"name": "prefix-hash", "blockBytes": 512.0},
        "pools": [{"cluster": "a", "workers": [{"address": "10.0.0.1:8000"}, {"address": "[0:0::1]:80"}]}]}"#;
    let want = Config {
        enabled: false,
        interval_ms: 5_000,
        retries: 3,
        share: 0.0,
        policy: "prefix-hash",
        block_bytes: 512,
        headers: vec![],
        pools: vec![("a".to_string(), vec!["10.0.0.1:8000".to_string(), "[::1]:80".to_string()])],
    };
    assert_eq!(read_bytes(text.as_bytes(), read_all), Ok(want));
}

#[test]
fn numbers_may_come_as_text() {
    let read_both = |s: &mut Section<'_>| (s.f64("share", 0.1, 0.0..=2.0, ""), s.u64("count", 1, 0..=100, ""));
    let read = |share: &str, count: &str| read(&json!({ "share": share, "count": count }), read_both);
    assert_eq!(read("1.25", "1e1"), Ok((1.25, 10)));
    let error = |share: &str, count: &str| read(share, count).expect_err("is refused").to_string();
    assert_eq!(error("2.5", "-1.0"), "share is \"2.5\", must be 0 to 2; count is \"-1.0\", must be 0 to 100");
    for text in ["NaN", "inf", "", " 1", "1s", "0x1"] {
        let want = format!("share is {text:?}, must be a number, 0 to 2");
        assert_eq!(error(text, "1"), want);
    }
}

#[test]
fn a_text_is_short_for_a_section() {
    let long = read(&json!({ "policy": { "name": "prefix-hash" }, "pools": [{ "cluster": "a" }] }), read_all);
    let short = read(&json!({ "policy": "prefix-hash", "pools": [{ "cluster": "a" }] }), read_all);
    assert_eq!(short.as_ref().map(|config| (config.policy, config.block_bytes)), Ok(("prefix-hash", 256)));
    assert_eq!(short, long);
}

#[test]
fn every_error_says_where_what_and_what_is_allowed() {
    // Each fragment is laid over a configuration that is fine.
    let cases: &[(Value, &str)] = &[
        (json!({ "poll": { "intervalMs": 0 } }), "poll.intervalMs is 0, must be 50 to 60000"),
        (json!({ "poll": { "intervalMs": -1 } }), "poll.intervalMs is -1, must be 50 to 60000"),
        (json!({ "poll": { "intervalMs": 60_001.0 } }), "poll.intervalMs is 60001.0, must be 50 to 60000"),
        (json!({ "poll": { "intervalMs": 1000.5 } }), "poll.intervalMs is 1000.5, must be a whole number, 50 to 60000"),
        (json!({ "poll": { "intervalMs": 1e300 } }), "poll.intervalMs is 1e+300, must be a whole number, 50 to 60000"),
        (json!({ "poll": { "intervalMs": "1s" } }), "poll.intervalMs is \"1s\", must be a whole number, 50 to 60000"),
        (json!({ "poll": { "intervalMs": null } }), "poll.intervalMs is null, must be a whole number, 50 to 60000"),
        (json!({ "poll": { "retries": u64::MAX } }), "poll.retries is 18446744073709551615, must be 0 to 10"),
        (json!({ "poll": { "jitterShare": 0.75 } }), "poll.jitterShare is 0.75, must be 0 to 0.5"),
        (json!({ "poll": { "jitterShare": [] } }), "poll.jitterShare is [], must be a number, 0 to 0.5"),
        (json!({ "poll": 5 }), "poll is 5, must be an object"),
        (
            json!({ "poll": { "intervlMs": 100 } }),
            "poll.intervlMs is not a key here, did you mean \"intervalMs\"? known keys: intervalMs, retries, jitterShare",
        ),
        (json!({ "poll": { "port": 1 } }), "poll.port is not a key here, known keys: intervalMs, retries, jitterShare"),
        (
            json!({ "pool": [] }),
            "pool is not a key here, did you mean \"poll\"? known keys: poll, policy, enabled, trustedHeaders, pools",
        ),
        (
            json!({ "poll": { "a\nb": 1 } }),
            "poll[\"a\\nb\"] is not a key here, known keys: intervalMs, retries, jitterShare",
        ),
        (json!({ "enabled": "yes" }), "enabled is \"yes\", must be true or false"),
        (json!({ "policy": "hash" }), "policy.name is \"hash\", known: hybrid, prefix-hash"),
        (json!({ "policy": { "name": 5, "blockBytes": 16 } }), "policy.name is 5, known: hybrid, prefix-hash"),
        (json!({ "policy": 5 }), "policy is 5, must be a string or an object"),
        (json!({ "policy": { "blockBytes": 16 } }), "policy.blockBytes is not a key here, known keys: name"),
        (json!({ "trustedHeaders": "x" }), "trustedHeaders is \"x\", must be a list of 0 to 2 strings of 1 to 8 bytes"),
        (
            json!({ "trustedHeaders": ["a", "b", "c"] }),
            "trustedHeaders is [\"a\",\"b\",\"c\"], must be a list of 0 to 2 strings of 1 to 8 bytes",
        ),
        (json!({ "trustedHeaders": ["a", 5] }), "trustedHeaders[1] is 5, must be a string of 1 to 8 bytes"),
        (json!({ "pools": [] }), "pools is [], must be a list of 1 to 2 objects"),
        (json!({ "pools": [5] }), "pools[0] is 5, must be an object"),
        (json!({ "pools": [{}] }), "pools[0].cluster is missing, must be a string of 1 to 16 bytes"),
        (json!({ "pools": [{ "cluster": "" }] }), "pools[0].cluster is \"\", must be a string of 1 to 16 bytes"),
        (
            json!({ "pools": [{ "cluster": "a", "note": "12345" }] }),
            "pools[0].note is \"12345\", must be a string of 1 to 4 bytes",
        ),
        (
            json!({ "pools": [{ "cluster": "a", "workers": [{ "address": "[::1]:1" }, { "address": "x" }] }] }),
            "pools[0].workers[1].address is \"x\", must be IP:port or [IPv6]:port",
        ),
        (
            json!({ "pools": [{ "cluster": "a", "workers": [{ "address": "1.2.3.4:0" }] }] }),
            "pools[0].workers[0].address is \"1.2.3.4:0\", must be IP:port or [IPv6]:port with a port from 1 to 65535",
        ),
        (
            json!({ "pools": [{ "cluster": "a", "workers": [{}] }] }),
            "pools[0].workers[0].address is missing, must be IP:port or [IPv6]:port",
        ),
    ];
    for (fragment, text) in cases {
        let mut config = json!({ "pools": [{ "cluster": "a" }] });
        config.as_object_mut().unwrap().extend(fragment.as_object().unwrap().clone());
        assert_eq!(error_of(&config), *text, "{fragment}");
    }
    assert_eq!(error_of(&json!({})), "pools is missing, must be a list of 1 to 2 objects");
    assert_eq!(error_of(&json!([1])), "configuration is a list, must be an object");
}

#[test]
fn all_errors_are_told_at_once() {
    let config = json!({ "poll": { "retries": 11, "every": 5 }, "pools": [{}, { "cluster": 1 }, { "cluster": 2 }] });
    let texts = [
        "poll.retries is 11, must be 0 to 10",
        "poll.every is not a key here, known keys: intervalMs, retries, jitterShare",
        "pools is [{},{\"cluster\":1},{\"cluster\":2}], must be a list of 1 to 2 objects",
        "pools[0].cluster is missing, must be a string of 1 to 16 bytes",
        "pools[1].cluster is 1, must be a string of 1 to 16 bytes",
    ];
    assert_eq!(error_of(&config), texts.join("; "));
}

#[test]
fn text_is_read_as_json_and_no_text_as_an_empty_configuration() {
    let error = |text: &str| read_bytes(text.as_bytes(), read_all).unwrap_err().to_string();
    assert_eq!(error(""), error("{}"));
    assert_eq!(error("{"), "configuration is not JSON: EOF while parsing an object at line 1 column 1");
}

#[test]
fn a_caller_can_refuse_what_only_it_can_check() {
    let error = read(&json!({ "a": 5, "b": 4 }), |s| {
        let (a, b) = (s.u32("a", 1, 0..=9, ""), s.u32("b", 1, 0..=9, ""));
        if s.is_clean() && a > b {
            s.refuse("a", "at most b");
        }
        assert!(!s.is_clean());
    });
    assert_eq!(error.unwrap_err().to_string(), "a is 5, must be at most b");
}

#[test]
fn the_description_has_every_key_in_the_order_of_reading() {
    let rows = describe(read_all);
    let text = |row: &KeyDoc| format!("{} | {} | {} | {} | {}", row.path, row.kind, row.default, row.allowed, row.doc);
    let want = [
        "poll | object | {} |  | How load is read.",
        "poll.intervalMs | whole number | 1000 | 50 to 60000 | Milliseconds between two scrapes of one worker.",
        "poll.retries | whole number | 2 | 0 to 10 | Further attempts.",
        "poll.jitterShare | number | 0.1 | 0 to 0.5 | Share by which the interval varies.",
        "policy | string or object | {} | a string is short for {name: ..} | How a worker is chosen.",
        "policy.name | string | \"hybrid\" | hybrid, prefix-hash | The policy.",
        "policy.blockBytes | whole number | 256 | 16 to 4096 | Bytes in one prompt block.",
        "enabled | boolean | true |  | Whether requests are routed at all.",
        "trustedHeaders | list of strings | [\"x-a\"] | 0 to 2 strings of 1 to 8 bytes | Headers that are believed.",
        "pools | list of objects | required | 1 to 2 | The pools.",
        "pools[].cluster | string | required | 1 to 16 bytes | Name of the Envoy cluster.",
        "pools[].note | string | \"\" | 1 to 4 bytes | For people.",
        "pools[].workers | list of objects | [] | 0 to 3 | Its workers.",
        "pools[].workers[].address | string | required | IP:port or [IPv6]:port | Where it listens.",
    ];
    assert_eq!(rows.iter().map(text).collect::<Vec<_>>(), want);
}

#[test]
fn addresses_have_one_form_and_no_names() {
    const CASES: &[(&str, Option<&str>)] = &[
        ("10.0.0.1:8000", Some("10.0.0.1:8000")),
        ("[2001:DB8:0:0::1]:08000", Some("[2001:db8::1]:8000")),
        ("10.0.0.1", None),
        ("10.0.0.1:0", None),
        ("10.0.0.1:65536", None),
        ("10.0.0.01:80", None),
        ("::1:8000", None),
        ("localhost:8000", None),
        (" 10.0.0.1:80", None),
        ("", None),
    ];
    for (text, address) in CASES {
        assert_eq!(parse_address(text).as_deref(), *address, "{text}");
    }
}

/// Shapes as `read_shapes` reads them: each by its type, and what keys it has follows from that.
fn read_shapes(s: &mut Section<'_>) -> Vec<(&'static str, u32)> {
    let default = json!([{ "type": "circle", "radius": 2 }, { "type": "square" }]);
    let shapes = s.list_or("shapes", &default, 0..=3, "The shapes.", |s, _| {
        let is_describing = s.is_describing();
        let shape = s.required_one_of("type", &["circle", "square"], "The shape.");
        let radius = (shape == Some("circle") || is_describing).then(|| s.u32("radius", 1, 1..=9, "Of the circle."));
        let side = (shape == Some("square") || is_describing).then(|| s.u32("side", 1, 1..=9, "Of the square."));
        shape.map(|shape| (shape, radius.or(side).unwrap_or_default()))
    });
    shapes.into_iter().flatten().collect()
}

#[test]
fn an_absent_list_has_its_default_and_an_empty_one_is_empty() {
    assert_eq!(read(&json!({}), read_shapes), Ok(vec![("circle", 2), ("square", 1)]));
    assert_eq!(read(&json!({ "shapes": [] }), read_shapes), Ok(vec![]));
    let written = json!({ "shapes": [{ "type": "square", "side": 3 }] });
    assert_eq!(read(&written, read_shapes), Ok(vec![("square", 3)]));
}

#[test]
fn a_required_name_says_which_other_keys_there_are() {
    let cases: &[(Value, &str)] = &[
        (json!({ "type": "cirle", "radius": 99 }), "shapes[0].type is \"cirle\", known: circle, square"),
        (json!({ "radius": 99 }), "shapes[0].type is missing, must be one of circle, square"),
        (json!({ "type": "circle", "radius": 99 }), "shapes[0].radius is 99, must be 1 to 9"),
        (json!({ "type": "circle", "side": 1 }), "shapes[0].side is not a key here, known keys: type, radius"),
        (json!(5), "shapes[0] is 5, must be an object"),
    ];
    for (shape, text) in cases {
        let error = read(&json!({ "shapes": [shape] }), read_shapes).expect_err("is refused");
        assert_eq!(error.to_string(), *text, "{shape}");
    }
}

#[test]
fn a_required_number_has_no_default() {
    let read_share = |s: &mut Section<'_>| s.required_f64("share", 0.5..=2.0, "");
    let read = |config: Value| read(&config, read_share).map_err(|error| error.to_string());
    assert_eq!(read(json!({ "share": "1.5" })), Ok(1.5));
    assert_eq!(read(json!({})), Err("share is missing, must be a number, 0.5 to 2".to_string()));
    assert_eq!(read(json!({ "share": 3 })), Err("share is 3, must be 0.5 to 2".to_string()));
    assert_eq!(read(json!({ "share": [] })), Err("share is [], must be a number, 0.5 to 2".to_string()));
    assert_eq!(describe(read_share)[0].default, "required");
}

#[test]
fn a_list_is_described_with_its_default_and_the_keys_of_all_types() {
    let rows = describe(read_shapes);
    let text = |row: &KeyDoc| format!("{} | {} | {}", row.path, row.default, row.allowed);
    let want = [
        r#"shapes | [{"radius":2,"type":"circle"},{"type":"square"}] | 0 to 3"#,
        "shapes[].type | required | circle, square",
        "shapes[].radius | 1 | 1 to 9",
        "shapes[].side | 1 | 1 to 9",
    ];
    assert_eq!(rows.iter().map(text).collect::<Vec<_>>(), want);
}

#[test]
fn a_key_that_two_readers_share_has_one_row_for_each_meaning() {
    let rows = describe(|s| {
        for default in [1, 1, 2] {
            s.u32("count", default, 0..=9, "A count.");
        }
    });
    let defaults: Vec<&str> = rows.iter().map(|row| row.default.as_str()).collect();
    assert_eq!(defaults, ["1", "2"]);
}
