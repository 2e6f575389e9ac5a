//! What this gateway itself had at a worker when a report was written.

use std::collections::VecDeque;

/// How far back counts are kept, seconds: reports are younger.
const KEPT_S: f64 = 3.0;

/// The gateway's own requests at one worker over the last seconds.
#[derive(Debug, Default)]
pub(super) struct OwnCounts {
    /// Since when so many requests were there, and so many of them without a first byte.
    changes: VecDeque<(f64, u32, u32)>,
}

impl OwnCounts {
    /// From now on so many more, or fewer.
    pub(super) fn change(&mut self, now_s: f64, requests: i32, prefilling: i32) {
        let (_, requests_before, prefilling_before) = self.changes.back().copied().unwrap_or_default();
        let change = (
            now_s,
            requests_before.saturating_add_signed(requests),
            prefilling_before.saturating_add_signed(prefilling),
        );
        self.changes.push_back(change);
        // The last change before the time kept still holds within it.
        while self.changes.get(1).is_some_and(|change| change.0 < now_s - KEPT_S) {
            self.changes.pop_front();
        }
    }

    /// The most that were there at once since `since_s`: the filter, too, takes the larger of its counts when a scrape was
    /// sent and answered.
    pub(super) fn most_since(&self, since_s: f64) -> (u32, u32) {
        let first = self.changes.iter().rposition(|change| change.0 <= since_s).unwrap_or_default();
        self.changes.iter().skip(first).fold((0, 0), |most, change| (most.0.max(change.1), most.1.max(change.2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One request from 1.0 to 4.0 with its first byte at 2.0, another from 1.5 on.
    fn counts() -> OwnCounts {
        let mut counts = OwnCounts::default();
        for (now_s, requests, prefilling) in [(1.0, 1, 1), (1.5, 1, 1), (2.0, 0, -1), (4.0, -1, 0)] {
            counts.change(now_s, requests, prefilling);
        }
        counts
    }

    #[test]
    fn the_most_since_a_moment_includes_what_was_there_at_it() {
        struct Case {
            name: &'static str,
            since_s: f64,
            most: (u32, u32),
        }
        const CASES: &[Case] = &[
            Case { name: "before all", since_s: 0.5, most: (2, 2) },
            Case { name: "between two changes the earlier one holds", since_s: 1.7, most: (2, 2) },
            Case { name: "at a change it holds already", since_s: 2.0, most: (2, 1) },
            Case { name: "after all", since_s: 4.5, most: (1, 1) },
        ];
        for case in CASES {
            assert_eq!(counts().most_since(case.since_s), case.most, "{}", case.name);
        }
        assert_eq!(OwnCounts::default().most_since(0.0), (0, 0), "nothing ever");
    }

    #[test]
    fn what_is_too_old_is_dropped_but_for_the_change_that_still_holds() {
        let mut counts = counts();
        counts.change(6.0, 0, 0);
        let kept_s: Vec<f64> = counts.changes.iter().map(|change| change.0).collect();
        assert_eq!(kept_s, [2.0, 4.0, 6.0], "at 3.0, where the time kept begins, that of 2.0 holds");
        assert_eq!(counts.most_since(3.0), (2, 1));
    }

    #[test]
    fn counts_never_go_below_zero() {
        let mut counts = OwnCounts::default();
        counts.change(1.0, -1, -1);
        counts.change(2.0, 1, 0);
        assert_eq!(counts.most_since(0.0), (1, 0));
    }
}
