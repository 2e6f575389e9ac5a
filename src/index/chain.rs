//! A chain's walks over the pages: who holds how much, record it at a worker, take that back.

use super::Retention;
use super::page::{IndexPage, Touched};
use crate::prefix::{BlockHash, prefix_bytes};
use crate::shared::PageError;
use crate::shared::store::{Store, Version, update, update_from};
use crate::worker::WorkerId;

/// Stretches of one chain that are walked, at the most. The longest chain has 64, and one more for each place where
/// chains parted within one; nobody has that many, but a page that is damaged must not send a walk in circles either.
const STRETCHES_MAX: usize = 96;

/// Runs of blocks with one age that are told of a recording; what follows the last of them counts as of its age.
const SEGMENTS_MAX: usize = 6;

/// A pool's index: how many pages it has, and under which keys.
#[derive(Clone, Debug)]
pub struct Index {
    pages: u32,
    /// `warmroute/index/<pool>/<page>`; what stands behind `prefix_bytes` is the page's number.
    key: String,
    prefix_bytes: usize,
    /// The pages that the last [`find`](Index::find) read, by number: what it is followed by begins with them.
    read: Vec<(u32, Found)>,
}

/// A page as it was read.
type Found = (Option<Vec<u8>>, Version);

/// Blocks of a chain that a worker was sent before, and how long ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Their end, in bytes of the prompt; they begin where the segment before ends.
    pub end_bytes: u64,
    /// Spans that were new to the worker in between.
    pub age: u32,
    /// Seconds in between.
    pub idle_s: u32,
}

/// What recording a chain at a worker found there before, and what it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    segments: [Segment; SEGMENTS_MAX],
    len: usize,
    /// Bytes that were new to the worker.
    pub new_bytes: u64,
    /// Pages that could not be written, because other VMs were faster or they are of a newer version.
    pub lost_pages: u32,
}

impl Recorded {
    /// What the worker was sent before, from the start of the prompt on without a gap.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        self.segments.get(..self.len).unwrap_or_default()
    }

    /// Whoever holds this holds all before it (see [`crate::index`]): a gap is closed with what follows it.
    fn push(&mut self, segment: Segment) {
        match self.segments.get_mut(..self.len).and_then(<[Segment]>::last_mut) {
            Some(last) if last.age == segment.age || self.len == SEGMENTS_MAX => last.end_bytes = segment.end_bytes,
            _ => {
                if let Some(slot) = self.segments.get_mut(self.len) {
                    *slot = segment;
                    self.len += 1;
                }
            }
        }
    }
}

impl Index {
    /// The index whose keys begin with `key_prefix`, of so many pages (at least one).
    #[must_use]
    pub fn new(key_prefix: &str, pages: u32) -> Self {
        Self { pages: pages.max(1), key: key_prefix.to_owned(), prefix_bytes: key_prefix.len(), read: Vec::new() }
    }

    /// The number of the page on which the stretch is that begins with `first`.
    fn page(&self, first: BlockHash) -> u32 {
        // The high bits choose the page, the low ones tell blocks of a stretch apart.
        (((first.0 >> 32) * u64::from(self.pages)) >> 32) as u32
    }

    /// The key of a page.
    fn key(&mut self, page: u32) -> &str {
        self.key.truncate(self.prefix_bytes);
        let mut unit = 1;
        while page / unit >= 10 {
            unit *= 10;
        }
        while unit > 0 {
            self.key.push(char::from(b'0' + (page / unit % 10) as u8));
            unit /= 10;
        }
        &self.key
    }

