//! What the plugin counts: the names, kinds and meanings of its stats, for the host to define and for docs/stats.md.

use crate::schedule::{Branch, Rung};

/// What a stat can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatKind {
    /// Only goes up, until the binary or the configuration is replaced.
    Counter,
    /// Is set.
    Gauge,
    /// Collects values.
    Histogram,
}

/// One stat's row in docs/stats.md.
#[derive(Clone, Copy, Debug)]
pub struct StatDoc {
    /// Its name, as the plugin defines it. Envoy's `/stats` puts `wasmcustom.` in front.
    pub name: &'static str,
    /// What it can do.
    pub kind: StatKind,
    /// What it counts.
    pub doc: &'static str,
}

macro_rules! stats {
    ($($variant:ident $kind:ident $name:literal $doc:literal)*) => {
        /// A stat of the plugin as a whole.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Stat {
            $(#[doc = $doc] $variant,)*
        }

        /// All stats of the plugin as a whole, in the order of [`Stat`].
        pub const STATS: &[StatDoc] =
            &[$(StatDoc { name: $name, kind: StatKind::$kind, doc: $doc },)*];
    };
}

stats! {
    Requests Counter "warmroute_requests_total" "requests of a pool that are routed: POST to the path of a format that is read, and with `request.otherRequests: least-load` all others"
    Routed Counter "warmroute_routed_total" "requests sent with a decision"
    DecisionTurn Counter "warmroute_decision_turn_total" "decisions: it was the worker's turn (`round-robin`)"
    DecisionDrawn Counter "warmroute_decision_drawn_total" "decisions: the worker was drawn (`random`)"
    DecisionLeastLoad Counter "warmroute_decision_least_load_total" "decisions: the worker had the least load (`least-load`)"
    DecisionHome Counter "warmroute_decision_home_total" "decisions: the prefix hashes to the worker (`prefix-hash`)"
    DecisionSpill Counter "warmroute_decision_spill_total" "decisions: the prefix's home was over its bound (`prefix-hash`), or a worker that holds more was too loaded (`prefix-cache`)"
    DecisionNoPrefix Counter "warmroute_decision_no_prefix_total" "decisions: no prefix to hash, so the least load (`prefix-hash`)"
    DecisionWarm Counter "warmroute_decision_warm_total" "decisions: no other worker holds more of the prompt (`hybrid`, `prefix-cache`)"
    DecisionCooler Counter "warmroute_decision_cooler_total" "decisions: another worker holds more of the prompt, but would serve it later (`hybrid`)"
    DecisionCold Counter "warmroute_decision_cold_total" "decisions: no worker holds any of the prompt (`hybrid`, `prefix-cache`)"
    DecisionSession Counter "warmroute_decision_session_total" "decisions: the session's worker (`session`)"
    DecisionSessionSpill Counter "warmroute_decision_session_spill_total" "decisions: the session's worker was over its bound (`session`)"
    DecisionNoSession Counter "warmroute_decision_no_session_total" "decisions: no session named, so the least load (`session`)"
    DecisionKvRoom Counter "warmroute_decision_kv_room_total" "decisions: the most room in the KV cache (`kv-utilization`)"
    DecisionScore Counter "warmroute_decision_score_total" "decisions: the highest sum of scores (`weighted`)"
    DecisionPreviousResponse Counter "warmroute_decision_previous_response_total" "decisions: the worker holds the response that the request continues (all policies)"
    DecisionDirected Counter "warmroute_decision_directed_total" "decisions: a trusted request named the worker (all policies)"
    RoutePolicyUnknown Counter "warmroute_route_policy_unknown_total" "requests whose route names a policy that `routePolicies` does not have: the policy of all routes decides"
    AllUnavailable Counter "warmroute_all_unavailable_total" "decisions with too few workers in use, so that others were candidates too (`health.ejectedMaxPercent`)"
    UnroutedUnreadable Counter "warmroute_unrouted_unreadable_total" "requests left to Envoy's fallback policy: the body is no JSON object"
    UnroutedNoBody Counter "warmroute_unrouted_no_body_total" "requests left to Envoy's fallback policy: no body"
    UnroutedNoWorkers Counter "warmroute_unrouted_no_workers_total" "requests left to Envoy's fallback policy: no worker of the pool has a place in the fleet page"
    BodyEncoded Counter "warmroute_body_encoded_total" "requests decided without their prompt: the body has a content-encoding"
    ModelReplaced Counter "warmroute_model_replaced_total" "requests whose `model` is an alias and was replaced in the body"
    ModelUnread Counter "warmroute_model_unread_total" "requests whose `model` could not be read, so that aliases and `modelHeader` do nothing: no JSON, compressed, or beyond `request.scanBytesMax`"
    BodyTruncated Counter "warmroute_body_truncated_total" "requests decided by their first `request.scanBytesMax` bytes"
    AnsweredFirstPick Counter "warmroute_answered_first_pick_total" "answers from the worker that was picked first"
    AnsweredLaterPick Counter "warmroute_answered_later_pick_total" "answers from a later pick: Envoy retried"
    AnsweredOther Counter "warmroute_answered_other_total" "answers from a worker that was not picked; many of them mean that the cluster's endpoints and the pool's workers differ"
    AnsweredUndecided Counter "warmroute_answered_undecided_total" "answers to requests for which nothing was decided: Envoy's fallback policy chose the worker"
    AnsweredByHost Counter "warmroute_answered_by_host_total" "answers of Envoy itself: no worker could be reached, a time-out, a limit"
    Unanswered Counter "warmroute_unanswered_total" "requests that ended before an answer: the client left"
    PollsSent Counter "warmroute_polls_sent_total" "scrapes sent"
    PollsSucceeded Counter "warmroute_polls_succeeded_total" "scrapes that brought a report"
    PollsFailed Counter "warmroute_polls_failed_total" "scrapes that failed: no answer, another status than 200, or a page without a metric of the load"
    PollsRefused Counter "warmroute_polls_refused_total" "scrapes that Envoy refused to send: `poll.cluster` is unknown or its circuit breaker is open"
    DiscoveriesSent Counter "warmroute_discoveries_sent_total" "questions to Envoy's admin endpoint for the endpoints of its clusters"
    DiscoveriesSucceeded Counter "warmroute_discoveries_succeeded_total" "questions that brought a page which tells of a pool's cluster"
    DiscoveriesFailed Counter "warmroute_discoveries_failed_total" "questions that failed: no answer, another status than 200, a page that is too long, is none, or tells of none of the pools; what was known goes on to count"
    WorkersAdded Counter "warmroute_workers_added_total" "workers that came into a pool, by discovery"
    WorkersRemoved Counter "warmroute_workers_removed_total" "workers that left a pool, by discovery"
    Ejections Counter "warmroute_ejections_total" "times that a worker was taken out of use for its failed requests"
    LadderFull Counter "warmroute_ladder_full_total" "decisions with all that the policy asks for"
    LadderNoReports Counter "warmroute_ladder_no_reports_total" "decisions without a fresh report of any worker: by the gateway's own in-flight counts and the index"
    LadderNoIndex Counter "warmroute_ladder_no_index_total" "decisions without the prompt or the index, which the policy asks for: by load"
    LadderNoDecision Counter "warmroute_ladder_no_decision_total" "requests of a pool for which nothing could be decided: left to Envoy's fallback policy, or refused with `failureMode: closed`"
    RefusedUndecided Counter "warmroute_refused_undecided_total" "requests answered 503 because nothing could be decided, or because their pool is not known (`failureMode: closed`)"
    Directed Counter "warmroute_directed_total" "trusted requests that named their worker, or the workers they may go to, and went there"
    DirectedIgnored Counter "warmroute_directed_ignored_total" "trusted requests whose wish could not be fulfilled and was ignored (`directRouting: soft`)"
    DirectedRefused Counter "warmroute_directed_refused_total" "trusted requests whose wish could not be fulfilled and that were answered 503 (`directRouting: strict`, or the gateway's own subset has no worker)"
    HintsRemoved Counter "warmroute_hints_removed_total" "requests that are not trusted and said where to go: that was removed"
    HintsUnread Counter "warmroute_hints_unread_total" "requests whose body was not read to its end (longer than `request.scanBytesMax`, compressed, no JSON, for a policy or on a path that needs no body), so that it may say where to go: of those that are not trusted, to a pool that may run NVIDIA Dynamo, what it says in `nvext` is still there; of those that are trusted and said nothing in headers, it was not heard"
    LayoutChanges Counter "warmroute_layout_changes_total" "times that the plugin began with shared pages of another layout than the one used before: the caches are learned anew"
    LeaseTaken Counter "warmroute_lease_taken_total" "times that a VM became the one that polls a pool"
    PageConflicts Counter "warmroute_page_conflicts_total" "writes of a shared page given up because other VMs were faster; the next write mends it"
    PageNewer Counter "warmroute_page_newer_total" "shared pages left alone because a newer version of the plugin wrote them"
    PredictedCachedTokens Counter "warmroute_predicted_cached_tokens_total" "prompt tokens that were believed to be in the worker's KV cache, of requests whose engine told how many were"
    CachedTokens Counter "warmroute_cached_tokens_total" "prompt tokens that were, of the same requests: `usage.prompt_tokens_details.cached_tokens`"
    PredictionErrorTokens Histogram "warmroute_prediction_error_tokens" "how far the two are apart, for each of these requests, prompt tokens"
    MatchPercent Histogram "warmroute_match_percent" "how much of the prompt the index found at the worker, percent, for each decision that asked it"
    DecisionUs Histogram "warmroute_decision_us" "time from the read body to the decision, microseconds"
    BodyBytes Histogram "warmroute_body_bytes" "bytes of body read for a decision"
}

