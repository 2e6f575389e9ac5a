//! Writes the seeds of a fuzz target into a folder: `warmroute-fuzz-targets TARGET FOLDER`. Without arguments it lists
//! the targets.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use warmroute_fuzz_targets::{TARGETS, seeds::seeds};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, folder] = arguments.as_slice() else {
        if !arguments.is_empty() {
            bail!("expected TARGET FOLDER, or nothing");
        }
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        return Ok(());
    };
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for (number, seed) in seeds(target)?.into_iter().enumerate() {
        fs::write(folder.join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}
