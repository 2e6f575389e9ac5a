//! Moves inputs between the repository and the folders that libFuzzer works in.
//!
//! ```text
//! warmroute-fuzz-targets unpack TARGET FOLDER   the samples and the corpus become files in FOLDER
//! warmroute-fuzz-targets pack TARGET FOLDER     the files in FOLDER become the corpus
//! ```

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use warmroute_fuzz_targets::{TARGETS, corpus, seeds::seeds};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [command, target, folder] = arguments.as_slice() else { bail!("expected unpack or pack, TARGET and FOLDER") };
    if !TARGETS.iter().any(|known| known.name == target) {
        bail!("{target} is no target");
    }
    let folder = PathBuf::from(folder);
    match command.as_str() {
        "unpack" => {
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            let inputs = seeds(target)?.into_iter().chain(corpus::read(target)?);
            for (number, input) in inputs.enumerate() {
                fs::write(folder.join(number.to_string()), input)?;
            }
        }
        "pack" => println!("{target}: {} inputs", corpus::write(target, &folder)?),
        _ => bail!("{command}: expected unpack or pack"),
    }
    Ok(())
}