impl Stat {
    /// Its number in [`STATS`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl From<Branch> for Stat {
    fn from(branch: Branch) -> Self {
        match branch {
            Branch::Turn => Self::DecisionTurn,
            Branch::Drawn => Self::DecisionDrawn,
            Branch::LeastLoad => Self::DecisionLeastLoad,
            Branch::Home => Self::DecisionHome,
            Branch::Spill => Self::DecisionSpill,
            Branch::NoPrefix => Self::DecisionNoPrefix,
            Branch::Warm => Self::DecisionWarm,
            Branch::Cooler => Self::DecisionCooler,
            Branch::Cold => Self::DecisionCold,
            Branch::Session => Self::DecisionSession,
            Branch::SessionSpill => Self::DecisionSessionSpill,
            Branch::NoSession => Self::DecisionNoSession,
            Branch::KvRoom => Self::DecisionKvRoom,
            Branch::Score => Self::DecisionScore,
            Branch::PreviousResponse => Self::DecisionPreviousResponse,
            Branch::Directed => Self::DecisionDirected,
        }
    }
}

impl From<Rung> for Stat {
    fn from(rung: Rung) -> Self {
        match rung {
            Rung::Full => Self::LadderFull,
            Rung::NoReports => Self::LadderNoReports,
            Rung::NoIndex => Self::LadderNoIndex,
        }
    }
}

