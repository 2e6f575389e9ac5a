//! What fuzzing starts from: the samples in `tests/testdata` and `envoy/`, as inputs of the targets.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use warmroute::request::Api;

use crate::{metrics, request, usage};

/// The repository's root.
#[must_use]
pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The seeds of the target called `target`; none for those that take choices and no text.
///
/// # Errors
/// When a folder of samples cannot be read.
pub fn seeds(target: &str) -> Result<Vec<Vec<u8>>> {
    let samples = samples()?;
    let is_answer = |name: &str| name.starts_with("answers/") || name.starts_with("vllm-") && name.contains("chat");
    Ok(match target {
        "request" => samples.iter().flat_map(|(name, bytes)| requests(name, bytes)).collect(),
        "metrics" => samples
            .iter()
            .filter(|(name, _)| name.contains("metrics"))
            .flat_map(|(_, page)| {
                (0..warmroute::engine::DIALECTS.len()).map(|dialect| metrics::input(dialect as u8, page))
            })
            .collect(),
        "usage" => {
            samples.iter().filter(|(name, _)| is_answer(name)).map(|(_, answer)| usage::input(3, answer)).collect()
        }
        "clusters" => {
            samples.iter().filter(|(name, _)| name.ends_with("clusters.json")).map(|(_, page)| page.clone()).collect()
        }
        "config" => CONFIGS.iter().map(|config| config.as_bytes().to_vec()).collect(),
        _ => Vec::new(),
    })
}

/// Every file in `tests/testdata`, at most one folder deep, by its name from there.
fn samples() -> Result<Vec<(String, Vec<u8>)>> {
    let root = repository_root().join("tests/testdata");
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.strip_prefix(&root)?.display().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if !name.ends_with(".md") {
                files.push((name, fs::read(&path)?));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// A request's sample in its format, whole and cut in the middle.
fn requests(name: &str, body: &[u8]) -> Vec<Vec<u8>> {
    let Some(name) = name.strip_prefix("requests/") else { return Vec::new() };
    // The longest, for `generate` is the front of `generate-stream`.
    let formats = Api::ALL.iter().enumerate().filter(|(_, api)| name.starts_with(api.name()));
    let Some((api, _)) = formats.max_by_key(|(_, api)| api.name().len()) else { return Vec::new() };
    let middle = u16::try_from(body.len() / 2).unwrap_or(u16::MAX);
    [0, middle].map(|cut| request::input(api as u8, cut, body)).to_vec()
}

const CONFIGS: &[&str] = &[
    r#"{"pools":[{"cluster":"llm","workers":[{"address":"10.0.0.1:8000"},{"address":"[2001:db8::1]:8000"}]}],
    "policy":{"name":"hybrid"},"poll":{"cluster":"poll","path":"/metrics","intervalMs":500,"timeoutMs":1000,
    "reportMaxAgeMs":5000},"session":{"header":"x-session-id","cookie":"session","bodyKey":"user"},
    "index":{"pages":64,"assumedKvTokens":400000},"gateways":2,"responseHeaders":true}"#,
    r#"{"pools":[{"cluster":"a","workers":[{"address":"10.0.0.1:1"}]}],"policy":{"name":"weighted","scorers":
    [{"type":"queue-scorer","weight":2},{"type":"prefix-cache-scorer","weight":"1.5"}],"filters":[]},
    "routePolicies":[{"name":"batch","policy":"least-load"},{"name":"x","policy":{"name":"prefix-hash"}}]}"#,
    r#"{"pools":[],"policy":"nobody","poll":{"intervalMs":0},"pool":1}"#,
];
