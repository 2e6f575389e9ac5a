//! The sample requests: every file is a request of the format that it is named after, and every format has one.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::Path;

use warmroute::request::{Api, parse};

#[test]
fn every_sample_is_listed_and_is_a_request_of_its_format() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(root.join("src/request/samples.rs")).expect("is there");
    let mut formats = Vec::new();
    for entry in fs::read_dir(root.join("tests/testdata/requests")).expect("is there") {
        let path = entry.expect("is readable").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("is UTF-8").to_owned();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        assert!(list.contains(&format!("\"{name}\"")), "{name} is not in src/request/samples.rs");
        let named =
            |api: &Api| name.strip_prefix(api.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        let api = Api::ALL.into_iter().filter(named).max_by_key(|api| api.name().len()).expect("names a format");
        let body = fs::read(&path).expect("is readable");
        parse(api, &body, false).unwrap_or_else(|error| panic!("{name}: {error}"));
        formats.push(api);
    }
    for api in Api::ALL {
        assert!(formats.contains(&api), "no sample of {}", api.name());
    }
}
