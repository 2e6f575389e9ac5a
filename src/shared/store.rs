//! Where the pages are: the host's shared data, or a map in tests and replays.
//!
//! The core gets the store as an argument, as it gets the time: so a whole decision, with every page it reads and
//! writes and every race it may lose, runs in tests and in the replay as it runs in the filter.

use std::collections::BTreeMap;

use super::PageError;

/// The version of a stored value; a write names the one it replaces.
pub type Version = u32;

/// Values by key, with compare-and-swap. Keys are never deleted.
pub trait Store {
    /// The bytes at `key`, `None` if there are none, and their version.
    fn get(&mut self, key: &str) -> (Option<Vec<u8>>, Version);

    /// Stores `bytes` at `key`, unless its version is not `version` any more; tells whether it did. Version 0, that of a
    /// missing value, replaces whatever is there: so the host does it.
    fn set(&mut self, key: &str, bytes: &[u8], version: Version) -> bool;
}

/// How often a write is tried again when other VMs write the same page.
///
/// At 12,700 updates a second from two threads, 0.26 % of the first tries fail; four in a row are as good as never.
pub const TRIES_MAX: usize = 4;

/// Reads the page at `key`, hands it to `change` and writes what that returns; `None` = write nothing.
///
/// When another VM has written meanwhile, all is done again with what it wrote. Returns what the last `change` gave
/// besides, and whether its bytes are stored (or there were none to store).
///
/// # Errors
/// What `change` fails with; nothing is written then.
pub fn update<T>(
    store: &mut impl Store,
    key: &str,
    change: impl FnMut(Option<Vec<u8>>) -> Result<(Option<Vec<u8>>, T), PageError>,
) -> Result<(T, bool), PageError> {
    let found = store.get(key);
    update_from(store, key, found, change)
}

/// As [`update`], with a page that was read before: the first try costs no read.
///
/// # Errors
/// See [`update`].
pub fn update_from<T>(
    store: &mut impl Store,
    key: &str,
    found: (Option<Vec<u8>>, Version),
    mut change: impl FnMut(Option<Vec<u8>>) -> Result<(Option<Vec<u8>>, T), PageError>,
) -> Result<(T, bool), PageError> {
    let (mut page, mut version) = found;
    let mut tries = 1;
    loop {
        let (next, told) = change(page)?;
        let is_stored = next.is_none_or(|next| store.set(key, &next, version));
        if is_stored || tries == TRIES_MAX {
            return Ok((told, is_stored));
        }
        tries += 1;
        (page, version) = store.get(key);
    }
}

/// A store in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    values: BTreeMap<String, (Vec<u8>, Version)>,
    /// Values read so far: what a decision costs the host.
    pub reads: u64,
    /// Values written so far.
    pub writes: u64,
}

impl MemoryStore {
    /// All values, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.values.iter().map(|(key, (bytes, _))| (key.as_str(), bytes.as_slice()))
    }
}

impl Store for MemoryStore {
    fn get(&mut self, key: &str) -> (Option<Vec<u8>>, Version) {
        self.reads += 1;
        self.values.get(key).map_or((None, 0), |(bytes, version)| (Some(bytes.clone()), *version))
    }

    fn set(&mut self, key: &str, bytes: &[u8], version: Version) -> bool {
        match self.values.get_mut(key) {
            Some((_, stored)) if *stored != version && version != 0 => return false,
            Some((kept, stored)) => {
                kept.clear();
                kept.extend_from_slice(bytes);
                *stored = stored.wrapping_add(1);
            }
            None => _ = self.values.insert(key.to_owned(), (bytes.to_vec(), 1)),
        }
        self.writes += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    #[test]
    fn a_write_over_what_another_wrote_is_refused_and_done_again_with_it() {
        let mut store = MemoryStore::default();
        assert!(store.set("k", b"a", 0));
        let (_, old) = store.get("k");
        assert!(store.set("k", b"b", old));
        assert!(!store.set("k", b"c", old));
        let mut seen = Vec::new();
        let found = (Some(b"a".to_vec()), old);
        let updated = update_from(&mut store, "k", found, |page| {
            seen.push(page.clone().unwrap_or_default());
            Ok((Some([page.unwrap_or_default(), b"+".to_vec()].concat()), ()))
        });
        assert_eq!((updated, seen), (Ok(((), true)), vec![b"a".to_vec(), b"b".to_vec()]));
        assert_eq!(store.get("k").0, Some(b"b+".to_vec()));
    }

    #[test]
    fn a_race_lost_too_often_is_given_up() {
        struct Contended;
        impl Store for Contended {
            fn get(&mut self, _: &str) -> (Option<Vec<u8>>, Version) {
                (None, 0)
            }
            fn set(&mut self, _: &str, _: &[u8], _: Version) -> bool {
                false
            }
        }
        let mut tries = 0;
        let updated = update(&mut Contended, "k", |_| {
            tries += 1;
            Ok((Some(Vec::new()), ()))
        });
        assert_eq!((updated, tries), (Ok(((), false)), TRIES_MAX));
    }
}
