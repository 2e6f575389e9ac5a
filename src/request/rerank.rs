//! Rerank: `POST …/rerank`, `…/v1/rerank` and `…/v2/rerank` as of Cohere, Jina and vLLM, and `POST /rerank` of TEI.
//!
//! The prompts are `query` with each of `documents` (`texts` with TEI): texts, or objects with a text or a content. The
//! query is what they all begin with, so it is fed once and first.
//!
//! Sources: Cohere API reference, "Rerank"; Jina AI, "Reranker API"; vLLM, "OpenAI-Compatible Server", "Re-rank API";
//! huggingface/text-embeddings-inference, `router/src/http/types.rs`, `RerankRequest`.

use super::content::feed_part;
use super::format::Format;
use super::json::feed_text_or_json;
use super::mark;
use super::scan::{Halt, Kind, Scanner, Value};
use crate::prefix::PromptSink;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rerank<'a> {
    query: Option<Value<'a>>,
    documents: Option<Value<'a>>,
    texts: Option<Value<'a>>,
}

impl<'a> Format<'a> for Rerank<'a> {
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<Value<'a>>> {
        match key {
            b"query" => Some(&mut self.query),
            b"documents" => Some(&mut self.documents),
            b"texts" => Some(&mut self.texts),
            _ => None,
        }
    }

    fn holds_prompt(&self) -> bool {
        self.query.is_some_and(|query| matches!(query.kind, Kind::String | Kind::Object))
    }

    fn feed(&self, _is_open: bool, sink: &mut impl PromptSink) {
        let Some(query) = &self.query else { return };
        sink.mark(mark::QUERY);
        if feed_one(query, sink).is_err() {
            return;
        }
        sink.end_of_message();
        sink.end_of_root();
        if let Some(documents) = self.documents.or(self.texts).filter(|documents| documents.kind == Kind::Array) {
            // What is malformed within the list ends it there: the engine is going to refuse it anyway.
            let _ = feed_documents(&documents, sink);
        }
    }
}

fn feed_documents(documents: &Value<'_>, sink: &mut impl PromptSink) -> Result<(), Halt> {
    let mut scanner = Scanner::new(documents.raw);
    scanner.enter(b'[');
    while let Some(document) = scanner.element()? {
        sink.mark(mark::DOCUMENT);
        feed_one(&document, sink)?;
        sink.end_of_message();
    }
    Ok(())
}

fn feed_one(value: &Value<'_>, sink: &mut impl PromptSink) -> Result<(), Halt> {
    if value.kind == Kind::Object {
        return feed_part(&mut Scanner::new(value.raw), 0, sink);
    }
    feed_text_or_json(value, sink);
    if value.is_cut { Err(Halt::End { offset: value.raw.len() }) } else { Ok(()) }
}
