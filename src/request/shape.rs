//! Objects whose keys may stand in any order: what is known of them is found first and fed in a fixed order.

use super::content::feed_content;
use super::json::{feed_json, feed_text, feed_text_or_json, feed_unknown_json};
use super::mark;
use super::media::{Media, feed_media};
use super::scan::{Halt, Kind, Scanner, Value};
use super::text::Text;
use crate::prefix::PromptSink;

/// How one kind of object is fed: the fields in this order, whatever the order in the body, and then all other members
/// in the body's order, since engines hand them on to the chat template.
#[derive(Debug)]
pub(super) struct Shape {
    /// At most [`FIELDS_MAX`].
    pub(super) fields: &'static [Field],
    /// Keys of which the engine's prompt shows nothing.
    pub(super) ignored: &'static [&'static [u8]],
}

/// One member of a [`Shape`].
#[derive(Debug)]
pub(super) struct Field {
    pub(super) key: &'static [u8],
    /// Stands before the value; `None` if the form brings its own marks.
    pub(super) mark: Option<u8>,
    pub(super) form: Form,
}

/// How a value is fed. A null is never fed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// A string plainly, anything else as JSON.
    Text,
    /// The same, but nothing if it says one of these: what other formats leave out.
    TextUnless(&'static [&'static [u8]]),
    /// As JSON, keys in the order of the body, for the template sees them so.
    Json,
    /// A string plainly, anything else as the JSON that such a string would hold: arguments of a call.
    JsonText,
    /// As the members without a mark of their own are fed, but at this place.
    Other,
    /// Digests of a string.
    Media(Media),
    /// An object by its shape; of a string the digests, if it may stand for one.
    Object(&'static Shape, Option<Media>),
    /// A text, or a list of parts.
    Content,
    /// Anthropic's source of an image or a document, which its `type` tells the form of.
    Source(Media),
}

/// Fields of one shape, at the most.
pub(super) const FIELDS_MAX: usize = 8;

/// Shapes within shapes, at the most: what nests deeper is fed as JSON. A client chooses the depth, and each level reads
/// its bytes anew.
const DEPTH_MAX: u8 = 6;

impl Field {
    pub(super) const fn new(key: &'static [u8], mark: u8, form: Form) -> Self {
        Self { key, mark: Some(mark), form }
    }

    /// A field whose form brings its own marks.
    pub(super) const fn bare(key: &'static [u8], form: Form) -> Self {
        Self { key, mark: None, form }
    }
}

impl Shape {
    /// Feeds the object that comes next, where `scanner` stands at its bracket. `depth` = shapes around it.
    ///
    /// Of an object that is cut only what comes before the first field that may yet come or go on is fed.
    ///
    /// # Errors
    /// Where the object is not whole or no JSON; what was fed is right all the same.
    pub(super) fn feed_next(
        &self,
        scanner: &mut Scanner<'_>,
        depth: u8,
        sink: &mut impl PromptSink,
    ) -> Result<(), Halt> {
        let begin = scanner.offset();
        let mut found = [None; FIELDS_MAX];
        let mut has_others = false;
        scanner.enter(b'{');
        let end = loop {
            match scanner.member() {
                Ok(Some((key, value))) => {
                    let field = self.fields.iter().zip(&mut found).find(|(field, _)| key.is(field.key));
                    match field {
                        Some((_, slot)) => *slot = Some(value),
                        None => has_others |= !self.is_ignored(key),
                    }
                }
                Ok(None) => break Ok(()),
                Err(halt) => break Err(halt),
            }
        };
        let is_fed = self.feed_found(&found, end.is_ok(), depth, sink);
        if is_fed && has_others {
            let raw = if end.is_ok() { scanner.since(begin) } else { scanner.rest_from(begin) };
            let _ = self.feed_others(raw, sink);
        }
        end
    }

    fn is_ignored(&self, key: Text<'_>) -> bool {
        self.ignored.iter().any(|ignored| key.is(ignored))
    }

