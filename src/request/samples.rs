//! Bodies for tests: those in `tests/testdata/requests/`, and some that are odder.

use super::recorder::Recorder;
use super::{Api, parse};

/// A body with a name for failures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) name: &'static str,
    pub(super) body: &'static str,
}

impl Sample {
    /// The API whose name the sample's name starts with; of two the longer one.
    pub(super) fn api(self) -> Api {
        let apis = Api::ALL.into_iter().filter(|api| {
            let rest = self.name.strip_prefix(api.name());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        });
        apis.max_by_key(|api| api.name().len()).unwrap()
    }
}

macro_rules! files {
    ($($name:literal)+) => {
        /// One or more for each format, as clients send them.
        pub(super) const SAMPLES: &[Sample] = &[
            $(Sample { name: $name, body: include_str!(concat!("../../tests/testdata/requests/", $name, ".json")) },)+
        ];
    };
}

files! {
    "anthropic-count-tokens"
    "anthropic-messages"
    "anthropic-messages-blocks"
    "chat-completions"
    "chat-completions-media"
    "chat-completions-tools"
    "completions"
    "completions-list"
    "completions-token-lists"
    "completions-tokens"
    "embeddings"
    "embeddings-messages"
    "embeddings-text"
    "embeddings-tokens"
    "generate-sglang"
    "generate-sglang-media"
    "generate-sglang-tokens"
    "generate-stream"
    "generate-tgi"
    "generate-vllm"
    "ollama-chat"
    "ollama-generate"
    "ollama-generate-context"
    "rerank"
    "rerank-tei"
    "responses"
    "responses-items"
    "vllm-generate"
    "vllm-generate-features"
}

/// What no client should send.
pub(super) const ODD: &[Sample] = &[
    Sample {
        name: "chat-completions-odd",
        body: r#"{"model":"m","tools":[{"type":"function","function":{"name":"f\n","p":[1, 2.5e3,true]}},7,"t",{"x":1}],"messages":[
        {"role":"system","content":"be \u00e9 brief\\ \ud83d\ude00 \ud83d é"},
        {"role":"user","name":"ann","content":[{"type":"text","text":"a\"b"},{"type":"image_url","image_url":{"url":"data:x"}},
            {"text":"c","type":"text"},{"text":"d"},"e",12,null,{"type":"file","n":[1,{"a":"\u0022"}]},{"image_url":"x"},{"type":"new","b":1}]},
        {"content":null,"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{\"a\": 1}"}},"c",{}]},
        {"tool_call_id":"c1","role":"tool","content":"42","x":[[]]},
        {"role":"user","content":"why?"},"odd",17,{"role":3}], "stream":true,"cache_salt":"s"}"#,
    },
    Sample {
        name: "chat-completions-bom",
        body: "\u{feff}{\"messages\" : [ {\"content\":\"hi\\u0041\",\"role\":\"user\"} , { } ] , \"model\" : \"m\" }",
    },
    Sample {
        name: "completions-escapes",
        body: r#"{"model":"m","prompt":"a\u00e9\ud83d\ude00\/ and more","max_tokens":10}"#,
    },
    Sample { name: "completions-mixed", body: r#"{"model":"m","prompt":["a","b\n",[1,2],null,{"text":"x"},"c"]}"# },
    Sample {
        name: "completions-no-ids",
        body: r#"{"model":"m","prompt":[1, 22 ,333,4.5,-6,99999999999,"x",[7]],"stream":false}"#,
    },
    Sample {
        name: "anthropic-messages-odd",
        body: r#"{"system":[],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"tool_result","content":[
        {"type":"tool_result","content":[{"type":"tool_result","content":"deep"}]}]}]},{"type":"image","source":{}},{"type":"image","source":"s"},{"type":"document","source":{"type":"content","content":[{"type":"text","text":"t"}]}}]},{}]}"#,
    },
    Sample {
        name: "responses-odd",
        body: r#"{"tools":{},"input":[{"role":"user"},{"type":"function_call"},{},{"content":"x"},1,"a",{"type":"message","content":"y"}],"model":7}"#,
    },
    Sample {
        name: "generate-sglang-odd",
        body: r#"{"lora_path":["a",null],"extra_key":["k"],"input_ids":[1,2],"image_data":[["a","b"],[{"url":"c"}],1],"video_data":"v","audio_data":{"x":1}}"#,
    },
    Sample { name: "rerank-odd", body: r#"{"query":{"content":[{"type":"text","text":"q"}]},"texts":[1,{},"a"]}"# },
    Sample { name: "ollama-generate-raw", body: r#"{"raw":true,"prompt":"p","suffix":"s","images":["aaaa"]}"# },
    Sample {
        name: "ollama-generate-images",
        body: r#"{"system":"be brief","images":["aaaa"],"prompt":"hello world and more","suffix":"s"}"#,
    },
    Sample {
        name: "chat-completions-old",
        body: r#"{"messages":[{"role":"developer","content":"a","tools":[{"function":{"name":"f","description":"d"}},1]},
        {"role":"user","content":{"type":"text","text":"b"}},{"role":"user","content":[{"image":"aaaa"},{"type":"audio","audio":{"data":"a"}},{"type":"video","video":["a","b"]}]},
        {"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},{"role":"assistant","function_call":"f"}]}"#,
    },
    Sample {
        name: "vllm-generate-kwargs",
        body: r#"{"features":{"kwargs_data":{"image":["b"]},"mm_placeholders":null,"mm_hashes":{"image":["a"]}},"token_ids":[1,2]}"#,
    },
    Sample {
        name: "responses-computer",
        body: r#"{"input":[{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"aaaa"}}]}"#,
    },
];

/// All of them.
pub(super) fn all() -> impl Iterator<Item = Sample> {
    SAMPLES.iter().chain(ODD).copied()
}

/// What a body feeds; `None` if it is no request.
pub(super) fn fed(api: Api, body: &[u8], is_truncated: bool) -> Option<Recorder> {
    let mut recorder = Recorder::default();
    parse(api, body, is_truncated).ok()?.feed_prompt(&mut recorder);
    Some(recorder)
}

/// The same as a test writes it down.
pub(super) fn written(api: Api, body: &str) -> String {
    fed(api, body.as_bytes(), false).unwrap().written()
}