macro_rules! pool_gauges {
    ($($variant:ident $name:literal $doc:literal)*) => {
        /// A gauge that each pool has, set on the tick of the VM that polls the pool.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum PoolGauge {
            $(#[doc = $doc] $variant,)*
        }

        /// All gauges of a pool in the order of [`PoolGauge`]; see [`pool_gauge_name`] for the whole name.
        pub const POOL_GAUGES: &[StatDoc] =
            &[$(StatDoc { name: $name, kind: StatKind::Gauge, doc: $doc },)*];
    };
}

pool_gauges! {
    InflightRequests "inflight_requests" "requests in flight, all worker threads"
    AvailableWorkers "available_workers" "workers in use: neither draining nor ejected, healthy as Envoy says, and answering their scrapes or never scraped"
    Workers "workers" "workers of the pool, listed or discovered"
    DrainingWorkers "draining_workers" "workers that get no new requests: by configuration, or because Envoy says so"
    EjectedWorkers "ejected_workers" "workers out of use for their failed requests"
    KnownWorkers "known_workers" "workers whose load is known: they told queue or batch less than `poll.reportMaxAgeMs` ago"
    ReportAgeMsMax "report_age_ms_max" "age of the oldest worker's report, milliseconds"
}

impl PoolGauge {
    /// Its number in [`POOL_GAUGES`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The whole name of a pool's gauge: `warmroute_pool.<cluster>.<name>`.
#[must_use]
pub fn pool_gauge_name(cluster: &str, gauge: &StatDoc) -> String {
    ["warmroute_pool.", cluster, ".", gauge.name].concat()
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    #[test]
    fn each_branch_has_the_counter_that_its_name_promises() {
        for branch in Branch::ALL {
            let want = format!("warmroute_decision_{}_total", branch.name());
            assert_eq!(STATS[Stat::from(branch).index()].name, want);
        }
    }

    #[test]
    fn each_rung_has_the_counter_that_its_name_promises() {
        for rung in [Rung::Full, Rung::NoReports, Rung::NoIndex] {
            assert_eq!(STATS[Stat::from(rung).index()].name, format!("warmroute_ladder_{}_total", rung.name()));
        }
    }

    #[test]
    fn names_are_unique_and_counters_end_in_total() {
        let mut names: Vec<&str> = STATS.iter().map(|stat| stat.name).collect();
        assert!(STATS.iter().all(|stat| stat.name.ends_with("_total") == (stat.kind == StatKind::Counter)));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STATS.len());
    }
}
