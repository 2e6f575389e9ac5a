//! Which workers a request goes to: filters take candidates away, the policy orders the rest.
//!
//! Nothing here knows prompts, engines or shared data. The pool puts plain numbers into each [`Candidate`], the policy
//! answers with a [`Decision`]; whoever has the numbers can repeat the decision.

pub mod filter;
pub mod policy;
mod ranking;
pub mod scorer;

pub use policy::{POLICIES, Policy, PolicyRegistration};
pub use ranking::{Ranking, rendezvous_weight};

use crate::time::Timestamp;
use crate::worker::{AdapterFit, WorkerId};

/// Workers named in one decision, at the most: the first, and whom to try when it fails.
///
/// Envoy walks the list as it retries; a third failure in a row is no longer one worker's accident.
pub const PICKS_MAX: usize = 3;

/// One worker that may serve the request, in plain numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Who it is.
    pub worker: WorkerId,
    /// Hash of its address, mixed well: the same in all gateways, whatever the order of their lists.
    pub identity: u64,
    /// Requests there: this gateway's in flight, and those of others that its fresh report reveals. Lower is better.
    ///
    /// For a worker without a fresh report, others' requests are taken to be as many as at the fullest known worker:
    /// unknown is never better than known.
    pub load_requests: f64,
    /// This gateway's own requests in flight there, all threads.
    pub own_requests: u32,
    /// Prompt tokens that have to be prefilled there before this request's: the uncached ones of this gateway's requests
    /// without a first byte, and an estimate for others' queue. Lower is better. Unknown counts as in `load_requests`.
    pub backlog_tokens: f64,
    /// Prompt tokens of this request that the index finds there, contiguous from the start; 0 to
    /// [`Query::prompt_tokens`]. Higher is better.
    pub matched_tokens: f64,
    /// Whether its report is fresh.
    pub is_known: bool,
    /// Requests in its queue, by its fresh report.
    pub waiting: Option<f64>,
    /// Requests in its batch, by its fresh report.
    pub running: Option<f64>,
    /// Share of its KV cache in use, 0.0 to 1.0, by its fresh report.
    pub kv_usage: Option<f64>,
    /// How well the request's LoRA adapter fits there: by its fresh report, what it is believed to have in memory, and what
    /// was sent there since. `None` if the request is for no adapter, as far as anybody can tell: for all candidates alike.
    pub adapter: Option<AdapterFit>,
    /// When it last got a prompt that nobody had any of; the epoch if never.
    pub cold_pick_at: Timestamp,
}

/// The request, as far as a policy needs to know it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Query {
    /// The hash by which its prompt is known; `None` when the prompt could not be read or is empty.
    pub prefix: Option<u64>,
    /// Hash of the session that the client names; `None` if it names none, or if no place to look at is configured.
    pub session: Option<u64>,
    /// The worker that holds the response which it continues. It comes first whatever the policy, if it is a candidate:
    /// no other can serve the request.
    pub response_holder: Option<WorkerId>,
    /// Whether the policy asks for the prompt or for the index, and there is none.
    pub is_blind: bool,
    /// About how many tokens its prompt has.
    pub prompt_tokens: f64,
    /// The share of the pool's requests that other gateways send, 0.0 (all are ours) to 1.0.
    pub foreign_share: f64,
    /// Decisions made before this one by all threads of this gateway, wrapping.
    pub turn: u32,
    /// Fresh random bits.
    pub random: u64,
}

impl Query {
    /// By what the request's home is found: the session that the client names, else its prompt's prefix.
    #[must_use]
    pub fn key(&self) -> Option<u64> {
        self.session.or(self.prefix)
    }
}

