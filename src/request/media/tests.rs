//! What contents feed: digests of pieces, and as many bytes as their tokens have.

use super::*;
use crate::request::recorder::Recorder;
use crate::request::scan::Scanner;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

const PNG_1024_768: &str = "iVBORw0KGgoAAAANSUhEUgAABAAAAAMA";

fn recorded(media: Media, json: &str) -> Recorder {
    let mut recorder = Recorder::default();
    feed_media(media, &Scanner::new(json.as_bytes()).value().unwrap(), &mut recorder);
    recorder
}

fn fed_bytes(media: Media, content: &str) -> usize {
    recorded(media, &format!("\"{content}\"")).text_bytes().len()
}

#[test]
fn a_content_counts_as_many_bytes_as_its_tokens_have() {
    let data = |bytes: usize| "A".repeat(bytes);
    let cases = [
        ("png, 1024 x 768", Media::Image, format!("{PNG_1024_768}{}", data(4_000)), 768),
        ("the same in a data URL", Media::Image, format!("data:image/png;base64,{PNG_1024_768}{}", data(4_000)), 768),
        ("image of an unknown kind", Media::Image, data(40_000), 225),
        ("named image", Media::Image, "https://pictures.example/cat.jpg".to_owned(), 32),
        ("named image, long", Media::Image, format!("https://pictures.example/?{}", data(9_000)), 225),
        ("image that lies", Media::Image, PNG_1024_768.replace("AABAAAAAM", "P//AAAP//"), 32),
        ("short name", Media::Image, "cat".to_owned(), 3),
        ("no name", Media::Image, String::new(), 2),
        (
            "named sound",
            Media::Audio,
            "https://sounds.example/1234567890/1234567890/1234567890/1234567890/1234567890/1234567890/1234567890"
                .to_owned(),
            99,
        ),
        ("sound of a minute at 16 KB a second", Media::Audio, data(1_280_000), 1_500),
        ("sound of three minutes", Media::Audio, data(3_600_000), TOKENS_MAX),
        ("film of a megabyte", Media::Video, data(1_398_104), 512),
        ("named film", Media::Video, format!("https://films.example/{}", data(600)), 622),
        ("file of 40 KB", Media::File, data(54_616), 1_280),
        ("named file", Media::File, "file-6F2ksmvXxt4VdoqmHRw6kL".to_owned(), 27),
    ];
    for (name, media, content, tokens) in cases {
        assert_eq!(fed_bytes(media, &content), tokens * TOKEN_BYTES, "{name}");
    }
    // A large image's digests are more than its tokens: 8 bytes for each piece.
    assert_eq!(fed_bytes(Media::Image, &data(200 * PIECE_BYTES)), 200 * 8);
}

#[test]
fn pieces_are_the_same_however_the_text_comes() {
    // No period that a piece is a multiple of: a swap of pieces would go unseen.
    let content: String = (0..50_000_u32).map(|at| char::from(b'a' + (at * at % 25 + at % 2) as u8)).collect();
    let want = recorded(Media::Image, &format!("\"{content}\""));
    let escaped = content.replace('b', "\\u0062").replace('k', "\\u006b");
    assert_eq!(recorded(Media::Image, &format!("\"{escaped}\"")), want);
    for end in [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, 3 * PIECE_BYTES] {
        let content = &content[..end];
        let escaped = content.replace('c', "\\u0063");
        assert_eq!(recorded(Media::File, &format!("\"{escaped}\"")), recorded(Media::File, &format!("\"{content}\"")));
    }
    assert_ne!(recorded(Media::Image, &format!("\"{}\"", &content[1..])), want);
}

#[test]
fn a_cut_content_feeds_a_prefix_and_no_more_than_its_digests() {
    let json = format!("\"data:image/png;base64,{PNG_1024_768}{}\\u0041{}\"", "B".repeat(17_000), "C".repeat(20_000));
    let whole = recorded(Media::Image, &json);
    let cuts = (1..200).chain((16_000..18_000).step_by(7)).chain((32_000..json.len()).step_by(501));
    for cut in cuts.chain([json.len() - 1]) {
        let part = recorded(Media::Image, &json[..cut]);
        assert!(whole.symbols.starts_with(&part.symbols), "cut at {cut}");
        assert!(part.text_bytes().len() <= cut / PIECE_BYTES * 8, "cut at {cut}");
    }
    assert_eq!(recorded(Media::Image, &json[..json.len() - 1]).text_bytes().len(), 16);
}

#[test]
fn digests_never_look_like_marks() {
    for seed in 0..1_000_u64 {
        assert!(!digest_text(xxh3_64_with_seed(b"x", seed)).contains(&0xff));
    }
    assert_eq!(digest_text(u64::MAX), [0x7f; 8]);
}
