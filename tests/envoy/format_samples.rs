//! Bodies of every request format: the samples in `tests/testdata/requests`, and generated ones of any length.

use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use warmroute_harness::artefacts::repository_root;
use warmroute_harness::client::Reply;
use xxhash_rust::xxh3::xxh3_64;

/// A request format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// What the names of its sample files begin with.
    pub(crate) name: &'static str,
    /// Where it is sent.
    pub(crate) path: &'static str,
    /// A body around a text.
    around: fn(&str) -> Value,
}

/// All of them.
pub(crate) const FORMATS: &[Format] = &[
    Format {
        name: "anthropic-count-tokens",
        path: "/v1/messages/count_tokens",
        around: |text| json!({ "model": "sim", "system": "Be brief.", "messages": [{ "role": "user", "content": text }] }),
    },
    Format {
        name: "anthropic-messages",
        path: "/v1/messages",
        around: |text| {
            json!({ "model": "sim", "max_tokens": 4, "system": [{ "type": "text", "text": "Be brief." }],
                "messages": [{ "role": "user", "content": [{ "type": "text", "text": text }] }] })
        },
    },
    Format {
        name: "chat-completions",
        path: "/v1/chat/completions",
        around: |text| json!({ "model": "sim", "max_tokens": 4, "messages": [{ "role": "user", "content": text }] }),
    },
    Format {
        name: "completions",
        path: "/v1/completions",
        around: |text| json!({ "model": "sim", "max_tokens": 4, "prompt": text }),
    },
    Format { name: "embeddings", path: "/v1/embeddings", around: |text| json!({ "model": "sim", "input": [text] }) },
    Format {
        name: "generate",
        path: "/generate",
        around: |text| json!({ "text": text, "sampling_params": { "max_new_tokens": 4 } }),
    },
    Format {
        name: "generate-stream",
        path: "/generate_stream",
        around: |text| json!({ "inputs": text, "parameters": { "max_new_tokens": 4 } }),
    },
    Format {
        name: "ollama-chat",
        path: "/api/chat",
        around: |text| json!({ "model": "sim", "messages": [{ "role": "user", "content": text }] }),
    },
    Format {
        name: "ollama-generate",
        path: "/api/generate",
        around: |text| json!({ "model": "sim", "prompt": text, "stream": false }),
    },
    Format {
        name: "rerank",
        path: "/v1/rerank",
        around: |text| json!({ "model": "sim", "query": "which?", "documents": ["short", text] }),
    },
    Format {
        name: "responses",
        path: "/v1/responses",
        around: |text| json!({ "model": "sim", "max_output_tokens": 4, "input": text }),
    },
    Format {
        name: "vllm-generate",
        path: "/inference/v1/generate",
        around: |text| {
            let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
            json!({ "model": "sim", "token_ids": tokens, "sampling_params": { "max_tokens": 4 } })
        },
    },
];

impl Format {
    /// A valid body of `bytes` and some more: text of all lengths of UTF-8, and JSON's escapes between it.
    pub(crate) fn body(&self, bytes: usize, number: usize) -> Vec<u8> {
        const SAMPLE_PIECES: usize = 100;
        let piece_bytes = self.body_of(SAMPLE_PIECES, number).len() / SAMPLE_PIECES;
        self.body_of(bytes / piece_bytes + 1, number)
    }

    fn body_of(&self, pieces: usize, number: usize) -> Vec<u8> {
        let text = "word \u{e9}\u{20ac}\u{1f600} \"quoted\" \\ \n\t\u{1} ".repeat(pieces);
        let mut body = (self.around)(&format!("{number} {text}")).to_string();
        if number % 2 == 1 {
            // As some clients write all that is not ASCII.
            body = body.replace('\u{20ac}', "\\u20ac").replace('\u{1f600}', "\\ud83d\\ude00");
        }
        body.into_bytes()
    }
}

/// A body that somebody might send.
pub(crate) struct Sample {
    /// Its format.
    pub(crate) format: Format,
    /// The body.
    pub(crate) body: Vec<u8>,
}

/// A generated body of each format, and all samples.
pub(crate) fn samples() -> Result<Vec<Sample>> {
    let generated =
        |number| move |(_, format): (usize, &Format)| Sample { format: *format, body: format.body(400, number) };
    let mut samples: Vec<Sample> =
        [0, 1].into_iter().flat_map(|number| FORMATS.iter().enumerate().map(generated(number))).collect();
    let folder = repository_root().join("tests/testdata/requests");
    if !folder.exists() {
        return Ok(samples);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_some_and(|extension| extension == "json") {
            // `generate-stream` begins as `generate` does.
            let format =
                FORMATS.iter().filter(|format| name.starts_with(format.name)).max_by_key(|format| format.name.len());
            let format = *format.with_context(|| format!("{name}: a sample of which format?"))?;
            samples.push(Sample { format, body: fs::read(&path)? });
        }
    }
    Ok(samples)
}

/// What a worker says of the body that it got, in `x-body-digest`.
pub(crate) fn digest(body: &[u8]) -> String {
    format!("{:016x}-{}", xxh3_64(body), body.len())
}

/// Whether a worker got just the bytes that were sent; a word about it if not.
pub(crate) fn check_arrival(reply: &Reply, sent: &[u8]) -> Result<(), String> {
    let (got, sent) = (reply.header("x-body-digest"), digest(sent));
    if got == Some(&sent) { Ok(()) } else { Err(format!("status {}, arrived {got:?}, sent {sent}", reply.status)) }
}
