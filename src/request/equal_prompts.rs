//! Which bodies are the same prompt, and which are not.

use super::samples::{fed, written};
use super::{Api, parse};
use crate::prefix::{BlockHash, Chain, seed};
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn cuts(api: Api, body: &str) -> Vec<BlockHash> {
    let request = parse(api, body.as_bytes(), false).unwrap();
    let salt = request.cache_salt.map(|salt| salt.decoded());
    let mut chain = Chain::new();
    chain.reset(seed(&request.model.decoded(), salt.as_deref()));
    request.feed_prompt(&mut chain);
    chain.cuts().iter().map(|cut| cut.hash).collect()
}

fn chat(messages: &str) -> Vec<BlockHash> {
    cuts(Api::ChatCompletions, &format!("{{\"model\":\"m\",\"messages\":[{messages}]}}"))
}

#[test]
fn prompts_that_mean_the_same_hash_the_same() {
    let plain = chat(r#"{"role":"user","content":"A \"é\" b"},{"role":"assistant","content":"c"}"#);
    const SAME: &[(&str, &str)] = &[
        (
            "parts",
            r#"{"role":"user","content":[{"type":"text","text":"A \"é\" b"}]},{"role":"assistant","content":"c"}"#,
        ),
        (
            "escapes",
            r#"{"role":"us\u0065r","content":"\u0041\u0020\u0022\u00e9\u0022 b"},{"role":"assistant","content":"c"}"#,
        ),
        (
            "white space",
            " { \"role\" : \"user\" , \n\"content\" : \"A \\\"é\\\" b\" } , {\"role\":\"assistant\",\"content\":\"c\"}",
        ),
        ("key order", r#"{"content":"A \"é\" b","role":"user"},{"content":"c","role":"assistant"}"#),
        (
            "other keys",
            r#"{"role":"user","content":"A \"é\" b","x":{"role":"y"}},{"role":"assistant","content":"c","tool_calls":null}"#,
        ),
    ];
    for &(name, messages) in SAME {
        assert_eq!(chat(messages), plain, "{name}");
    }
}

#[test]
fn prompts_that_differ_hash_differently() {
    let all: Vec<Vec<BlockHash>> = [
        r#"{"role":"user","content":"ab"},{"role":"user","content":"c"}"#,
        r#"{"role":"user","content":"a"},{"role":"user","content":"bc"}"#,
        r#"{"role":"user","content":"c"},{"role":"user","content":"ab"}"#,
        r#"{"role":"user","content":"abc"}"#,
        r#"{"role":"usera","content":"bc"}"#,
        r#"{"role":"system","content":"ab"},{"role":"user","content":"c"}"#,
        r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"bc"}]}"#,
        r#"{"role":"user","content":[{"type":"text","text":"ab"},{"type":"text","text":"c"}]}"#,
        r#"{"role":"user","content":[{"type":"image_url","text":"abc"}]}"#,
        r#"{"role":"user","content":"","name":"abc"}"#,
        r#"{"role":"tool","content":"","tool_call_id":"abc"}"#,
        r#"{"role":"user","content":"","tool_calls":"abc"}"#,
    ]
    .map(chat)
    .into();
    for (index, these) in all.iter().enumerate() {
        for (other, those) in all[..index].iter().enumerate() {
            assert_ne!(these.last(), those.last(), "prompts {index} and {other}");
        }
    }
    let tools = r#"{"model":"m","messages":[{"role":"user","content":"abc"}],"tools":[]}"#;
    assert_ne!(cuts(Api::ChatCompletions, tools).last(), all[3].last());
    assert_ne!(cuts(Api::Completions, r#"{"model":"m","prompt":"abc"}"#).last(), all[3].last());
}

#[test]
fn model_and_salt_part_all_prompts_but_their_spelling_does_not() {
    let with = |head: &str| cuts(Api::Completions, &format!("{{{head},\"prompt\":\"{}\"}}", "x".repeat(600)));
    let plain = with(r#""model":"a/b""#);
    assert_eq!(with(r#""model":"a\/\u0062""#), plain);
    for other in [r#""model":"a""#, r#""model":"a/b","cache_salt":"s""#, r#""model":"a/b","cache_salt":"""#] {
        assert!(with(other).iter().all(|hash| !plain.contains(hash)), "{other}");
    }
}

/// A conversation, once in each API's words.
#[test]
fn the_same_conversation_is_the_same_prompt_in_every_api() {
    let parameters = r#"{"type":"object","properties":{"city":{"type":"string"}}}"#;
    let chat = format!(
        r#"{{"tools":[{{"type":"function","function":{{"name":"w","description":"d","parameters":{parameters}}}}}],"reasoning_effort":"low",
        "messages":[{{"role":"system","content":"be brief"}},{{"role":"user","content":"hi"}},{{"role":"assistant","content":"ho"}},{{"role":"user","content":"why?"}}]}}"#
    );
    let want = written(Api::ChatCompletions, &chat);
    let responses = format!(
        r#"{{"tools":[{{"type":"function","name":"w","description":"d","parameters":{parameters}}}],"reasoning":{{"effort":"low"}},"instructions":"be brief",
        "input":[{{"role":"user","content":"hi"}},{{"type":"message","id":"m1","status":"completed","role":"assistant","content":[{{"type":"output_text","text":"ho","annotations":[]}}]}},{{"role":"user","content":[{{"type":"input_text","text":"why?"}}]}}]}}"#
    );
    assert_eq!(written(Api::Responses, &responses), want);
    let ollama = chat.replace(r#""reasoning_effort""#, r#""think""#);
    assert_eq!(written(Api::OllamaChat, &ollama), want);
    let anthropic = format!(
        r#"{{"tools":[{{"name":"w","description":"d","input_schema":{parameters},"cache_control":{{"type":"ephemeral"}}}}],"reasoning_effort":"low","max_tokens":9,
        "system":[{{"type":"text","text":"be brief","cache_control":{{"type":"ephemeral"}}}}],
        "messages":[{{"role":"user","content":"hi"}},{{"role":"assistant","content":[{{"type":"text","text":"ho"}}]}},{{"role":"user","content":"why?"}}]}}"#
    );
    for api in [Api::AnthropicMessages, Api::AnthropicCountTokens] {
        assert_eq!(written(api, &anthropic), want);
    }
    let first_turn = written(
        Api::ChatCompletions,
        r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"p"}]}"#,
    );
    assert_eq!(written(Api::OllamaGenerate, r#"{"system":"s","prompt":"p"}"#), first_turn);
    assert_eq!(written(Api::Responses, r#"{"instructions":"s","input":"p"}"#), first_turn);
}

#[test]
fn calls_of_functions_are_the_same_in_chat_responses_and_ollama() {
    let chat = r#"{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
        {"role":"tool","content":"42","tool_call_id":"c"}]}"#;
    let responses = r#"{"input":[{"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":"{\"a\":1}","status":"completed"},
        {"type":"function_call_output","call_id":"c","output":"42"}]}"#;
    assert_eq!(written(Api::Responses, responses), written(Api::ChatCompletions, chat));
    let ollama = r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":{"a": 1}}}]},
        {"role":"tool","content":"42","tool_call_id":"c"}]}"#;
    assert_eq!(written(Api::OllamaChat, ollama), written(Api::ChatCompletions, chat));
}

