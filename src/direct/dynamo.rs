//! NVIDIA Dynamo's headers, and the members of `nvext` in the body that say the same.
//!
//! Source: ai-dynamo/dynamo, `lib/llm/src/protocols/common/extensions.rs` at 004e2c5 (2026), where headers beat the body and
//! names with `x-dynamo-` beat those without; `deploy/inference-gateway/` for `x-dynamo-routing-mode`. vLLM and SGLang obey
//! `x-data-parallel-rank` too (vLLM `entrypoints/openai/engine/serving.py`, `_get_data_parallel_rank`).

use super::{Hint, Meaning};

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

/// The members of the body's `nvext` that say where a request goes.
pub(super) const BODY_HINTS: &[&[u8]] = &[
    b"backend_instance_id",
    b"decode_worker_id",
    b"prefill_worker_id",
    b"dp_rank",
    b"prefill_dp_rank",
    b"routing_constraints",
];
