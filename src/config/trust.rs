//! Which requests may say where they go, and what becomes of what they say.

use std::fmt;

use super::reader::Section;
use super::{NAME_BYTES_MAX, read_own_header};
use crate::trust::{AddressRange, is_secret, peer};

/// What makes a request a trusted one; any of them is enough, and by default there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustConfig {
    /// Addresses of callers.
    pub source_ranges: Vec<AddressRange>,
    /// Whether the metadata of route or listener may say so.
    pub metadata: bool,
    /// The request header that carries a secret; empty = none.
    pub secret_header: String,
    /// The secrets that count.
    pub secrets: Vec<Secret>,
}

impl TrustConfig {
    /// Whether a caller is trusted for its address, as the host tells it.
    #[must_use]
    pub fn knows_source(&self, source_address: &[u8]) -> bool {
        peer(source_address).is_some_and(|address| self.source_ranges.iter().any(|range| range.contains(address)))
    }

    /// Whether `given` is one of the secrets.
    #[must_use]
    pub fn knows_secret(&self, given: &[u8]) -> bool {
        is_secret(given, self.secrets.iter().map(|secret| secret.0.as_slice()))
    }

    /// Whether no request is trusted, whatever it says.
    #[must_use]
    pub const fn is_nobody(&self) -> bool {
        self.source_ranges.is_empty() && !self.metadata && self.secrets.is_empty()
    }
}

/// A shared secret. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What becomes of a trusted request's wish for a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectMode {
    /// A wish that cannot be fulfilled is ignored.
    #[default]
    Soft,
    /// Such a request is answered 503.
    Strict,
}

/// What becomes of a request for which nothing can be decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureMode {
    /// Envoy's fallback policy chooses its worker.
    #[default]
    Open,
    /// It is answered 503.
    Closed,
}

pub(super) fn read_trust(section: &mut Section<'_>) -> TrustConfig {
    let ranges = section.strings(
        "sourceRanges",
        &[],
        0..=RANGES_MAX,
        1..=NAME_BYTES_MAX,
        "callers at these addresses are trusted, as in `10.1.0.0/16` or `2001:db8::/32`. The address is that of the connection. One that Envoy takes from `x-forwarded-for` never counts: where clients send that header, the listener needs `use_remote_address: true`, or callers are not known",
    );
    let source_ranges: Option<Vec<AddressRange>> = ranges.iter().map(|text| AddressRange::parse(text)).collect();
    if source_ranges.is_none() {
        section.refuse("sourceRanges", "a list of ranges as in 10.1.0.0/16, without bits behind the prefix");
    }
    let metadata = section.bool(
        "metadata",
        false,
        "requests are trusted whose route or listener has the metadata `filter_metadata.warmroute.trusted: true`; and the workers that another filter names in the metadata `envoy.lb.subset_hint` / `x-gateway-destination-endpoint-subset` are the only ones for its request",
    );
    let secret_header = read_own_header(
        section,
        "secretHeader",
        "requests are trusted that carry one of `secrets` in this header; it is removed from all requests. Sent twice it is none",
    );
    let secrets = section.strings(
        "secrets",
        &[],
        0..=SECRETS_MAX,
        SECRET_BYTES_MIN..=NAME_BYTES_MAX,
        "the secrets, compared in constant time; several, so that they can be changed without a gap",
    );
    if section.is_clean() && secrets.is_empty() != secret_header.is_empty() {
        section.refuse("secrets", "present where secretHeader is, and only there");
    }
    TrustConfig {
        source_ranges: source_ranges.unwrap_or_default(),
        metadata,
        secret_header,
        secrets: secrets.into_iter().map(|secret| Secret(secret.into_bytes())).collect(),
    }
}

pub(super) fn read_direct_mode(section: &mut Section<'_>) -> DirectMode {
    match section.one_of(
        "directRouting",
        &["soft", "strict"],
        "soft",
        "what becomes of a trusted request that names its worker, or the workers it may go to, where that cannot be done: the policy decides as if nothing had been said, or the request is answered 503 with the reason. What requests say that are not trusted is removed. What is said in a body counts only within `request.scanBytesMax` and uncompressed; else it is decided as if nothing had been said, in either mode, and counted (`warmroute_hints_unread_total`)",
    ) {
        "strict" => DirectMode::Strict,
        _ => DirectMode::Soft,
    }
}

pub(super) fn read_failure_mode(section: &mut Section<'_>) -> FailureMode {
    match section.one_of(
        "failureMode",
        &["open", "closed"],
        "open",
        "what becomes of a pool's request for which nothing can be decided (no worker is known, its body cannot be read): Envoy's fallback policy chooses its worker, or it is answered 503 with the reason. With `discovery` no worker is known in the first moments after Envoy has started",
    ) {
        "closed" => FailureMode::Closed,
        _ => FailureMode::Open,
    }
}

/// Ranges, at the most: they are looked through for each request.
const RANGES_MAX: usize = 64;

/// Secrets, at the most: one in use, and others while they are changed.
const SECRETS_MAX: usize = 4;

/// Shorter ones are guessed.
const SECRET_BYTES_MIN: usize = 16;
