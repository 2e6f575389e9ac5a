//! What a body says of where it goes: in Dynamo's `nvext`, and in the engines' own members at its top.

use super::directions::{Directions, Malformed};
use super::dynamo;
use crate::request::{ENGINE_KEYS, EXTENSION_KEY, HintKeys, each_member};

/// The members of a body that say where it goes: what a stranger says in them is wiped.
pub const BODY_HINTS: HintKeys<'static> =
    HintKeys { top: ENGINE_KEYS, extension: EXTENSION_KEY, within: dynamo::BODY_HINTS };

impl Directions {
    /// Takes in what the body says beside the headers, which beat it. Of a member that is written twice the last counts; one
    /// that the body's end cuts is not understood, as is what stands in an extension that is cut: the rest may say otherwise.
    pub fn add_body(&mut self, body: &[u8]) {
        let (mut backend, mut decode, mut rank) = (None, None, None);
        let (mut routed, mut data_parallel) = (None, None);
        each_member(body, EXTENSION_KEY, |is_within, key, value| match (is_within, key) {
            (true, b"backend_instance_id") => backend = Some(value),
            (true, b"decode_worker_id") => decode = Some(value),
            (true, b"dp_rank") => rank = Some(value),
            (false, b"routed_dp_rank") => routed = Some(value),
            (false, b"data_parallel_rank") => data_parallel = Some(value),
            _ => {}
        });
        let is_said = |value: &Option<&[u8]>| *value != Some(b"null");
        // A frontend sends the request to the decode worker, where prefill and decode are split.
        if let Some(id) = decode.filter(is_said).or_else(|| backend.filter(is_said)) {
            self.tell_pins(|directions| directions.pin_instance(id.filter(|id| is_number(id)).ok_or(Malformed)?));
        }
        let ranks = [rank, routed, data_parallel];
        if let Some(rank) = ranks.into_iter().flatten().find(is_said) {
            self.tell_rank(rank.unwrap_or_default());
        }
    }
}

fn is_number(value: &[u8]) -> bool {
    value.iter().all(u8::is_ascii_digit)
}
