//! Who is believed: callers at certain addresses, requests with a secret, and what the gateway's own metadata says.

use std::net::{IpAddr, SocketAddr};

use subtle::{Choice, ConstantTimeEq};

/// A range of IP addresses, as in `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    prefix_bits: u32,
}

impl AddressRange {
    /// The range that `text` says; an address alone is a range of one. `None` for anything else, and for bits behind the
    /// prefix, which are a mistake more likely than a wish. IPv4 addresses written as IPv6 (`::ffff:10.0.0.0/104`) are IPv4
    /// addresses.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let first: IpAddr = address.parse().ok()?;
        let bits = if first.is_ipv4() { u32::BITS } else { u128::BITS };
        let is_number = |prefix: &&str| !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix_bits = match prefix {
            Some(prefix) => Some(prefix).filter(is_number)?.parse().ok().filter(|prefix| *prefix <= bits)?,
            None => bits,
        };
        let range = match first.to_canonical() {
            mapped if mapped.is_ipv4() && first.is_ipv6() => {
                Self { first: mapped, prefix_bits: prefix_bits.checked_sub(MAPPED_PREFIX_BITS)? }
            }
            first => Self { first, prefix_bits },
        };
        let first = range.first;
        (range.network(first) == Some(number(first))).then_some(range)
    }

    /// Whether `address` lies in it. An IPv4 address written as IPv6 (`::ffff:10.0.0.1`) is the IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.network(address.to_canonical()).is_some_and(|network| network == number(self.first))
    }

    /// The part of `address` that the prefix covers; `None` for an address of the other family.
    fn network(&self, address: IpAddr) -> Option<u128> {
        if address.is_ipv4() != self.first.is_ipv4() {
            return None;
        }
        let bits = if address.is_ipv4() { u32::BITS } else { u128::BITS };
        let rest = bits.saturating_sub(self.prefix_bits);
        Some(number(address).checked_shr(rest).and_then(|network| network.checked_shl(rest)).unwrap_or_default())
    }
}

/// Bits that stand before an IPv4 address that is written as IPv6.
const MAPPED_PREFIX_BITS: u32 = u128::BITS - u32::BITS;

/// The caller's address as the host tells it, if it is that of the connection.
///
/// Unless the listener has `use_remote_address`, Envoy takes the last address in `x-forwarded-for` for the caller's, which
/// anybody can write. Such an address has port 0, that of a connection never has: a port in the header is no address to
/// Envoy 1.40. So what a header says never counts.
#[must_use]
pub fn peer(source_address: &[u8]) -> Option<IpAddr> {
    let address: SocketAddr = std::str::from_utf8(source_address).ok()?.parse().ok()?;
    (address.port() != 0).then(|| address.ip())
}

/// Whether `given` is one of `secrets`: in a time that tells nothing of them but their number and lengths.
#[must_use]
pub fn is_secret<'s>(given: &[u8], secrets: impl Iterator<Item = &'s [u8]>) -> bool {
    let is_one = secrets.fold(Choice::from(0), |is_one, secret| is_one | secret.ct_eq(given));
    is_one.into()
}

/// Whether a value of the host's metadata says yes: `true`, or a text that says it.
#[must_use]
pub fn says_yes(value: &[u8]) -> bool {
    matches!(value, [1] | b"true")
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    #[test]
    fn a_range_has_the_addresses_of_its_prefix_and_of_its_family() {
        let cases = [
            ("10.1.0.0/16", "10.1.255.255", true),
            ("10.1.0.0/16", "10.2.0.0", false),
            ("10.1.0.0/16", "::ffff:10.1.2.3", true),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.2", false),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "::ffff:10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "11.1.2.3", false),
            ("::ffff:10.1.2.3", "10.1.2.3", true),
            ("::ffff:0.0.0.0/96", "1.2.3.4", true),
            ("0.0.0.0/0", "255.1.2.3", true),
            ("0.0.0.0/0", "::1", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::", false),
            ("::/0", "fe80::1", true),
            ("::1", "::1", true),
        ];
        for (range, address, want) in cases {
            let range = AddressRange::parse(range).unwrap();
            assert_eq!(range.contains(address.parse().unwrap()), want, "{range:?} {address}");
        }
    }

    #[test]
    fn only_the_address_of_a_connection_is_a_peer() {
        let cases = [
            ("10.1.2.3:4567", Some("10.1.2.3")),
            ("[2001:db8::1]:1", Some("2001:db8::1")),
            // As Envoy has what `x-forwarded-for` says.
            ("10.1.2.3:0", None),
            ("[::ffff:10.1.2.3]:0", None),
            ("10.1.2.3", None),
            ("/run/envoy.sock", None),
            ("", None),
        ];
        for (address, want) in cases {
            assert_eq!(peer(address.as_bytes()), want.map(|want| want.parse().unwrap()), "{address}");
        }
        assert_eq!(peer(b"\xff"), None);
    }

    #[test]
    fn a_secret_is_known_whole_or_not_at_all() {
        let secrets = [&b"0123456789abcdef"[..], b"fedcba9876543210"];
        let is_known = |given: &[u8]| is_secret(given, secrets.into_iter());
        assert!(secrets.into_iter().all(is_known));
        for given in [&b""[..], b"0123456789abcde", b"0123456789abcdeg", b"0123456789abcdef0", b"0123456789ABCDEF"] {
            assert!(!is_known(given), "{given:?}");
        }
        assert!(!is_secret(b"", [].into_iter()));
    }

    #[test]
    fn metadata_say_yes_as_a_truth_or_as_a_text() {
        assert!(says_yes(b"\x01") && says_yes(b"true"));
        for value in [&b""[..], b"\0", b"false", b"True", b"1", b"\x01\0", &1.0_f64.to_le_bytes()] {
            assert!(!says_yes(value), "{value:?}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "",
            "10.0.0.1/8",
            "::ffff:10.0.0.1/104",
            "::ffff:0.0.0.0/95",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "localhost",
            "10.0.0.0/8/8",
            "1",
        ] {
            assert_eq!(AddressRange::parse(text), None, "{text}");
        }
    }
}
