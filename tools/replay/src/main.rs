//! `make replay`: compares routing policies on traces and generated workloads.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use warmroute_replay::contestant::Contestant;
use warmroute_replay::execute::{Progress, execute};
use warmroute_replay::plan::Plan;
use warmroute_replay::report::marks::marks;
use warmroute_replay::report::page::{PLOT_FOLDER, page};
use warmroute_replay::report::plot::plots;
use warmroute_replay::report::row::Row;
use warmroute_replay::report::select::{SERIAL, WORKLOADS, cells};
use warmroute_replay::report::table::{cell_table, distance_table, rows_table};
use warmroute_replay::workload::Workload;

/// Replays traces and generated workloads on simulated engines and compares routing policies.
///
/// Without options: five workloads at load 0.8 with one gateway and one seed.
#[derive(Debug, Parser)]
struct Options {
    /// Run all that docs/routing-quality.md is made from: loads 0.6 to 1.2, 1 to 8 gateways, 5 seeds.
    #[arg(long)]
    full: bool,
    /// Workloads to run.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    workloads: Vec<Workload>,
    /// Offered loads with one gateway, as shares of what the pool can serve.
    #[arg(long, value_delimiter = ',', value_name = "SHARE,...")]
    loads: Vec<f64>,
    /// Seeds of each cell.
    #[arg(long)]
    seeds: Option<u32>,
    /// Numbers of gateways; more than one run at load 0.8.
    #[arg(long, value_delimiter = ',', value_name = "COUNT,...")]
    gateways: Vec<usize>,
    /// Policies to run.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    policies: Vec<String>,
    /// Run nothing: make page and plots again from the rows in the output folder.
    #[arg(long)]
    render: bool,
    /// Where rows, page and plots go.
    #[arg(long, default_value = "target/replay", value_name = "FOLDER")]
    out: PathBuf,
    /// Write page and plots into this folder too.
    #[arg(long, value_name = "FOLDER")]
    docs: Option<PathBuf>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let summary = options.out.join("summary.json");
    let rows = if options.render { read(&summary)? } else { run(&options)? };
    print(&rows);
    if !options.render {
        write(&summary, &(serde_json::to_string_pretty(&rows)? + "\n"))?;
    }
    for folder in std::iter::once(&options.out).chain(&options.docs) {
        write_page(folder, &rows)?;
    }
    println!("rows:           {}", summary.display());
    for folder in std::iter::once(&options.out).chain(&options.docs) {
        println!("page and plots: {}", folder.join("routing-quality.md").display());
    }
    Ok(())
}

/// Runs the plan that the options ask for.
fn run(options: &Options) -> Result<Vec<Row>> {
    let plan = plan(options)?;
    let started = Instant::now();
    eprintln!("{} cells, {} seeds, {} policies", plan.cells.len(), plan.seeds, plan.contestants.len());
    Ok(execute(&plan, &|progress| tell(&progress, started.elapsed())))
}

fn plan(options: &Options) -> Result<Plan> {
    let choose = |chosen: &[f64], full: &[f64], quick: &[f64]| match (chosen, options.full) {
        ([], true) => full.to_vec(),
        ([], false) => quick.to_vec(),
        _ => chosen.to_vec(),
    };
    let loads = choose(&options.loads, &[0.6, 0.8, 1.0, 1.2], &[0.8]);
    if let Some(load) = loads.iter().find(|load| !(load.is_finite() && **load > 0.0)) {
        bail!("--loads has {load}, must be above 0");
    }
    let gateways = match (options.gateways.as_slice(), options.full) {
        ([], true) => vec![1, 2, 4, 8],
        ([], false) => vec![1],
        (chosen, _) => chosen.to_vec(),
    };
    if gateways.contains(&0) {
        bail!("--gateways has 0, must be at least 1");
    }
    let workloads = match options.workloads.as_slice() {
        [] => WORKLOADS.iter().map(|name| name.parse()).collect::<Result<Vec<Workload>>>()?,
        chosen => chosen.to_vec(),
    };
    let seeds = options.seeds.unwrap_or(if options.full { 5 } else { 1 });
    if seeds == 0 {
        bail!("--seeds is 0, must be at least 1");
    }
    let contestants = contestants(&options.policies)?;
    let mut cells = Plan::cells(&workloads, &loads, &gateways);
    if options.full {
        cells.extend(Plan::held_out_cells(&workloads));
    }
    Ok(Plan { cells, seeds, contestants })
}

/// The contestants of these names, all if there are none.
fn contestants(names: &[String]) -> Result<Vec<Contestant>> {
    let all = Contestant::all();
    if names.is_empty() {
        return Ok(all);
    }
    let find = |name: &String| {
        let found = all.iter().copied().find(|contestant| contestant.name() == name);
        found.with_context(|| {
            let known: Vec<&str> = all.iter().map(|contestant| contestant.name()).collect();
            format!("--policies has {name:?}, known are {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

/// One line about how far it is, on standard error.
fn tell(progress: &Progress, elapsed: Duration) {
    let Progress { done, total, words } = progress;
    let left_s = elapsed.as_secs_f64() / *done as f64 * (total - done) as f64;
    eprintln!("[{done:>3}/{total}] {} left, {words}", minutes(left_s));
}

fn minutes(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// The tables, on standard output.
fn print(rows: &[Row]) {
    for workload in WORKLOADS {
        let serial: Vec<&Row> = rows.iter().filter(|row| row.model == SERIAL && row.workload == workload).collect();
        if !serial.is_empty() {
            println!("{workload}, serial model\n{}", rows_table(serial).plain());
        }
    }
    for cell in cells(rows) {
        println!("{}\n{}", cell.words(), cell_table(rows, &cell).plain());
    }
    println!("Ratios to hybrid, one gateway; above 1 is worse than hybrid\n{}", distance_table(rows).plain());
    for mark in marks(rows) {
        let verdict = match mark.is_met() {
            Some(true) => "reached",
            Some(false) => "MISSED ",
            None => "not run",
        };
        let value = mark.value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"));
        println!("{verdict}  {value:>7}, {}: {}  {}", mark.target, mark.name, mark.place);
    }
    println!();
}

fn read(path: &Path) -> Result<Vec<Row>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not an array of rows", path.display()))
}

fn write_page(folder: &Path, rows: &[Row]) -> Result<()> {
    let plots = plots(rows);
    for plot in &plots {
        write(&folder.join(PLOT_FOLDER).join(plot.file), &plot.svg)?;
    }
    write(&folder.join("routing-quality.md"), &page(rows, &plots))
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
