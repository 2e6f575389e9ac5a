//! `growth`: how the cost grows with each quantity, the others held still; the default policy beside plain Envoy.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use tokio::time::sleep;
use warmroute_report::table::Table;

use crate::cost::{default_output, write_json};
use crate::field::{Cell, Field, METRICS_PAGE_BYTES, Timing};
use crate::load::Workload;
use crate::load_thread::LoadThread;
use crate::page::Point;
use crate::path::{BASE, Path, Setting};
use crate::process::cpu_time_of_all;
use crate::prompt::Shape;
use crate::row::Row;

const KB: usize = 1 << 10;
const CONNECTIONS: usize = 16;
const WORKERS: usize = 4;
const SHAPE: Shape = Shape { body_bytes: 4 * KB, stream_chunks: 0 };
const BODIES: [usize; 7] = [KB, 4 * KB, 16 * KB, 64 * KB, 220 * KB, 512 * KB, 1024 * KB];
const POOLS: [usize; 5] = [4, 16, 64, 256, 512];
const INDEX_PAGES: [u32; 4] = [64, 512, 2048, 8192];
const THREADS: [u32; 3] = [1, 2, 4];
const SCRAPE_PAGES: [usize; 5] = [KB, 10 * KB, 58 * KB, 200 * KB, 500 * KB];
const SCRAPE_INTERVAL_MS: u32 = 1_000;
const SCRAPED_WORKERS: usize = 32;
/// A page of the index remembers 31 stretches of up to 16 blocks, and a prompt of 4 KB has about four such stretches.
const PROMPTS_PER_PAGE: u64 = 8;

/// What is measured.
#[derive(Clone, Debug, Default, Args)]
pub struct Flags {
    /// Only these curves: `body_bytes`, `workers`, `index_pages`, `threads`, `scrape_page_bytes`
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Bursts of each path at each point [default: 5]
    #[arg(long)]
    pub rounds: Option<usize>,
    /// How long a burst takes [default: 500]
    #[arg(long)]
    pub burst_ms: Option<u64>,
    /// Where growth.json goes [default: target/bench]
    #[arg(long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
}

/// Measures, prints, and writes growth.json.
///
/// # Errors
/// When a path does not start, an answer is no success, or the file cannot be written.
pub async fn measure(flags: &Flags) -> Result<()> {
    let timing = Timing {
        rounds: flags.rounds.unwrap_or(5).max(1),
        burst: Duration::from_millis(flags.burst_ms.unwrap_or(500)),
    };
    let curves = Curves {
        load: LoadThread::start()?,
        timing,
        paths: Setting::new().paths(false).into_iter().filter(|path| is_measured(*path)).collect(),
    };
    let is_wanted = |axis: &str| flags.only.is_empty() || flags.only.iter().any(|only| only == axis);
    let mut points = Vec::new();
    if is_wanted("body_bytes") {
        points.extend(curves.bodies().await?);
    }
    if is_wanted("workers") {
        points.extend(curves.workers().await?);
    }
    if is_wanted("index_pages") {
        points.extend(curves.index_pages().await?);
    }
    if is_wanted("threads") {
        points.extend(curves.threads().await?);
    }
    if is_wanted("scrape_page_bytes") {
        points.extend(curves.scrapes().await?);
    }
    println!("{}", table(&points));
    write_json(flags.output.clone().unwrap_or_else(default_output), "growth.json", &points)
}

fn is_measured(path: Path) -> bool {
    path == BASE || path.full_name() == "warmroute/hybrid"
}

struct Curves {
    load: LoadThread,
    timing: Timing,
    paths: Vec<Path>,
}

impl Curves {
    async fn bodies(&self) -> Result<Vec<Point>> {
        let field = self.start(&Setting::new(), WORKERS, METRICS_PAGE_BYTES).await?;
        let mut points = Vec::new();
        for body_bytes in BODIES {
            let shape = Shape { body_bytes, ..SHAPE };
            let rows = self.rows(&field, Workload::new(shape), WORKERS).await?;
            points.extend(self.points("body_bytes", body_bytes as f64, &rows));
        }
        Ok(points)
    }

    async fn workers(&self) -> Result<Vec<Point>> {
        let mut points = Vec::new();
        for workers in POOLS {
            let field = self.start(&Setting::new(), workers, METRICS_PAGE_BYTES).await?;
            let rows = self.rows(&field, Workload::new(SHAPE), workers).await?;
            points.extend(self.points("workers", workers as f64, &rows));
        }
        Ok(points)
    }

