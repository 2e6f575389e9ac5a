//! Turns a fuzzer's bytes into choices; without bytes every choice is the first.

use arbitrary::Unstructured;

/// A sequence of choices.
pub(crate) struct Choices<'d>(Unstructured<'d>);

impl<'d> Choices<'d> {
    pub(crate) fn new(data: &'d [u8]) -> Self {
        Self(Unstructured::new(data))
    }

    /// Whether all bytes are used up: the end of a loop over choices.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.int_in_range(0..=bound.saturating_sub(1)).unwrap_or_default()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or_default()
    }

    pub(crate) fn is_set(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn u32(&mut self) -> u32 {
        self.0.arbitrary().unwrap_or_default()
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or_default()
    }

    pub(crate) fn f64(&mut self) -> f64 {
        f64::from_bits(self.u64())
    }

    /// The next `count` bytes, or what is left.
    pub(crate) fn bytes(&mut self, count: usize) -> &'d [u8] {
        let count = count.min(self.0.len());
        self.0.bytes(count).unwrap_or_default()
    }

    /// `page` with some bytes changed and its end cut or prolonged; or no page at all; or bytes of the fuzzer's own.
    pub(crate) fn damage(&mut self, mut page: Vec<u8>) -> Option<Vec<u8>> {
        match self.below(8) {
            0 => return None,
            1 => return Some(self.bytes(600).to_vec()),
            2 => page.truncate(self.below(page.len() + 1)),
            3 => page.resize(page.len() + self.below(200), 0),
            _ => {}
        }
        for _ in 0..self.below(12) {
            let at = self.below(page.len());
            let value = self.byte();
            if let Some(byte) = page.get_mut(at) {
                *byte = value;
            }
        }
        Some(page)
    }
}
