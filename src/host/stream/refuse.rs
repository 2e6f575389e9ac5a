//! Requests that are answered here: 503, with the reason in header and body.

use crate::host::abi;

/// Answers the request 503; `reason` is one word. No more may be done with the stream then, and it stays paused: the host
/// ends it. `false` if the host does not take the answer, so that the request has to go on. `tells_rung` = the answer carries
/// on how much it stands, as others do.
///
/// The body has the form of the engines' own errors, so that clients show it.
pub(super) fn refuse(reason: &str, message: &str, tells_rung: bool) -> bool {
    let body = format!(r#"{{"error": {{"message": "{message}", "type": "service_unavailable", "code": "{reason}"}}}}"#);
    let headers = [("content-type", "application/json"), (REASON_HEADER, reason), (RUNG_HEADER, UNDECIDED)];
    let told = headers.get(..if tells_rung { 3 } else { 2 }).unwrap_or_default();
    abi::reply(UNAVAILABLE, reason, told, &body)
}

/// Which header says why a request was refused; with `responseHeaders`, why its worker was picked.
pub(super) const REASON_HEADER: &str = "x-warmroute-reason";

/// Which header says on how much a decision stands; with `responseHeaders`.
pub(super) const RUNG_HEADER: &str = "x-warmroute-rung";

/// What it says where there is no decision.
pub(super) const UNDECIDED: &str = "no_decision";

const UNAVAILABLE: u32 = 503;
