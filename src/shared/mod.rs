//! What the worker threads of one Envoy tell each other, as pages of bytes in the host's shared data.
//!
//! Every worker thread runs its own VM; only shared data joins them, its keys can never be deleted, and its values
//! outlive a swap of the binary. Hence a fixed set of keys: versioned pages for each pool, and one counter.
//!
//! | key | page | who writes |
//! |---|---|---|
//! | `warmroute/<layout>/fleet/<pool>` | [`fleet`]: the workers, their last reports and health | every VM its configured workers' rows, the lease holder what scrapes bring and what Envoy tells of its cluster |
//! | `warmroute/<layout>/inflight/<pool>` | [`inflight`]: requests in flight, per VM and worker | every VM its own slot |
//! | `warmroute/<layout>/lease/<pool>` | [`lease`]: which VM polls the pool | whoever holds or takes it |
//! | `warmroute/<layout>/trunk/<pool>` | [`trunk`]: which prefixes everybody shares | every VM, best effort |
//! | `warmroute/<layout>/learned/<pool>` | [`learned`]: what answers have taught of the workers' caches | every VM, every 5 ms at the most |
//! | `warmroute/<layout>/index/<pool>/<page>` | [`crate::index`]: which worker has seen which prompt | every VM, with each decision |
//! | `warmroute/<layout>/responses/<pool>/<page>` | [`responses`]: which worker holds which response of the Responses API | every VM, with each such answer |
//! | `warmroute/<layout>/adapters/<pool>` | [`adapters`]: which LoRA adapters' requests were sent where of late | every VM, with each decision for an adapter |
//! | `warmroute/layout` | a number: the layout of the pages that were used last | every VM when configured, if it is another one |
//! | `warmroute/owners` | a counter: the VMs' numbers, by age | every VM when configured |
//!
//! The pool is part of the lease's key too: two plugins with different pools may share one namespace (Istio gives all
//! plugins the empty `vm_id`), and a lease that one of them holds must not keep the other's workers unpolled.
//!
//! During a swap, old and new code read the same bytes. Pages speak of each other (rows go by the fleet page's ids), so they
//! change together: all of them stand under the number of their [`LAYOUT`]. A binary with another layout begins its own pages
//! and leaves the others alone; one that is rolled back finds its own as it left them, and old streams go on in theirs.
//! That is counted (`warmroute_layout_changes_total`), for what was known of the caches is learned anew. Within a layout each
//! page starts with a magic number and a version, should two builds ever differ unawares: an older or unreadable page is begun
//! anew, a newer one is left alone and the VM goes on with what it knows itself.
//! The pages turn bytes into values and back. Where they are kept is a [`store`], an argument.

pub mod adapters;
pub mod fleet;
pub mod inflight;
pub mod learned;
pub mod lease;
pub mod responses;
pub mod store;
pub mod trunk;

use std::fmt;

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The layout of all pages together. It goes up with every change of what any page's bytes mean.
pub const LAYOUT: u16 = if cfg!(feature = "rehearsal") { 3 } else { 2 };

/// Where the layout stands that was used last.
pub const LAYOUT_KEY: &str = "warmroute/layout";

/// The kinds of page that a pool has in shared data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// See [`adapters`].
    Adapters,
    /// See [`fleet`].
    Fleet,
    /// See [`inflight`].
    Inflight,
    /// See [`crate::index`]; the page's number follows the key.
    Index,
    /// See [`learned`].
    Learned,
    /// See [`lease`].
    Lease,
    /// See [`responses`]; the page's number follows the key.
    Responses,
    /// See [`trunk`].
    Trunk,
}

impl PageKind {
    /// The key under which `pool`'s page of this kind is kept.
    #[must_use]
    pub fn key(self, pool: &str) -> String {
        let kind = match self {
            Self::Adapters => "adapters",
            Self::Fleet => "fleet",
            Self::Inflight => "inflight",
            Self::Index => "index",
            Self::Learned => "learned",
            Self::Lease => "lease",
            Self::Responses => "responses",
            Self::Trunk => "trunk",
        };
        format!("warmroute/{LAYOUT}/{kind}/{pool}")
    }
}

/// Why a page can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// A later version of the plugin wrote it: read nothing from it and leave it as it is.
    Newer {
        /// The version it was written in.
        version: u16,
    },
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { version } => write!(f, "page version is {version}, newer than this plugin's"),
        }
    }
}

impl std::error::Error for PageError {}

/// The first bytes of every page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Preamble {
    magic: [u8; 4],
    version: U16,
}

impl Preamble {
    pub(crate) const fn new(magic: [u8; 4], version: u16) -> Self {
        Self { magic, version: U16::new(version) }
    }

    /// Whether `bytes` is a page of just this kind and version; `false` means: begin a new one.
    ///
    /// # Errors
    /// [`PageError::Newer`] when the page has this magic number and a higher version.
    pub(crate) fn matches(self, bytes: &[u8]) -> Result<bool, PageError> {
        let Ok((found, _)) = Self::read_from_prefix(bytes) else { return Ok(false) };
        if found.magic != self.magic {
            return Ok(false);
        }
        if found.version.get() > self.version.get() {
            return Err(PageError::Newer { version: found.version.get() });
        }
        Ok(found.version == self.version)
    }
}
