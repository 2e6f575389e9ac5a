//! A request's headers, as the host hands them over: read where they stand, nothing copied.

/// A map of headers, or a list of texts, in the host's form: the number of pairs, all lengths, then names and values, each
/// ended by a zero byte. Numbers are little endian and have 32 bits.
///
/// Source: proxy-wasm/spec, abi-versions/v0.2.1, "Serialization". Envoy 1.40 has a list of metadata in the same form: its
/// texts as names, without values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a> {
    bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    /// What `bytes` say; bytes in another form say nothing, or less.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Names and values in the order of the request, a name that is written twice twice. Names are in lower case, as the
    /// host has them.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let lengths = self.lengths();
        let mut rest = self.bytes.get(COUNT_BYTES + size_of_val(lengths)..).unwrap_or_default();
        let mut next = move |bytes: [u8; 4]| {
            let bytes = usize::try_from(u32::from_le_bytes(bytes)).ok()?;
            let (text, after) = rest.split_at_checked(bytes)?;
            rest = after.get(1..)?;
            Some(text)
        };
        lengths.iter().map_while(move |[name, value]| Some((next(*name)?, next(*value)?)))
    }

    /// The lengths that are there: never more pairs than there are bytes for, whatever number stands in front.
    fn lengths(self) -> &'a [[[u8; 4]; 2]] {
        let Some((count, rest)) = self.bytes.split_first_chunk::<COUNT_BYTES>() else { return &[] };
        let count = usize::try_from(u32::from_le_bytes(*count)).unwrap_or(usize::MAX);
        let (words, _) = rest.as_chunks::<4>();
        let (pairs, _) = words.as_chunks::<2>();
        pairs.get(..count).unwrap_or_default()
    }
}

/// Bytes of the number of pairs.
const COUNT_BYTES: usize = size_of::<u32>();

#[cfg(test)]
pub(crate) mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;

    /// Headers in the host's form.
    pub(crate) fn serialized(headers: &[(&str, &str)]) -> Vec<u8> {
        let length = |text: &str| u32::try_from(text.len()).unwrap().to_le_bytes();
        let mut bytes = u32::try_from(headers.len()).unwrap().to_le_bytes().to_vec();
        headers.iter().for_each(|(name, value)| bytes.extend([length(name), length(value)].concat()));
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            bytes.extend(text.bytes());
            bytes.push(0);
        }
        bytes
    }

    #[test]
    fn headers_come_back_in_their_order_and_as_often_as_they_are_written() {
        let written = [(":path", "/v1/chat/completions"), ("a", ""), ("a", "x,\0y"), ("x-b", "ü"), ("", "")];
        let bytes = serialized(&written);
        let read: Vec<_> = Headers::new(&bytes).iter().collect();
        assert_eq!(read, written.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    }

    #[test]
    fn the_bytes_of_envoys_list_of_metadata_are_its_texts() {
        // As Envoy 1.40 hands over `["1.2.3.4:5", "6.7.8.9:1"]`.
        let bytes = b"\x02\0\0\0\x09\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\x001.2.3.4:5\0\x006.7.8.9:1\0\0";
        let names: Vec<_> = Headers::new(bytes).iter().map(|(name, _)| name).collect();
        assert_eq!(names, [b"1.2.3.4:5", b"6.7.8.9:1"]);
    }

    #[test]
    fn bytes_in_another_form_say_less_and_cost_no_more() {
        let whole = serialized(&[("a", "b"), ("x-worker-instance-id", "7")]);
        let mut rng = Rng::new(3);
        for case in 0..5_000 {
            let mut bytes = whole.clone();
            bytes.truncate(rng.below(whole.len() as u32 + 1) as usize);
            for _ in 0..rng.below(4) {
                let at = rng.below(bytes.len().max(1) as u32) as usize;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = rng.below(256) as u8;
                }
            }
            assert!(Headers::new(&bytes).iter().count() <= bytes.len() / 8, "case {case}");
        }
        for bytes in [&b""[..], b"\x01", b"\xff\xff\xff\xff", b"\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"] {
            assert_eq!(Headers::new(bytes).iter().count(), 0);
        }
    }
}