    /// Feeds the fields; `false` if it ended before one that may yet come or go on.
    fn feed_found(
        &self,
        found: &[Option<Value<'_>>; FIELDS_MAX],
        is_whole: bool,
        depth: u8,
        sink: &mut impl PromptSink,
    ) -> bool {
        for (field, value) in self.fields.iter().zip(found) {
            match value {
                Some(value) => {
                    field.feed(value, depth, sink);
                    if value.is_cut {
                        return false;
                    }
                }
                None if is_whole => {}
                None => return false,
            }
        }
        true
    }

    fn feed_others(&self, object: &[u8], sink: &mut impl PromptSink) -> Result<(), Halt> {
        let mut scanner = Scanner::new(object);
        scanner.enter(b'{');
        while let Some((key, value)) = scanner.member()? {
            if !self.is_ignored(key) && !self.fields.iter().any(|field| key.is(field.key)) {
                feed_other(key, &value, sink);
            }
        }
        Ok(())
    }
}

impl Field {
    fn feed(&self, value: &Value<'_>, depth: u8, sink: &mut impl PromptSink) {
        if value.is_null() || value.is_cut_scalar() {
            return;
        }
        if let Form::TextUnless(usual) = self.form
            && let Some(text) = value.text()
            && (value.is_cut || usual.iter().any(|word| text.is(word)))
        {
            return;
        }
        if let Some(mark) = self.mark {
            sink.mark(mark);
        }
        match self.form {
            Form::Text | Form::TextUnless(_) => feed_text_or_json(value, sink),
            Form::Json => feed_json(value, sink),
            Form::JsonText if value.kind == Kind::String => feed_text(value, sink),
            Form::JsonText => feed_json(value, sink),
            Form::Other => feed_other(Text::new(self.key, false, false), value, sink),
            Form::Media(media) | Form::Object(_, Some(media)) if value.kind == Kind::String => {
                feed_media(media, value, sink);
            }
            Form::Object(shape, _) if value.kind == Kind::Object && depth < DEPTH_MAX => {
                let _ = shape.feed_next(&mut Scanner::new(value.raw), depth + 1, sink);
            }
            Form::Content if depth < DEPTH_MAX => feed_content(value, depth + 1, sink),
            Form::Source(media) if value.kind == Kind::Object && depth < DEPTH_MAX => {
                super::content::feed_source(media, value, depth + 1, sink);
            }
            Form::Media(_) | Form::Object(..) | Form::Content | Form::Source(_) => feed_text_or_json(value, sink),
        }
    }
}

/// Feeds a member that has no mark of its own.
fn feed_other(key: Text<'_>, value: &Value<'_>, sink: &mut impl PromptSink) {
    sink.mark(mark::OTHER_KEY);
    key.decode(|chunk| sink.text(chunk));
    if !value.is_cut_scalar() {
        sink.mark(mark::OTHER_VALUE);
        feed_unknown_json(value, sink);
    }
}

/// Feeds a list, each item behind `mark`: an object by its shape, anything else as text or JSON. What is no list is fed
/// as text or JSON.
pub(super) fn feed_list(list: &Value<'_>, mark: u8, shape: &Shape, sink: &mut impl PromptSink) {
    if list.kind == Kind::Array {
        // What is malformed within the list ends it there: the engine is going to refuse it anyway.
        let _ = feed_items(list, mark, shape, sink);
    } else {
        feed_text_or_json(list, sink);
    }
}

fn feed_items(list: &Value<'_>, mark: u8, shape: &Shape, sink: &mut impl PromptSink) -> Result<(), Halt> {
    let mut scanner = Scanner::new(list.raw);
    scanner.enter(b'[');
    while scanner.next_item(b']')? {
        sink.mark(mark);
        if scanner.peek() == Some(b'{') {
            shape.feed_next(&mut scanner, 1, sink)?;
        } else {
            feed_text_or_json(&scanner.value()?, sink);
        }
    }
    Ok(())
}