    /// With so many different prompts that the index is full and forgets some.
    async fn index_pages(&self) -> Result<Vec<Point>> {
        let mut points = Vec::new();
        for pages in INDEX_PAGES {
            let setting = Setting { index_pages: Some(pages), ..Setting::new() };
            let field = self.start(&setting, WORKERS, METRICS_PAGE_BYTES).await?;
            let prompts = u64::from(pages) * PROMPTS_PER_PAGE;
            let cell = Cell { shape: SHAPE, connections: CONNECTIONS, workers: WORKERS };
            field.fill(&self.load, &cell, prompts).await?;
            let rows = self.rows(&field, Workload::numbered(SHAPE, prompts), WORKERS).await?;
            points.extend(self.points("index_pages", f64::from(pages), &rows));
        }
        Ok(points)
    }

    async fn threads(&self) -> Result<Vec<Point>> {
        let mut points = Vec::new();
        for threads in THREADS {
            let setting = Setting { concurrency: threads, ..Setting::new() };
            let field = self.start(&setting, WORKERS, METRICS_PAGE_BYTES).await?;
            let rows = self.rows(&field, Workload::new(SHAPE), WORKERS).await?;
            points.extend(self.points("threads", f64::from(threads), &rows));
        }
        Ok(points)
    }

    /// CPU for each scrape, without any requests: all that the process uses, over the pages that were served meanwhile.
    async fn scrapes(&self) -> Result<Vec<Point>> {
        let mut points = Vec::new();
        for page_bytes in SCRAPE_PAGES {
            eprintln!("scraped pages of {page_bytes} bytes");
            let setting = Setting { poll_interval_ms: Some(SCRAPE_INTERVAL_MS), ..Setting::new() };
            let field = self.start(&setting, SCRAPED_WORKERS, page_bytes).await?;
            // Past the start, which scrapes all at once.
            sleep(Duration::from_secs(1)).await;
            let used = || -> Result<Vec<Duration>> {
                field.paths.iter().map(|running| cpu_time_of_all(&running.process_ids)).collect()
            };
            let (start, before, scraped) = (Instant::now(), used()?, field.workers.scrapes());
            sleep(Duration::from_millis(10 * u64::from(SCRAPE_INTERVAL_MS))).await;
            let (after, scrapes) = (used()?, field.workers.scrapes() - scraped);
            eprintln!("  {scrapes} scrapes in {:.1} s", start.elapsed().as_secs_f64());
            for (running, (before, after)) in field.paths.iter().zip(before.iter().zip(&after)) {
                points.push(Point {
                    axis: "scrape_page_bytes".to_owned(),
                    x: page_bytes as f64,
                    path: running.path.name.to_owned(),
                    policy: running.path.policy.to_owned(),
                    cpu_us_per_request: (*after - *before).as_secs_f64() * 1e6 / scrapes.max(1) as f64,
                    p50_ms: None,
                });
            }
        }
        Ok(points)
    }

    async fn start(&self, setting: &Setting, workers: usize, metrics_page_bytes: usize) -> Result<Field> {
        Field::start(&self.load, setting, &self.paths, workers, metrics_page_bytes).await
    }

    async fn rows(&self, field: &Field, workload: Workload, workers: usize) -> Result<Vec<Row>> {
        let cell = Cell { shape: workload.shape, connections: CONNECTIONS, workers };
        field.measure(&self.load, &cell, Arc::new(workload), self.timing, |_| true).await
    }

    fn points(&self, axis: &str, x: f64, rows: &[Row]) -> Vec<Point> {
        eprintln!("{axis} {x}");
        let point = |row: &Row| Point {
            axis: axis.to_owned(),
            x,
            path: row.path.clone(),
            policy: row.policy.clone(),
            cpu_us_per_request: row.cpu_us_per_request,
            p50_ms: Some(row.p50_ms),
        };
        rows.iter().map(point).collect()
    }
}

fn table(points: &[Point]) -> Table {
    let mut table = Table::new(&["curve", "x", "path", "CPU", "p50"]);
    for point in points {
        table.row([
            point.axis.clone(),
            point.x.to_string(),
            point.name(),
            format!("{:.1} us", point.cpu_us_per_request),
            point.p50_ms.map_or_else(String::new, |ms| format!("{ms:.3} ms")),
        ]);
    }
    table
}
