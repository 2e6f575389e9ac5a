//! What a request's headers say, as far as it matters.

use crate::config::Config;
use crate::direct::HintSet;
use crate::host::abi::{self, HeaderMap};
use crate::request::{Headers, cookie_value};
use crate::router::session_hash;

/// What matters of a request's headers. Of a header that is written twice the first value.
///
/// All are asked for at once: that costs the host as much as to ask for one of them.
#[derive(Default)]
pub(super) struct Seen<'a> {
    pub(super) path: Option<&'a [u8]>,
    pub(super) method: Option<&'a [u8]>,
    content_encoding: Option<&'a [u8]>,
    session: Option<&'a [u8]>,
    cookie: Option<&'a [u8]>,
    secret: Option<&'a [u8]>,
    has_secrets: bool,
    /// Whether the client itself says which model it asks for.
    pub(super) has_model: bool,
    /// The headers that say where the request goes.
    pub(super) hints: HintSet,
}

impl<'a> Seen<'a> {
    pub(super) fn of(headers: Headers<'a>, config: &Config) -> Self {
        let mut seen = Self::default();
        for (name, value) in headers.iter() {
            let is = |configured: &str| name == configured.as_bytes();
            let slot = match name {
                b":path" => Some(&mut seen.path),
                b":method" => Some(&mut seen.method),
                b"content-encoding" => Some(&mut seen.content_encoding),
                b"cookie" => Some(&mut seen.cookie),
                _ => None,
            };
            if let Some(slot) = slot {
                *slot = slot.or(Some(value));
            }
            if is(&config.session.header) {
                seen.session = seen.session.or(Some(value));
            }
            if is(&config.trust.secret_header) {
                seen.has_secrets = seen.secret.is_some();
                seen.secret = Some(value);
            }
            seen.has_model |= is(&config.model_header);
            if let Some(place) = HintSet::place(name, &config.session.header) {
                seen.hints.insert(place);
            }
        }
        seen
    }

    /// The hash of the session that header or cookie names, where they are configured.
    pub(super) fn session(&self, config: &Config) -> Option<u64> {
        let cookie = config.session.cookie.as_bytes();
        let in_cookie = || session_hash(cookie_value(self.cookie.filter(|_| !cookie.is_empty())?, cookie)?);
        self.session.and_then(session_hash).or_else(in_cookie)
    }

    /// Whether the body is compressed, or encoded in another way that hides the prompt.
    pub(super) fn is_encoded(&self) -> bool {
        self.content_encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case(b"identity"))
    }

    /// Takes the secret off the request, right or wrong; whether it was a right one, and the only one.
    pub(super) fn take_secret(&self, config: &Config) -> bool {
        let Some(given) = self.secret else { return false };
        abi::remove_header(HeaderMap::Request, &config.trust.secret_header);
        !self.has_secrets && config.trust.knows_secret(given)
    }
}

/// How many bytes the body is announced to have.
pub(super) fn announced_bytes() -> Option<u64> {
    let length = abi::header(HeaderMap::Request, "content-length")?;
    std::str::from_utf8(&length).ok()?.parse().ok()
}
