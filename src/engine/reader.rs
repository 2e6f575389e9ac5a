//! Reads the load out of the metrics pages of one pool's workers, whatever engines they run, in one pass over each page.

use std::fmt;

use super::lookup::Lookup;
use super::prometheus::{self, Sample};
use super::series::{self, Series};
use super::tally::{Copies, Tally};
use super::{AdapterLabels, DIALECTS, Dialect, Engine, Field, Reading};
use crate::worker::{ADAPTERS_LISTED_MAX, AdapterHash, AdapterList, Adapters, LoadReport};

/// Why a page is no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// The page has no metric of queue, batch or KV-cache usage, and none that shows a known engine; or it tells only of
    /// other ranks.
    ///
    /// An error page with status 200 is such a page, and so are the metrics of some other process on that port.
    NothingKnown,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingKnown => f.write_str("page has no known engine's metrics for this worker"),
        }
    }
}

impl std::error::Error for PageError {}

/// Reads the pages of one pool's workers. Made once: what a page costs does not depend on how many engines are known.
#[derive(Debug)]
pub struct PageReader {
    dialects: Vec<&'static Dialect>,
    /// The gauges of all dialects, dialect by dialect, and before them those that the configuration names.
    gauges: Vec<KnownGauge>,
    /// The gauges by their metrics' names, and the metrics with the names of LoRA adapters.
    names: Lookup<Wanted>,
}

/// A gauge to look for.
#[derive(Debug)]
struct KnownGauge {
    /// Whose it is, as a place in the reader's dialects; `None`: the configuration's.
    dialect: Option<usize>,
    field: Field,
    reading: Reading,
    only: Option<(String, String)>,
    is_adding: bool,
}

/// What belongs to a metric's name.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    /// One of the reader's gauges.
    Gauge(usize),
    /// The adapters of one of its dialects.
    Adapters(usize),
}

impl PageReader {
    /// Reads pages of `engine`, where `renamed` tells of some fields that another series has them.
    #[must_use]
    pub fn new(engine: Engine, renamed: &[(Field, Series)]) -> Self {
        let dialects = match engine {
            Engine::Auto => DIALECTS.to_vec(),
            Engine::Known(dialect) => vec![dialect],
            Engine::Silent => vec![],
        };
        let mut names = Vec::new();
        let mut gauges = Vec::new();
        for (field, series) in renamed {
            names.push((series.metric.clone(), Wanted::Gauge(gauges.len())));
            let (field, only) = (*field, series.only.clone());
            gauges.push(KnownGauge { dialect: None, field, reading: Reading::Value, only, is_adding: false });
        }
        for (number, dialect) in dialects.iter().enumerate() {
            for gauge in dialect.gauges {
                names.push((gauge.metric.to_owned(), Wanted::Gauge(gauges.len())));
                let only = gauge.only.map(|(label, value)| (label.to_owned(), value.to_owned()));
                let (field, reading, is_adding) = (gauge.field, gauge.reading, gauge.is_adding);
                gauges.push(KnownGauge { dialect: Some(number), field, reading, only, is_adding });
            }
            names.extend(dialect.adapters.iter().map(|labels| (labels.metric.to_owned(), Wanted::Adapters(number))));
        }
        Self { dialects, gauges, names: Lookup::new(names) }
    }

    /// The report in `page`; of a page of several data-parallel ranks what `rank` says, if it is given and the page tells
    /// ranks apart.
    ///
    /// A field is `None` if its metric is absent or if any series of it is out of range or no number.
    ///
    /// # Errors
    /// [`PageError::NothingKnown`] if the page has no metric of the load, nor any other of a known engine's; the caller
    /// should count the scrape as failed. A page that has one without a usable number of the load is a report of a living
    /// worker whose load is unknown: several engines show theirs only after their first request.
    pub fn read(&self, page: &[u8], rank: Option<u32>) -> Result<LoadReport, PageError> {
        let rank = rank.map(|rank| rank.to_string());
        let mut found = Found {
            tallies: vec![Tally::Absent; self.gauges.len()],
            copies: Copies::default(),
            adapters: vec![None; self.dialects.len()],
            models: vec![Models::default(); self.dialects.len()],
            tells_other_ranks: false,
        };
        for (near, sample) in prometheus::samples(page, |name| self.names.near(name)) {
            for (_, wanted) in near.iter().filter(|(name, _)| name.as_bytes() == sample.name) {
                self.take(*wanted, sample, rank.as_deref(), &mut found);
            }
        }
        let is_alive = self.names_load(&found) || (!found.tells_other_ranks && self.shows_engine(page));
        is_alive.then(|| self.report(&found)).ok_or(PageError::NothingKnown)
    }

