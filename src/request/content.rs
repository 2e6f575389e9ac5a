//! A content: a text, or a list of parts, blocks or items of any API.

use super::json::{feed_text, feed_text_or_json};
use super::mark;
use super::media::{Media, feed_media};
use super::message::GUESS_BYTES_MIN;
use super::scan::{Halt, Kind, Scanner, Value};
use super::shape::{Field, Form, Shape};
use super::text::Text;
use crate::prefix::PromptSink;

/// Feeds a content. A single text part, in a list or not, gives what the same text as plain content gives. `depth` =
/// shapes around it.
pub(super) fn feed_content(content: &Value<'_>, depth: u8, sink: &mut impl PromptSink) {
    if content.kind == Kind::Array {
        // What is malformed within the parts ends them there: the engine is going to refuse it anyway.
        let _ = feed_parts(content, depth, sink);
    } else if content.kind == Kind::Object {
        let _ = feed_part(&mut Scanner::new(content.raw), depth, sink);
    } else {
        feed_text_or_json(content, sink);
    }
}

fn feed_parts(parts: &Value<'_>, depth: u8, sink: &mut impl PromptSink) -> Result<(), Halt> {
    let mut scanner = Scanner::new(parts.raw);
    scanner.enter(b'[');
    let mut is_first = true;
    while scanner.next_item(b']')? {
        if !is_first {
            sink.mark(mark::PART);
        }
        is_first = false;
        if scanner.peek() == Some(b'{') {
            feed_part(&mut scanner, depth, sink)?;
        } else {
            let value = scanner.value()?;
            feed_text_or_json(&value, sink);
        }
    }
    Ok(())
}

/// Feeds the part that comes next, where `scanner` stands at its bracket: its text, or by the shape of its type.
///
/// # Errors
/// Where the part is not whole or no JSON; what was fed is right all the same.
pub(super) fn feed_part(scanner: &mut Scanner<'_>, depth: u8, sink: &mut impl PromptSink) -> Result<(), Halt> {
    let mut again = scanner.clone();
    let (mut kind, mut text, mut implied) = (None, None, None);
    scanner.enter(b'{');
    let end = loop {
        match scanner.member() {
            Ok(Some((key, value))) if key.is(b"type") => kind = Some(value),
            Ok(Some((key, value))) if key.is(b"text") => text = Some(value),
            Ok(Some((key, _))) => implied = implied.or_else(|| PARTS.iter().find(|part| key.is(part.key))),
            Ok(None) => break Ok(()),
            Err(halt) => break Err(halt),
        }
    };
    let kind = kind.and_then(|kind| kind.whole_text());
    // A part without a type is what its keys say, as in vLLM. While the type may yet come, nothing is sure; but what is
    // so long is a text, and clients that sort their keys write it first.
    let is_text = match kind {
        Some(kind) => TEXT_TYPES.iter().any(|word| kind.is(word)),
        None if end.is_err() && text.is_some_and(|text| text.raw.len() >= GUESS_BYTES_MIN) => true,
        None if end.is_err() => return end,
        None => text.is_some(),
    };
    match text.filter(|text| is_text && text.kind == Kind::String) {
        Some(text) => feed_text(&text, sink),
        None if is_text && end.is_err() => {}
        None => {
            let shape = match kind {
                Some(kind) => of_type(kind).unwrap_or(&UNKNOWN),
                None => implied.map_or(&UNKNOWN, |part| part.shape),
            };
            return shape.feed_next(&mut again, depth, sink);
        }
    }
    end
}