/// Why a worker came first. Each has a counter; `name` is its word in stats and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Branch {
    /// It was its turn.
    Turn,
    /// It was drawn.
    Drawn,
    /// It has the least load.
    LeastLoad,
    /// The prefix hashes to it.
    Home,
    /// The prefix hashes to another, which is over its bound; or another's cache is warmer, and its load too high.
    Spill,
    /// There is no prefix to hash: least load instead.
    NoPrefix,
    /// No other candidate holds more of the prompt.
    Warm,
    /// Another candidate holds more of the prompt, but would serve it later.
    Cooler,
    /// No candidate holds any of the prompt.
    Cold,
    /// The session's worker.
    Session,
    /// The session's worker is over its bound or gone.
    SessionSpill,
    /// The client names no session: least load instead.
    NoSession,
    /// It has the most room in its KV cache.
    KvRoom,
    /// It has the highest sum of weighted scores.
    Score,
    /// It holds the response that the request continues.
    PreviousResponse,
    /// A trusted hop named it.
    Directed,
}

impl Branch {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 16] = [
        Self::Turn,
        Self::Drawn,
        Self::LeastLoad,
        Self::Home,
        Self::Spill,
        Self::NoPrefix,
        Self::Warm,
        Self::Cooler,
        Self::Cold,
        Self::Session,
        Self::SessionSpill,
        Self::NoSession,
        Self::KvRoom,
        Self::Score,
        Self::PreviousResponse,
        Self::Directed,
    ];

    /// Its word in stats (`warmroute_decision_<name>_total`) and in `x-warmroute-reason`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Drawn => "drawn",
            Self::LeastLoad => "least_load",
            Self::Home => "home",
            Self::Spill => "spill",
            Self::NoPrefix => "no_prefix",
            Self::Warm => "warm",
            Self::Cooler => "cooler",
            Self::Cold => "cold",
            Self::Session => "session",
            Self::SessionSpill => "session_spill",
            Self::NoSession => "no_session",
            Self::KvRoom => "kv_room",
            Self::Score => "score",
            Self::PreviousResponse => "previous_response",
            Self::Directed => "directed",
        }
    }
}

/// On how much a decision stands: the ladder of what may be missing, best first. A request for which not even the last step
/// can be taken is not decided at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rung {
    /// All that the policy asks for.
    #[default]
    Full,
    /// No worker has told its load lately, although they are asked: the gateway's own counts and the index.
    NoReports,
    /// The policy asks for the prompt or for the index, and there is none: load only.
    NoIndex,
}

impl Rung {
    /// Its word in stats (`warmroute_ladder_<name>_total`) and in `x-warmroute-rung`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::NoReports => "no_reports",
            Self::NoIndex => "no_index",
        }
    }
}

/// Up to [`PICKS_MAX`] workers in order of preference, without repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Picks {
    workers: [WorkerId; PICKS_MAX],
    len: usize,
}

impl Picks {
    /// Appends `worker`, unless it is there already or the list is full.
    pub fn push(&mut self, worker: WorkerId) {
        if !self.as_slice().contains(&worker)
            && let Some(slot) = self.workers.get_mut(self.len)
        {
            *slot = worker;
            self.len += 1;
        }
    }

    /// Puts `worker` before all others; where it is not among them and the list is full, the last is left out.
    pub fn put_first(&mut self, worker: WorkerId) {
        let others = *self;
        *self = Self::default();
        self.push(worker);
        others.as_slice().iter().for_each(|other| self.push(*other));
    }

    /// The workers, best first.
    #[must_use]
    pub fn as_slice(&self) -> &[WorkerId] {
        self.workers.get(..self.len).unwrap_or_default()
    }

    /// The best.
    #[must_use]
    pub fn first(&self) -> Option<WorkerId> {
        self.as_slice().first().copied()
    }
}

/// Where a request goes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The workers to try, in order; at least one.
    pub picks: Picks,
    /// Why the first came first.
    pub branch: Branch,
    /// Whether every worker of the pool was unavailable, so that all were candidates again.
    pub is_panic: bool,
    /// On how much it stands.
    pub rung: Rung,
    /// Prompt tokens that the first is believed to hold.
    pub matched_tokens: u32,
}
