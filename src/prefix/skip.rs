//! Leaves out of the hash the lines that differ from request to request: billing headers, dates, ids that clients put at
//! the front of a prompt, where they would make every prompt a new one.

use memchr::memchr;

use super::PromptSink;

/// Bytes of a prompt, from its start, in which lines are left out. Noise that stands deeper costs only what follows it.
const WITHIN_BYTES: usize = 65_536;

/// Bytes of a line that are left out at the most: what follows is fed, or a client could hide a whole prompt in a line.
const LINE_BYTES_MAX: usize = 1_024;

/// Bytes of the longest line beginning that can be told.
pub const LINE_BEGIN_BYTES_MAX: usize = 128;

/// Feeds a sink all of a prompt but the lines that begin as one of `begins`, each to its line feed or the text's end, or for
/// as long as a line of that kind can be.
///
/// A line begins at the start of a text (of a content, of one of its parts) and behind a line feed. How a text is split
/// over calls means nothing, as for every sink.
#[derive(Debug)]
pub struct SkipLines<'s, S> {
    begins: &'s [String],
    sink: &'s mut S,
    state: State,
    /// The line's first bytes, while they may become one of `begins`.
    held: [u8; LINE_BEGIN_BYTES_MAX],
    held_bytes: usize,
    /// How much further lines are left out.
    left_bytes: usize,
    /// How much of the line may still be left out.
    line_left_bytes: usize,
}

/// Where in a line the text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Within what may be the beginning of a line to leave out.
    Begin,
    /// Within a line that is fed.
    Fed,
    /// Within a line that is left out.
    LeftOut,
}

impl<'s, S: PromptSink> SkipLines<'s, S> {
    /// A filter in front of `sink`. A beginning of more than [`LINE_BEGIN_BYTES_MAX`] bytes is never met.
    pub fn new(begins: &'s [String], sink: &'s mut S) -> Self {
        let held = [0; LINE_BEGIN_BYTES_MAX];
        Self { begins, sink, state: State::Begin, held, held_bytes: 0, left_bytes: WITHIN_BYTES, line_left_bytes: 0 }
    }

    /// Takes what it can of `bytes`, at least one; returns the rest.
    fn step<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        match self.state {
            State::Begin => self.begin(bytes),
            State::Fed => {
                let (line, rest) = split_line(bytes);
                self.emit(line);
                self.start_if_ended(line);
                rest
            }
            State::LeftOut => {
                let (line, _) = split_line(bytes.get(..self.line_left_bytes).unwrap_or(bytes));
                self.line_left_bytes -= line.len();
                if self.line_left_bytes == 0 {
                    self.state = State::Fed;
                }
                self.start_if_ended(line);
                bytes.get(line.len()..).unwrap_or_default()
            }
        }
    }

    /// Holds bytes back as long as they may become one of the beginnings.
    fn begin<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first() {
            let Some(free) = self.held.get_mut(self.held_bytes) else { break };
            *free = *byte;
            let held = self.held.get(..=self.held_bytes).unwrap_or_default();
            if !self.begins.iter().any(|begin| begin.as_bytes().starts_with(held)) {
                break;
            }
            self.held_bytes += 1;
            rest = after;
            if self.begins.iter().any(|begin| begin.len() == self.held_bytes && begin.as_bytes() == held) {
                self.held_bytes = 0;
                self.line_left_bytes = LINE_BYTES_MAX;
                self.state = State::LeftOut;
                return rest;
            }
        }
        if !rest.is_empty() {
            self.release();
        }
        rest
    }

    /// Feeds what was held back: it is no beginning.
    fn release(&mut self) {
        let held = self.held;
        self.emit(held.get(..self.held_bytes).unwrap_or_default());
        self.held_bytes = 0;
        self.state = State::Fed;
    }

    fn start_if_ended(&mut self, line: &[u8]) {
        if line.last() == Some(&b'\n') {
            self.state = State::Begin;
        }
    }

    fn emit(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.sink.text(bytes);
        }
    }

    /// The text is over: what was held back belongs to it.
    fn end_text(&mut self) {
        self.release();
        self.state = State::Begin;
    }
}

impl<S: PromptSink> PromptSink for SkipLines<'_, S> {
    fn text(&mut self, bytes: &[u8]) {
        let (mut near, far) = bytes.split_at_checked(self.left_bytes).unwrap_or((bytes, &[]));
        self.left_bytes -= near.len();
        while !near.is_empty() {
            near = self.step(near);
        }
        if far.is_empty() {
            return;
        }
        // A line that began before the end of what is looked at is left out to its end.
        let mut far = far;
        while self.state == State::LeftOut && !far.is_empty() {
            far = self.step(far);
        }
        if self.state != State::LeftOut {
            self.release();
            self.emit(far);
        }
    }

    fn mark(&mut self, kind: u8) {
        self.end_text();
        self.sink.mark(kind);
    }

    fn end_of_message(&mut self) {
        self.end_text();
        self.sink.end_of_message();
    }

    fn end_of_root(&mut self) {
        self.end_text();
        self.sink.end_of_root();
    }
}