    /// Whether the page has any metric of one of the reader's engines.
    fn shows_engine(&self, page: &[u8]) -> bool {
        let is_own = |name: &[u8]| self.dialects.iter().any(|dialect| name.starts_with(dialect.prefix.as_bytes()));
        prometheus::names_any(page, is_own)
    }

    fn take<'p>(&self, wanted: Wanted, sample: Sample<'p>, rank: Option<&str>, found: &mut Found<'p>) {
        let gauge = match wanted {
            Wanted::Adapters(dialect) => {
                if let Some(newest) = found.adapters.get_mut(dialect) {
                    *newest = newer(*newest, sample);
                }
                return;
            }
            Wanted::Gauge(number) => number,
        };
        let (Some(known), Some(tally)) = (self.gauges.get(gauge), found.tallies.get_mut(gauge)) else { return };
        let told_rank = self.rank_of(known, &sample);
        let is_another = |rank: &str| told_rank.is_some_and(|told| told != rank.as_bytes());
        let is_other_rank = rank.is_some_and(is_another);
        found.tells_other_ranks |= is_other_rank;
        if is_other_rank || known.only.as_ref().is_some_and(|(label, value)| !series::has_label(&sample, label, value))
        {
            return;
        }
        let mut number = known.read(&sample);
        let dialect = known.dialect.and_then(|number| self.dialects.get(number));
        let sums = known.field.fold() == super::field::Fold::Sum;
        if let Some(whole) = number.filter(|_| sums && dialect.is_some_and(|dialect| dialect.shows_copies)) {
            number = found.copies.surplus(gauge, AdapterHash::of(told_rank.unwrap_or_default()).0, whole);
        }
        tally.add(number, known.field.fold());
        let models = known.dialect.and_then(|number| found.models.get_mut(number));
        if let (Some(dialect), Some(models), true) = (dialect, models, Field::LOAD.contains(&known.field)) {
            models.note(sample.label(dialect.model_label).unwrap_or_default());
        }
    }

    /// What the sample's label for the rank says. A gauge of the configuration's is any engine's.
    fn rank_of<'p>(&self, gauge: &KnownGauge, sample: &Sample<'p>) -> Option<&'p [u8]> {
        let dialects = match gauge.dialect {
            Some(number) => self.dialects.get(number..=number),
            None => Some(self.dialects.as_slice()),
        };
        let labels = dialects.into_iter().flatten().map(|dialect| dialect.rank_label);
        labels.filter(|label| !label.is_empty()).find_map(|label| sample.label(label))
    }

    /// Whether the page has a metric of the load, readable or not.
    fn names_load(&self, found: &Found<'_>) -> bool {
        let has_load = |gauge: &KnownGauge| Field::LOAD.contains(&gauge.field) && !gauge.is_adding;
        let owners = [None, self.spoken(found)];
        self.gauges.iter().zip(&found.tallies).any(|(gauge, tally)| {
            // Blocks in use are as much of a load as their share is.
            let is_load = has_load(gauge) || gauge.field == Field::KvUsedBlocks;
            is_load && tally.is_present() && owners.contains(&gauge.dialect)
        })
    }

    fn report(&self, found: &Found<'_>) -> LoadReport {
        let spoken = self.spoken(found);
        let field = |field| self.number(found, spoken, field);
        let share = || field(Field::KvUsedBlocks).zip(field(Field::KvBlocks)).map(|(used, all)| used / all);
        let named = spoken.and_then(|number| {
            let labels = self.dialects.get(number)?.adapters.as_ref()?;
            Some(labels.read(found.adapters.get(number)?.as_ref()?))
        });
        let counted = || counted_adapters(field(Field::AdapterPlacesTaken)?, field(Field::AdapterPlaces)?);
        let counted = if named.is_none() { counted() } else { None };
        let models = spoken.and_then(|number| found.models.get(number)).map_or(AdapterList::EMPTY, Models::list);
        LoadReport {
            waiting: field(Field::Waiting),
            running: field(Field::Running),
            kv_usage: field(Field::KvUsage).or_else(|| share().and_then(|share| Field::KvUsage.in_range(share))),
            block_tokens: field(Field::BlockTokens),
            kv_blocks: field(Field::KvBlocks),
            started_at_s: field(Field::StartedAt),
            adapters: named.or(counted).unwrap_or(Adapters::UNTOLD),
            // An engine that does not name its adapters takes requests by any model's name: these are not all.
            models: if counted.is_some() { models.cut() } else { models },
        }
    }

    /// The dialect of the page: the one with most fields of the load, then most fields at all, then the first.
    fn spoken(&self, found: &Found<'_>) -> Option<usize> {
        let known = |number: usize| {
            let of_it = self.gauges.iter().zip(&found.tallies).filter(move |(gauge, _)| gauge.dialect == Some(number));
            of_it.filter(|(gauge, tally)| tally.is_present() && !gauge.is_adding).map(|(gauge, _)| gauge.field)
        };
        let rank = |number: usize| {
            let load = Field::LOAD.iter().filter(|field| known(number).any(|known| known == **field)).count();
            (load, known(number).count())
        };
        let numbers = (0..self.dialects.len()).filter(|&number| known(number).next().is_some());
        // The last of equal ones is what `max_by_key` gives.
        numbers.rev().max_by_key(|&number| rank(number))
    }

    /// What the configuration's series say of the field, if it names one; else the dialect's.
    fn number(&self, found: &Found<'_>, spoken: Option<usize>, field: Field) -> Option<f64> {
        let of = |dialect: Option<usize>| {
            let all = self.gauges.iter().zip(&found.tallies);
            all.filter(move |(gauge, _)| gauge.dialect == dialect && gauge.field == field)
        };
        if let Some((_, tally)) = of(None).next() {
            return tally.number().and_then(|number| field.in_range(number));
        }
        spoken?;
        let numbers = of(spoken).filter(|(gauge, _)| !gauge.is_adding).filter_map(|(_, tally)| tally.number());
        let mut sum = numbers.filter_map(|number| field.in_range(number)).next()?;
        for (_, tally) in of(spoken).filter(|(gauge, tally)| gauge.is_adding && tally.is_present()) {
            sum += tally.number()?;
        }
        field.in_range(sum)
    }
}