fn of_type(kind: Text<'_>) -> Option<&'static Shape> {
    PARTS.iter().find(|part| part.types.iter().any(|word| kind.is(word))).map(|part| part.shape)
}

/// Feeds Anthropic's source of an image or a document: base64, a URL, the name of a file, a text, or a content.
pub(super) fn feed_source(media: Media, source: &Value<'_>, depth: u8, sink: &mut impl PromptSink) {
    let mut scanner = Scanner::new(source.raw);
    scanner.enter(b'{');
    let mut kind = None;
    while let Ok(Some((key, value))) = scanner.member() {
        if key.is(b"type") {
            kind = value.whole_text();
        }
    }
    let shape = match kind {
        None if source.is_cut => return,
        Some(kind) if kind.is(b"text") => &SOURCE_TEXT,
        _ if media == Media::Image => &SOURCE_IMAGE,
        _ => &SOURCE_FILE,
    };
    let _ = shape.feed_next(&mut Scanner::new(source.raw), depth, sink);
}

/// Feeds contents that stand apart from the text that speaks of them: one or a list of them, or for a batch a list of lists.
pub(super) fn feed_media_list(media: Media, contents: &Value<'_>, sink: &mut impl PromptSink) {
    feed_media_item(media, contents, 2, sink);
}

fn feed_media_item(media: Media, contents: &Value<'_>, lists_max: u8, sink: &mut impl PromptSink) {
    if contents.kind == Kind::Array && lists_max > 0 {
        let mut scanner = Scanner::new(contents.raw);
        scanner.enter(b'[');
        while let Ok(Some(value)) = scanner.element() {
            feed_media_item(media, &value, lists_max - 1, sink);
        }
        return;
    }
    sink.mark(mark::PART);
    match (contents.kind, media) {
        (Kind::String, _) => feed_media(media, contents, sink),
        (Kind::Object, Media::Image) => {
            let _ = IMAGE_URL.feed_next(&mut Scanner::new(contents.raw), 1, sink);
        }
        _ => feed_text_or_json(contents, sink),
    }
}

/// Types of parts that are nothing but a text: OpenAI's chat and Anthropic's, and those of OpenAI's responses.
const TEXT_TYPES: &[&[u8]] = &[b"text", b"input_text", b"output_text"];

/// A kind of part that is no text.
struct PartKind {
    types: &'static [&'static [u8]],
    /// The key that tells it where there is no type.
    key: &'static [u8],
    shape: &'static Shape,
}

/// Sources: OpenAI API reference, "Create chat completion" and "Create a model response"; vLLM, "Multimodal inputs"
/// (`image_url`, `audio_url`, `video_url`, `image_embeds`); Hugging Face transformers, "Multimodal templates" (`image`,
/// `audio`, `video`); Jina AI, "Embeddings API" (`image` without a type); Anthropic API reference, "Messages" (`image`,
/// `document`, `thinking`, `tool_use`, `tool_result`).
const PARTS: &[PartKind] = &[
    PartKind { types: &[b"image_url", b"input_image", b"computer_screenshot"], key: b"image_url", shape: &IMAGE },
    PartKind { types: &[b"image"], key: b"source", shape: &IMAGE_BLOCK },
    PartKind { types: &[], key: b"image", shape: &IMAGE_BLOCK },
    PartKind { types: &[b"image_embeds"], key: b"image_embeds", shape: &EMBEDS },
    PartKind { types: &[b"audio"], key: b"audio", shape: &AUDIO },
    PartKind { types: &[b"video"], key: b"video", shape: &VIDEO },
    PartKind { types: &[b"input_audio"], key: b"input_audio", shape: &INPUT_AUDIO },
    PartKind { types: &[b"audio_url"], key: b"audio_url", shape: &AUDIO },
    PartKind { types: &[b"video_url", b"input_video"], key: b"video_url", shape: &VIDEO },
    PartKind { types: &[b"file"], key: b"file", shape: &FILE },
    PartKind { types: &[b"input_file"], key: b"file_data", shape: &INPUT_FILE },
    PartKind { types: &[b"document"], key: b"document", shape: &DOCUMENT_BLOCK },
    PartKind { types: &[b"thinking"], key: b"thinking", shape: &THINKING },
    PartKind { types: &[b"tool_use"], key: b"input", shape: &TOOL_USE },
    PartKind { types: &[b"tool_result"], key: b"content", shape: &TOOL_RESULT },
];

/// A part of a type that is not known here: the type first, all else in the order of the body.
const UNKNOWN: Shape = Shape { fields: &[Field::new(b"type", mark::KIND, Form::Text)], ignored: IGNORED };

const IGNORED: &[&[u8]] = &[b"cache_control"];
/// For shapes of which the type is told by their fields.
const IGNORED_AND_TYPE: &[&[u8]] = &[b"cache_control", b"type"];

