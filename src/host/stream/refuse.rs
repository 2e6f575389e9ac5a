//! Requests that are answered here: 503, with the reason in header and body.

use crate::host::abi;

/// Answers the request 503; `reason` is one word. No more may be done with the stream then, and it stays paused: the host
/// ends it.
///
/// The body has the form of the engines' own errors, so that clients show it.
pub(super) fn refuse(reason: &str, message: &str) {
    let body = format!(r#"{{"error": {{"message": "{message}", "type": "service_unavailable", "code": "{reason}"}}}}"#);
    let headers = [("content-type", "application/json"), (REASON_HEADER, reason)];
    abi::reply(UNAVAILABLE, reason, &headers, &body);
}

/// Which header says why a request was refused; with `responseHeaders`, why its worker was picked.
pub(super) const REASON_HEADER: &str = "x-warmroute-reason";

const UNAVAILABLE: u32 = 503;
