//! Images, sounds, films and files: megabytes of which a prompt's hash needs only that they are the same.
//!
//! Contents are neither decoded nor fetched. What is fed in their place are digests of their pieces, so that a content
//! that is cut feeds a prefix, and then as many bytes as the tokens that the engine makes of it would have as text: a
//! prompt's bytes are what its cost is estimated by.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::image_size::{ImageSize, decode_base64};
use super::mark;
use super::scan::Value;
use crate::prefix::PromptSink;

/// What a content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Media {
    Image,
    Audio,
    Video,
    File,
}

/// Tokens of one content, at the most.
const TOKENS_MAX: usize = 4_096;

/// Bytes that a token is taken to have: what is fed for a content is so many times its tokens.
const TOKEN_BYTES: usize = 4;

/// A content counts at most so many tokens for each of its bytes: a picture of a few bytes that says that it is huge, or
/// a list of a thousand names, must not stand for a long prompt, and no body counts more tokens than it has bytes. True
/// pictures have more bytes than tokens; what is named by a URL counts less than it costs.
const TOKENS_PER_BYTE_MAX: usize = 1;

/// Bytes that are fed at most for each byte of the body: the tokens of a content, or the digest of one that is empty.
#[cfg(test)]
pub(super) const AMPLIFICATION_MAX: usize = TOKEN_BYTES * TOKENS_PER_BYTE_MAX;

/// Bytes of a content, as written in base64, that give one digest.
const PIECE_BYTES: usize = 16_384;

/// So many bytes are looked at to find an image's size. Photographs with a preview before their size count as unknown.
const HEAD_BYTES: usize = 3_072;

/// Where `;base64,` of a data URL is looked for.
const DATA_URL_HEAD_BYTES: usize = 128;

/// A content without data that is shorter is a name: of a file, of a part that the server knows.
const NAME_BYTES_MAX: usize = 128;

impl Media {
    const fn mark(self) -> u8 {
        match self {
            Self::Image => mark::IMAGE,
            Self::Audio => mark::AUDIO,
            Self::Video => mark::VIDEO,
            Self::File => mark::FILE,
        }
    }

    /// Tokens of a content that is only named, as by a URL.
    ///
    /// An image: see [`ImageSize::tokens`]. A sound: half a minute at 25 tokens a second, as of Qwen2-Audio. A film: 16
    /// images. A file: a page or two.
    const fn named_tokens(self) -> usize {
        match self {
            Self::Image => ImageSize::UNKNOWN.tokens(),
            Self::Audio => 750,
            Self::Video => 16 * ImageSize::UNKNOWN.tokens(),
            Self::File => 1_500,
        }
    }

    /// Tokens of a content of so many bytes of base64 that starts with `head`.
    ///
    /// A sound: one for each 640 bytes, as speech at 128 kbit/s has 25 tokens a second. A film: one for each 2 KiB, as
    /// frames at 1 frame a second have in a compressed stream of 3 Mbit/s. A file: one for each 32 bytes, as pages of 50 KB
    /// have 1 500 tokens. All of them are guesses for the sake of an order of magnitude.
    fn tokens(self, head: &[u8], base64_bytes: usize) -> usize {
        let bytes = base64_bytes / 4 * 3;
        match self {
            Self::Image => image_size(head).unwrap_or(ImageSize::UNKNOWN).tokens(),
            Self::Audio => bytes / 640,
            Self::Video => bytes / 2_048,
            Self::File => bytes / 32,
        }
    }
}

/// Feeds a string that holds a content: base64, a data URL, a URL or another name. Data are the same however they are
/// wrapped; a URL is the same if its text is.
#[inline(never)]
pub(super) fn feed_media(media: Media, content: &Value<'_>, sink: &mut impl PromptSink) {
    let Some(text) = content.text() else { return };
    sink.mark(media.mark());
    let mut head = Head::new();
    text.first(HEAD_BYTES).decode(|chunk| head.push(chunk));
    let Some(begin) = head.content_begin(text.is_cut()) else { return };
    let mut pieces = Pieces::new(sink);
    let mut skipped = begin;
    text.decode(|chunk| {
        let here = skipped.min(chunk.len());
        skipped -= here;
        pieces.push(chunk.get(here..).unwrap_or_default());
    });
    if text.is_cut() {
        return;
    }
    pieces.end();
    let bytes = pieces.content_bytes;
    let is_named = begin == 0 && (bytes < NAME_BYTES_MAX || head.is_url());
    let head = head.bytes().get(begin..).unwrap_or_default();
    let tokens = match media {
        // A small image is no name if it says its size.
        Media::Image if !is_named || image_size(head).is_some() => media.tokens(head, bytes),
        _ if is_named => media.named_tokens(),
        _ => media.tokens(head, bytes),
    };
    pieces.fill(tokens.min(TOKENS_MAX).min(bytes.saturating_mul(TOKENS_PER_BYTE_MAX)) * TOKEN_BYTES);
}

