//! Finds what belongs to a metric's name: made once for a pool, asked once for each line of each page.

/// Things by name; a name may have several.
///
/// Most lines of a page are of histograms, which nobody asks for: they are told by three bytes, without comparing names.
#[derive(Debug)]
pub(super) struct Lookup<T> {
    /// In the order of their buckets.
    entries: Vec<(String, T)>,
    /// Where each bucket starts, and behind the last where it ends.
    starts: [u16; BUCKETS + 1],
}

impl<T: Copy> Lookup<T> {
    /// Finds `entries`, of which those beyond 65,535 are left out.
    pub(super) fn new(mut entries: Vec<(String, T)>) -> Self {
        entries.truncate(usize::from(u16::MAX));
        entries.sort_by_key(|(name, _)| bucket(name.as_bytes()));
        let mut starts = [0; BUCKETS + 1];
        for (start, number) in starts.iter_mut().zip(0_usize..) {
            let before = entries.partition_point(|(name, _)| bucket(name.as_bytes()) < number);
            *start = u16::try_from(before).unwrap_or(u16::MAX);
        }
        Self { entries, starts }
    }

    /// Those among which the ones called `name` are; `None` if there surely is none.
    #[inline]
    pub(super) fn near(&self, name: &[u8]) -> Option<&[(String, T)]> {
        let number = bucket(name);
        let (start, end) = (*self.starts.get(number)?, *self.starts.get(number + 1)?);
        if start == end {
            return None;
        }
        let near = self.entries.get(usize::from(start)..usize::from(end))?;
        near.iter().any(|(entry, _)| entry.as_bytes() == name).then_some(near)
    }
}

#[cfg(test)]
impl<T: Copy> Lookup<T> {
    /// Whether `name` has to be compared with another one.
    pub(super) fn compares(&self, name: &[u8]) -> bool {
        let number = bucket(name);
        self.starts[number] < self.starts[number + 1]
    }
}

/// The length and two of the bytes in which the metrics of one engine differ.
#[inline]
fn bucket(name: &[u8]) -> usize {
    let at = |index: usize| usize::from(name.get(index).copied().unwrap_or_default());
    (name.len() * 7 + at(name.len() / 2) * 3 + at(name.len().wrapping_sub(1)) * 31) % BUCKETS
}

/// Several times the names that there are, so that most buckets are empty.
const BUCKETS: usize = 512;

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    #[test]
    fn every_name_is_found_and_no_other() {
        let names: Vec<String> = (0..500).map(|number| format!("metric_{}", number / 2)).collect();
        let lookup = Lookup::new(names.iter().cloned().zip(0..).collect());
        for (name, number) in names.iter().zip(0..) {
            let found = lookup.near(name.as_bytes()).unwrap();
            assert_eq!(found.iter().filter(|(entry, _)| entry == name).count(), 2, "{name}");
            assert!(found.contains(&(name.clone(), number)), "{name}");
        }
        for other in ["", "m", "metric_", "metric_250", "metric_1x", "xmetric_1"] {
            assert!(lookup.near(other.as_bytes()).is_none(), "{other}");
        }
        assert!(Lookup::<u8>::new(vec![]).near(b"metric_1").is_none());
    }
}
