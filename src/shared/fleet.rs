//! The workers of a pool: their ids, their last reports, their health. Written by who polls, read by every VM's tick.
//!
//! A worker's row number is its [`WorkerId`]. Workers are told apart by address; a row is given to another address only
//! when no VM has had the old one in its configuration for [`RECLAIM_MS`].

use zerocopy::little_endian::{F64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{PageError, Preamble};
use crate::time::Timestamp;
use crate::worker::{DatedReport, LoadReport, WORKERS_MAX, WorkerId};

const PREAMBLE: Preamble = Preamble::new(*b"WRFL", 1);

/// Longest address text kept: `[` 45 characters of IPv6 `]:65535`, rounded up.
const ADDRESS_BYTES: usize = 64;

/// A worker that no configuration has named for this long may lose its row to another: where pods come and go under new
/// addresses the page stays as small as the pool.
pub const RECLAIM_MS: u64 = 600_000;

/// How often a configured worker's row is marked as seen; far below [`RECLAIM_MS`], so that the page is rarely written
/// for it alone.
const SEEN_REFRESH_MS: u64 = 60_000;

/// One worker, as all worker threads of this Envoy know it.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetWorker {
    /// `IP:port`, as Envoy prints the host's address.
    pub address: String,
    /// Counts the lives of the worker: one more for each restart seen. What its cache held in an earlier life is gone.
    pub generation: u32,
    /// Scrapes that failed since the last one that succeeded; 0 for a worker never scraped.
    pub scrape_failures: u16,
    /// The last report; `None` until the first scrape succeeds.
    pub report: Option<DatedReport>,
    /// This gateway's own requests in flight there when the report was taken: what of the report is our own.
    pub in_flight_at_report: u32,
    /// Those of them whose first byte had not come.
    pub prefilling_at_report: u32,
    seen_at: Timestamp,
}

/// All workers that the page knows, by [`WorkerId`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    workers: Vec<FleetWorker>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    preamble: Preamble,
    workers: U16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Row {
    address: [u8; ADDRESS_BYTES],
    address_bytes: u8,
    has_report: u8,
    scrape_failures: U16,
    generation: U32,
    seen_ns: U64,
    taken_ns: U64,
    /// The report's numbers in the order of [`LoadReport`]'s fields; NaN = missing.
    numbers: [F64; 6],
    in_flight_at_report: U32,
    prefilling_at_report: U32,
}

impl Fleet {
    /// The fleet in `bytes`; an empty one where there is none, or none that can be read.
    ///
    /// # Errors
    /// [`PageError::Newer`] when a later version of the plugin wrote it.
    pub fn decode(bytes: Option<&[u8]>) -> Result<Self, PageError> {
        let bytes = bytes.unwrap_or_default();
        if !PREAMBLE.matches(bytes)? {
            return Ok(Self::default());
        }
        let Ok((header, rows)) = Header::ref_from_prefix(bytes) else { return Ok(Self::default()) };
        let Ok(rows) = <[Row]>::ref_from_bytes(rows) else { return Ok(Self::default()) };
        if rows.len() != usize::from(header.workers.get()) || rows.len() > WORKERS_MAX {
            return Ok(Self::default());
        }
        Ok(Self { workers: rows.iter().map(FleetWorker::from_row).collect() })
    }

    /// The page that [`Self::decode`] reads.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let workers = U16::new(u16::try_from(self.workers.len()).unwrap_or(u16::MAX));
        let mut bytes = Header { preamble: PREAMBLE, workers }.as_bytes().to_vec();
        for worker in &self.workers {
            bytes.extend_from_slice(worker.to_row().as_bytes());
        }
        bytes
    }

    /// Rows in the page: one more than the largest [`WorkerId`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// Whether no worker is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// The worker with this id.
    #[must_use]
    pub fn worker(&self, id: WorkerId) -> Option<&FleetWorker> {
        self.workers.get(usize::from(id.0))
    }

    /// The id of the worker at `address`.
    #[must_use]
    pub fn find(&self, address: &str) -> Option<WorkerId> {
        let index = self.workers.iter().position(|worker| worker.address == address)?;
        u16::try_from(index).ok().map(WorkerId)
    }

    /// Gives each of `addresses` a row and marks it as seen at `now`; returns whether anything changed.
    ///
    /// Every VM does this when it is configured and the lease holder now and then, so that ids exist before the first
    /// request, whichever thread gets it. An address for which there is no room gets no row and thus no requests.
    pub fn admit<'a>(&mut self, addresses: impl Iterator<Item = &'a str>, now: Timestamp) -> bool {
        let mut changed = false;
        for address in addresses {
            if let Some(worker) = self.workers.iter_mut().find(|worker| worker.address == address) {
                if now.ms_between(worker.seen_at) >= SEEN_REFRESH_MS {
                    worker.seen_at = now;
                    changed = true;
                }
                continue;
            }
            let newcomer = FleetWorker::new(address, now);
            let is_abandoned = |worker: &&mut FleetWorker| now.ms_between(worker.seen_at) >= RECLAIM_MS;
            if let Some(gone) = self.workers.iter_mut().find(is_abandoned) {
                let generation = gone.generation.wrapping_add(1);
                *gone = FleetWorker { generation, ..newcomer };
                changed = true;
            } else if self.workers.len() < WORKERS_MAX {
                self.workers.push(newcomer);
                changed = true;
            }
        }
        changed
    }

    /// Records a successful scrape of the worker at `address`. `in_flight` and `prefilling` are this gateway's own
    /// requests there at that time.
    ///
    /// Another start time than before means another life of the engine: the generation goes up.
    pub fn record_report(&mut self, address: &str, dated: DatedReport, in_flight: u32, prefilling: u32) {
        let Some(worker) = self.workers.iter_mut().find(|worker| worker.address == address) else { return };
        // The answer to a former lease holder may come after a newer one.
        if worker.report.is_some_and(|kept| kept.taken_at > dated.taken_at && is_recent(kept.taken_at, dated.taken_at))
        {
            return;
        }
        let started_before = worker.report.and_then(|dated| dated.report.started_at_s);
        if let (Some(before), Some(now)) = (started_before, dated.report.started_at_s)
            && (before - now).abs() > RESTART_TOLERANCE_S
        {
            worker.generation = worker.generation.wrapping_add(1);
        }
        worker.scrape_failures = 0;
        worker.report = Some(dated);
        worker.in_flight_at_report = in_flight;
        worker.prefilling_at_report = prefilling;
    }

    /// Records that a scrape of the worker at `address` failed or told nothing.
    pub fn record_failure(&mut self, address: &str) {
        if let Some(worker) = self.workers.iter_mut().find(|worker| worker.address == address) {
            worker.scrape_failures = worker.scrape_failures.saturating_add(1);
        }
    }
}

