//! What of a request is read.

use super::NAME_BYTES_MAX;
use super::reader::Section;

/// What of a request is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestConfig {
    /// Below which paths requests are read. Empty = all.
    pub base_paths: Vec<String>,
    /// At this many bytes of body the decision is made, and the rest streams through.
    pub scan_bytes_max: usize,
}

pub(super) fn read_request(section: &mut Section<'_>) -> RequestConfig {
    RequestConfig {
        base_paths: section.strings(
            "basePaths",
            &[""],
            1..=16,
            0..=NAME_BYTES_MAX,
            "requests are read if their path lies below one of these, as `/code/v1/completions` lies below `/code`, and ends as a request format's paths do",
        ),
        scan_bytes_max: usize::try_from(section.u64(
            "scanBytesMax",
            262_144,
            1_024..=16_777_216,
            "at this many bytes of body the worker is chosen and the rest streams through. The route's `request_body_buffer_limit` must be at least this plus the listener's `per_connection_buffer_limit_bytes`. A model that stands beyond these bytes is not seen: such a conversation moves once, when it grows past them",
        ))
        .unwrap_or(usize::MAX),
    }
}
