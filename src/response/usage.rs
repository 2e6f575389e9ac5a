//! Finds the JSON in an answer: the whole body, its lines, or the `data` of server-sent events.

use std::sync::LazyLock;

use memchr::memmem::{Finder, FinderRev};
use memchr::{memchr, memrchr};

use super::counts::Usage;
use super::member::Marker;
use super::object::ObjectReader;

/// Reads `usage` out of one answer, however its bytes are cut into pieces.
///
/// Takes the plain text of the answer, of whatever API: a compressed one says nothing. Holds less than 300 bytes and never
/// allocates.
///
/// ```
/// let mut reader = warmroute::response::UsageReader::default();
/// reader.feed(b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":400,\"completion_tok");
/// assert_eq!(reader.usage(), None);
/// reader.feed(b"ens\":8,\"prompt_tokens_details\":{\"cached_tokens\":384}}}\n\ndata: [DONE]\n\n");
/// assert_eq!(reader.usage().and_then(|usage| usage.cached_tokens), Some(384));
/// ```
#[derive(Clone, Debug, Default)]
pub struct UsageReader {
    place: Place,
    object: ObjectReader,
}

/// Where in the answer the next byte stands.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    /// Nothing but white space was read: a body or a stream may follow.
    #[default]
    Start,
    /// In a body that is one JSON object, or has one in each line.
    ///
    /// Source of the latter: Ollama `docs/api.md`, "Streaming responses".
    Body,
    /// In the first bytes of a stream's line, of which so many are those of [`DATA`].
    LineStart { matched: usize },
    /// Behind `data:`.
    DataLine,
    /// In a line that is a comment or another field.
    OtherLine,
}

/// The field of an event that carries its text.
///
/// Source: WHATWG HTML, "Server-sent events", section "Parsing an event stream". A line ends with LF or CR LF here; a
/// CR alone, which that text allows too, is written by no engine.
const DATA: &[u8] = b"data:";

static USAGE_KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"usage\""));
static EVAL_COUNT_KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"eval_count\""));
static EVENT_END: LazyLock<FinderRev<'static>> = LazyLock::new(|| FinderRev::new(b"\n\n"));

impl UsageReader {
    /// Takes the next piece of the answer.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut rest = self.behind_idle_events(bytes);
        while let Some((&byte, behind)) = rest.split_first() {
            rest = match self.place {
                Place::Start => {
                    self.start(byte);
                    // The first byte of a body or line is read again as such.
                    if matches!(self.place, Place::Start) { behind } else { rest }
                }
                Place::Body => {
                    let behind = self.object.feed(rest);
                    let Some(end) = memchr(b'\n', behind) else { return };
                    self.object.end_event();
                    behind.get(end + 1..).unwrap_or_default()
                }
                Place::LineStart { matched } => {
                    self.line_start(byte, matched);
                    behind
                }
                Place::DataLine => {
                    let (line, behind) = self.rest_of_line(rest);
                    self.object.feed(line);
                    behind
                }
                Place::OtherLine => self.rest_of_line(rest).1,
            };
        }
    }

    /// What the parts that were read to their end tell, each number as it was told last; `None` if there were none yet.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.object.usage()
    }

    /// The hash of the answer's name, once that was read, if it is a response's: see [`super::response_hash`].
    #[must_use]
    pub const fn response(&self) -> Option<u64> {
        self.object.response()
    }

    /// Leaves out the whole events in front in which nothing can be found: nearly all of a stream. By what they are told
    /// from the others the first event has shown; where it has not, all are read.
    fn behind_idle_events<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        if !matches!(self.place, Place::LineStart { matched: 0 } | Place::Body) || !self.object.is_between() {
            return bytes;
        }
        let Some(marker) = self.object.marker() else { return bytes };
        let key = match marker {
            Marker::Usage => &USAGE_KEY,
            Marker::EvalCount => &EVAL_COUNT_KEY,
        };
        let idle = bytes.get(..key.find(bytes).unwrap_or(bytes.len())).unwrap_or_default();
        let end = match self.place {
            Place::Body => memrchr(b'\n', idle).map(|end| end + 1),
            _ => EVENT_END.rfind(idle).map(|end| end + 2),
        };
        end.and_then(|end| bytes.get(end..)).unwrap_or(bytes)
    }

    fn start(&mut self, byte: u8) {
        match byte {
            b'{' => self.place = Place::Body,
            // White space and a byte order mark.
            b' ' | b'\t' | b'\r' | b'\n' | 0xef | 0xbb | 0xbf => {}
            _ => self.place = Place::LineStart { matched: 0 },
        }
    }

    fn line_start(&mut self, byte: u8, matched: usize) {
        self.place = match byte {
            b'\n' => {
                // An empty line ends an event, so that whatever was wrong with it is over.
                if matched == 0 {
                    self.object.end_event();
                }
                Place::LineStart { matched: 0 }
            }
            b'\r' if matched == 0 => self.place,
            _ if DATA.get(matched) != Some(&byte) => Place::OtherLine,
            _ if matched + 1 == DATA.len() => {
                self.object.begin_line();
                Place::DataLine
            }
            _ => Place::LineStart { matched: matched + 1 },
        };
    }

    /// What is there of the current line, and what stands behind it if its end is there.
    fn rest_of_line<'a>(&mut self, bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let Some((line, behind)) = memchr(b'\n', bytes).and_then(|end| bytes.split_at_checked(end)) else {
            return (bytes, &[]);
        };
        self.place = Place::LineStart { matched: 0 };
        (line, behind.get(1..).unwrap_or_default())
    }
}