/// Whether `later` is so little after `earlier` that both are of one clock: it did not step back in between.
const fn is_recent(later: Timestamp, earlier: Timestamp) -> bool {
    later.ms_between(earlier) < SEEN_REFRESH_MS
}

/// Start times nearer than this are the same life: Linux derives them from clock ticks of 10 ms.
const RESTART_TOLERANCE_S: f64 = 0.5;

impl FleetWorker {
    fn new(address: &str, seen_at: Timestamp) -> Self {
        Self {
            address: address.to_owned(),
            generation: 0,
            scrape_failures: 0,
            report: None,
            in_flight_at_report: 0,
            prefilling_at_report: 0,
            seen_at,
        }
    }

    /// The report, if it was taken less than `age_max_ms` before `now`: an older one tells nothing of now.
    #[must_use]
    pub fn fresh_report(&self, now: Timestamp, age_max_ms: u64) -> Option<LoadReport> {
        self.report.filter(|dated| now.ms_between(dated.taken_at) < age_max_ms).map(|dated| dated.report)
    }

    fn from_row(row: &Row) -> Self {
        let address = row.address.get(..usize::from(row.address_bytes)).unwrap_or_default();
        let [waiting, running, kv_usage, block_tokens, kv_blocks, started_at_s] =
            row.numbers.map(|number| Some(number.get()).filter(|number| !number.is_nan()));
        let report = LoadReport { waiting, running, kv_usage, block_tokens, kv_blocks, started_at_s };
        let taken_at = Timestamp::from_ns(row.taken_ns.get());
        Self {
            address: String::from_utf8_lossy(address).into_owned(),
            generation: row.generation.get(),
            scrape_failures: row.scrape_failures.get(),
            report: (row.has_report != 0).then_some(DatedReport { taken_at, report }),
            in_flight_at_report: row.in_flight_at_report.get(),
            prefilling_at_report: row.prefilling_at_report.get(),
            seen_at: Timestamp::from_ns(row.seen_ns.get()),
        }
    }