fn image_size(head: &[u8]) -> Option<ImageSize> {
    let mut bytes = [0; HEAD_BYTES / 4 * 3];
    ImageSize::find(decode_base64(head, &mut bytes))
}

/// The first bytes of a content.
struct Head {
    bytes: [u8; HEAD_BYTES],
    used_bytes: usize,
}

impl Head {
    const fn new() -> Self {
        Self { bytes: [0; HEAD_BYTES], used_bytes: 0 }
    }

    fn push(&mut self, chunk: &[u8]) {
        let free = self.bytes.get_mut(self.used_bytes..).unwrap_or_default();
        let taken = chunk.len().min(free.len());
        if let (Some(free), Some(chunk)) = (free.get_mut(..taken), chunk.get(..taken)) {
            free.copy_from_slice(chunk);
            self.used_bytes += taken;
        }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.used_bytes).unwrap_or_default()
    }

    /// Where the content begins: behind a data URL's head. `None` if the body ends before one can tell.
    ///
    /// Source: RFC 2397, "The data URL scheme".
    fn content_begin(&self, is_cut: bool) -> Option<usize> {
        let bytes = self.bytes();
        let start = bytes.get(..DATA_URL_HEAD_BYTES).unwrap_or(bytes);
        let is_undecided = is_cut && bytes.len() < DATA_URL_HEAD_BYTES;
        if !start.starts_with(b"data:") {
            return if is_undecided && b"data:".starts_with(start) { None } else { Some(0) };
        }
        match start.iter().position(|&byte| byte == b',') {
            Some(comma) => Some(comma + 1),
            None if is_undecided => None,
            None => Some(0),
        }
    }

    fn is_url(&self) -> bool {
        let bytes = self.bytes();
        bytes.get(..16).unwrap_or(bytes).windows(3).any(|window| window == b"://")
    }
}

/// Hashes a content piece by piece, each digest with the one before as its seed.
struct Pieces<'s, S> {
    sink: &'s mut S,
    /// The piece that has begun; `None` between two pieces.
    piece: Option<Xxh3>,
    piece_bytes: usize,
    content_bytes: usize,
    digest: u64,
    fed_bytes: usize,
}

impl<'s, S: PromptSink> Pieces<'s, S> {
    const fn new(sink: &'s mut S) -> Self {
        Self { sink, piece: None, piece_bytes: 0, content_bytes: 0, digest: 0, fed_bytes: 0 }
    }

    fn push(&mut self, mut bytes: &[u8]) {
        self.content_bytes += bytes.len();
        while !bytes.is_empty() {
            let missing_bytes = PIECE_BYTES.saturating_sub(self.piece_bytes);
            let (head, rest) = bytes.split_at_checked(missing_bytes).unwrap_or((bytes, &[]));
            bytes = rest;
            if self.piece.is_none() && head.len() == PIECE_BYTES {
                self.feed(xxh3_64_with_seed(head, self.digest));
                continue;
            }
            let digest = self.digest;
            self.piece.get_or_insert_with(|| Xxh3::with_seed(digest)).update(head);
            self.piece_bytes += head.len();
            if self.piece_bytes == PIECE_BYTES {
                self.end();
            }
        }
    }

    /// Ends the piece that has begun; a content without any byte is a piece too.
    fn end(&mut self) {
        if let Some(piece) = self.piece.take() {
            self.piece_bytes = 0;
            self.feed(piece.digest());
        } else if self.content_bytes == 0 {
            self.feed(xxh3_64_with_seed(&[], self.digest));
        }
    }

    fn feed(&mut self, digest: u64) {
        self.digest = digest;
        self.sink.text(&digest_text(digest));
        self.fed_bytes += size_of::<u64>();
    }

    /// Feeds the last digest again and again, until `wanted_bytes` are fed in all.
    fn fill(&mut self, wanted_bytes: usize) {
        let mut filler = [0; 512];
        for slot in filler.as_chunks_mut::<8>().0 {
            *slot = digest_text(self.digest);
        }
        let mut missing_bytes = wanted_bytes.saturating_sub(self.fed_bytes);
        while let Some(bytes) = filler.get(..missing_bytes.min(filler.len()))
            && !bytes.is_empty()
        {
            self.sink.text(bytes);
            missing_bytes -= bytes.len();
        }
    }
}

/// A digest as text: without 0xFF, which marks begin with.
const fn digest_text(digest: u64) -> [u8; 8] {
    (digest & 0x7f7f_7f7f_7f7f_7f7f).to_le_bytes()
}

#[cfg(test)]
mod tests;
