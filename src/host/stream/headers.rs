//! What a request's headers say, as far as it matters.

use crate::config::SessionConfig;
use crate::host::abi::{self, HeaderMap};
use crate::request::cookie_value;
use crate::router::session_hash;

/// The hash of the session that header or cookie names, where they are configured.
pub(super) fn named_session(names: &SessionConfig) -> Option<u64> {
    let header = || {
        let header = (!names.header.is_empty()).then(|| abi::header(HeaderMap::Request, &names.header)).flatten()?;
        session_hash(&header)
    };
    let cookie = || {
        let cookies = (!names.cookie.is_empty()).then(|| abi::header(HeaderMap::Request, "cookie")).flatten()?;
        session_hash(cookie_value(&cookies, names.cookie.as_bytes())?)
    };
    header().or_else(cookie)
}

/// How many bytes the body is announced to have.
pub(super) fn announced_bytes() -> Option<u64> {
    let length = abi::header(HeaderMap::Request, "content-length")?;
    std::str::from_utf8(&length).ok()?.parse().ok()
}

/// Whether the body is compressed, or encoded in another way that hides the prompt.
pub(super) fn is_encoded() -> bool {
    abi::header(HeaderMap::Request, "content-encoding")
        .is_some_and(|encoding| !encoding.eq_ignore_ascii_case(b"identity"))
}
