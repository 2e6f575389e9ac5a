//! Workers from Envoy's own view: when and what to ask its admin endpoint, and what its page of clusters tells.
//!
//! Envoy knows the endpoints of its clusters however they came to it (EDS, DNS, a list) and whether they are healthy; a
//! filter has no other way to learn of them. [`question()`] asks for the clusters of our pools only, so that a mesh of
//! thousands costs little, and [`read_page`] finds them in a page that may have all the others too: an Envoy that does not
//! know the filter tells everything. [`crate::shared::fleet::Fleet::take_in_endpoints`] is what comes of it.
//!
//! A page without our cluster tells nothing of its workers: what was known goes on to count. The cluster is being replaced,
//! or is there no more; then no route leads to it, and Envoy sends nothing whatever is decided. A cluster without endpoints
//! does tell something: its workers are gone.

mod inquiry;
mod page;
mod question;

pub use inquiry::Inquiry;
pub use page::{DiscoveryError, ENDPOINTS_MAX, FoundCluster, PAGE_BYTES_MAX, read_page};
pub use question::question;

#[cfg(test)]
mod tests;
