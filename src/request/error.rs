//! Why a body could not be read.

use std::fmt;

use super::scan::{Halt, NESTING_MAX};

/// Why a body gives no prompt to route by. The request itself goes on: the engine will say what is wrong with it.
///
/// Offsets are bytes from the start of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// No byte but white space.
    Empty,
    /// Something other than a JSON object: an array, compressed bytes, a form.
    NotAnObject,
    /// No JSON from `offset` on; the body's length if it is complete but ends within a value.
    Malformed {
        /// Where the first byte that fits nothing is.
        offset: usize,
    },
    /// A value nests deeper than any API asks for.
    TooDeep {
        /// Where the first bracket beyond the bound is.
        offset: usize,
    },
    /// An object without the key that holds the prompt, or with a value there that can be none. It is routed by load.
    NoPrompt,
}

impl From<Halt> for ParseError {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::End { offset } | Halt::Malformed { offset } => Self::Malformed { offset },
            Halt::TooDeep { offset } => Self::TooDeep { offset },
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("body is empty"),
            Self::NotAnObject => f.write_str("body is not a JSON object"),
            Self::Malformed { offset } => write!(f, "body is malformed JSON at byte {offset}"),
            Self::TooDeep { offset } => write!(f, "body nests deeper than {NESTING_MAX} levels at byte {offset}"),
            Self::NoPrompt => f.write_str("body holds no prompt"),
        }
    }
}

impl std::error::Error for ParseError {}
