//! The traces that were released with Mooncake (FAST '25, `FAST25-release/traces`, Apache-2.0).
//!
//! Each line has an arrival in milliseconds, the tokens of prompt and answer, and the ids of the prompt's blocks of 512
//! tokens, which are chained already. Answers have no ids, so they never come back.

use std::io::{BufRead, BufReader};

use flate2::read::GzDecoder;
use serde::Deserialize;
use warmroute::rng::mix;

use super::draw::Draw;
use crate::request::Request;

/// Tokens of a block in the traces.
pub const PIECE_TOKENS: u32 = 512;

/// One of the traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// An hour of a chat service: 12 031 requests.
    Conversation,
    /// Built from public data sets: 3 993 requests in 17 minutes.
    Synthetic,
}

/// What to do with arrivals that are coarser than the requests they stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// As they are.
    Raw,
    /// Conversation: spread evenly over the three seconds that share a stamp. Synthetic: up to 0.3 s later.
    Spread,
}

#[derive(Deserialize)]
struct Row {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

impl Trace {
    /// Its mean rate as recorded, requests per second.
    #[must_use]
    pub const fn requests_per_s(self) -> f64 {
        match self {
            Self::Conversation => 12_031.0 / 3_537.0,
            Self::Synthetic => 3_993.0 / 1_022.0,
        }
    }

    const fn compressed(self) -> &'static [u8] {
        match self {
            Self::Conversation => include_bytes!("../../traces/conversation_trace.jsonl.gz"),
            Self::Synthetic => include_bytes!("../../traces/synthetic_trace.jsonl.gz"),
        }
    }

    #[expect(clippy::expect_used, reason = "the traces are part of the program, and a test reads both")]
    fn rows(self) -> Vec<Row> {
        let lines = BufReader::new(GzDecoder::new(self.compressed())).lines();
        lines
            .map(|line| serde_json::from_str(&line.expect("a trace is text")).expect("a line of a trace is a request"))
            .collect()
    }
}

/// A trace's requests, `speed` times as fast as recorded.
#[must_use]
pub fn requests(trace: Trace, speed: f64, stamps: Stamps, seed: u64) -> Vec<Request> {
    let rows = trace.rows();
    let arrivals_s = arrivals_s(trace, &rows, stamps, seed);
    let mut requests: Vec<Request> =
        rows.into_iter().zip(arrivals_s).map(|(row, arrival_s)| request(row, arrival_s / speed)).collect();
    requests.sort_by(|left, right| left.arrival_s.total_cmp(&right.arrival_s));
    requests
}

fn request(row: Row, arrival_s: f64) -> Request {
    // A trace does not name conversations. The first piece that is not everybody's tells them apart.
    let session = row.hash_ids.get(1).or_else(|| row.hash_ids.first()).copied().unwrap_or_default();
    Request {
        arrival_s,
        pieces: row.hash_ids.iter().map(|&id| mix(id + 1)).collect(),
        piece_tokens: PIECE_TOKENS,
        prompt_tokens: row.input_length,
        output_tokens: row.output_length.max(1),
        output_pieces: [].into(),
        session,
    }
}

fn arrivals_s(trace: Trace, rows: &[Row], stamps: Stamps, seed: u64) -> Vec<f64> {
    let recorded_s = rows.iter().map(|row| row.timestamp / 1000.0);
    let mut draw = Draw::new(seed, "mooncake");
    match (stamps, trace) {
        (Stamps::Raw, _) => recorded_s.collect(),
        (Stamps::Spread, Trace::Synthetic) => recorded_s.map(|at_s| at_s + draw.between(0.0, 0.3)).collect(),
        (Stamps::Spread, Trace::Conversation) => {
            // Stamps are a millisecond or three off the multiples of three seconds. Sorted draws keep the trace's order.
            let slots: Vec<u64> = rows.iter().map(|row| (row.timestamp / 3000.0).round() as u64).collect();
            let mut spread_s = Vec::with_capacity(rows.len());
            for slot in slots.chunk_by(|left, right| left == right) {
                let mut within_s: Vec<f64> = slot.iter().map(|_| draw.between(0.0, 3.0)).collect();
                within_s.sort_by(f64::total_cmp);
                spread_s.extend(within_s.into_iter().map(|offset_s| slot[0] as f64 * 3.0 + offset_s));
            }
            spread_s
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_traces_are_read_whole_and_at_their_rates() {
        for (trace, count) in [(Trace::Conversation, 12_031), (Trace::Synthetic, 3_993)] {
            let requests = requests(trace, 1.0, Stamps::Raw, 0);
            assert_eq!(requests.len(), count, "{trace:?}");
            let rate = count as f64 / requests[count - 1].arrival_s;
            assert!((rate / trace.requests_per_s() - 1.0).abs() < 1e-3, "{trace:?}");
        }
    }

    #[test]
    fn spreading_moves_no_request_out_of_its_slot() {
        let raw = requests(Trace::Conversation, 2.0, Stamps::Raw, 0);
        let spread = requests(Trace::Conversation, 2.0, Stamps::Spread, 5);
        for (raw, spread) in raw.iter().zip(&spread) {
            assert_eq!(raw.pieces, spread.pieces);
            assert!((-0.003..=1.503).contains(&(spread.arrival_s - raw.arrival_s)), "{}", raw.arrival_s);
        }
    }
}