#[test]
fn an_image_is_the_same_however_it_is_wrapped() {
    let data = "iVBORw0KGgoAAAANSUhEUgAABAAAAAMA".repeat(20);
    let in_chat = |part: &str| {
        written(Api::ChatCompletions, &format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#))
    };
    let want = in_chat(&format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}"#));
    let same = [
        format!(r#"{{"image_url":"data:image\/png;base64,{data}"}}"#),
        format!(r#"{{"type":"input_image","image_url":"data:image/x;base64,{data}"}}"#),
        format!(
            r#"{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{data}"}},"cache_control":{{}}}}"#
        ),
    ];
    for part in same {
        assert_eq!(in_chat(&part), want, "{part}");
    }
    let other = [
        format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}A"}}}}"#),
        format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}","detail":"low"}}}}"#),
        format!(r#"{{"type":"input_audio","input_audio":{{"data":"{data}"}}}}"#),
        r#"{"type":"image_url","image_url":{"url":"https://pictures.example/a.png"}}"#.to_owned(),
    ];
    for part in other {
        assert_ne!(in_chat(&part), want, "{part}");
    }
}

/// What the data say as a picture's tokens or a file's, not as text.
#[test]
fn data_are_media_wherever_they_stand() {
    let data = "aB3+".repeat(25_000);
    let bodies = [
        (Api::Embeddings, format!(r#"{{"input":[{{"image":"{data}"}}]}}"#)),
        (Api::Rerank, format!(r#"{{"query":{{"image":"{data}"}},"documents":[{{"image":"x"}}]}}"#)),
        (Api::Rerank, format!(r#"{{"query":"x","documents":[{{"image":"{data}"}}]}}"#)),
        (Api::Responses, format!(r#"{{"input":[{{"type":"reasoning","encrypted_content":"{data}"}}]}}"#)),
        (
            Api::Responses,
            format!(
                r#"{{"input":[{{"type":"computer_call_output","call_id":"c","output":{{"type":"computer_screenshot","image_url":"data:image/png;base64,{data}"}}}}]}}"#
            ),
        ),
        (
            Api::VllmGenerate,
            format!(
                r#"{{"token_ids":[1],"features":{{"mm_hashes":{{"image":["a"]}},"kwargs_data":{{"image":["{data}"]}}}}}}"#
            ),
        ),
    ];
    let parts = [
        format!(r#"{{"type":"audio","audio":"{data}"}}"#),
        format!(r#"{{"type":"audio","audio":{{"data":"{data}"}}}}"#),
        format!(r#"{{"type":"video","video":"{data}"}}"#),
        format!(r#"{{"type":"video","video":["{data}","{data}"]}}"#),
        format!(r#"{{"type":"image","image":"{data}"}}"#),
        format!(r#"{{"image":"{data}"}}"#),
        format!(r#"{{"type":"image_embeds","image_embeds":"{data}"}}"#),
        format!(r#"{{"type":"image_embeds","image_embeds":{{"pixels":"{data}","grid":"x"}}}}"#),
        format!(r#"{{"type":"new","new":"{data}"}}"#),
    ];
    let in_chat = |part| (Api::ChatCompletions, format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#));
    for (api, body) in bodies.into_iter().chain(parts.map(in_chat)) {
        let whole = fed(api, body.as_bytes(), false).unwrap();
        let (bytes, head) = (whole.text_bytes().len(), &body[..80]);
        assert!(bytes < body.len() / 7, "{head} feeds {bytes} bytes");
        for cut in (1..=body.len()).rev().step_by(3_001) {
            let Some(part) = fed(api, &body.as_bytes()[..cut], true) else { continue };
            assert!(whole.symbols.starts_with(&part.symbols), "{head} cut at {cut}: {}", part.written());
        }
        let other = body.replacen("aB3+aB3+", "aB3+aB4+", 1);
        assert!(api == Api::VllmGenerate || fed(api, other.as_bytes(), false).unwrap() != whole, "{head}");
    }
}

#[test]
fn of_features_only_hashes_and_places_are_fed() {
    let with =
        |features: &str| written(Api::VllmGenerate, &format!(r#"{{"token_ids":[97],"features":{{{features}}}}}"#));
    let plain = with(r#""mm_hashes":{"image": ["a"]},"mm_placeholders":{"image":[1]}"#);
    assert_eq!(plain, "<36>{\"mm_hashes\":{\"image\":[\"a\"]},\"mm_placeholders\":{\"image\":[1]}}<10>a\0\0\0|!");
    let other = r#""kwargs_data":{"image":["b"]},"mm_placeholders":{"image":[1]},"mm_hashes":{"image":["a"]}"#;
    assert_eq!(with(other), plain);
    // Bodies are cut within the images: the prompt is known all the same.
    let body = r#"{"token_ids":[97],"features":{"mm_hashes":{"image":["a"]},"mm_placeholders":{"image":[1]},"kwargs_data":{"im"#;
    assert_eq!(fed(Api::VllmGenerate, body.as_bytes(), true).unwrap().written(), plain);
}

/// Each line differs from the first in what the engine sees.
#[test]
fn what_the_engine_sees_otherwise_is_another_prompt() {
    let bodies: &[(Api, &[&str])] = &[
        (
            Api::ChatCompletions,
            &[
                r#"{"tools":[{"function":{"name":"f","parameters":{"a":1,"b":2}}}],"messages":[{"role":"user","content":"x"}]}"#,
                r#"{"tools":[{"function":{"name":"f","parameters":{"b":2,"a":1}}}],"messages":[{"role":"user","content":"x"}]}"#,
                r#"{"tools":[{"function":{"name":"g","parameters":{"a":1,"b":2}}}],"messages":[{"role":"user","content":"x"}]}"#,
                r#"{"tools":[{"function":{"name":"f","x":1,"parameters":{"a":1,"b":2}}}],"messages":[{"role":"user","content":"x"}]}"#,
                r#"{"tools":[],"messages":[{"role":"user","content":"x"}]}"#,
                r#"{"messages":[{"role":"user","content":"x"}]}"#,
                r#"{"messages":[{"role":"user","content":"x"}],"lora_path":"l"}"#,
                r#"{"messages":[{"role":"user","content":"x"}],"lora_path":["l"]}"#,
                r#"{"messages":[{"role":"user","content":"x"}],"cache_salt":"l","extra_key":"k"}"#,
                r#"{"messages":[{"role":"user","content":"x"}],"cache_salt":"l","extra_key":"m"}"#,
                r#"{"messages":[{"role":"user","content":"x"}],"extra_key":"k"}"#,
                r#"{"messages":[{"role":"user","content":"x"}],"reasoning_effort":"low"}"#,
                r#"{"messages":[{"role":"user","content":"x"}],"chat_template":"low"}"#,
                r#"{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"a":1}}"#,
                r#"{"messages":[{"role":"user","content":"x"}],"documents":[{"a":1}]}"#,
                r#"{"messages":[{"role":"user","content":"x","reasoning":"y"}]}"#,
                r#"{"messages":[{"role":"user","content":"x","tools":[]}]}"#,
                r#"{"messages":[{"role":"user","content":"x","tools":[{"function":{"name":"f"}}]}]}"#,
                r#"{"messages":[{"role":"user","content":"x","tool_calls":[{"function":{"name":"f"}}]}]}"#,
                r#"{"messages":[{"role":"user","content":"x","function_call":{"name":"f"}}]}"#,
                r#"{"messages":[{"role":"user","content":"x","function_call":{"name":"f","arguments":"{}"}}]}"#,
            ],
        ),
        (
            Api::Responses,
            &[
                r#"{"input":"x"}"#,
                r#"{"input":"x","previous_response_id":"r"}"#,
                r#"{"input":"x","conversation":"r","instructions":"i"}"#,
                r#"{"input":"x","instructions":"i"}"#,
                r#"{"input":"x","prompt":{"id":"p"}}"#,
                r#"{"input":[{"type":"item_reference","id":"x"}]}"#,
            ],
        ),
        (
            Api::Generate,
            &[
                r#"{"text":"x"}"#,
                r#"{"text":"x","lora_path":"l"}"#,
                r#"{"text":"x","session_params":{"id":"s"}}"#,
                r#"{"text":"x","image_data":"i"}"#,
                r#"{"text":"x","audio_data":"i"}"#,
                r#"{"text":"x","video_data":["i"]}"#,
                r#"{"text":["x","y"]}"#,
                r#"{"inputs":"x","parameters":{"adapter_id":"l2"}}"#,
            ],
        ),
        (
            Api::VllmGenerate,
            &[
                r#"{"token_ids":[1]}"#,
                r#"{"token_ids":[1],"features":{"mm_hashes":{"image":["a"]}}}"#,
                r#"{"token_ids":[2]}"#,
            ],
        ),
        (
            Api::Rerank,
            &[
                r#"{"query":"q","documents":["a","b"]}"#,
                r#"{"query":"q","documents":["ab"]}"#,
                r#"{"query":"qa","texts":["b"]}"#,
            ],
        ),
    ];
    for (api, bodies) in bodies {
        for (index, body) in bodies.iter().enumerate() {
            for other in &bodies[..index] {
                assert_ne!(cuts(*api, body).last(), cuts(*api, other).last(), "{body} {other}");
            }
        }
    }
}

#[test]
fn what_the_engine_does_not_see_changes_nothing() {
    let plain = written(Api::ChatCompletions, r#"{"messages":[{"role":"user","content":"x"}]}"#);
    let same = [
        r#"{"messages":[{"role":"user","content":"x"}],"tools":null,"lora_path":null,"temperature":1e999,"seed":9007199254740993}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]}]}"#,
        r#"{"messages":[{"role":"user","content":"y"}],"messages":[{"role":"assistant","content":"x","role":"user"}]}"#,
        "\u{feff}{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"reasoning\":null}]}",
    ];
    for body in same {
        assert_eq!(written(Api::ChatCompletions, body), plain, "{body}");
    }
    assert_eq!(
        fed(Api::Responses, br#"{"input":"x"}"#, false),
        fed(Api::Responses, br#"{"input":[{"role":"user","content":"x"}]}"#, false)
    );
    assert_eq!(
        fed(Api::Rerank, br#"{"query":"q","texts":["a"]}"#, false),
        fed(Api::Rerank, br#"{"documents":[{"text":"a"}],"query":"q"}"#, false)
    );
}
