//! Tests of the question and of the page: a real one, a table of flags, what is too long, and any bytes.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::rng::Rng;
use crate::worker::{Endpoint, Standing};

/// Of Envoy 1.40; see the README beside it.
const REAL: &str = include_str!("../../tests/testdata/envoy-1.40.0-clusters.json");

fn endpoint(address: &str, hostname: &str, priority: u8, standing: Standing) -> Endpoint {
    Endpoint { address: address.to_owned(), hostname: hostname.to_owned(), priority, standing }
}

fn read_one(page: &str) -> FoundCluster {
    read_page(page.as_bytes(), &["llm"]).unwrap().pop().unwrap().unwrap()
}

/// The page of one cluster with these `host_statuses`.
fn page_of(hosts: &str) -> String {
    format!(r#"{{"cluster_statuses": [{{"name": "llm", "host_statuses": [{hosts}]}}]}}"#)
}

fn host(address: &str, rest: &str) -> String {
    format!(r#"{{"address": {{"socket_address": {{"address": "{address}", "port_value": 8000}}}}{rest}}}"#)
}

#[test]
fn a_real_page_tells_addresses_names_priorities_and_health() {
    let found = read_page(REAL.as_bytes(), &["dns", "nobody", "llm", "a.b|c+(d)?&x=é", "checked", "internal"]).unwrap();
    let endpoints: Vec<Option<Vec<Endpoint>>> =
        found.into_iter().map(|found| found.map(|cluster| cluster.endpoints)).collect();
    let want = [
        Some(vec![endpoint("[::1]:9", "localhost", 0, Standing::Healthy)]),
        None,
        Some(vec![
            endpoint("127.0.0.11:8000", "vllm-0.vllm", 0, Standing::Healthy),
            endpoint("127.0.0.12:8000", "vllm-1.vllm", 0, Standing::Draining),
            endpoint("127.0.0.13:8000", "", 0, Standing::Unhealthy),
            endpoint("127.0.0.14:8000", "", 0, Standing::Unhealthy),
            endpoint("127.0.0.15:8000", "", 0, Standing::Degraded),
            endpoint("127.0.0.16:8000", "vllm-6.vllm", 1, Standing::Healthy),
            endpoint("[::1]:8000", "vllm-5.vllm", 1, Standing::Healthy),
        ]),
        Some(vec![endpoint("127.0.0.1:9", "", 0, Standing::Healthy)]),
        Some(vec![endpoint("127.0.0.1:9", "", 0, Standing::Unhealthy)]),
        Some(vec![]),
    ];
    assert_eq!(endpoints, want);
}

#[test]
fn flags_become_a_standing() {
    let cases = [
        ("", Standing::Healthy),
        (r#""eds_health_status": "HEALTHY""#, Standing::Healthy),
        (r#""eds_health_status": "UNKNOWN""#, Standing::Healthy),
        (r#""eds_health_status": "A_LATER_ONE""#, Standing::Healthy),
        (r#""eds_health_status": "DEGRADED""#, Standing::Degraded),
        (r#""failed_active_degraded_check": true"#, Standing::Degraded),
        (r#""failed_active_degraded_check": true, "failed_outlier_check": true"#, Standing::Unhealthy),
        (r#""eds_health_status": "UNHEALTHY""#, Standing::Unhealthy),
        (r#""eds_health_status": "TIMEOUT""#, Standing::Unhealthy),
        (r#""failed_outlier_check": true, "eds_health_status": "HEALTHY""#, Standing::Unhealthy),
        (r#""failed_active_health_check": true, "pending_active_hc": true"#, Standing::Unhealthy),
        (r#""failed_active_health_check": false, "pending_active_hc": true"#, Standing::Healthy),
        (r#""eds_health_status": "DRAINING""#, Standing::Draining),
        (r#""pending_dynamic_removal": true, "eds_health_status": "HEALTHY""#, Standing::Draining),
        (r#""pending_dynamic_removal": true, "failed_active_health_check": true"#, Standing::Draining),
    ];
    for (flags, want) in cases {
        let page = page_of(&host("10.0.0.1", &format!(r#", "health_status": {{{flags}}}"#)));
        assert_eq!(read_one(&page).endpoints, [endpoint("10.0.0.1:8000", "", 0, want)], "{flags}");
    }
}

#[test]
fn pages_are_read_whatever_their_form() {
    let healthy = |address: &str| vec![endpoint(address, "", 0, Standing::Healthy)];
    let whole = |cluster: &str| format!(r#"{{"cluster_statuses": [{cluster}]}}"#);
    let one = host("10.0.0.1", "");
    let ill = host("10.0.0.1", r#", "health_status": {"failed_outlier_check": true}"#);
    let second = host("10.0.0.1", r#", "priority": 1"#);
    let cases = [
        ("no endpoints", whole(r#"{"name": "llm"}"#), vec![]),
        ("an empty list", page_of(""), vec![]),
        ("the name last", whole(&format!(r#"{{"host_statuses": [{one}], "name": "llm"}}"#)), healthy("10.0.0.1:8000")),
        (
            "an escaped name",
            whole(&format!(r#"{{"name": "l\u006cm", "host_statuses": [{one}]}}"#)),
            healthy("10.0.0.1:8000"),
        ),
        (
            "others around it",
            whole(&format!(
                r#"{{"name": "a", "host_statuses": [{{}}, 7, "x"]}}, {{"name": "llm", "host_statuses": [{one}]}}, {{"name": "llm2"}}"#
            )),
            healthy("10.0.0.1:8000"),
        ),
        ("IPv6 in a long form", page_of(&host("2001:0db8::0:1", "")), healthy("[2001:db8::1]:8000")),
        ("an address twice", page_of(&format!("{ill}, {one}")), healthy("10.0.0.1:8000")),
        ("in two priorities", page_of(&format!("{second}, {one}")), healthy("10.0.0.1:8000")),
        (
            "a healthy one of a lower priority",
            page_of(&format!("{ill}, {second}")),
            vec![endpoint("10.0.0.1:8000", "", 1, Standing::Healthy)],
        ),
        (
            "the cluster twice",
            whole(&format!(
                r#"{{"name": "llm", "host_statuses": [{one}]}}, {{"name": "llm", "host_statuses": [{one}]}}"#
            )),
            healthy("10.0.0.1:8000"),
        ),
        (
            "a pipe",
            page_of(r#"{"address": {"pipe": {"path": "/run/a"}}}, {"address": {"envoy_internal_address": {}}}, {}"#),
            vec![],
        ),
        (
            "no port, a scope, a name",
            page_of(&format!(
                r#"{{"address": {{"socket_address": {{"address": "10.0.0.1"}}}}}}, {}, {}"#,
                host("fe80::1%eth0", ""),
                host("vllm-0", "")
            )),
            vec![],
        ),
        (
            "a priority beyond any",
            page_of(&host("10.0.0.1", r#", "priority": 4294967295"#)),
            vec![endpoint("10.0.0.1:8000", "", 255, Standing::Healthy)],
        ),
        ("a name that is none", page_of(&host("10.0.0.1", r#", "hostname": "a\r\nx: y""#)), healthy("10.0.0.1:8000")),
        (
            "a name",
            page_of(&host("10.0.0.1", r#", "hostname": "vLLM-0.svc:80""#)),
            vec![endpoint("10.0.0.1:8000", "vLLM-0.svc:80", 0, Standing::Healthy)],
        ),
    ];
    for (name, page, want) in cases {
        assert_eq!(read_one(&page).endpoints, want, "{name}");
    }
    // What Envoy says where the filter leaves nothing.
    assert_eq!(read_page(b"{}\n", &["llm"]).unwrap(), [None]);
}

#[test]
fn what_is_no_page_is_refused_as_a_whole() {
    let page = page_of(&host("10.0.0.1", ""));
    let deep = [r#"{"x": "#, &"[".repeat(200_000), r#"}"#].concat();
    for text in [
        "",
        "Invalid re2 regex",
        "[]",
        "{",
        &page[..page.len() - 1],
        &format!("{page}}}"),
        r#"{"cluster_statuses": {}}"#,
        r#"{"cluster_statuses": [{"name": 7}]}"#,
        r#"{"cluster_statuses": [{"name": "llm", "host_statuses": [{"priority": -1}]}]}"#,
        &deep,
    ] {
        assert!(read_page(text.as_bytes(), &["llm"]).is_err(), "{}", &text[..text.len().min(80)]);
    }
    assert!(read_page(b"{\"cluster_statuses\": [{\"name\": \"\xff\"}]}", &["llm"]).is_err());
}

#[test]
fn a_page_that_is_too_long_is_refused_unread() {
    let mut page = page_of(&host("10.0.0.1", "")).into_bytes();
    page.resize(10 << 20, b' ');
    assert!(matches!(read_page(&page, &["llm"]), Err(DiscoveryError::TooLong { bytes }) if bytes == 10 << 20));
    page.truncate(PAGE_BYTES_MAX);
    assert!(read_page(&page, &["llm"]).is_ok());
}

#[test]
fn one_cluster_among_ten_thousand_is_found() {
    let other = |number: usize| {
        let stats = r#""stats": [{"name": "cx_total", "value": "7"}, {"type": "GAUGE", "name": "rq_active"}]"#;
        format!(
            r#"{{"name": "outbound|80||service-{number}.mesh", "host_statuses": [{}]}}"#,
            host("10.9.9.9", &format!(", {stats}"))
        )
    };
    let mut clusters: Vec<String> = (0..10_000).map(other).collect();
    clusters.insert(
        7_000,
        format!(r#"{{"name": "outbound|8000||vllm.mesh", "host_statuses": [{}]}}"#, host("10.0.0.1", "")),
    );
    let page = format!(r#"{{"cluster_statuses": [{}]}}"#, clusters.join(","));
    assert!(page.len() < PAGE_BYTES_MAX);
    let found = read_page(page.as_bytes(), &["outbound|8000||vllm.mesh", "outbound|8000||vllm"]).unwrap();
    let addresses: Vec<Option<usize>> =
        found.iter().map(|found| found.as_ref().map(|cluster| cluster.endpoints.len())).collect();
    assert_eq!(addresses, [Some(1), None]);
}

#[test]
fn endpoints_beyond_the_bound_are_counted() {
    let hosts: Vec<String> =
        (0..ENDPOINTS_MAX + 3).map(|number| host(&format!("10.0.{}.{}", number / 256, number % 256), "")).collect();
    let cluster = read_one(&page_of(&hosts.join(",")));
    assert_eq!((cluster.endpoints.len(), cluster.left_out), (ENDPOINTS_MAX, 3));
    assert!(cluster.endpoints.is_sorted_by(|left, right| left.address < right.address));
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    for seed in 0..4_000 {
        let mut rng = Rng::new(seed);
        let mut page = REAL.as_bytes().to_vec();
        for _ in 0..=rng.below(4) {
            let at = rng.below(page.len() as u32) as usize;
            page[at] = rng.next_u64() as u8;
        }
        if seed % 3 == 0 {
            page.truncate(rng.below(page.len() as u32) as usize);
        }
        if let Ok(found) = read_page(&page, &["llm", "dns"]) {
            for endpoint in found.into_iter().flatten().flat_map(|cluster| cluster.endpoints) {
                assert!(endpoint.standing.is_in_cluster() && endpoint.address.parse::<std::net::SocketAddr>().is_ok());
            }
        }
    }
}

#[test]
fn the_question_names_just_the_clusters_that_are_wanted() {
    const PATH: &str = "/clusters?format=json";
    let ask = |path: &str, names: &[&str]| question(path, names.iter().copied());
    let cases = [
        (PATH, &["llm"][..], "/clusters?format=json&filter=%5E%28%3F%3Allm%29%24"),
        (PATH, &["a_1-b", "c"], "/clusters?format=json&filter=%5E%28%3F%3Aa_1%5C-b%7Cc%29%24"),
        (PATH, &["o|80||x.y"], "/clusters?format=json&filter=%5E%28%3F%3Ao%5C%7C80%5C%7C%5C%7Cx%5C%2Ey%29%24"),
        (PATH, &["é\0"], "/clusters?format=json&filter=%5E%28%3F%3A%C3%A9%5Cx00%29%24"),
        ("/proxy", &["llm"], "/proxy?filter=%5E%28%3F%3Allm%29%24"),
        ("/clusters?filter=mine&format=json", &["llm"], "/clusters?filter=mine&format=json"),
        (PATH, &[&"n".repeat(17_000)], PATH),
    ];
    for (path, names, want) in cases {
        assert_eq!(ask(path, names), want);
    }
}
