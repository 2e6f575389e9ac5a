//! What one request says of where it goes, understood.

use std::net::{IpAddr, SocketAddr};

use xxhash_rust::xxh3::xxh3_64;

use super::{HINTS, HintSet, Meaning, hints};
use crate::request::Headers;
use crate::worker::{Endpoint, WORKERS_MAX};

/// A worker, as a trusted hop names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// `IP:port`, as the pool has it.
    Address(String),
    /// Its name, by its [`name_hash`].
    Name(u64),
    /// Its place in the pool's list, from 0.
    Place(usize),
}

/// Where a request is to go. Bounded: pins by [`PINS_MAX`], the two subsets by [`WORKERS_MAX`] each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directions {
    /// Workers, in order of preference.
    pub pins: Vec<Pin>,
    /// The one that a request's header says: it allows certain workers and no others.
    subset: Option<Subset>,
    /// The one that the gateway itself says: it holds in either mode, whatever the request says.
    gateway_subset: Option<Subset>,
    /// The data-parallel rank.
    pub rank: Option<u32>,
    /// What keeps requests together that carry the same: a session's name.
    pub routing_key: Option<Vec<u8>>,
    /// Whether something was said that cannot be understood.
    pub is_malformed: bool,
    has_pins: bool,
    has_rank: bool,
}

/// Workers that may be chosen, by the hashes of `IP:port` or of an IP. Sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Subset(Vec<u64>);

/// Something that was said cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Directions {
    /// What the headers say, and which of them contradict each other: a header that is written twice must say the same.
    /// `session_header` as in [`HintSet::place`].
    ///
    /// Where several routers' headers name workers, the first in the order of [`hints`] counts.
    #[must_use]
    pub fn of_headers(headers: Headers<'_>, session_header: &str) -> (Self, HintSet) {
        let mut directions = Self::default();
        let mut contradicted = HintSet::default();
        let mut said = [None; HINTS];
        for (name, value) in headers.iter() {
            let Some(place) = HintSet::place(name, session_header) else { continue };
            let Some(slot) = said.get_mut(place) else { continue };
            if slot.is_some_and(|before| before != value) {
                contradicted.insert(place);
            }
            *slot = Some(value);
        }
        for (place, (hint, value)) in hints().zip(said).enumerate() {
            match value {
                Some(_) if contradicted.contains(place) => directions.is_malformed |= hint.meaning != Meaning::Other,
                Some(value) => directions.tell(hint.meaning, value),
                None => {}
            }
        }
        (directions, contradicted)
    }

    /// Whether nothing was said that concerns who is chosen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.names_workers() && self.rank.is_none() && !self.is_malformed
    }

    /// Whether workers were named, or those that may be chosen.
    #[must_use]
    pub const fn names_workers(&self) -> bool {
        !self.pins.is_empty() || self.subset.is_some() || self.gateway_subset.is_some()
    }

    /// Takes in a list of workers of which one is to be chosen: as the gateway's metadata has it, as a list or as a text with
    /// commas.
    ///
    /// What is no address in it is nobody's, so that a list of nothing else allows nobody, as an empty one does: the operator's
    /// word restricts, also where it was written wrongly.
    pub fn add_subset_metadata(&mut self, value: &[u8]) {
        let listed: Vec<_> = Headers::new(value).iter().map(|(text, _)| text).collect();
        // A text of digits, dots and commas is no list: its first bytes would be a number of pairs in the millions.
        self.gateway_subset = Some(match listed.as_slice() {
            [] => Subset::of_readable(value.split(|byte| *byte == b',')),
            texts => Subset::of_readable(texts.iter().copied()),
        });
    }

    /// Whether what the request says of workers that may be chosen allows this one.
    #[must_use]
    pub fn allows(&self, address: &str) -> bool {
        self.subset.as_ref().is_none_or(|subset| subset.has(address))
    }

    /// Whether what the gateway says of workers that may be chosen allows this one.
    #[must_use]
    pub fn gateway_allows(&self, address: &str) -> bool {
        self.gateway_subset.as_ref().is_none_or(|subset| subset.has(address))
    }

    /// Whether the request says which workers may be chosen.
    #[must_use]
    pub const fn has_subset(&self) -> bool {
        self.subset.is_some()
    }

    /// Whether the gateway says which workers may be chosen.
    #[must_use]
    pub const fn has_gateway_subset(&self) -> bool {
        self.gateway_subset.is_some()
    }

    fn tell(&mut self, meaning: Meaning, value: &[u8]) {
        match meaning {
            Meaning::Workers => self.tell_pins(|directions| directions.pin_each(value, Self::worker)),
            Meaning::Endpoints => self.tell_pins(|directions| directions.pin_each(value, Self::endpoint)),
            Meaning::Instance => self.tell_pins(|directions| directions.pin_instance(value)),
            Meaning::Place => self.tell_pins(|directions| {
                directions.pins.push(Pin::Place(number(value)?));
                Ok(())
            }),
            Meaning::Subset => {
                self.subset = Subset::of(value.split(|byte| *byte == b',')).ok();
                self.is_malformed |= self.subset.is_none();
            }
            Meaning::Rank => self.tell_rank(value),
            Meaning::RoutingKey => self.routing_key = Some(value.to_vec()).filter(|key| !key.is_empty()),
            Meaning::Other => {}
        }
    }

    /// Takes in workers that are named, unless others were before.
    pub(super) fn tell_pins(&mut self, name: impl FnOnce(&mut Self) -> Result<(), Malformed>) {
        if !std::mem::replace(&mut self.has_pins, true) && name(self).is_err() {
            self.pins.clear();
            self.is_malformed = true;
        }
    }

    /// Takes in a rank, unless one was told before.
    pub(super) fn tell_rank(&mut self, value: &[u8]) {
        if !std::mem::replace(&mut self.has_rank, true) {
            self.rank = number(value).ok();
            self.is_malformed |= self.rank.is_none();
        }
    }

    pub(super) fn pin_instance(&mut self, value: &[u8]) -> Result<(), Malformed> {
        self.pins.push(Pin::Name(name_hash(text(value)?)));
        Ok(())
    }

    /// Further ones than [`PINS_MAX`] are not read: nobody is going to try so many.
    fn pin_each(&mut self, list: &[u8], read: impl Fn(&str) -> Option<Pin>) -> Result<(), Malformed> {
        for item in list.split(|byte| *byte == b',').take(PINS_MAX) {
            self.pins.push(read(text(item)?).ok_or(Malformed)?);
        }
        Ok(())
    }

    fn worker(text: &str) -> Option<Pin> {
        Self::endpoint(text).or_else(|| Some(Pin::Name(name_hash(text))))
    }

    fn endpoint(text: &str) -> Option<Pin> {
        let address: SocketAddr = text.parse().ok()?;
        Some(Pin::Address(address.to_string()))
    }
}

