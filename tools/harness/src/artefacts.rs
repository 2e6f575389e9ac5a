//! Where the Envoy binary and the built plugin are.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};

/// The files that a run needs.
#[derive(Debug, Clone)]
pub struct Artefacts {
    /// The Envoy binary.
    pub envoy: PathBuf,
    /// Where the plugin should be; see [`Artefacts::wasm`].
    wasm: PathBuf,
    /// Where the filter that does nothing should be; see [`Artefacts::noop_wasm`].
    noop_wasm: PathBuf,
    /// Where the plugin's next version should be; see [`Artefacts::rehearsal_wasm`].
    rehearsal_wasm: PathBuf,
}

impl Artefacts {
    /// Finds Envoy, from the environment variable `WARMROUTE_ENVOY` or else by `tools/setup/envoy.sh`, which installs one
    /// where there is none. The plugin is `WARMROUTE_WASM` or else `target/warmroute.wasm`. Looks once per process.
    ///
    /// # Errors
    /// When no Envoy can be had; the script has then said why on stderr.
    pub fn find() -> Result<Self> {
        // A lock and not a `OnceLock`: a failure must not be kept, and two tests must not install at the same time.
        static FOUND: Mutex<Option<Artefacts>> = Mutex::new(None);
        let mut found = FOUND.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(artefacts) = &*found {
            return Ok(artefacts.clone());
        }
        let root = repository_root();
        let envoy = match std::env::var_os("WARMROUTE_ENVOY") {
            Some(path) => PathBuf::from(path),
            None => ask_script(&root.join("tools/setup/envoy.sh"))?,
        };
        ensure!(envoy.is_file(), "{}: no such Envoy binary", envoy.display());
        let wasm = std::env::var_os("WARMROUTE_WASM").map_or_else(|| root.join("target/warmroute.wasm"), PathBuf::from);
        Ok(found
            .insert(Self {
                envoy,
                wasm,
                noop_wasm: noop_path(),
                rehearsal_wasm: repository_root().join("target/rehearsal.wasm"),
            })
            .clone())
    }

    /// The built plugin.
    ///
    /// # Errors
    /// When it has not been built.
    pub fn wasm(&self) -> Result<&Path> {
        ensure!(self.wasm.is_file(), "{}: not there; run `make wasm`", self.wasm.display());
        Ok(&self.wasm)
    }

    /// The built filter that does nothing, which [`crate::config::EnvoyConfig::no_op`] runs.
    ///
    /// # Errors
    /// When it has not been built.
    pub fn noop_wasm(&self) -> Result<&Path> {
        ensure!(self.noop_wasm.is_file(), "{}: not there; run `make noop-wasm`", self.noop_wasm.display());
        Ok(&self.noop_wasm)
    }

    /// The plugin as its next version may be: with another layout of its pages, and a request that crashes it.
    ///
    /// # Errors
    /// When it has not been built.
    pub fn rehearsal_wasm(&self) -> Result<&Path> {
        ensure!(
            self.rehearsal_wasm.is_file(),
            "{}: not there; run `make rehearsal-wasm`",
            self.rehearsal_wasm.display()
        );
        Ok(&self.rehearsal_wasm)
    }
}

/// Where the filter that does nothing is once it is built.
pub(crate) fn noop_path() -> PathBuf {
    repository_root().join("target/noop.wasm")
}

/// The directory of the workspace, for files that tests read (scripts, captures, examples).
pub fn repository_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

fn ask_script(script: &Path) -> Result<PathBuf> {
    let output = Command::new(script)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", script.display()))?;
    ensure!(output.status.success(), "{}: {}", script.display(), output.status);
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_workspace() {
        assert!(repository_root().join("tools/setup/envoy.sh").is_file());
    }

    #[test]
    fn a_missing_filter_says_how_to_build_it() {
        let nowhere = |file: &str| PathBuf::from("/nowhere").join(file);
        let artefacts = Artefacts {
            envoy: nowhere("envoy"),
            wasm: nowhere("warmroute.wasm"),
            noop_wasm: nowhere("noop.wasm"),
            rehearsal_wasm: nowhere("rehearsal.wasm"),
        };
        for (found, target) in [
            (artefacts.wasm(), "`make wasm`"),
            (artefacts.noop_wasm(), "`make noop-wasm`"),
            (artefacts.rehearsal_wasm(), "`make rehearsal-wasm`"),
        ] {
            let error = found.expect_err("there is no such file").to_string();
            assert!(error.contains(target), "{error}");
        }
    }
}