const IMAGE: Shape = Shape {
    fields: &[
        Field::bare(b"image_url", Form::Object(&IMAGE_URL, Some(Media::Image))),
        Field::bare(b"file_id", Form::Media(Media::Image)),
        Field::bare(b"detail", Form::Other),
        Field::bare(b"uuid", Form::Other),
        Field::bare(b"text", Form::Other),
    ],
    ignored: IGNORED_AND_TYPE,
};
const IMAGE_URL: Shape = Shape {
    fields: &[Field::bare(b"url", Form::Media(Media::Image)), Field::bare(b"detail", Form::Other)],
    ignored: IGNORED,
};
const IMAGE_BLOCK: Shape = Shape {
    fields: &[
        Field::bare(b"source", Form::Source(Media::Image)),
        Field::bare(b"image", Form::Media(Media::Image)),
        Field::bare(b"text", Form::Other),
    ],
    ignored: IGNORED_AND_TYPE,
};
/// Tensors that the engine takes for an image, one or a map of them by name: their strings are long.
const EMBEDS: Shape = Shape {
    fields: &[Field::bare(b"image_embeds", Form::Media(Media::Image)), Field::bare(b"uuid", Form::Other)],
    ignored: IGNORED_AND_TYPE,
};
const INPUT_AUDIO: Shape = Shape {
    fields: &[Field::bare(b"input_audio", Form::Object(&AUDIO_DATA, Some(Media::Audio)))],
    ignored: IGNORED_AND_TYPE,
};
const AUDIO_DATA: Shape = Shape {
    fields: &[Field::bare(b"data", Form::Media(Media::Audio)), Field::bare(b"format", Form::Other)],
    ignored: IGNORED,
};
const AUDIO: Shape = Shape {
    fields: &[
        Field::bare(b"audio_url", Form::Object(&AUDIO_URL, Some(Media::Audio))),
        Field::bare(b"audio", Form::Object(&AUDIO_DATA, Some(Media::Audio))),
        Field::bare(b"uuid", Form::Other),
    ],
    ignored: IGNORED_AND_TYPE,
};
const AUDIO_URL: Shape = Shape { fields: &[Field::bare(b"url", Form::Media(Media::Audio))], ignored: IGNORED };
const VIDEO: Shape = Shape {
    fields: &[
        Field::bare(b"video_url", Form::Object(&VIDEO_URL, Some(Media::Video))),
        Field::bare(b"video", Form::Object(&VIDEO_URL, Some(Media::Video))),
        Field::bare(b"uuid", Form::Other),
    ],
    ignored: IGNORED_AND_TYPE,
};
const VIDEO_URL: Shape = Shape { fields: &[Field::bare(b"url", Form::Media(Media::Video))], ignored: IGNORED };
const FILE: Shape =
    Shape { fields: &[Field::bare(b"file", Form::Object(&INPUT_FILE, Some(Media::File)))], ignored: IGNORED_AND_TYPE };
const INPUT_FILE: Shape = Shape {
    fields: &[
        Field::bare(b"file_data", Form::Media(Media::File)),
        Field::bare(b"file_url", Form::Media(Media::File)),
        Field::bare(b"file_id", Form::Media(Media::File)),
        Field::new(b"filename", mark::NAME, Form::Text),
        Field::bare(b"detail", Form::Other),
    ],
    ignored: IGNORED_AND_TYPE,
};
const DOCUMENT_BLOCK: Shape = Shape {
    fields: &[
        Field::bare(b"source", Form::Source(Media::File)),
        Field::new(b"title", mark::NAME, Form::Text),
        Field::new(b"context", mark::DESCRIPTION, Form::Text),
        Field::bare(b"citations", Form::Other),
    ],
    ignored: IGNORED_AND_TYPE,
};
/// The signature is for who checks it, and no part of a prompt.
const THINKING: Shape = Shape {
    fields: &[Field::new(b"thinking", mark::REASONING, Form::Text)],
    ignored: &[b"cache_control", b"type", b"signature"],
};
const TOOL_USE: Shape = Shape {
    fields: &[
        Field::new(b"id", mark::TOOL_CALL_ID, Form::Text),
        Field::new(b"name", mark::NAME, Form::Text),
        Field::new(b"input", mark::ARGUMENTS, Form::JsonText),
    ],
    ignored: IGNORED_AND_TYPE,
};
const TOOL_RESULT: Shape = Shape {
    fields: &[
        Field::new(b"tool_use_id", mark::TOOL_CALL_ID, Form::Text),
        Field::new(b"content", mark::CONTENT, Form::Content),
        Field::bare(b"is_error", Form::Other),
    ],
    ignored: IGNORED_AND_TYPE,
};

const SOURCE_IMAGE: Shape = Shape {
    fields: &[
        Field::bare(b"data", Form::Media(Media::Image)),
        Field::bare(b"url", Form::Media(Media::Image)),
        Field::bare(b"file_id", Form::Media(Media::Image)),
    ],
    ignored: IGNORED_IN_SOURCE,
};
const SOURCE_FILE: Shape = Shape {
    fields: &[
        Field::bare(b"data", Form::Media(Media::File)),
        Field::bare(b"url", Form::Media(Media::File)),
        Field::bare(b"file_id", Form::Media(Media::File)),
        Field::new(b"content", mark::CONTENT, Form::Content),
    ],
    ignored: IGNORED_IN_SOURCE,
};
const SOURCE_TEXT: Shape = Shape { fields: &[Field::new(b"data", mark::TEXT, Form::Text)], ignored: IGNORED_IN_SOURCE };
/// Engines look at the bytes to find what kind of image they are.
const IGNORED_IN_SOURCE: &[&[u8]] = &[b"type", b"media_type"];
