//! What one simulated worker is configured with; the same struct is the library's input and the binary's flags.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::faults::Faults;

/// Bytes of prompt text per simulated token. Common English text takes about 4 bytes per token.
pub(crate) const TOKEN_BYTES: usize = 4;

/// Everything that one worker is told at its start.
#[derive(Debug, Clone, clap::Args)]
pub struct SimConfig {
    /// Address to listen on; port 0 lets the system choose.
    #[arg(skip = SimConfig::default().addr)]
    pub addr: SocketAddr,
    /// Name of the model served: in `/v1/models`, and the `model_name` label of the metrics
    #[arg(long, default_value_t = SimConfig::default().model)]
    pub model: String,
    /// Answer 404 to a request for any other model, as vLLM does; otherwise every name is served
    #[arg(long)]
    pub strict_model: bool,
    /// Tokens per KV block (vLLM's default on GPUs is 16)
    #[arg(long, default_value_t = SimConfig::default().block_size_tokens)]
    pub block_size_tokens: usize,
    /// KV capacity in blocks; 25000 blocks of 16 are the 400 k tokens of an 8B model on one 80 GB GPU
    #[arg(long, default_value_t = SimConfig::default().kv_blocks)]
    pub kv_blocks: usize,
    /// Most tokens of prompt plus output that a request may have; 0 means as many as the KV cache holds
    #[arg(long, default_value_t = SimConfig::default().max_model_len)]
    pub max_model_len: usize,
    /// Most tokens scheduled in one step (vLLM's max_num_batched_tokens)
    #[arg(long, default_value_t = SimConfig::default().step_budget_tokens)]
    pub step_budget_tokens: usize,
    /// Most requests in one batch (vLLM's max_num_seqs)
    #[arg(long, default_value_t = SimConfig::default().max_running_seqs)]
    pub max_running_seqs: usize,
    /// Most LoRA adapters in one batch, and in memory (vLLM's max_loras); then any other model's name is an adapter's. 0: none
    #[arg(long, default_value_t = SimConfig::default().max_loras)]
    pub max_loras: usize,
    /// Cost of loading one LoRA adapter in microseconds; it holds up the step, and so the whole batch. The default: 84 MB
    /// (rank 16, all linear layers of an 8B model in bf16) from a file in memory at 2 GB/s
    #[arg(long, default_value_t = SimConfig::default().adapter_load_us)]
    pub adapter_load_us: f64,
    /// Output length of a request that names no `max_tokens`
    #[arg(long, default_value_t = SimConfig::default().default_max_tokens)]
    pub default_max_tokens: usize,
    /// Largest request body in bytes; beyond it the answer is 413
    #[arg(long, default_value_t = SimConfig::default().max_body_bytes)]
    pub max_body_bytes: usize,
    /// Leave `prompt_tokens_details` out of `usage`, as vLLM without --enable-prompt-tokens-details
    #[arg(long)]
    pub no_prompt_tokens_details: bool,
    /// Leave it out when no token was cached, as SGLang and older releases of vLLM do even with their flag
    #[arg(long)]
    pub omit_zero_cached_tokens: bool,
    /// Answer `/v1/chat/completions/render`, as vLLM with its flag of that name; else 403
    #[arg(long)]
    pub enable_scale_out: bool,
    /// Pad `/metrics` with histogram lines to at least this many bytes; a real vLLM page has about 58000
    #[arg(long, default_value_t = SimConfig::default().metrics_filler_bytes)]
    pub metrics_filler_bytes: usize,
    /// Seed of the injected errors, so that a run can be repeated
    #[arg(long, default_value_t = SimConfig::default().seed)]
    pub seed: u64,
    /// Duration of the engine's steps.
    #[command(flatten)]
    pub timing: Timing,
    /// Faults in force from the start.
    #[command(flatten)]
    pub faults: Faults,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            model: "sim".to_owned(),
            strict_model: false,
            block_size_tokens: 16,
            kv_blocks: 25_000,
            max_model_len: 0,
            step_budget_tokens: 8192,
            max_running_seqs: 256,
            max_loras: 0,
            adapter_load_us: 40_000.0,
            default_max_tokens: 16,
            max_body_bytes: 32 << 20,
            no_prompt_tokens_details: false,
            omit_zero_cached_tokens: false,
            enable_scale_out: false,
            metrics_filler_bytes: 0,
            seed: 0,
            timing: Timing::default(),
            faults: Faults::default(),
        }
    }
}

