//! vLLM's token ids in, token ids out: `POST /inference/v1/generate`.
//!
//! The prompt is `token_ids`. `features` holds hashes and places of the images among them: these are fed first, since
//! the ids of two images are the same. The images themselves (`kwargs_data`) are megabytes, and their hashes say enough.
//!
//! Source: vLLM at 0640893, `vllm/entrypoints/serve/disagg/protocol.py`, `GenerateRequest`.

use super::completions::feed_prompts;
use super::format::{Format, Stream};
use super::json::feed_json;
use super::mark;
use super::scan::{Kind, Scanner, Value};
use crate::prefix::PromptSink;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VllmGenerate<'a> {
    token_ids: Option<Value<'a>>,
    features: Option<Value<'a>>,
}

impl<'a> Format<'a> for VllmGenerate<'a> {
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
        match key {
            b"token_ids" => Some(&mut self.token_ids),
            b"features" => Some(&mut self.features),
            _ => None,
        }
    }

    fn holds_prompt(&self) -> bool {
        self.token_ids.is_some_and(|token_ids| token_ids.kind == Kind::Array)
    }

    fn feed(&self, _is_open: bool, sink: &mut impl PromptSink) {
        if let Some(features) = self.features.filter(|features| !features.is_null() && !features.is_cut_scalar()) {
            sink.mark(mark::FEATURES);
            if !feed_features(&features, sink) {
                return;
            }
        }
        if let Some(token_ids) = &self.token_ids {
            feed_prompts(token_ids, sink);
        }
    }

    fn tells_usage(&self, stream: Stream) -> bool {
        stream.tells_usage_if_asked()
    }
}

/// Feeds hashes and places as one JSON value; `false` if one of them may yet come or go on. Of features that are cut
/// only behind both nothing is missing.
fn feed_features(features: &Value<'_>, sink: &mut impl PromptSink) -> bool {
    if features.kind != Kind::Object {
        feed_json(features, sink);
        return !features.is_cut;
    }
    let mut scanner = Scanner::new(features.raw);
    scanner.enter(b'{');
    let (mut hashes, mut places) = (None, None);
    while let Ok(Some((key, value))) = scanner.member() {
        if key.is(b"mm_hashes") {
            hashes = Some(value);
        } else if key.is(b"mm_placeholders") {
            places = Some(value);
        }
    }
    let fields = [(&b"\"mm_hashes\":"[..], hashes), (b"\"mm_placeholders\":", places)];
    let mut separator: &[u8] = b"{";
    for (key, value) in fields {
        let Some(value) = value else { if features.is_cut { return false } else { continue } };
        sink.text(separator);
        separator = b",";
        sink.text(key);
        feed_json(&value, sink);
        if value.is_cut {
            return false;
        }
    }
    sink.text(if separator == b"{" { b"{}" } else { b"}" });
    true
}
