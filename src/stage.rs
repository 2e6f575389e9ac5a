//! Where a request's time goes in the plugin: marks between the stages of its work, for `make micro`.
//!
//! Without the feature `stage-times` all marks are empty and leave nothing in the plugin. With it the time since the last
//! mark belongs to the stage whose end is marked, host calls included; these are also told by their kind. The clock is
//! the host's and handed in (`set_clock`). A reading of it is a host call itself: `Times` holds what was measured,
//! and how often and how long the clock was read for it, so that whoever prints the times can take that out.
//!
//! A thread has one sum of all, as a VM has one thread.

#[cfg(any(feature = "stage-times", test))]
mod times;

#[cfg(any(feature = "stage-times", test))]
pub use times::{CallTime, StageTime, Times};

#[cfg(feature = "stage-times")]
pub use times::{Callback, RunningCall, call, callback, end, set_clock, take};

/// A stage of the work on a request, or a callback of the host: then it has what no stage within it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Callback: a stream begins.
    ContextCreate,
    /// Callback: is the request ours, and what does its route say.
    RequestHeaders,
    /// Callback: the body's parts, and what is counted of a decision.
    RequestBody,
    /// The body is copied into the VM.
    ReadBody,
    /// The members of the body's JSON are found.
    Parse,
    /// The prompt's text is decoded and hashed.
    FeedAndHash,
    /// The session is looked for in the body, and the decision is set up.
    SetUp,
    /// The pool's trunk is read, counted and written.
    Trunk,
    /// The page of what was learned is read.
    ReadLearned,
    /// What was learned is taken in, for each worker.
    Prepare,
    /// The index is asked who holds the prompt.
    FindMatches,
    /// The in-flight page is read.
    ReadInflight,
    /// The in-flight page is added up, over all VMs.
    AddUp,
    /// The workers become candidates.
    Candidates,
    /// The policy picks among the candidates.
    Score,
    /// The in-flight page is changed and written.
    WriteInflight,
    /// The prompt is recorded in the index.
    RecordIndex,
    /// The page of what was learned is changed and written.
    WriteLearned,
    /// The decision is set as a header.
    SetHeader,
    /// Callback: the answer's headers.
    ResponseHeaders,
    /// What the answer's headers settle.
    Answered,
    /// Callback: parts of the answer.
    ResponseBody,
    /// A part of the answer is copied into the VM.
    ReadAnswer,
    /// `usage` is looked for in a part of the answer.
    ReadUsage,
    /// What the answer's first byte settles.
    FirstByte,
    /// What the answer's end settles and teaches.
    End,
    /// Callback: the stream is over and deleted.
    Delete,
    /// Callback of the root: a tick.
    Tick,
    /// Callback of the root: a scrape was answered.
    CallResponse,
}

/// A kind of call of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostCall {
    /// Bytes of a body.
    GetBuffer,
    /// A header's value.
    GetHeader,
    /// A header is set or removed.
    ChangeHeader,
    /// A property of the stream.
    GetProperty,
    /// A page is read.
    GetSharedData,
    /// A page is written.
    SetSharedData,
    /// A stat is counted or recorded.
    Metric,
    /// The plugin itself asks for the time.
    Time,
    /// All others.
    Other,
}

impl Stage {
    /// All, in the order in which a request comes by.
    pub const ALL: [Self; 29] = [
        Self::ContextCreate,
        Self::RequestHeaders,
        Self::RequestBody,
        Self::ReadBody,
        Self::Parse,
        Self::FeedAndHash,
        Self::SetUp,
        Self::Trunk,
        Self::ReadLearned,
        Self::Prepare,
        Self::FindMatches,
        Self::ReadInflight,
        Self::AddUp,
        Self::Candidates,
        Self::Score,
        Self::WriteInflight,
        Self::RecordIndex,
        Self::WriteLearned,
        Self::SetHeader,
        Self::ResponseHeaders,
        Self::Answered,
        Self::ResponseBody,
        Self::ReadAnswer,
        Self::ReadUsage,
        Self::FirstByte,
        Self::End,
        Self::Delete,
        Self::Tick,
        Self::CallResponse,
    ];

    /// Its name in stats and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ContextCreate => "context_create",
            Self::RequestHeaders => "request_headers",
            Self::RequestBody => "request_body",
            Self::ReadBody => "read_body",
            Self::Parse => "parse",
            Self::FeedAndHash => "feed_and_hash",
            Self::SetUp => "set_up",
            Self::Trunk => "trunk",
            Self::ReadLearned => "read_learned",
            Self::Prepare => "prepare",
            Self::FindMatches => "find_matches",
            Self::ReadInflight => "read_inflight",
            Self::AddUp => "add_up",
            Self::Candidates => "candidates",
            Self::Score => "score",
            Self::WriteInflight => "write_inflight",
            Self::RecordIndex => "record_index",
            Self::WriteLearned => "write_learned",
            Self::SetHeader => "set_header",
            Self::ResponseHeaders => "response_headers",
            Self::Answered => "answered",
            Self::ResponseBody => "response_body",
            Self::ReadAnswer => "read_answer",
            Self::ReadUsage => "read_usage",
            Self::FirstByte => "first_byte",
            Self::End => "end",
            Self::Delete => "delete",
            Self::Tick => "tick",
            Self::CallResponse => "call_response",
        }
    }

    /// Whether it is work of the root, which no single request is the cause of.
    #[must_use]
    pub const fn is_of_root(self) -> bool {
        matches!(self, Self::Tick | Self::CallResponse)
    }
}

impl HostCall {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::GetBuffer,
        Self::GetHeader,
        Self::ChangeHeader,
        Self::GetProperty,
        Self::GetSharedData,
        Self::SetSharedData,
        Self::Metric,
        Self::Time,
        Self::Other,
    ];

    /// Its name in stats and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GetBuffer => "get_buffer",
            Self::GetHeader => "get_header",
            Self::ChangeHeader => "change_header",
            Self::GetProperty => "get_property",
            Self::GetSharedData => "get_shared_data",
            Self::SetSharedData => "set_shared_data",
            Self::Metric => "metric",
            Self::Time => "time",
            Self::Other => "other",
        }
    }
}

/// A callback that is running: see [`callback`].
#[cfg(not(feature = "stage-times"))]
#[derive(Debug)]
pub struct Callback;

/// A host call that is running: see [`call`].
#[cfg(not(feature = "stage-times"))]
#[derive(Debug)]
pub struct RunningCall;

#[cfg(not(feature = "stage-times"))]
impl RunningCall {
    /// The call has come back, and so many bytes were copied for it.
    #[inline(always)]
    pub const fn end(self, _bytes: usize) {}
}

/// A callback begins; it ends when what is returned is dropped.
#[cfg(not(feature = "stage-times"))]
#[inline(always)]
#[must_use]
pub const fn callback(_stage: Stage) -> Callback {
    Callback
}

/// The time since the last mark belongs to `stage`.
#[cfg(not(feature = "stage-times"))]
#[inline(always)]
pub const fn end(_stage: Stage) {}

/// A host call begins.
#[cfg(not(feature = "stage-times"))]
#[inline(always)]
#[must_use]
pub const fn call(_kind: HostCall) -> RunningCall {
    RunningCall
}
