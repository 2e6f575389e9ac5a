//! NVIDIA Dynamo's headers, and the members of `nvext` in the body that say the same.
//!
//! Source: ai-dynamo/dynamo, `lib/llm/src/protocols/common/extensions.rs` at 004e2c5 (2026), where headers beat the body and
//! names with `x-dynamo-` beat those without; `deploy/inference-gateway/` for `x-dynamo-routing-mode`. vLLM and SGLang obey
//! `x-data-parallel-rank` too (vLLM `entrypoints/openai/engine/serving.py`, `_get_data_parallel_rank`).

use super::directions::{Directions, Malformed};
use super::{Hint, Meaning};
use crate::request::{EXTENSION_KEY, each_member_within};

/// A frontend behind this gateway obeys them itself, so they go on.
pub(super) const HINTS: &[Hint] = &[
    Hint::passed("x-dynamo-worker-instance-id", Meaning::Instance),
    Hint::passed("x-worker-instance-id", Meaning::Instance),
    Hint::passed("x-dynamo-dp-rank", Meaning::Rank),
    Hint::passed("x-dp-rank", Meaning::Rank),
    Hint::passed("x-data-parallel-rank", Meaning::Rank),
    Hint::passed("x-dynamo-prefill-instance-id", Meaning::Other),
    Hint::passed("x-prefill-instance-id", Meaning::Other),
    Hint::passed("x-dynamo-prefill-dp-rank", Meaning::Other),
    Hint::passed("x-prefill-dp-rank", Meaning::Other),
    Hint::passed("x-dynamo-routing-mode", Meaning::Other),
];

/// The members of the body's [`EXTENSION_KEY`] that say where a request goes.
pub const BODY_HINTS: &[&[u8]] = &[
    b"backend_instance_id",
    b"decode_worker_id",
    b"prefill_worker_id",
    b"dp_rank",
    b"prefill_dp_rank",
    b"routing_constraints",
];

impl Directions {
    /// Takes in what the body says beside the headers, which beat it. Of a member that is written twice the last counts.
    pub fn add_body(&mut self, body: &[u8], is_truncated: bool) {
        let (mut backend, mut decode, mut rank) = (None, None, None);
        each_member_within(body, EXTENSION_KEY, is_truncated, |key, value| match key {
            b"backend_instance_id" => backend = Some(value),
            b"decode_worker_id" => decode = Some(value),
            b"dp_rank" => rank = Some(value),
            _ => {}
        });
        let is_said = |value: &&[u8]| *value != b"null";
        // A frontend sends the request to the decode worker, where prefill and decode are split.
        if let Some(id) = decode.filter(is_said).or_else(|| backend.filter(is_said)) {
            self.tell_pins(|directions| if is_number(id) { directions.pin_instance(id) } else { Err(Malformed) });
        }
        if let Some(number) = rank.filter(is_said) {
            self.tell_rank(number);
        }
    }
}

fn is_number(value: &[u8]) -> bool {
    value.iter().all(u8::is_ascii_digit)
}
