//! What of a request is read.

use super::NAME_BYTES_MAX;
use super::reader::Section;
use crate::prefix::LINE_BEGIN_BYTES_MAX;

/// What of a request is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestConfig {
    /// Below which paths requests are read. Empty = all.
    pub base_paths: Vec<String>,
    /// Lines of a prompt that begin so are not hashed.
    pub skip_lines: Vec<String>,
    /// Whether requests that are read by no format are sent to the worker with the least load.
    pub routes_others: bool,
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
        skip_lines: section.strings(
            "skipLines",
            &[],
            0..=SKIP_LINES_MAX,
            1..=LINE_BEGIN_BYTES_MAX,
            "lines within the first 64 KB of a prompt that begin so are not hashed, as in `x-anthropic-billing-header:`: dates, ids and the like that differ from request to request. Where the engine does see them, what follows is in no cache, although it is believed to be",
        ),
        routes_others: section.one_of(
            "otherRequests",
            &["pass", "least-load"],
            "pass",
            "what becomes of a pool's requests with another path or method: left to Envoy's fallback policy, or sent to the worker with the least load",
        ) == "least-load",
        scan_bytes_max: usize::try_from(section.u64(
            "scanBytesMax",
            262_144,
            1_024..=16_777_216,
            "at this many bytes of body the worker is chosen and the rest streams through. The route's `request_body_buffer_limit` must be at least this plus the listener's `per_connection_buffer_limit_bytes`. A model that stands beyond these bytes is not seen, and some clients write it behind the messages: such a conversation moves once, when it grows past them, and `modelHeader` and `models` do nothing for it from then on. Where they are used, let this be as long as the longest body",
        ))
        .unwrap_or(usize::MAX),
    }
}

/// Beginnings of lines, at the most: each line is compared with all of them.
const SKIP_LINES_MAX: usize = 16;
