//! The headers of SGLang's model gateway (SMG).
//!
//! Source: lightseekorg/smg, `model_gateway/src/policies/mod.rs` and `manual.rs` (also sgl-project/sglang,
//! `sgl-model-gateway/src/policies/`), 2026: the worker's index from 0 in the list of workers, no worker at all if it is not
//! available; and a key whose requests stay together.

use super::{Hint, Meaning};

pub(super) const HINTS: &[Hint] =
    &[Hint::consumed("x-smg-target-worker", Meaning::Place), Hint::passed("x-smg-routing-key", Meaning::RoutingKey)];
