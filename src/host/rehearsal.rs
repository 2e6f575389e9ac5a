//! What an unknown defect would do: a request that crashes its VM. Only in builds for tests.

use super::abi::{self, HeaderMap};

/// Crashes the VM if the request's headers ask for it.
pub(super) fn crash_if_asked() {
    if abi::has_header(HeaderMap::Request, "x-rehearse-crash") {
        std::process::abort();
    }
}