/// What a page has shown so far: by gauge, and by dialect.
struct Found<'p> {
    tallies: Vec<Tally>,
    copies: Copies,
    /// The newest telling of the adapters.
    adapters: Vec<Option<Sample<'p>>>,
    models: Vec<Models>,
    /// Whether there are series of other ranks than the one asked for.
    tells_other_ranks: bool,
}

impl KnownGauge {
    fn read(&self, sample: &Sample<'_>) -> Option<f64> {
        let number = match self.reading {
            Reading::Value => sample.value,
            Reading::Label(name) => sample.label(name).and_then(prometheus::number),
        };
        number.and_then(|number| self.field.in_range(number))
    }
}

/// The different base models that a page names. Of more than are listed it is only known that there are more.
#[derive(Clone, Copy, Default)]
struct Models {
    listed: [AdapterHash; ADAPTERS_LISTED_MAX],
    count: usize,
}

impl Models {
    fn note(&mut self, name: &[u8]) {
        let model = AdapterHash::of(name);
        let is_known = self.listed.iter().take(self.count).any(|known| *known == model);
        if name.is_empty() || is_known || self.count > self.listed.len() {
            return;
        }
        if let Some(place) = self.listed.get_mut(self.count) {
            *place = model;
        }
        self.count += 1;
    }

    fn list(&self) -> AdapterList {
        AdapterList::from_parts(u16::try_from(self.count).unwrap_or(u16::MAX), self.listed)
    }
}

/// The one of the two with the larger value; of equal ones the first. One without a value tells no time and loses.
fn newer<'p>(so_far: Option<Sample<'p>>, next: Sample<'p>) -> Option<Sample<'p>> {
    let Some(time) = next.value else { return so_far };
    so_far.filter(|so_far| so_far.value.is_some_and(|newest| newest >= time)).or(Some(next))
}

/// What an engine tells that counts the adapters of its running batch and does not name them: any may be among them.
/// `None` if it has no places, which is without LoRA.
fn counted_adapters(taken: f64, places: f64) -> Option<Adapters> {
    let max = Some(places as u16).filter(|&max| max > 0)?;
    Some(Adapters { max: Some(max), running: AdapterList::from_parts(taken as u16, []), ..Adapters::UNTOLD })
}

impl AdapterLabels {
    fn read(&self, sample: &Sample<'_>) -> Adapters {
        let max = sample.label(self.max).and_then(|max| str::from_utf8(max).ok()?.parse().ok());
        let list = |label: &str| -> AdapterList {
            // An escaped name hashes as it is written and thus never matches: names with quotes are not worth the code.
            let names = sample.label(label).unwrap_or_default().split(|&byte| byte == b',');
            names.map(<[u8]>::trim_ascii).filter(|name| !name.is_empty()).map(AdapterHash::of).collect()
        };
        // A server without LoRA may say 0 places, which is none of our business, rather than that all are taken.
        let max = max.filter(|&max| max > 0);
        Adapters { max, running: list(self.running), waiting: list(self.waiting) }
    }
}

#[cfg(test)]
mod tests;
