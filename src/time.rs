//! A moment, handed in by the host: the core reads no clock.

/// Nanoseconds since the Unix epoch, as the host's wall clock tells it.
///
/// All worker threads of one Envoy share that clock, so timestamps written into shared pages compare.
/// It may step back; differences therefore saturate at 0 instead of wrapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    ns: u64,
}

impl Timestamp {
    /// The moment `ns` nanoseconds after the Unix epoch.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self { ns }
    }

    /// The moment `ms` milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self { ns: ms.saturating_mul(1_000_000) }
    }

    /// Nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.ns
    }

    /// Milliseconds from `earlier` to `self`; 0 if `earlier` is later.
    #[must_use]
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.ns.saturating_sub(earlier.ns) / 1_000_000
    }

    /// Milliseconds between the two, whichever is later.
    ///
    /// For ages: a moment from before the clock stepped back lies in the future, and must count as old and not as new.
    #[must_use]
    pub const fn ms_between(self, other: Self) -> u64 {
        self.ns.abs_diff(other.ns) / 1_000_000
    }

    /// This moment moved `ms` milliseconds later.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self { ns: self.ns.saturating_add(ms.saturating_mul(1_000_000)) }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    #[test]
    fn a_clock_that_steps_back_gives_zero_and_not_a_huge_age() {
        let (early, late) = (Timestamp::from_ms(1_000), Timestamp::from_ms(1_250));
        assert_eq!(late.ms_since(early), 250);
        assert_eq!(early.ms_since(late), 0);
        assert_eq!((early.ms_between(late), late.ms_between(early)), (250, 250));
        assert_eq!(Timestamp::from_ns(u64::MAX).plus_ms(1), Timestamp::from_ns(u64::MAX));
    }
}