/// The bytes to the first line feed, which belongs to them, and the rest.
fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
    bytes.split_at_checked(end).unwrap_or((bytes, &[]))
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;
    use crate::rng::Rng;

    /// Keeps texts as they are, a mark as `<kind>`, an end of message as `|`.
    #[derive(Default)]
    struct Written(String);

    impl PromptSink for Written {
        fn text(&mut self, bytes: &[u8]) {
            assert!(!bytes.is_empty(), "an empty text is a wasted call");
            self.0.push_str(&String::from_utf8_lossy(bytes));
        }
        fn mark(&mut self, kind: u8) {
            self.0.push_str(&format!("<{kind}>"));
        }
        fn end_of_message(&mut self) {
            self.0.push('|');
        }
        fn end_of_root(&mut self) {
            self.0.push('!');
        }
    }

    fn begins() -> Vec<String> {
        ["x-billing:", "Date: ", "Dates"].map(str::to_owned).into()
    }

    /// What is left of texts, each behind a mark.
    fn left(texts: &[&str], piece_bytes: usize) -> String {
        let (begins, mut written) = (begins(), Written::default());
        let mut skip = SkipLines::new(&begins, &mut written);
        for text in texts {
            skip.mark(1);
            text.as_bytes().chunks(piece_bytes).for_each(|piece| skip.text(piece));
        }
        skip.end_of_message();
        written.0
    }

    #[test]
    fn lines_that_begin_as_told_are_left_out_however_the_text_is_split() {
        const CASES: &[(&[&str], &str)] = &[
            (&["x-billing: 7\nyou are brief"], "<1>you are brief|"),
            (&["x-billing: 7"], "<1>|"),
            (&["a\nDate: today\nb"], "<1>a\nb|"),
            (&["a\nDates\n\nDate: x\nb\n"], "<1>a\n\nb\n|"),
            (&["Date"], "<1>Date|"),
            (&["Date", ": no\n"], "<1>Date<1>: no\n|"),
            (&["Datex\nDa\nDate"], "<1>Datex\nDa\nDate|"),
            (&["see Date: 1\n x-billing: 2"], "<1>see Date: 1\n x-billing: 2|"),
            (&["x-billing: 1\n", "x-billing: 2\nb"], "<1><1>b|"),
            (&["", "\n\n"], "<1><1>\n\n|"),
        ];
        for (texts, want) in CASES {
            for piece_bytes in [1, 2, 3, 100] {
                assert_eq!(left(texts, piece_bytes), *want, "{texts:?} in pieces of {piece_bytes}");
            }
        }
    }

    #[test]
    fn only_the_front_of_a_prompt_is_looked_at_and_a_line_is_left_out_to_its_end() {
        let long = "y".repeat(WITHIN_BYTES - 5);
        let prompt = format!("{long}\nDate: 1\nz");
        assert_eq!(left(&[&prompt], 1_000), format!("<1>{prompt}|"));
        let begun = format!("{}\nDate: {}\nz\nDate: 2", &long[..WITHIN_BYTES - 20], "1".repeat(100));
        for piece_bytes in [1, 7, 60, 1_000] {
            let want = format!("<1>{}\nz\nDate: 2|", &long[..WITHIN_BYTES - 20]);
            assert_eq!(left(&[&begun], piece_bytes), want, "in pieces of {piece_bytes}");
        }
    }

    #[test]
    fn of_a_line_as_long_as_a_prompt_only_the_front_is_left_out() {
        let prompt = format!("Date: {}\nb", "1".repeat(5_000));
        for piece_bytes in [1, 100, 10_000] {
            let want = format!("<1>{}\nb|", "1".repeat(5_000 - LINE_BYTES_MAX));
            assert_eq!(left(&[&prompt], piece_bytes), want, "in pieces of {piece_bytes}");
        }
    }

    #[test]
    fn without_a_line_to_leave_out_every_text_passes_whole() {
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let text: String = (0..rng.below(60)).map(|_| ['D', 'a', 't', '\n', ' '][rng.below(5) as usize]).collect();
            let got = left(&[&text], rng.below(7) as usize + 1);
            assert_eq!(got, format!("<1>{text}|"), "seed {seed}");
        }
    }

    #[test]
    fn a_text_that_is_cut_feeds_a_prefix_of_the_whole() {
        let text = "x-billing: 7\nDate: 1\nDat\nbody Date: \nDates are off\nend";
        let begins = begins();
        let fed = |text: &str| {
            let mut written = Written::default();
            SkipLines::new(&begins, &mut written).text(text.as_bytes());
            written.0
        };
        let whole = fed(text);
        for cut in 0..text.len() {
            assert!(whole.starts_with(&fed(&text[..cut])), "cut at {cut}");
        }
    }
}
