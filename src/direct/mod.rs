//! Direct routing: a trusted hop says where a request goes, in the words of one of several routers.
//!
//! One file for each router's words. [`hints`] has them all: what a stranger says in them is removed before anything reads it.
//! [`Directions`] is what a trusted hop says, understood; the pool finds the workers that are meant, and [`Wish`] tells what
//! came of it.

mod body;
mod directions;
mod dynamo;
mod gateway_api;
mod smg;
mod warmroute;

#[cfg(test)]
mod tests;

pub use body::BODY_HINTS;
pub use directions::{Directions, PINS_MAX, Pin, name_hash};
pub use gateway_api::{DESTINATION_HEADER, SUBSET_METADATA};

use crate::config::DirectMode;

/// A header by which a hop says where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Its name, in lower case.
    pub name: &'static str,
    /// What it means here.
    pub meaning: Meaning,
    /// Whether it is for this router and goes no further, or is obeyed by an engine or a router behind it too.
    pub is_consumed: bool,
}

impl Hint {
    const fn consumed(name: &'static str, meaning: Meaning) -> Self {
        Self { name, meaning, is_consumed: true }
    }

    const fn passed(name: &'static str, meaning: Meaning) -> Self {
        Self { name, meaning, is_consumed: false }
    }
}

/// What a header means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Workers in order of preference, by address or by name.
    Workers,
    /// Workers in order of preference, by address.
    Endpoints,
    /// The workers of which one is to be chosen, by address or by IP.
    Subset,
    /// One worker, by name.
    Instance,
    /// One worker, by its place in the pool's list, from 0.
    Place,
    /// The data-parallel rank.
    Rank,
    /// The key of a session.
    RoutingKey,
    /// Nothing: it is for others.
    Other,
}

/// The routers' lists, in order of precedence.
const LISTS: [&[Hint]; 4] = [warmroute::HINTS, gateway_api::HINTS, dynamo::HINTS, smg::HINTS];

/// How many headers they have.
const HINTS: usize = warmroute::HINTS.len() + gateway_api::HINTS.len() + dynamo::HINTS.len() + smg::HINTS.len();

/// All headers of all routers, in order of precedence; a header's place in it is its number in a [`HintSet`].
pub fn hints() -> impl Iterator<Item = &'static Hint> {
    LISTS.iter().copied().flatten()
}

/// Some of the [`hints`]: those that a request has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HintSet(u32);

const _: () = assert!(HINTS <= u32::BITS as usize, "a bit for each hint");

impl HintSet {
    /// The place of a header in the [`hints`]; `None` if it is none of them.
    ///
    /// `session_header` = where clients name their sessions by configuration: a routing key is no hint there.
    #[must_use]
    pub fn place(name: &[u8], session_header: &str) -> Option<usize> {
        if !name.starts_with(b"x-") {
            return None;
        }
        let (place, hint) = hints().enumerate().find(|(_, hint)| hint.name.as_bytes() == name)?;
        (hint.meaning != Meaning::RoutingKey || hint.name != session_header).then_some(place)
    }

    /// Adds the hint at a place.
    pub const fn insert(&mut self, place: usize) {
        self.0 |= 1 << (place % u32::BITS as usize);
    }

    /// Whether the hint at a place is in it.
    #[must_use]
    pub const fn contains(self, place: usize) -> bool {
        self.0 >> (place % u32::BITS as usize) & 1 == 1
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The hints in it, with their places.
    pub fn iter(self) -> impl Iterator<Item = (usize, &'static Hint)> {
        hints().enumerate().filter(move |(place, _)| self.contains(*place))
    }
}

/// Why a wish cannot be fulfilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Something was said that cannot be understood, or twice and not the same.
    MalformedHint,
    /// None of the workers that were named is one of the pool's.
    UnknownWorker,
    /// Those that are get no new requests, or may not be chosen.
    WorkerUnavailable,
    /// None of the workers that may be chosen gets new requests.
    SubsetEmpty,
}

impl Refusal {
    /// Its word in `x-warmroute-reason`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::MalformedHint => "malformed_hint",
            Self::UnknownWorker => "unknown_worker",
            Self::WorkerUnavailable => "worker_unavailable",
            Self::SubsetEmpty => "subset_empty",
        }
    }

    /// What a person is told.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::MalformedHint => "what the request says of its worker cannot be understood, or is said twice",
            Self::UnknownWorker => "the worker that the request names is not one of the pool's",
            Self::WorkerUnavailable => "the worker that the request names gets no new requests now",
            Self::SubsetEmpty => "none of the workers that the request may go to gets new requests now",
        }
    }
}

/// What came of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request goes where it said.
    Followed,
    /// It is decided as if nothing had been said.
    Ignored(Refusal),
    /// It is not decided at all.
    Refused(Refusal),
}

/// What is wished of one decision, and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'d> {
    directions: Option<&'d Directions>,
    mode: DirectMode,
    outcome: Option<Outcome>,
    is_bound: bool,
}

impl<'d> Wish<'d> {
    /// A wish, if any directions are given.
    #[must_use]
    pub const fn new(directions: Option<&'d Directions>, mode: DirectMode) -> Self {
        Self { directions, mode, outcome: None, is_bound: false }
    }

    /// None.
    #[must_use]
    pub const fn none() -> Self {
        Self::new(None, DirectMode::Soft)
    }

    /// Where the request is to go.
    #[must_use]
    pub const fn directions(&self) -> Option<&'d Directions> {
        self.directions
    }

    /// Whether the workers that were named are the only ones.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.mode == DirectMode::Strict
    }

    /// What came of it; `None` if nothing was wished that concerns the pool.
    #[must_use]
    pub const fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Whether no others than the decision's workers may serve the request, even when all of these fail.
    #[must_use]
    pub const fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// It is fulfilled. `is_bound` = and no other workers than those that it allows will do, in either mode.
    pub fn follow(&mut self, is_bound: bool) {
        self.is_bound |= is_bound || self.is_strict();
        self.outcome = Some(Outcome::Followed);
    }

    /// It cannot be fulfilled, and nothing else will do, in either mode.
    pub const fn refuse(&mut self, refusal: Refusal) {
        self.outcome = Some(Outcome::Refused(refusal));
    }

    /// It cannot be fulfilled. Returns whether the request is decided all the same.
    pub fn fail(&mut self, refusal: Refusal) -> bool {
        self.outcome = Some(if self.is_strict() { Outcome::Refused(refusal) } else { Outcome::Ignored(refusal) });
        !self.is_strict()
    }
}
