//! How long one step of a batching engine takes.

/// Constants of a model on its hardware. Roofline arithmetic and not fitted to measurements: only the order and the
/// ratios of what follows from them say something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    /// Reading the weights once, and all that a step costs however full it is, seconds.
    pub base_s: f64,
    /// Each prompt token that is computed, seconds.
    pub prefill_token_s: f64,
    /// Attention of a prompt token to one token before it, seconds.
    pub prefill_attention_s: f64,
    /// Each request that gets one output token, seconds.
    pub decode_request_s: f64,
    /// Reading one token of context for one output token, seconds.
    pub decode_context_s: f64,
}

/// 70 billion parameters in 16 bits on four H100: 35 GB of weights for each card at about 2.7 TB/s, 140 GFLOP for each
/// prompt token at 45 % of 4 x 989 TFLOP/s (12 500 tokens/s), 320 kB of KV cache for each token over 4 x 2.7 TB/s.
pub const M70: StepTime = StepTime {
    base_s: 16e-3,
    prefill_token_s: 80e-6,
    prefill_attention_s: 1.6e-9,
    decode_request_s: 30e-6,
    decode_context_s: 3e-8,
};

/// 8 billion parameters in 16 bits on one H100.
pub const M8: StepTime = StepTime {
    base_s: 7e-3,
    prefill_token_s: 36e-6,
    prefill_attention_s: 1.3e-9,
    decode_request_s: 20e-6,
    decode_context_s: 5e-8,
};

/// What one step computes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepWork {
    /// Prompt tokens.
    pub prefill_tokens: f64,
    /// Pairs of a prompt token and a token before it.
    pub prefill_pairs: f64,
    /// Requests that get one output token.
    pub decode_requests: f64,
    /// Tokens before these output tokens, summed over the requests.
    pub decode_context_tokens: f64,
}

impl StepWork {
    /// Adds `tokens` of a prompt behind `context_tokens` that are computed already.
    pub fn add_prefill(&mut self, tokens: u32, context_tokens: u32) {
        self.prefill_tokens += f64::from(tokens);
        self.prefill_pairs += prefill_pairs(f64::from(tokens), f64::from(context_tokens));
    }

    /// Adds one output token behind `context_tokens`.
    pub fn add_decode(&mut self, context_tokens: u32) {
        self.decode_requests += 1.0;
        self.decode_context_tokens += f64::from(context_tokens);
    }
}

/// Pairs of each of `tokens` with a token before it, `context_tokens` of which come before all of them.
#[must_use]
pub fn prefill_pairs(tokens: f64, context_tokens: f64) -> f64 {
    tokens * (context_tokens + tokens / 2.0)
}

impl StepTime {
    /// Seconds that a step with this work takes.
    #[must_use]
    pub fn step_s(&self, work: &StepWork) -> f64 {
        self.base_s
            + self.prefill_token_s * work.prefill_tokens
            + self.prefill_attention_s * work.prefill_pairs
            + self.decode_request_s * work.decode_requests
            + self.decode_context_s * work.decode_context_tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_work_costs_its_constant() {
        struct Case {
            name: &'static str,
            prefill: &'static [(u32, u32)],
            decode: &'static [u32],
            step_s: f64,
        }
        const CASES: &[Case] = &[
            Case { name: "nothing but the weights", prefill: &[], decode: &[], step_s: 0.016 },
            Case {
                name: "a full chunk from the start",
                prefill: &[(8192, 0)],
                decode: &[],
                step_s: 0.016 + 8192.0 * 80e-6 + 1.6e-9 * 8192.0 * 4096.0,
            },
            Case {
                name: "a chunk behind a long context",
                prefill: &[(100, 10_000)],
                decode: &[],
                step_s: 0.016 + 100.0 * 80e-6 + 1.6e-9 * 100.0 * 10_050.0,
            },
            Case {
                name: "two streams",
                prefill: &[],
                decode: &[1_000, 3_000],
                step_s: 0.016 + 2.0 * 30e-6 + 3e-8 * 4_000.0,
            },
        ];
        for case in CASES {
            let mut work = StepWork::default();
            case.prefill.iter().for_each(|&(tokens, context)| work.add_prefill(tokens, context));
            case.decode.iter().for_each(|&context| work.add_decode(context));
            assert!((M70.step_s(&work) - case.step_s).abs() < 1e-12, "{}", case.name);
        }
    }
}
