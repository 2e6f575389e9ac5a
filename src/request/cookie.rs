//! One cookie of many.

/// The value of the cookie `name` in a `cookie` header; `None` if it is not there or empty. Of two the first counts.
///
/// Source: RFC 6265, section 4.2.1: pairs parted by semicolon and space, values perhaps in double quotes.
#[must_use]
pub fn cookie_value<'c>(cookies: &'c [u8], name: &[u8]) -> Option<&'c [u8]> {
    let value = cookies.split(|byte| *byte == b';').find_map(|pair| {
        let value = pair.trim_ascii_start().strip_prefix(name)?;
        value.trim_ascii_start().strip_prefix(b"=")
    });
    let value = value?.trim_ascii();
    let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    (!unquoted.is_empty()).then_some(unquoted)
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        const CASES: &[(&str, Option<&str>)] = &[
            ("sid=abc", Some("abc")),
            ("a=1; sid=abc; b=2", Some("abc")),
            ("sid=\"a b\";x", Some("a b")),
            ("xsid=no; sid=yes", Some("yes")),
            ("sidx=no", None),
            ("sid=", None),
            ("sid", None),
            ("", None),
            ("sid=a=b", Some("a=b")),
            ("sid=first; sid=second", Some("first")),
        ];
        for (cookies, want) in CASES {
            let got = cookie_value(cookies.as_bytes(), b"sid");
            assert_eq!(got, want.map(str::as_bytes), "{cookies}");
        }
    }
}
