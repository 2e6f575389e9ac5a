//! A sink for tests: keeps what it is fed, one symbol per byte, mark and end.

use crate::prefix::PromptSink;

/// Symbols beyond the 256 bytes.
const MARK: u16 = 0x100;
const END_OF_MESSAGE: u16 = 0x200;
const END_OF_ROOT: u16 = 0x201;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recorder {
    pub(super) symbols: Vec<u16>,
}

impl Recorder {
    /// The text's bytes without any framing.
    pub(super) fn text_bytes(&self) -> Vec<u8> {
        self.symbols.iter().filter_map(|&symbol| u8::try_from(symbol).ok()).collect()
    }

    /// As a test writes it down: marks as `<kind>`, ends as `|`, the root's end as `!`.
    pub(super) fn written(&self) -> String {
        let mut bytes = Vec::new();
        for &symbol in &self.symbols {
            match symbol {
                END_OF_MESSAGE => bytes.push(b'|'),
                END_OF_ROOT => bytes.push(b'!'),
                MARK.. => bytes.extend(format!("<{}>", symbol - MARK).bytes()),
                byte => bytes.push(byte as u8),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl PromptSink for Recorder {
    fn text(&mut self, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "an empty text is a wasted call");
        self.symbols.extend(bytes.iter().copied().map(u16::from));
    }
    fn mark(&mut self, kind: u8) {
        self.symbols.push(MARK + u16::from(kind));
    }
    fn end_of_message(&mut self) {
        self.symbols.push(END_OF_MESSAGE);
    }
    fn end_of_root(&mut self) {
        self.symbols.push(END_OF_ROOT);
    }
}
