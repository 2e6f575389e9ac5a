//! `cost`: every path beside every other, in cells of body size, connections, workers and streams.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use warmroute_harness::artefacts::repository_root;

use crate::environment::{Environment, load_average};
use crate::field::{Cell, Field, METRICS_PAGE_BYTES, Timing};
use crate::load::Workload;
use crate::load_thread::LoadThread;
use crate::path::{BASE, Path, Setting};
use crate::prompt::Shape;
use crate::row::Row;
use crate::table;

const KB: usize = 1 << 10;
const BODY_BYTES: usize = 4 * KB;
const CONNECTIONS: usize = 16;
const WORKERS: usize = 4;
const STREAM_CHUNKS: u32 = 10_000;
const STREAM_CONNECTIONS: usize = 4;
const STREAM_ROUNDS: usize = 3;

/// What is measured.
#[derive(Clone, Debug, Default, Args)]
pub struct Flags {
    /// All body sizes with all numbers of connections, on all paths
    #[arg(long)]
    pub full: bool,
    /// Beside sglang-router and vllm-router too, which are installed where they are missing
    #[arg(long)]
    pub peers: bool,
    /// Only paths whose name contains one of these, and envoy/round-robin: `hybrid`, `direct,least-request`
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only one cell: with bodies of so many bytes (1024 to 1048576)
    #[arg(long)]
    pub body_bytes: Option<usize>,
    /// Only one cell: with so many connections (1 to 64)
    #[arg(long)]
    pub connections: Option<usize>,
    /// Only one cell: with so many workers (1 to 512)
    #[arg(long)]
    pub workers: Option<usize>,
    /// Only one cell: with answers streamed in so many chunks
    #[arg(long)]
    pub stream_chunks: Option<u32>,
    /// Bursts of each path in each cell [default: 5]
    #[arg(long)]
    pub rounds: Option<usize>,
    /// How long a burst takes [default: 500]
    #[arg(long)]
    pub burst_ms: Option<u64>,
    /// Worker threads of each Envoy [default: 1]
    #[arg(long)]
    pub concurrency: Option<u32>,
    /// A build of the plugin instead of target/warmroute.wasm
    #[arg(long, value_name = "FILE")]
    pub wasm: Option<PathBuf>,
    /// A second build, which becomes the path warmroute-other/hybrid
    #[arg(long, value_name = "FILE")]
    pub wasm_other: Option<PathBuf>,
    /// Where summary.json and environment.json go [default: target/bench]
    #[arg(long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
}

/// Measures, prints the table, writes the files, and returns the rows.
///
/// # Errors
/// When a path does not start, an answer is no success, or a file cannot be written.
pub async fn measure(flags: &Flags) -> Result<Vec<Row>> {
    let setting = flags.setting()?;
    let cells = flags.cells()?;
    let paths: Vec<Path> =
        setting.paths(flags.peers).into_iter().filter(|path| *path == BASE || flags.wants(*path)).collect();
    let timing = Timing {
        rounds: flags.rounds.unwrap_or(5).max(1),
        burst: Duration::from_millis(flags.burst_ms.unwrap_or(500)),
    };
    let mut environment = Environment::before(setting.wasm.as_deref());
    let load = LoadThread::start()?;
    let mut rows = Vec::new();
    let mut workers: Vec<usize> = cells.iter().map(|cell| cell.workers).collect();
    workers.dedup();
    for workers in workers {
        let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.workers == workers).collect();
        // Paths that no cell here measures are not started.
        let started = |path: &Path| cells.iter().any(|cell| flags.is_measured(cell, *path));
        let paths: Vec<Path> = paths.iter().copied().filter(started).collect();
        let field = Field::start(&load, &setting, &paths, workers, METRICS_PAGE_BYTES).await?;
        for cell in cells {
            eprintln!("{cell}");
            let workload = Arc::new(Workload::new(cell.shape));
            // A stream takes as long as it takes.
            let rounds = if cell.shape.stream_chunks > 0 { timing.rounds.min(STREAM_ROUNDS) } else { timing.rounds };
            let timing = Timing { rounds, ..timing };
            rows.extend(field.measure(&load, cell, workload, timing, |path| flags.is_measured(cell, path)).await?);
        }
    }
    environment.load_average_after = load_average();
    let base = rows.iter().filter(|row| row.name() == BASE.full_name());
    environment.cpu_noise_max = base.map(|row| row.cpu_noise).fold(0.0, f64::max);
    println!("{}", table::cost(&rows));
    println!("{}", table::machine(&environment));
    flags.write("summary.json", &rows)?;
    flags.write("environment.json", &environment)?;
    Ok(rows)
}

impl Flags {
    fn setting(&self) -> Result<Setting> {
        for wasm in [&self.wasm, &self.wasm_other].into_iter().flatten() {
            ensure!(wasm.is_file(), "{}: no such file", wasm.display());
        }
        // Envoy runs in a folder of its own.
        let absolute = |wasm: &Option<PathBuf>| wasm.as_ref().map(fs::canonicalize).transpose();
        Ok(Setting {
            wasm: absolute(&self.wasm)?,
            wasm_other: absolute(&self.wasm_other)?,
            concurrency: self.concurrency.unwrap_or(1),
            ..Setting::new()
        })
    }

