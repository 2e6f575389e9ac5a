//! The page about costs, `docs/performance.md`, and its plots: made from the files that measurements leave, and from
//! nothing else.

mod growth;
mod input;
mod marks;
mod plots;
mod select;
mod stages;
mod tables;
#[cfg(test)]
mod testing;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use self::input::Results;
use self::marks::marks;
use self::plots::plots;
use self::select::place;
use self::text::{gaps, page};
use crate::cost::default_output;
use crate::path::Setting;

pub use self::input::Point;

/// The folder of the plots, beside the page.
const PLOT_FOLDER: &str = "performance";
const PAGE: &str = "performance.md";

/// What is rendered, and where to.
#[derive(Clone, Debug, Default, Args)]
pub struct Flags {
    /// Where the results are, and page and plots go [default: target/bench]
    #[arg(long, value_name = "FOLDER")]
    pub input: Option<PathBuf>,
    /// Write page and plots into this folder too; refused while something was not run
    #[arg(long, value_name = "FOLDER")]
    pub docs: Option<PathBuf>,
    /// Write into that folder even so
    #[arg(long)]
    pub with_gaps: bool,
}

/// Makes page and plots from the results in a folder, and prints the marks.
///
/// # Errors
/// When the results cannot be read, a file cannot be written, or something was not run that `docs` asks for.
pub fn render(flags: &Flags) -> Result<()> {
    let input = flags.input.clone().unwrap_or_else(default_output);
    let results = Results::read(&input)?;
    for mark in marks(&results.rows) {
        let value = mark.value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
        println!("{value:>8}  {}: {}  {}", mark.name, mark.verdict(), mark.place);
    }
    let paths = Paths::known();
    let gaps = gaps(&results, &paths);
    for gap in &gaps {
        println!(" not run  {gap}");
    }
    write(&input, &results, &paths)?;
    if let Some(docs) = &flags.docs {
        // A part that was run would otherwise take the place of a whole that was.
        if !gaps.is_empty() && !flags.with_gaps {
            bail!("{} parts were not run, so {} is left as it is: see --with-gaps", gaps.len(), docs.display());
        }
        write(docs, &results, &paths)?;
    }
    Ok(())
}

/// The names of the paths that a full run has.
#[derive(Clone, Debug)]
struct Paths {
    /// All.
    all: Vec<String>,
    /// Those that are measured in every cell, ours first.
    everywhere: Vec<String>,
}

impl Paths {
    fn known() -> Self {
        let paths = Setting::new().paths(true);
        let names = |is_wanted: fn(&crate::path::Path) -> bool| {
            let mut names: Vec<String> = paths.iter().copied().filter(is_wanted).map(|path| path.full_name()).collect();
            names.sort_by_key(|name| place(name));
            names
        };
        Self { all: names(|_| true), everywhere: names(|path| path.is_main()) }
    }
}

fn write(folder: &Path, results: &Results, paths: &Paths) -> Result<()> {
    let plots = plots(results, &paths.everywhere);
    for plot in &plots {
        write_file(&folder.join(PLOT_FOLDER).join(plot.file), &plot.svg)?;
    }
    write_file(&folder.join(PAGE), &page(results, &plots, paths))?;
    println!("page and plots: {}", folder.join(PAGE).display());
    Ok(())
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::testing::full_run;
    use super::*;

    #[test]
    fn a_partial_run_does_not_take_the_place_of_the_documents() {
        let (input, docs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let summary = input.path().join("summary.json");
        let mut flags =
            Flags { input: Some(input.path().to_owned()), docs: Some(docs.path().to_owned()), with_gaps: false };
        assert!(render(&flags).unwrap_err().to_string().contains("no summary.json"));
        fs::write(&summary, serde_json::to_string(&full_run()).unwrap()).unwrap();
        assert!(render(&flags).unwrap_err().to_string().contains("parts were not run"));
        assert!(input.path().join(PAGE).exists() && !docs.path().join(PAGE).exists());
        flags.with_gaps = true;
        render(&flags).unwrap();
        assert!(docs.path().join(PAGE).exists() && docs.path().join(PLOT_FOLDER).join("cost.svg").exists());
    }

    #[test]
    fn a_file_of_another_form_is_an_error_that_names_it() {
        let input = tempfile::tempdir().unwrap();
        fs::write(input.path().join("summary.json"), "[]").unwrap();
        fs::write(input.path().join("growth.json"), "{}").unwrap();
        let flags = Flags { input: Some(input.path().to_owned()), ..Flags::default() };
        assert!(render(&flags).unwrap_err().to_string().contains("growth.json has another form"));
    }
}