    fn to_row(&self) -> Row {
        let mut address = [0; ADDRESS_BYTES];
        let mut address_bytes = 0;
        for (slot, byte) in address.iter_mut().zip(self.address.bytes()) {
            *slot = byte;
            address_bytes += 1;
        }
        let dated = self.report.unwrap_or_default();
        let LoadReport { waiting, running, kv_usage, block_tokens, kv_blocks, started_at_s } = dated.report;
        Row {
            address,
            address_bytes,
            has_report: u8::from(self.report.is_some()),
            scrape_failures: U16::new(self.scrape_failures),
            generation: U32::new(self.generation),
            seen_ns: U64::new(self.seen_at.as_ns()),
            taken_ns: U64::new(dated.taken_at.as_ns()),
            numbers: [waiting, running, kv_usage, block_tokens, kv_blocks, started_at_s]
                .map(|number| F64::new(number.unwrap_or(f64::NAN))),
            in_flight_at_report: U32::new(self.in_flight_at_report),
            prefilling_at_report: U32::new(self.prefilling_at_report),
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;

    const NOW: Timestamp = Timestamp::from_ms(1_000_000);
    const A: &str = "127.0.0.1:8000";
    const B: &str = "[2001:db8::1]:8000";

    fn dated(ms: u64, waiting: f64, started_at_s: f64) -> DatedReport {
        let report = LoadReport { waiting: Some(waiting), started_at_s: Some(started_at_s), ..LoadReport::default() };
        DatedReport { taken_at: NOW.plus_ms(ms), report }
    }

    fn fleet() -> Fleet {
        let mut fleet = Fleet::default();
        assert!(fleet.admit([A, B].into_iter(), NOW));
        fleet
    }

    #[test]
    fn a_fleet_comes_back_from_its_page() {
        let mut fleet = fleet();
        fleet.record_report(B, dated(5, 3.0, 100.0), 2, 1);
        fleet.record_failure(A);
        assert_eq!(Fleet::decode(Some(&fleet.encode())), Ok(fleet));
    }

    #[test]
    fn ids_are_stable_and_admission_is_idempotent() {
        let mut fleet = fleet();
        assert!(!fleet.admit([B, A].into_iter(), NOW));
        assert!(fleet.admit(["127.0.0.1:9000"].into_iter(), NOW));
        assert_eq!((fleet.find(A), fleet.find(B)), (Some(WorkerId(0)), Some(WorkerId(1))));
        assert_eq!(fleet.find("127.0.0.1:9000"), Some(WorkerId(2)));
        assert_eq!(fleet.find("10.0.0.1:1"), None);
    }

    #[test]
    fn a_worker_never_scraped_has_no_report_and_an_old_report_does_not_count() {
        let mut fleet = fleet();
        fleet.record_report(A, dated(0, 0.0, 1.0), 0, 0);
        let fresh = |id, ms| fleet.worker(WorkerId(id)).unwrap().fresh_report(NOW.plus_ms(ms), 5_000);
        assert!(fresh(0, 4_999).is_some());
        assert!(fresh(0, 5_000).is_none());
        assert!(fresh(1, 0).is_none());
    }

    #[test]
    fn a_restart_is_a_new_generation_and_a_success_clears_failures() {
        let mut fleet = fleet();
        fleet.record_report(A, dated(0, 0.0, 100.0), 0, 0);
        fleet.record_report(A, dated(1, 0.0, 100.01), 0, 0);
        assert_eq!(fleet.worker(WorkerId(0)).unwrap().generation, 0);
        fleet.record_failure(A);
        fleet.record_failure(A);
        assert_eq!(fleet.worker(WorkerId(0)).unwrap().scrape_failures, 2);
        fleet.record_report(A, dated(2, 0.0, 160.0), 0, 0);
        let worker = fleet.worker(WorkerId(0)).unwrap();
        assert_eq!((worker.generation, worker.scrape_failures), (1, 0));
    }

    #[test]
    fn an_older_report_does_not_replace_a_newer_one_unless_the_clock_stepped_back() {
        let mut fleet = fleet();
        let waiting = |fleet: &Fleet| fleet.worker(WorkerId(0)).unwrap().report.unwrap().report.waiting;
        fleet.record_report(A, dated(600_000, 1.0, 1.0), 0, 0);
        fleet.record_report(A, dated(599_000, 2.0, 1.0), 0, 0);
        assert_eq!(waiting(&fleet), Some(1.0));
        fleet.record_report(A, dated(0, 3.0, 1.0), 0, 0);
        assert_eq!(waiting(&fleet), Some(3.0));
    }

    #[test]
    fn a_report_from_before_the_clock_stepped_back_does_not_count() {
        let mut fleet = fleet();
        fleet.record_report(A, dated(3_600_000, 0.0, 1.0), 0, 0);
        assert_eq!(fleet.worker(WorkerId(0)).unwrap().fresh_report(NOW, 5_000), None);
    }

    #[test]
    fn where_workers_come_and_go_the_page_stays_small() {
        let mut fleet = Fleet::default();
        for day in 0..50 {
            let address = format!("10.0.0.1:{}", 8_000 + day);
            fleet.admit([address.as_str()].into_iter(), NOW.plus_ms(day * RECLAIM_MS));
        }
        assert!(fleet.len() <= 2, "{} rows", fleet.len());
    }

    #[test]
    fn a_full_fleet_gives_up_only_rows_that_nobody_configures() {
        let mut fleet = Fleet::default();
        let addresses: Vec<String> = (0..WORKERS_MAX).map(|port| format!("10.0.0.1:{}", port + 1)).collect();
        fleet.admit(addresses.iter().map(String::as_str), NOW);
        assert!(!fleet.admit([A].into_iter(), NOW.plus_ms(RECLAIM_MS - 1)));
        assert!(fleet.admit([A].into_iter(), NOW.plus_ms(RECLAIM_MS)));
        assert_eq!((fleet.len(), fleet.find(A)), (WORKERS_MAX, Some(WorkerId(0))));
        assert_eq!(fleet.worker(WorkerId(0)).unwrap().generation, 1);
    }

    #[test]
    fn any_bytes_decode_without_a_panic() {
        let page = fleet().encode();
        for seed in 0..5_000 {
            let mut rng = Rng::new(seed);
            let mut bytes = page.clone();
            let at = rng.below(bytes.len() as u32) as usize;
            bytes[at] = rng.next_u64() as u8;
            bytes.truncate(rng.below(bytes.len() as u32 + 100) as usize);
            let _ = Fleet::decode(Some(&bytes));
        }
    }
}
