//! The fleet as bytes: one header, then one row of fixed size per worker.

use zerocopy::little_endian::{F64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::super::{PageError, Preamble};
use super::{Fleet, FleetWorker};
use crate::time::Timestamp;
use crate::worker::{
    ADAPTERS_LISTED_MAX, AdapterHash, AdapterList, Adapters, DatedReport, LoadReport, Standing, WORKERS_MAX,
};

const PREAMBLE: Preamble = Preamble::new(*b"WRFL", 4);

/// Longest address text kept: `[` 45 characters of IPv6 `]:65535`, rounded up.
const ADDRESS_BYTES: usize = 64;

/// Base models of one worker that the page names: one process serves one, by one or two names.
const MODELS_MAX: usize = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    preamble: Preamble,
    workers: U16,
    admitted_ns: U64,
    /// NaN = none yet.
    foreign_share: F64,
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
    /// 0 = not told.
    adapters_max: U16,
    running_adapters: AdapterColumn<ADAPTERS_LISTED_MAX>,
    waiting_adapters: AdapterColumn<ADAPTERS_LISTED_MAX>,
    loaded_adapters: AdapterColumn<ADAPTERS_LISTED_MAX>,
    models: AdapterColumn<MODELS_MAX>,
    /// See [`Standing::code`].
    standing: u8,
    priority: u8,
    /// 0 = not told.
    name_hash: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AdapterColumn<const LISTED_MAX: usize> {
    count: U16,
    /// The first of them; 0 = not known by name.
    hashes: [U32; LISTED_MAX],
}

impl Fleet {
    /// The fleet in `bytes`; an empty one where there is none, or none that can be read.
    ///
    /// # Errors
    /// [`PageError::Newer`] when a later version of the plugin wrote it.
    pub fn decode(bytes: Option<&[u8]>) -> Result<Self, PageError> {
        let bytes = bytes.unwrap_or_default();
        let workers = if PREAMBLE.matches(bytes)? { workers_of(bytes) } else { None };
        let (Some(workers), Ok((header, _))) = (workers, Header::ref_from_prefix(bytes)) else {
            return Ok(Self::default());
        };
        let share = header.foreign_share.get();
        Ok(Self {
            workers,
            admitted_at: Timestamp::from_ns(header.admitted_ns.get()),
            foreign_share: (0.0..=1.0).contains(&share).then_some(share),
        })
    }

    /// The page that [`Self::decode`] reads.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let workers = U16::new(u16::try_from(self.workers.len()).unwrap_or(u16::MAX));
        let admitted_ns = U64::new(self.admitted_at.as_ns());
        let foreign_share = F64::new(self.foreign_share.unwrap_or(f64::NAN));
        let header = Header { preamble: PREAMBLE, workers, admitted_ns, foreign_share };
        let mut bytes = Vec::with_capacity(size_of::<Header>() + size_of::<Row>() * self.workers.len());
        bytes.extend_from_slice(header.as_bytes());
        for worker in &self.workers {
            bytes.extend_from_slice(worker.to_row().as_bytes());
        }
        bytes
    }
}

/// The workers of a page; `None` if its length does not fit its header.
fn workers_of(bytes: &[u8]) -> Option<Vec<FleetWorker>> {
    let (header, rows) = Header::ref_from_prefix(bytes).ok()?;
    let rows = <[Row]>::ref_from_bytes(rows).ok()?;
    let is_whole = rows.len() == usize::from(header.workers.get()) && rows.len() <= WORKERS_MAX;
    is_whole.then(|| rows.iter().map(FleetWorker::from_row).collect())
}

impl FleetWorker {
    fn from_row(row: &Row) -> Self {
        let address = row.address.get(..usize::from(row.address_bytes)).unwrap_or_default();
        let [waiting, running, kv_usage, block_tokens, kv_blocks, started_at_s] =
            row.numbers.map(|number| Some(number.get()).filter(|number| !number.is_nan()));
        let adapters = Adapters {
            max: Some(row.adapters_max.get()).filter(|&max| max > 0),
            running: row.running_adapters.to_list(),
            waiting: row.waiting_adapters.to_list(),
        };
        let report = LoadReport {
            waiting,
            running,
            kv_usage,
            block_tokens,
            kv_blocks,
            started_at_s,
            adapters,
            models: row.models.to_list(),
        };
        let taken_at = Timestamp::from_ns(row.taken_ns.get());
        Self {
            address: String::from_utf8_lossy(address).into_owned(),
            generation: row.generation.get(),
            scrape_failures: row.scrape_failures.get(),
            report: (row.has_report != 0).then_some(DatedReport { taken_at, report }),
            loaded: row.loaded_adapters.to_list(),
            in_flight_at_report: row.in_flight_at_report.get(),
            prefilling_at_report: row.prefilling_at_report.get(),
            seen_at: Timestamp::from_ns(row.seen_ns.get()),
            standing: Standing::from_code(row.standing),
            priority: row.priority,
            name_hash: Some(row.name_hash.get()).filter(|&hash| hash != 0),
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
        let LoadReport { waiting, running, kv_usage, block_tokens, kv_blocks, started_at_s, adapters, models } =
            dated.report;
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
            adapters_max: U16::new(adapters.max.unwrap_or_default()),
            running_adapters: AdapterColumn::of(&adapters.running),
            waiting_adapters: AdapterColumn::of(&adapters.waiting),
            loaded_adapters: AdapterColumn::of(&self.loaded),
            models: AdapterColumn::of(&models),
            standing: self.standing.code(),
            priority: self.priority,
            name_hash: U64::new(self.name_hash.unwrap_or_default()),
        }
    }
}

impl<const LISTED_MAX: usize> AdapterColumn<LISTED_MAX> {
    fn of(list: &AdapterList) -> Self {
        let mut hashes = [U32::ZERO; LISTED_MAX];
        for (slot, adapter) in hashes.iter_mut().zip(list.listed()) {
            *slot = U32::new(adapter.0);
        }
        // A list that does not fit has more than anybody keeps by name, so that it is known to be cut.
        let count = if list.listed().len() > LISTED_MAX { u16::MAX } else { list.count() };
        Self { count: U16::new(count), hashes }
    }

    fn to_list(self) -> AdapterList {
        let named = self.hashes.iter().map(|hash| hash.get()).take_while(|hash| *hash != 0);
        AdapterList::from_parts(self.count.get(), named.map(AdapterHash))
    }
}