    fn wants(&self, path: Path) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| path.full_name().contains(part.as_str()))
    }

    /// All paths in the first cell, wherever one was asked for, and in a full run; elsewhere few.
    fn is_measured(&self, cell: &Cell, path: Path) -> bool {
        path.is_main()
            || self.full
            || (cell.shape.stream_chunks > 0 && path.is_for_streams())
            || self.is_single()
            || *cell == cell_of(BODY_BYTES, CONNECTIONS, WORKERS, 0)
    }

    fn is_single(&self) -> bool {
        let sizes = [self.body_bytes, self.connections, self.workers];
        sizes.iter().any(Option::is_some) || self.stream_chunks.is_some()
    }

    /// In order of their workers, as these are started anew for another number.
    fn cells(&self) -> Result<Vec<Cell>> {
        if self.is_single() {
            let body_bytes = self.body_bytes.unwrap_or(BODY_BYTES);
            let connections = self.connections.unwrap_or(CONNECTIONS);
            let workers = self.workers.unwrap_or(WORKERS);
            ensure!((KB..=KB * KB).contains(&body_bytes), "--body-bytes is {body_bytes}, must be 1024 to 1048576");
            ensure!((1..=64).contains(&connections), "--connections is {connections}, must be 1 to 64");
            ensure!((1..=512).contains(&workers), "--workers is {workers}, must be 1 to 512");
            return Ok(vec![cell_of(body_bytes, connections, workers, self.stream_chunks.unwrap_or(0))]);
        }
        let mut cells = vec![cell_of(BODY_BYTES, CONNECTIONS, WORKERS, 0)];
        let bodies = [1, 4, 64, 220, 1024].map(|kb| kb * KB);
        if self.full {
            let more = bodies.iter().flat_map(|&bytes| [1, 16, 64].map(|connections| (bytes, connections)));
            cells.extend(more.map(|(bytes, connections)| cell_of(bytes, connections, WORKERS, 0)));
        } else {
            cells.extend(bodies.map(|bytes| cell_of(bytes, CONNECTIONS, WORKERS, 0)));
            cells.extend([1, 64].map(|connections| cell_of(BODY_BYTES, connections, WORKERS, 0)));
            // The latency that is added shows where nothing waits for another.
            cells.push(cell_of(220 * KB, 1, WORKERS, 0));
        }
        cells.push(cell_of(BODY_BYTES, STREAM_CONNECTIONS, WORKERS, STREAM_CHUNKS));
        cells.extend([64, 512].map(|workers| cell_of(BODY_BYTES, CONNECTIONS, workers, 0)));
        // The first cell is among the bodies' too.
        let first = cells.remove(0);
        cells.retain(|cell| *cell != first);
        cells.insert(0, first);
        Ok(cells)
    }

    fn write(&self, name: &str, value: &impl serde::Serialize) -> Result<()> {
        write_json(self.output.clone().unwrap_or_else(default_output), name, value)
    }
}

/// `target/bench`.
pub(crate) fn default_output() -> PathBuf {
    repository_root().join("target/bench")
}

/// Writes a result.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write_json(folder: PathBuf, name: &str, value: &impl serde::Serialize) -> Result<()> {
    fs::create_dir_all(&folder)?;
    let path = folder.join(name);
    fs::write(&path, serde_json::to_string_pretty(value)? + "\n").with_context(|| path.display().to_string())
}

fn cell_of(body_bytes: usize, connections: usize, workers: usize, stream_chunks: u32) -> Cell {
    Cell { shape: Shape { body_bytes, stream_chunks }, connections, workers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_are_the_documented_ones() {
        let count = |flags: Flags| flags.cells().unwrap().len();
        assert_eq!(count(Flags::default()), 1 + 4 + 3 + 1 + 2);
        assert_eq!(count(Flags { full: true, ..Flags::default() }), 15 + 1 + 2);
        let single = Flags { workers: Some(64), full: true, ..Flags::default() };
        assert_eq!(single.cells().unwrap(), [cell_of(4096, 16, 64, 0)]);
        for wrong in [
            Flags { body_bytes: Some(10), ..Flags::default() },
            Flags { connections: Some(65), ..Flags::default() },
            Flags { workers: Some(0), ..Flags::default() },
        ] {
            assert!(wrong.cells().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_base_is_always_measured() {
        let flags = Flags { only: vec!["hybrid".into()], ..Flags::default() };
        assert!(!flags.wants(BASE));
        assert!(flags.cells().unwrap().iter().all(|cell| flags.is_measured(cell, BASE)));
    }

    /// No Envoy needed: the load and the workers against each other.
    #[tokio::test]
    async fn a_tiny_run_gives_rows_and_files() {
        let folder = tempfile::tempdir().unwrap();
        let load = LoadThread::start().unwrap();
        let direct = Setting::new().paths(false).into_iter().filter(|path| path.name == "direct").collect::<Vec<_>>();
        let field = Field::start(&load, &Setting::new(), &direct, 2, 1_000).await.unwrap();
        let timing = Timing { rounds: 2, burst: Duration::from_millis(20) };
        for (stream_chunks, body_bytes) in [(0, 100_000), (20, 4096)] {
            let cell = cell_of(body_bytes, 3, 2, stream_chunks);
            let workload = Arc::new(Workload::new(cell.shape));
            let rows = field.measure(&load, &cell, workload, timing, |_| true).await.unwrap();
            let [row] = &rows[..] else { panic!("{rows:?}") };
            assert_eq!((row.name().as_str(), row.rounds, row.stream_chunks), ("direct", 2, stream_chunks));
            assert!(row.requests_per_s > 10.0 && row.p50_ms > 0.0 && row.p50_ms <= row.p99_ms, "{row:?}");
            assert!(row.cpu_us_per_request.abs() < 1e-9, "no router, no cost: {row:?}");
            write_json(folder.path().to_owned(), "summary.json", &rows).unwrap();
            let text = fs::read_to_string(folder.path().join("summary.json")).unwrap();
            let read: Vec<Row> = serde_json::from_str(&text).unwrap();
            assert_eq!((read.len(), read[0].name(), read[0].body_bytes), (1, row.name(), body_bytes));
        }
        assert!(table::cost(&[]).contains("path"));
    }
}
