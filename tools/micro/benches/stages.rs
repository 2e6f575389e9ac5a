//! The native stages with criterion: `cargo bench --package warmroute-micro`.

use std::time::Duration;

use criterion::Criterion;

fn main() -> anyhow::Result<()> {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(250))
        .sample_size(20)
        .nresamples(2_000)
        .without_plots()
        .configure_from_args();
    for mut stage in warmroute_micro::all()? {
        criterion.benchmark_group(stage.stage).bench_function(&stage.case, |bencher| bencher.iter(|| (stage.run)()));
    }
    criterion.final_summary();
    Ok(())
}
