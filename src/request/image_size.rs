//! How large an image is, by its first bytes: what it costs the engine, and nothing else, depends on it.

/// Width and height in pixels, as the image's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageSize {
    pub(super) width: u32,
    pub(super) height: u32,
}

impl ImageSize {
    /// What an image is taken to have of which nothing is known.
    pub(super) const UNKNOWN: Self = Self { width: 640, height: 360 };

    /// How many tokens a vision model makes of it: one for each 1,024 pixels.
    ///
    /// Source: the estimate of llm-d-router's `token-producer`, its default size included. Qwen2-VL makes one of 784
    /// pixels, Anthropic one of 750, LLaVA a fixed number.
    pub(super) const fn tokens(self) -> usize {
        let tokens = self.width as u64 * self.height as u64 / 1_024;
        if tokens > u32::MAX as u64 { u32::MAX as usize } else { tokens as usize }
    }

    /// The size in the header that `bytes` start with: PNG, GIF, WebP or JPEG.
    ///
    /// Sources: PNG specification, 11.2.2 IHDR; GIF89a, 18 "Logical Screen Descriptor"; RFC 9649 (WebP); ITU-T T.81,
    /// B.2.2 "Frame header syntax".
    pub(super) fn find(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            let (width, height) = (bytes.get(16..20)?, bytes.get(20..24)?);
            return Some(Self { width: big_endian(width), height: big_endian(height) });
        }
        if bytes.starts_with(b"GIF8") {
            return Some(Self { width: little_endian(bytes.get(6..8)?), height: little_endian(bytes.get(8..10)?) });
        }
        if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
            return of_webp(bytes);
        }
        if bytes.starts_with(b"\xff\xd8") { of_jpeg(bytes) } else { None }
    }
}

fn of_webp(bytes: &[u8]) -> Option<ImageSize> {
    match bytes.get(12..16)? {
        b"VP8 " => {
            let low_14_bits = |at: usize| Some(little_endian(bytes.get(at..at + 2)?) & 0x3fff);
            Some(ImageSize { width: low_14_bits(26)?, height: low_14_bits(28)? })
        }
        b"VP8L" => {
            let bits = little_endian(bytes.get(21..25)?);
            Some(ImageSize { width: (bits & 0x3fff) + 1, height: (bits >> 14 & 0x3fff) + 1 })
        }
        b"VP8X" => Some(ImageSize {
            width: little_endian(bytes.get(24..27)?) + 1,
            height: little_endian(bytes.get(27..30)?) + 1,
        }),
        _ => None,
    }
}

/// Walks over the segments to the frame header. Each step goes on by two bytes or more.
fn of_jpeg(bytes: &[u8]) -> Option<ImageSize> {
    let mut at = 2;
    loop {
        let (marker, length) = (bytes.get(at..at + 2)?, bytes.get(at + 2..at + 4)?);
        if marker.first() != Some(&0xff) {
            return None;
        }
        match marker.last()? {
            // Padding.
            0xff => at += 1,
            // Tables that share the range of the frame headers.
            0xc4 | 0xc8 | 0xcc => at += 2 + big_endian(length) as usize,
            0xc0..=0xcf => {
                let (height, width) = (bytes.get(at + 5..at + 7)?, bytes.get(at + 7..at + 9)?);
                return Some(ImageSize { width: big_endian(width), height: big_endian(height) });
            }
            _ => at += 2 + big_endian(length) as usize,
        }
    }
}

fn big_endian(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

fn little_endian(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// Decodes base64 into `decoded`, as far as that reaches or up to the first byte that is none; returns what was written.
/// Both alphabets are taken.
///
/// Source: RFC 4648, sections 4 and 5.
pub(super) fn decode_base64<'d>(base64: &[u8], decoded: &'d mut [u8]) -> &'d [u8] {
    let (mut bits, mut bits_count, mut written) = (0_u32, 0, 0);
    for &byte in base64 {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => break,
        };
        bits = bits << 6 | u32::from(value);
        bits_count += 6;
        if bits_count >= 8 {
            bits_count -= 8;
            let Some(slot) = decoded.get_mut(written) else { break };
            *slot = (bits >> bits_count) as u8;
            written += 1;
        }
    }
    decoded.get(..written).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    type Pixels = (u32, u32);

    #[test]
    fn each_header_says_its_size() {
        const CASES: &[(&str, &[u8], Option<Pixels>)] = &[
            ("png", b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x04\0\0\0\x03\0", Some((1024, 768))),
            ("png, short", b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x04\0\0\0\x03", None),
            ("gif", b"GIF89a\x40\x01\xc8\0", Some((320, 200))),
            ("webp, lossy", b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\x9d\x01\x2a\0\0\0\x40\x01\xc8\x40", Some((320, 200))),
            ("webp, lossless", b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x3f\xc1\x31\0", Some((320, 200))),
            ("webp, extended", b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x3f\x01\0\xc7\0\0", Some((320, 200))),
            ("webp of the future", b"RIFF\0\0\0\0WEBPVP9 \0\0\0\0", None),
            ("jpeg", b"\xff\xd8\xff\xe0\0\x04JF\xff\xff\xc0\0\x11\x08\0\xc8\x01\x40", Some((320, 200))),
            ("jpeg, tables first", b"\xff\xd8\xff\xc4\0\x02\xff\xc2\0\x11\x08\0\xc8\x01\x40", Some((320, 200))),
            ("jpeg, empty segments", b"\xff\xd8\xff\xe0\0\0\xff\xe0\0\0", None),
            ("jpeg, no segment", b"\xff\xd8\0\0\0\0\0", None),
            ("nothing known", b"BM6\0\0\0", None),
            ("nothing", b"", None),
        ];
        for &(name, bytes, want) in CASES {
            let size = ImageSize::find(bytes).map(|size| (size.width, size.height));
            assert_eq!(size, want, "{name}");
        }
    }

    #[test]
    fn no_bytes_panic_and_tokens_never_overflow() {
        let mut rng = Rng::new(3);
        for start in [&b"\x89PNG\r\n\x1a\n"[..], b"GIF8", b"RIFF....WEBPVP8L", b"RIFF....WEBPVP8X", b"\xff\xd8"] {
            for _ in 0..2_000 {
                let mut bytes = start.to_vec();
                bytes.extend((0..rng.below(60)).map(|_| if rng.below(2) == 0 { 0xff } else { rng.below(256) as u8 }));
                let _ = ImageSize::find(&bytes).map(ImageSize::tokens);
            }
        }
        assert_eq!(ImageSize { width: u32::MAX, height: u32::MAX }.tokens(), u32::MAX as usize);
        assert_eq!(ImageSize::UNKNOWN.tokens(), 225);
    }

    #[test]
    fn base64_is_decoded_as_far_as_it_goes() {
        const CASES: &[(&[u8], &[u8])] = &[
            (b"", b""),
            (b"AA", b"\0"),
            (b"AAEC/f7/", b"\0\x01\x02\xfd\xfe\xff"),
            (b"AAEC_f7_", b"\0\x01\x02\xfd\xfe\xff"),
            (b"iVBORw0KGgo=", b"\x89PNG\r\n\x1a\n"),
            (b"AAEC!AAAA", b"\0\x01\x02"),
            (b"AAAAAAAAAAAAAAAA", b"\0\0\0\0\0\0\0\0"),
        ];
        for &(base64, want) in CASES {
            let mut decoded = [7; 8];
            assert_eq!(decode_base64(base64, &mut decoded), want, "{}", String::from_utf8_lossy(base64));
        }
    }
}
