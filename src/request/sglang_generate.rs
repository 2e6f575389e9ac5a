//! SGLang's own API: `POST /generate`.
//!
//! The prompt is `text` or `input_ids`, one or a batch; what it goes on from on the server (`session_params`) comes first,
//! images, films and sounds after the text that has their places. Each answer, and each piece of a stream, tells its usage
//! in `meta_info`.
//!
//! Source: SGLang, `python/sglang/srt/managers/io_struct.py`, `GenerateReqInput`.

use super::completions::{feed_prompts, is_prompt};
use super::content::feed_media_list;
use super::format::Format;
use super::json::feed_json;
use super::mark;
use super::media::Media;
use super::scan::Value;
use crate::prefix::PromptSink;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SglangGenerate<'a> {
    text: Option<Value<'a>>,
    input_ids: Option<Value<'a>>,
    image_data: Option<Value<'a>>,
    video_data: Option<Value<'a>>,
    audio_data: Option<Value<'a>>,
    session_params: Option<Value<'a>>,
}

impl<'a> SglangGenerate<'a> {
    fn prompt(&self) -> Option<Value<'a>> {
        self.text.filter(is_prompt).or(self.input_ids).filter(is_prompt)
    }
}

impl<'a> Format<'a> for SglangGenerate<'a> {
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
        Some(match key {
            b"text" => &mut self.text,
            b"input_ids" => &mut self.input_ids,
            b"image_data" => &mut self.image_data,
            b"video_data" => &mut self.video_data,
            b"audio_data" => &mut self.audio_data,
            b"session_params" => &mut self.session_params,
            _ => return None,
        })
    }

    fn holds_prompt(&self) -> bool {
        self.prompt().is_some()
    }

    fn feed(&self, is_open: bool, sink: &mut impl PromptSink) {
        let Some(prompt) = self.prompt() else { return };
        if let Some(session) = self.session_params.filter(|session| !session.is_null() && !session.is_cut_scalar()) {
            sink.mark(mark::PREVIOUS);
            feed_json(&session, sink);
            if session.is_cut {
                return;
            }
        }
        feed_prompts(&prompt, sink);
        if prompt.is_cut {
            return;
        }
        let media = [(Media::Image, self.image_data), (Media::Video, self.video_data), (Media::Audio, self.audio_data)];
        let mut has_media = false;
        for (kind, contents) in media {
            match contents {
                None if is_open => return,
                Some(contents) if contents.is_cut_scalar() => return,
                Some(contents) if !contents.is_null() => {
                    feed_media_list(kind, &contents, sink);
                    if contents.is_cut {
                        return;
                    }
                    has_media = true;
                }
                _ => {}
            }
        }
        if has_media {
            sink.end_of_message();
        }
    }
}