impl Subset {
    /// The workers that `items` name.
    fn of<'v>(items: impl Iterator<Item = &'v [u8]>) -> Result<Self, Malformed> {
        let mut subset = Vec::new();
        for item in items {
            if subset.len() == WORKERS_MAX {
                return Err(Malformed);
            }
            subset.push(Self::entry(item)?);
        }
        subset.sort_unstable();
        Ok(Self(subset))
    }

    /// As [`Subset::of`], without what is no address, and without what is beyond [`WORKERS_MAX`].
    fn of_readable<'v>(items: impl Iterator<Item = &'v [u8]>) -> Self {
        let mut subset: Vec<u64> = items.filter_map(|item| Self::entry(item).ok()).take(WORKERS_MAX).collect();
        subset.sort_unstable();
        Self(subset)
    }

    fn entry(item: &[u8]) -> Result<u64, Malformed> {
        let text = text(item)?;
        let entry = match (text.parse::<SocketAddr>(), text.parse::<IpAddr>()) {
            (Ok(address), _) => address.to_string(),
            (_, Ok(IpAddr::V4(ip))) => ip.to_string(),
            (_, Ok(IpAddr::V6(ip))) => format!("[{ip}]"),
            _ => return Err(Malformed),
        };
        Ok(xxh3_64(entry.as_bytes()))
    }

    fn has(&self, address: &str) -> bool {
        let ip = address.rsplit_once(':').map_or(address, |(ip, _)| ip);
        [address, ip].iter().any(|text| self.0.binary_search(&xxh3_64(text.as_bytes())).is_ok())
    }
}

/// The hash by which a worker's name is known, whatever its case: that of a host or pod, of an instance.
#[must_use]
pub fn name_hash(name: &str) -> u64 {
    Endpoint::name_hash(name).unwrap_or_default()
}

/// A name or an address: some printable characters, without the spaces around them.
fn text(value: &[u8]) -> Result<&str, Malformed> {
    let text = std::str::from_utf8(value.trim_ascii()).map_err(|_| Malformed)?;
    let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_name && !text.contains(',') { Ok(text) } else { Err(Malformed) }
}

/// A number in decimal digits and nothing else.
fn number<T: std::str::FromStr>(value: &[u8]) -> Result<T, Malformed> {
    let text = text(value)?;
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or(Malformed)
}

/// Workers named in one list, at the most.
pub const PINS_MAX: usize = 16;

/// As long as the configuration's names may be.
const NAME_BYTES_MAX: usize = 256;
