//! What the page is made from: the files that measurements leave in one folder.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::row::Row;

/// Everything that was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    /// `summary.json`.
    pub rows: Vec<Row>,
    /// `environment.json`.
    pub machine: Environment,
    /// `growth.json`; empty if that was not run.
    pub points: Vec<Point>,
    /// `stages.json`; empty if that was not run.
    pub stages: Vec<StageRow>,
}

/// One point of a curve: `growth.json` is an array of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What is varied: `body_bytes`, `workers`, `index_pages`, `threads` or `scrape_page_bytes`.
    pub axis: String,
    /// Its value.
    pub x: f64,
    /// `warmroute`, or with its policy: `warmroute/hybrid`.
    pub path: String,
    /// Its policy; empty where it has none, or `path` has it.
    #[serde(default)]
    pub policy: String,
    /// User and system time of the router's processes for each answer.
    pub cpu_us_per_request: f64,
    /// Half of the answers were there after this time; `None` where it was not measured.
    #[serde(default)]
    pub p50_ms: Option<f64>,
}

impl Point {
    /// `warmroute/hybrid`, or the path alone.
    #[must_use]
    pub fn name(&self) -> String {
        if self.policy.is_empty() { self.path.clone() } else { format!("{}/{}", self.path, self.policy) }
    }
}

/// Where time goes in the plugin: `stages.json` is an array of them, written by `make micro`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct StageRow {
    /// `stage`, `root` (work that no request causes) or `host_call` (the calls of all stages once more, by their kind).
    pub kind: String,
    /// Of the stage or of the kind of call.
    pub name: String,
    /// The plugin's policy.
    pub policy: String,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Workers in the pool.
    pub workers: usize,
    /// Microseconds for each request, host calls included, readings of the clock taken out.
    pub us_per_request: f64,
    /// Of these, in calls of the host.
    pub host_us_per_request: f64,
    /// Calls of the host for each request.
    pub host_calls_per_request: f64,
}

impl Results {
    /// Reads what is there; only `summary.json` has to be.
    ///
    /// # Errors
    /// When a file cannot be read or has another form.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let rows = read(&folder.join("summary.json"))?;
        Ok(Self {
            rows: rows.with_context(|| format!("{} has no summary.json: `make bench` writes it", folder.display()))?,
            machine: read(&folder.join("environment.json"))?.unwrap_or_default(),
            points: read(&folder.join("growth.json"))?.unwrap_or_default(),
            stages: read(&folder.join("stages.json"))?.unwrap_or_default(),
        })
    }
}

/// A file's contents; `None` if there is no such file.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    serde_json::from_str(&text).map(Some).with_context(|| format!("{} has another form", path.display()))
}
