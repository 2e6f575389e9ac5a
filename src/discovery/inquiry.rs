//! When Envoy is asked for its clusters: once an interval, and never twice at once.

use crate::config::DiscoveryConfig;
use crate::time::Timestamp;

/// A question whose answer has not come after this much more than its time-out will never come.
const LOST_AFTER_MS: u64 = 2_000;

/// The questions of one VM, for all pools whose lease it holds.
#[derive(Debug, Default)]
pub struct Inquiry {
    due_at: Timestamp,
    under_way: Option<Question>,
}

/// A question under way.
#[derive(Debug)]
struct Question {
    /// The host's number for the call.
    token: u32,
    sent_at: Timestamp,
    /// The numbers of the pools it is for.
    pools: Vec<usize>,
}

impl Inquiry {
    /// Whether it is time to ask; a lost question is given up.
    pub fn is_due(&mut self, config: &DiscoveryConfig, now: Timestamp) -> bool {
        let limit_ms = u64::from(config.timeout_ms) + LOST_AFTER_MS;
        self.under_way.take_if(|question| now.ms_between(question.sent_at) >= limit_ms);
        // Further ahead than an interval: noted before the clock stepped back.
        let is_due = self.due_at <= now || self.due_at.ms_since(now) > u64::from(config.interval_ms);
        is_due && self.under_way.is_none()
    }

    /// Has the next question asked as soon as none is under way: there are pools that the last one was not for.
    pub const fn hasten(&mut self) {
        self.due_at = Timestamp::from_ns(0);
    }

    /// Notes a question that was sent at `now` for the pools of these numbers, or that the host refused to send.
    pub fn asked(&mut self, token: Option<u32>, pools: Vec<usize>, config: &DiscoveryConfig, now: Timestamp) {
        self.due_at = now.plus_ms(u64::from(config.interval_ms));
        self.under_way = token.map(|token| Question { token, sent_at: now, pools });
    }

    /// For which pools the question was that the host answers under this token; `None` if it is none of ours.
    pub fn answered(&mut self, token: u32) -> Option<Vec<usize>> {
        self.under_way.take_if(|question| question.token == token).map(|question| question.pools)
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    const START: Timestamp = Timestamp::from_ms(10_000_000);

    fn config() -> DiscoveryConfig {
        DiscoveryConfig { interval_ms: 1_000, timeout_ms: 500, ..DiscoveryConfig::default() }
    }

    #[test]
    fn the_first_question_is_due_at_once_and_the_next_ones_an_interval_apart() {
        let mut inquiry = Inquiry::default();
        assert!(inquiry.is_due(&config(), START));
        inquiry.asked(Some(7), vec![0, 2], &config(), START);
        assert_eq!(inquiry.answered(8), None);
        assert_eq!(inquiry.answered(7), Some(vec![0, 2]));
        assert_eq!(inquiry.answered(7), None);
        assert!(!inquiry.is_due(&config(), START.plus_ms(999)));
        assert!(inquiry.is_due(&config(), START.plus_ms(1_000)));
    }

    #[test]
    fn a_question_waits_for_the_answer_of_the_one_before_unless_that_is_lost() {
        let mut inquiry = Inquiry::default();
        inquiry.asked(Some(7), vec![0], &config(), START);
        inquiry.hasten();
        assert!(!inquiry.is_due(&config(), START.plus_ms(2_499)));
        assert!(inquiry.is_due(&config(), START.plus_ms(2_500)));
        assert_eq!(inquiry.answered(7), None);
    }

    #[test]
    fn a_question_that_the_host_refused_is_asked_again_an_interval_later() {
        let mut inquiry = Inquiry::default();
        inquiry.asked(None, vec![0], &config(), START);
        assert!(!inquiry.is_due(&config(), START.plus_ms(999)));
        assert!(inquiry.is_due(&config(), START.plus_ms(1_000)));
    }

    #[test]
    fn a_pool_that_has_come_to_this_vm_does_not_wait() {
        let mut inquiry = Inquiry::default();
        inquiry.asked(Some(7), vec![0], &config(), START);
        inquiry.answered(7);
        inquiry.hasten();
        assert!(inquiry.is_due(&config(), START.plus_ms(10)));
    }

    #[test]
    fn questions_go_on_after_the_clock_stepped_back() {
        let mut inquiry = Inquiry::default();
        inquiry.asked(None, vec![0], &config(), START);
        assert!(inquiry.is_due(&config(), Timestamp::from_ms(1_000)));
    }
}
