//! The house rules that a machine can check.
#![cfg(not(target_arch = "wasm32"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// Every Rust file of the workspace with its text.
fn rust_files() -> Vec<(String, String)> {
    fn collect(folder: &Path, root: &Path, files: &mut Vec<(String, String)>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if path.is_dir() && !is_hidden && !path.ends_with("target") {
                collect(&path, root, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                files.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(&root, &root, &mut files);
    files.sort();
    assert!(files.len() > 50, "the check itself finds the files");
    files
}

/// Fails with all of `offenders`, so that one run shows everything.
fn none(rule: &str, offenders: &[String]) {
    assert!(offenders.is_empty(), "{rule}:\n{}", offenders.join("\n"));
}

#[test]
fn every_file_says_what_it_is_for() {
    let is_silent = |text: &str| !text.trim_start().starts_with("//!");
    let offenders: Vec<String> =
        rust_files().into_iter().filter(|(_, text)| is_silent(text)).map(|(name, _)| name).collect();
    none("a file begins with a `//!` line that says its purpose", &offenders);
}

#[test]
fn files_stay_readable_in_one_sitting() {
    let length = |(name, text): (String, String)| (text.lines().count(), name);
    let mut lengths: Vec<(usize, String)> = rust_files().into_iter().map(length).collect();
    let offenders: Vec<String> =
        lengths.iter().filter(|(lines, _)| *lines > 500).map(|(lines, name)| format!("{name}: {lines}")).collect();
    none("a file has at most 500 lines", &offenders);
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2].0;
    assert!(median < 200, "half of the files have less than 200 lines; the median is {median}");
}

#[test]
fn dependencies_point_one_way() {
    struct Rule {
        folder: &'static str,
        never: &'static [&'static str],
        why: &'static str,
    }
    const RULES: &[Rule] = &[
        Rule { folder: "src/", never: &["crate::host"], why: "nothing knows the host" },
        Rule {
            folder: "src/schedule/",
            never: &[
                "crate::engine",
                "crate::prefix",
                "crate::request",
                "crate::response",
                "crate::shared::",
                "crate::pool",
            ],
            why: "policies see plain numbers",
        },
        Rule {
            folder: "src/response/",
            never: &[
                "crate::engine",
                "crate::pool",
                "crate::prefix",
                "crate::request",
                "crate::router",
                "crate::schedule",
                "crate::shared",
            ],
            why: "an answer is read for itself",
        },
        Rule { folder: "src/engine/", never: &["crate::schedule", "crate::pool"], why: "engines know no policy" },
        Rule { folder: "src/prefix/", never: &["crate::request", "crate::schedule"], why: "hashing knows no JSON" },
        Rule { folder: "src/shared/", never: &["crate::pool", "crate::schedule"], why: "pages are bytes and values" },
    ];
    let mut offenders = Vec::new();
    for (name, text) in rust_files().iter().filter(|(name, _)| !name.starts_with("src/host/")) {
        for rule in RULES.iter().filter(|rule| name.starts_with(rule.folder)) {
            let is_code = |line: &&str| !line.trim_start().starts_with("//");
            for line in text.lines().filter(is_code).filter(|line| rule.never.iter().any(|path| line.contains(path))) {
                offenders.push(format!("{name}: {} ({})", line.trim(), rule.why));
            }
        }
    }
    none("dependencies point one way", &offenders);
}

#[test]
fn the_core_reads_no_clock_and_does_no_io() {
    let never = ["SystemTime", "Instant::now", "std::fs", "std::net::Tcp", "std::thread", "println!", "log::"];
    let mut offenders = Vec::new();
    for (name, text) in rust_files() {
        let is_core = name.starts_with("src/") && !name.starts_with("src/host/");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        for line in code.lines().filter(|_| is_core).filter(is_code) {
            if never.iter().any(|word| line.contains(word)) {
                offenders.push(format!("{name}: {}", line.trim()));
            }
        }
    }
    none("time, randomness and bytes come in as arguments", &offenders);
}

#[test]
fn only_the_abi_files_are_unsafe() {
    const ABI_FILES: &[&str] =
        &["src/host/abi.rs", "src/host/exports.rs", "tests/tidy.rs", "tools/noop-filter/src/exports.rs"];
    let is_unsafe =
        |text: &str| text.lines().any(|line| line.contains("unsafe ") && !line.trim_start().starts_with("//"));
    let offenders: Vec<String> = rust_files()
        .into_iter()
        .filter(|(name, text)| is_unsafe(text) && !ABI_FILES.contains(&name.as_str()))
        .map(|(name, _)| name)
        .collect();
    none("only the files of the ABI have unsafe code: abi.rs and exports.rs", &offenders);
}
