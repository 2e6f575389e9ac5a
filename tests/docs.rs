//! Holds the documents to the code: the generated pages are current, named files exist, samples load.
//!
//! `UPDATE_DOCS=1 cargo test --test docs` writes the generated pages anew.
#![cfg(not(target_arch = "wasm32"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use warmroute::config::{Config, KeyDoc};
use warmroute::engine::DIALECTS;
use warmroute::request::Api;
use warmroute::schedule::POLICIES;
use warmroute::schedule::filter::FILTERS;
use warmroute::schedule::scorer::SCORERS;
use warmroute::stats::{POOL_GAUGES, STATS, StatDoc, pool_gauge_name};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Compares a generated page with the committed one, or writes it.
fn check_page(path: &str, page: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root().join(path), page).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let is_current = read(path) == page;
    assert!(is_current, "{path} is not what the code says; run `UPDATE_DOCS=1 cargo test --test docs`");
}

#[test]
fn the_configuration_page_is_current() {
    let mut page = "# Configuration\n\n\
        Generated from the code: `UPDATE_DOCS=1 cargo test --test docs`.\n\n\
        The plugin's `configuration` in the Envoy file is a `google.protobuf.Struct` with these keys. Every key is checked:\n\
        an unknown key, a wrong type or a value out of range refuses the whole configuration with the path, the value and\n\
        what is allowed, all of it in Envoy's log. Over ECDS Envoy then keeps the configuration before.\n\n\
        | key | type | default | allowed | what it does |\n|---|---|---|---|---|\n"
        .to_owned();
    for KeyDoc { path, kind, default, allowed, doc } in Config::describe() {
        let cell = |text: &str| text.replace('|', "\\|");
        let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{}`", cell(text)) };
        let default = if default == "required" { "required".to_owned() } else { code(&default) };
        writeln!(page, "| `{path}` | {kind} | {default} | {} | {} |", cell(&allowed), cell(doc)).unwrap();
    }
    page.push_str(
        "\n## Request formats\n\n`POST` to a path below one of `request.basePaths` that ends so. Texts are hashed in the order in which\n\
        the engine sees them, whatever the order of keys; images, sound and files by digests of their content or URL.\n\n\
        | path | whose API, and what is hashed |\n|---|---|\n",
    );
    for api in Api::ALL {
        writeln!(page, "| `{}` | {} |", api.path_suffix(), api.doc()).unwrap();
    }
    page.push_str("\n## Engines\n\n| `pools[].engine` | what its metrics tell |\n|---|---|\n");
    page.push_str("| `auto` | whichever of these a page shows |\n");
    for dialect in DIALECTS {
        writeln!(page, "| `{}` | {} |", dialect.name, dialect.doc).unwrap();
    }
    page.push_str("| `none` | Ollama and others without metrics: nothing is scraped, own in-flight only |\n");
    page.push_str("\n## Policies\n\n| `policy.name` | a request goes to |\n|---|---|\n");
    for policy in POLICIES {
        writeln!(page, "| `{}` | {} |", policy.name, policy.doc).unwrap();
    }
    page.push_str("\n## Scorers of `weighted`\n\n| `type` | higher for |\n|---|---|\n");
    for scorer in SCORERS {
        writeln!(page, "| `{}` | {} |", scorer.name, scorer.doc).unwrap();
    }
    page.push_str("\n## Filters of `weighted`\n\n| `type` | keeps |\n|---|---|\n");
    for filter in FILTERS {
        writeln!(page, "| `{}` | {} |", filter.name, filter.doc).unwrap();
    }
    check_page("docs/configuration.md", &page);
}

#[test]
fn the_stats_page_is_current() {
    let mut page = "# Stats\n\n\
        Generated from the code: `UPDATE_DOCS=1 cargo test --test docs`.\n\n\
        In Envoy's `/stats` the names begin with `wasmcustom.`; in `/stats/prometheus` they are as here, with dots as\n\
        underscores. Counters begin at 0 again when the binary or the configuration is replaced.\n\n\
        | name | kind | what it counts |\n|---|---|---|\n"
        .to_owned();
    let mut row = |name: String, stat: &StatDoc| {
        writeln!(page, "| `{name}` | {} | {} |", format!("{:?}", stat.kind).to_lowercase(), stat.doc).unwrap();
    };
    STATS.iter().for_each(|stat| row(stat.name.to_owned(), stat));
    POOL_GAUGES.iter().for_each(|gauge| row(pool_gauge_name("<cluster>", gauge), gauge));
    check_page("docs/stats.md", &page);
}

/// Whatever stands in backquotes and looks like a path of this repository.
fn named_paths(document: &str) -> Vec<String> {
    let roots = ["src/", "tests/", "tools/", "envoy/", "docs/", "examples/", ".ci/"];
    let quoted = document.split('`').skip(1).step_by(2);
    let links = document.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let is_path = |text: &&str| roots.iter().any(|root| text.starts_with(root)) && !text.contains(['*', ' ', '<']);
    quoted.chain(links).filter(is_path).map(str::to_owned).collect()
}

#[test]
fn files_that_the_documents_name_exist() {
    for document in ["README.md", "ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md"] {
        let text = read(document);
        for path in named_paths(&text) {
            assert!(root().join(&path).exists(), "{document} names {path}, which does not exist");
        }
    }
    assert!(named_paths(&read("ARCHITECTURE.md")).len() > 20, "the check itself finds the paths");
}

#[test]
fn the_code_map_names_every_source_folder_and_file() {
    let map = read("ARCHITECTURE.md");
    for entry in fs::read_dir(root().join("src")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let named = if path.is_dir() { format!("`src/{name}/`") } else { format!("`src/{name}`") };
        assert!(map.contains(&named), "ARCHITECTURE.md does not name {named}");
    }
}

#[test]
fn every_test_that_the_threat_model_names_exists() {
    fn sources(folder: &Path, text: &mut String) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                sources(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut text = String::new();
    ["src", "tests", "tools"].iter().for_each(|folder| sources(&root().join(folder), &mut text));
    let model = read("SECURITY.md");
    let is_test = |name: &&str| {
        name.matches('_').count() >= 4 && name.bytes().all(|b| b"_0123456789".contains(&b) || b.is_ascii_lowercase())
    };
    let named: Vec<&str> = model.split('`').skip(1).step_by(2).filter(is_test).collect();
    for name in &named {
        assert!(text.contains(&format!("fn {name}(")), "SECURITY.md names the test {name}, which does not exist");
    }
    assert!(named.len() > 20, "the check itself finds the tests: {}", named.len());
}

/// The mappings in a YAML text that load a plugin: every one with a key `configuration`.
fn plugins(yaml: &str) -> Vec<Value> {
    fn collect(value: &Value, found: &mut Vec<Value>) {
        match value {
            Value::Object(members) if members.contains_key("configuration") => found.push(value.clone()),
            Value::Object(members) => members.values().for_each(|value| collect(value, found)),
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            _ => {}
        }
    }
    let value: Value = serde_yaml_ng::from_str(yaml).unwrap_or_else(|error| panic!("{error} in\n{yaml}"));
    let mut found = Vec::new();
    collect(&value, &mut found);
    found
}

/// The plugin configurations in a YAML text.
fn plugin_configurations(yaml: &str) -> Vec<Value> {
    let configurations = plugins(yaml).into_iter().map(|mut plugin| plugin["configuration"].take());
    configurations
        .map(|mut configuration| configuration.get_mut("value").map(Value::take).unwrap_or(configuration))
        .collect()
}

/// The samples for people, by path.
fn samples() -> Vec<PathBuf> {
    let folders = ["envoy", "examples/quickstart"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml")).collect()
}

#[test]
fn samples_load_the_plugin_anew_after_a_crash_and_hand_it_bodies() {
    let mut checked = 0;
    for file in samples() {
        for plugin in plugins(&fs::read_to_string(&file).unwrap()) {
            let name = file.display();
            assert_eq!(plugin["failure_policy"], "FAIL_RELOAD", "{name}");
            assert_eq!(plugin["allow_on_headers_stop_iteration"], true, "{name}");
            assert!(plugin["vm_config"]["vm_id"].is_string(), "{name}: threads would share state with other plugins");
            checked += 1;
        }
    }
    assert!(checked >= 5, "only {checked} plugins were found");
}

fn check_configuration(source: &str, configuration: &Value) {
    let text = configuration.as_str().map_or_else(|| configuration.to_string(), str::to_owned);
    if let Err(error) = Config::from_bytes(text.as_bytes()) {
        panic!("{source}: {error}");
    }
}

#[test]
fn sample_configurations_load() {
    let mut checked = 0;
    for file in samples() {
        for configuration in plugin_configurations(&fs::read_to_string(&file).unwrap()) {
            check_configuration(&file.display().to_string(), &configuration);
            checked += 1;
        }
    }
    for document in ["README.md", "ARCHITECTURE.md"].map(Path::new) {
        let text = read(&document.display().to_string());
        for block in text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            for configuration in plugin_configurations(block) {
                check_configuration(&document.display().to_string(), &configuration);
                checked += 1;
            }
        }
    }
    assert!(checked >= 4, "only {checked} configurations were found");
}
