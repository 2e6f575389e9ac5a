//! A short run of what `make soak` does for minutes: every kind of fault, once or more, and nothing lost.

use anyhow::Result;
use warmroute_soak::fault::FAULTS;
use warmroute_soak::load::KINDS;
use warmroute_soak::options::Options;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_minute_of_every_fault_loses_no_request() -> Result<()> {
    // Few clients: it is about what is done to the gateway, not about how much it can take.
    let options = Options { minutes: 0.5, workers: 5, spares: 1, threads: 2, clients: 5, ..Options::default() };
    let report = warmroute_soak::run(&options, |line| println!("{line}")).await?;
    assert!(report.is_clean(), "{}", report.page());
    for row in report.faults.iter().filter(|row| row.is_felt) {
        assert!(row.count.injected > 0, "{} never came", row.name);
        assert_eq!(row.count.survived, row.count.injected, "{}", row.name);
    }
    assert_eq!(report.faults.len(), FAULTS.len() + KINDS.iter().filter(|kind| kind.is_fault).count());
    // The run itself would be a poor one if nothing had been retried, nothing failed its scrapes, or nobody had waited.
    for counter in ["answered_first_pick_total", "answered_later_pick_total", "polls_failed_total", "unanswered_total"]
    {
        assert!(report.seen.counters.get(counter).is_some_and(|&count| count > 0), "{counter}: {}", report.page());
    }
    assert!(report.inflight_max() > 0, "the gauge of requests in flight shows none: {}", report.page());
    Ok(())
}