    /// Adds to `matched_bytes`, by worker id, how many bytes of the prompt each worker is believed to hold, contiguous
    /// from the start; workers beyond its length are left out.
    ///
    /// One walk for all workers: it reads a page for each stretch that anybody holds, and one more. A
    /// [`record`](Self::record) of the same chain right after it reads none of them again.
    ///
    /// # Errors
    /// [`PageError::Newer`] when a later version of the plugin wrote a page; what was found before it counts.
    pub fn find(
        &mut self,
        store: &mut impl Store,
        blocks: &[BlockHash],
        retentions: &[Retention],
        matched_bytes: &mut [u64],
    ) -> Result<(), PageError> {
        let mut at = 0;
        self.read.clear();
        for _ in 0..STRETCHES_MAX {
            let Some(first) = blocks.get(at) else { break };
            let page = self.page(*first);
            let (bytes, version) = store.get(self.key(page));
            // A page that is missing is read again to be created: the host creates over whatever is there by then.
            let is_kept = bytes.is_some();
            let opened = IndexPage::open(bytes)?;
            let next = opened.look_up(blocks, at, retentions, |worker, end_block| {
                if let Some(matched) = matched_bytes.get_mut(usize::from(worker.0)) {
                    *matched = prefix_bytes(end_block).max(*matched);
                }
            });
            // Two stretches of a chain on one page are rare: the first is enough.
            if is_kept && self.read.iter().all(|(read, _)| *read != page) {
                self.read.push((page, (Some(opened.into_bytes()), version)));
            }
            let Some(next) = next.filter(|next| *next > at) else { break };
            at = next;
        }
        Ok(())
    }

    /// Records that `worker` is sent the chain: advances its odometer in `retentions` by what is new there.
    pub fn record(
        &mut self,
        store: &mut impl Store,
        blocks: &[BlockHash],
        worker: WorkerId,
        retentions: &mut [Retention],
        now_s: u32,
    ) -> Recorded {
        let mut recorded = Recorded::default();
        let Some(before) = retentions.get(usize::from(worker.0)).copied() else { return recorded };
        let (mut at, mut odometer) = (0, before.odometer);
        for _ in 0..STRETCHES_MAX {
            let Some(first) = blocks.get(at) else { break };
            let page = self.page(*first);
            let read = self.read.iter().position(|(read, _)| *read == page).map(|at| self.read.swap_remove(at).1);
            let found = read.unwrap_or_else(|| store.get(self.key(page)));
            let updated = update_from(store, self.key(page), found, |bytes| {
                // A race that was lost is run again from the same odometer.
                if let Some(retention) = retentions.get_mut(usize::from(worker.0)) {
                    retention.odometer = odometer;
                }
                let mut page = IndexPage::open(bytes)?;
                let touched = page.record(blocks, at, worker, retentions, now_s);
                Ok((touched.map(|_| page.into_bytes()), touched))
            });
            let (touched, is_stored) = updated.unwrap_or((None, false));
            recorded.lost_pages += u32::from(!is_stored);
            let Some(Touched { next, held, new_bytes }) = touched.filter(|touched| touched.next > at) else { break };
            if let Some((end_block, age, idle_s)) = held {
                recorded.push(Segment { end_bytes: prefix_bytes(end_block), age, idle_s });
            }
            recorded.new_bytes += new_bytes;
            odometer = retentions.get(usize::from(worker.0)).map_or(odometer, |retention| retention.odometer);
            at = next;
        }
        // Of no use to another chain, and by then too old.
        self.read.clear();
        recorded
    }

    /// Takes back that `worker` was sent the chain's bytes from `from_bytes` on: it did not build them.
    pub fn forget(&mut self, store: &mut impl Store, blocks: &[BlockHash], worker: WorkerId, from_bytes: u64) {
        let from = (0..blocks.len()).take_while(|block| prefix_bytes(block + 1) <= from_bytes).count();
        let mut at = 0;
        for _ in 0..STRETCHES_MAX {
            let Some(first) = blocks.get(at) else { break };
            let page = self.page(*first);
            let updated = update(store, self.key(page), |bytes| {
                let mut page = IndexPage::open(bytes)?;
                let next = page.forget(blocks, at, worker, from);
                Ok((Some(page.into_bytes()), next))
            });
            let next = updated.ok().and_then(|(next, _)| next).filter(|next| *next > at);
            let Some(next) = next else { break };
            at = next;
        }
    }
}
