//! Replays what fuzzing has found: the committed corpus, every input that once broke a law, and the samples; and some
//! mutations of each, so that a law that a change breaks has a chance to show where nobody fuzzes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use warmroute::rng::Rng;
use warmroute_fuzz_targets::seeds::{repository_root, seeds};
use warmroute_fuzz_targets::{TARGETS, Target, corpus};

/// Says which input a law fails on.
struct Named(PathBuf);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("with {}", self.0.display());
        }
    }
}

/// A corpus with less was lost.
const INPUTS_MIN: usize = 5;

/// Of each input, so many are tried that differ from it a little.
const MUTATIONS: u64 = 20;

fn check(target: &Target, path: &Path, input: &[u8]) {
    let named = Named(path.to_path_buf());
    (target.check)(input);
    drop(named);
    for seed in 0..MUTATIONS {
        let _named = Named(path.join(format!("mutation-{seed}")));
        (target.check)(&mutated(&mut Rng::new(seed ^ input.len() as u64), input));
    }
}

fn mutated(rng: &mut Rng, input: &[u8]) -> Vec<u8> {
    let mut input = input.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(input.len() as u32 + 1) as usize;
        let end = (at + rng.below(12) as usize).min(input.len());
        match rng.below(4) {
            0 => input.truncate(at.max(1)),
            1 => drop(input.splice(at..at, (0..4).map(|_| rng.next_u64() as u8))),
            2 => {
                let copy = input[at..end].to_vec();
                input.splice(at..at, copy);
            }
            _ => input[at..end].iter_mut().for_each(|byte| *byte ^= 1 << rng.below(8)),
        }
    }
    input
}

/// The inputs that once broke a law, as libFuzzer wrote them; none where there is no such folder.
fn crashes(target: &Target) -> Result<Vec<PathBuf>> {
    let folder = repository_root().join("fuzz/crashes").join(target.name);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect()
}

fn replay(name: &str) -> Result<()> {
    let target = TARGETS.iter().find(|target| target.name == name).context("no such target")?;
    for (number, seed) in seeds(name)?.into_iter().enumerate() {
        check(target, &Path::new("seed").join(number.to_string()), &seed);
    }
    let (path, inputs) = (corpus::path(name), corpus::read(name)?);
    ensure!(inputs.len() >= INPUTS_MIN, "{} holds {} inputs", path.display(), inputs.len());
    for (number, input) in inputs.iter().enumerate() {
        check(target, &path.join((number + 1).to_string()), input);
    }
    for path in crashes(target)? {
        check(target, &path, &fs::read(&path)?);
    }
    Ok(())
}

#[test]
fn clusters() -> Result<()> {
    replay("clusters")
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

/// Inputs of mere noise for each target.
const NOISES: u64 = 1_000;

#[test]
fn noise_breaks_no_law() {
    for target in TARGETS {
        for seed in 0..NOISES {
            let mut rng = Rng::new(seed);
            let noise: Vec<u8> = (0..rng.below(2_000)).map(|_| rng.next_u64() as u8).collect();
            let _named = Named(Path::new(target.name).join(format!("noise-{seed}")));
            (target.check)(&noise);
        }
    }
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