impl SimConfig {
    /// Refuses a configuration with which the engine could make no progress.
    ///
    /// # Errors
    /// Names the first field that is out of range, and its value.
    pub fn validate(&self) -> Result<()> {
        let positive = [
            ("block_size_tokens", self.block_size_tokens),
            ("kv_blocks", self.kv_blocks),
            ("step_budget_tokens", self.step_budget_tokens),
            ("max_running_seqs", self.max_running_seqs),
            ("default_max_tokens", self.default_max_tokens),
        ];
        for (name, value) in positive {
            ensure!(value > 0, "{name} must be at least 1, got {value}");
        }
        ensure!(self.kv_blocks < u32::MAX as usize, "kv_blocks must be below 2^32 - 1, got {}", self.kv_blocks);
        let timing = &self.timing;
        for (name, value) in [
            ("step_base_us", timing.step_base_us),
            ("prefill_us_per_token", timing.prefill_us_per_token),
            ("decode_us_per_seq", timing.decode_us_per_seq),
            ("adapter_load_us", self.adapter_load_us),
            ("time_scale", timing.time_scale),
        ] {
            ensure!(value.is_finite() && value >= 0.0, "{name} must be 0 or more, got {value}");
        }
        self.faults.validate()
    }

    /// How long it takes to load so many adapters.
    #[must_use]
    pub fn load_adapters(&self, adapters: usize) -> Duration {
        self.timing.scaled(self.adapter_load_us * adapters as f64)
    }

    /// Most tokens of prompt plus output that one request may have: `max_model_len`, bounded by the KV cache.
    #[must_use]
    pub fn max_request_tokens(&self) -> usize {
        let capacity_tokens = self.kv_blocks.saturating_mul(self.block_size_tokens);
        if self.max_model_len == 0 { capacity_tokens } else { self.max_model_len.min(capacity_tokens) }
    }
}

/// Step time = `time_scale * (step_base + prefill_per_token * prefill tokens + decode_per_seq * decoding requests)`.
///
/// The defaults are roofline arithmetic for an 8B model in bf16 on one H100, not a fit to measurements: 16 GB of weights
/// read once per step at about 2.7 TB/s plus launch overhead give 7 ms; 16 GFLOP per token at about 45 % of 989 TFLOP/s
/// give 36 us.
#[derive(Debug, Clone, Copy, PartialEq, clap::Args)]
pub struct Timing {
    /// Cost of any step in microseconds: reading the weights once, launching, sampling
    #[arg(long, default_value_t = Timing::default().step_base_us)]
    pub step_base_us: f64,
    /// Cost of one prefilled token in microseconds
    #[arg(long, default_value_t = Timing::default().prefill_us_per_token)]
    pub prefill_us_per_token: f64,
    /// Cost of one decoding request in microseconds per step
    #[arg(long, default_value_t = Timing::default().decode_us_per_seq)]
    pub decode_us_per_seq: f64,
    /// Factor on every step: 0.1 makes the engine ten times faster, 0 removes all waiting
    #[arg(long, default_value_t = Timing::default().time_scale)]
    pub time_scale: f64,
}

impl Default for Timing {
    fn default() -> Self {
        Self { step_base_us: 7_000.0, prefill_us_per_token: 36.0, decode_us_per_seq: 20.0, time_scale: 1.0 }
    }
}

impl Timing {
    /// How long a step takes that prefills and decodes this much.
    #[must_use]
    pub fn step(&self, prefill_tokens: usize, decode_seqs: usize) -> Duration {
        let us = self.step_base_us
            + self.prefill_us_per_token * prefill_tokens as f64
            + self.decode_us_per_seq * decode_seqs as f64;
        self.scaled(us)
    }

    fn scaled(&self, us: f64) -> Duration {
        Duration::try_from_secs_f64(us * self.time_scale / 1e6).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_time_follows_the_formula_and_scales() {
        for (scale, prefill_tokens, decode_seqs, want_us) in [
            (1.0, 0, 0, 7_000),
            (1.0, 1_000, 0, 43_000),
            (1.0, 0, 100, 9_000),
            (0.1, 1_000, 100, 4_500),
            (0.0, 9, 9, 0),
        ] {
            let timing = Timing { time_scale: scale, ..Timing::default() };
            assert_eq!(timing.step(prefill_tokens, decode_seqs), Duration::from_micros(want_us), "scale {scale}");
        }
        for (scale, adapter_loads, want_us) in [(1.0, 0, 0), (1.0, 2, 80_000), (0.1, 2, 8_000), (0.0, 9, 0)] {
            let timing = Timing { time_scale: scale, ..Timing::default() };
            let config = SimConfig { timing, ..SimConfig::default() };
            assert_eq!(config.load_adapters(adapter_loads), Duration::from_micros(want_us), "scale {scale}");
        }
    }

    #[test]
    fn a_config_without_progress_is_refused_by_name() {
        assert!(SimConfig::default().validate().is_ok());
        let stuck = SimConfig { kv_blocks: 0, ..SimConfig::default() };
        assert!(stuck.validate().unwrap_err().to_string().contains("kv_blocks"));
        let timing = Timing { time_scale: f64::NAN, ..Timing::default() };
        assert!(SimConfig { timing, ..SimConfig::default() }.validate().is_err());
    }
}
