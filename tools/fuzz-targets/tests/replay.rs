//! Replays what fuzzing has found: the committed corpus, every input that once broke a law, and the samples.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use warmroute_fuzz_targets::seeds::{repository_root, seeds};
use warmroute_fuzz_targets::{TARGETS, Target};

/// Says which input a law fails on.
struct Named(PathBuf);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("with {}", self.0.display());
        }
    }
}

fn check(target: &Target, path: PathBuf, input: &[u8]) {
    let _named = Named(path);
    (target.check)(input);
}

/// The files in `fuzz/<folder>/<target>`; none where there is no such folder.
fn files(folder: &str, target: &Target) -> Result<Vec<PathBuf>> {
    let folder = repository_root().join("fuzz").join(folder).join(target.name);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect()
}

fn replay(name: &str) -> Result<()> {
    let target = TARGETS.iter().find(|target| target.name == name).context("no such target")?;
    for (number, seed) in seeds(name)?.into_iter().enumerate() {
        check(target, Path::new("seed").join(number.to_string()), &seed);
    }
    let corpus = files("corpus", target)?;
    ensure!(corpus.len() > 10, "fuzz/corpus/{name} holds {} inputs", corpus.len());
    for path in corpus.into_iter().chain(files("crashes", target)?) {
        check(target, path.clone(), &fs::read(&path)?);
    }
    Ok(())
}

#[test]
fn config() -> Result<()> {
    replay("config")
}

#[test]
fn exchange() -> Result<()> {
    replay("exchange")
}

#[test]
fn index() -> Result<()> {
    replay("index")
}

#[test]
fn metrics() -> Result<()> {
    replay("metrics")
}

#[test]
fn pages() -> Result<()> {
    replay("pages")
}

#[test]
fn request() -> Result<()> {
    replay("request")
}

#[test]
fn usage() -> Result<()> {
    replay("usage")
}

#[test]
fn every_target_has_its_binary_and_nothing_else_has_one() -> Result<()> {
    let folder = repository_root().join("fuzz/fuzz_targets");
    let mut binaries = Vec::new();
    for entry in fs::read_dir(folder)? {
        binaries.push(entry?.path().file_stem().context("no name")?.to_string_lossy().into_owned());
    }
    binaries.sort();
    assert_eq!(binaries, TARGETS.iter().map(|target| target.name).collect::<Vec<_>>());
    let manifest = fs::read_to_string(repository_root().join("fuzz/Cargo.toml"))?;
    for target in TARGETS {
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "fuzz/Cargo.toml: {}", target.name);
    }
    Ok(())
}
