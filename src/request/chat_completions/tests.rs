//! What a chat feeds, form by form.

use crate::request::recorder::Recorder;
use crate::request::{Api, parse};
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn written(body: &str) -> String {
    let mut recorder = Recorder::default();
    parse(Api::ChatCompletions, body.as_bytes(), false).unwrap().feed_prompt(&mut recorder);
    recorder.written()
}

fn written_message(message: &str) -> String {
    written(&format!("{{\"messages\":[{message}]}}"))
}

#[test]
fn a_conversation_is_fed_in_the_order_of_the_chat_template() {
    let body = r#"{"model": "m", "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi", "name": "ann"},
            {"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [{"id": "c1", "type": "function", "index": 0,
                "function": {"arguments": "{}", "name": "f"}}, {"function": {"name": "g"}, "id": "c2"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
            {"role": "user", "content": "why?"}
        ], "reasoning_effort": "low", "tools": [{"type": "function", "cache_control": {}, "function": {"strict": true, "parameters": {"b": 1, "a": 2},
            "x": [1], "name": "g", "description": "d"}}, {"n": 3, "type": "web"}]}"#;
    assert_eq!(
        written(body),
        "<1><12><8>g<14>d<15>{\"b\":1,\"a\":2}<18>strict<19>true<18>x<19>[1]<12><13>web<18>n<19>3<24>low<2>system<3>be brief|\
         <2>user<3>hi<8>ann|!<2>assistant<20>hm<6><16><7>c1<8>f<17>{}<16><7>c2<8>g|<2>tool<3>42<7>c1|<2>user<3>why?|"
    );
}

#[test]
fn each_form_of_a_message_is_framed_as_what_it_is() {
    const CASES: &[(&str, &str, &str)] = &[
        ("text", r#"{"role":"user","content":"a\nb"}"#, "<2>user<3>a\nb|!"),
        ("key order", r#"{"content":"a","x":[{}],"role":"user"}"#, "<2>user<3>a|!"),
        ("escaped keys", r#"{"\u0072ole":"us\u0065r","c\u006fntent":"a"}"#, "<2>user<3>a|!"),
        ("last key wins", r#"{"role":"system","content":"a","content":"b","role":"user"}"#, "<2>user<3>b|!"),
        ("one text part", r#"{"role":"user","content":[{"type":"text","text":"a"}]}"#, "<2>user<3>a|!"),
        ("part keys in any order", r#"{"role":"user","content":[{"text":"a","type":"text"}]}"#, "<2>user<3>a|!"),
        ("part without type", r#"{"role":"user","content":[{"text":"a"}]}"#, "<2>user<3>a|!"),
        ("part that is a string", r#"{"role":"user","content":["a"]}"#, "<2>user<3>a|!"),
        (
            "parts",
            r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#,
            "<2>user<3>a<4>b|!",
        ),
        (
            "image",
            r#"{"role":"user","content":[{"type":"image_url","image_url":{ "url": "" }},{"type":"text","text":"b"}]}"#,
            "<2>user<3><28>B\u{14}S8\u{5}\0\u{6}-<4>b|!",
        ),
        (
            "image with a text",
            r#"{"role":"user","content":[{"type":"image_url","text":"b"}]}"#,
            "<2>user<3><18>text<19>\"b\"|!",
        ),
        ("text part without text", r#"{"role":"user","content":[{"type":"text"}]}"#, "<2>user<3><13>text|!"),
        ("odd parts", r#"{"role":"user","content":[1,null,[]]}"#, "<2>user<3><5>1<4><5>null<4><5>[]|!"),
        ("no parts", r#"{"role":"user","content":[]}"#, "<2>user<3>|!"),
        ("no content", r#"{"role":"assistant"}"#, "<2>assistant|"),
        ("null content", r#"{"role":"assistant","content":null,"tool_calls":null}"#, "<2>assistant|"),
        ("odd content", r#"{"role":"user","content":{"a": 1}}"#, "<2>user<3><18>a<19>1|!"),
        ("part without a list", r#"{"role":"user","content":{"type":"text","text":"a"}}"#, "<2>user<3>a|!"),
        (
            "tools and call of a message",
            r#"{"function_call":{"arguments":"{}","name":"g"},"tools":[{"function":{"name":"f"}}],"role":"developer","content":"a"}"#,
            "<2>developer<3>a<37><12><8>f<38><8>g<17>{}|",
        ),
        ("odd role", r#"{"role":7,"content":"a"}"#, "<2><5>7<3>a|"),
        ("empty message", "{}", "<2>|"),
        ("no object", r#""a", 1"#, "<5>\"a\"|<5>1|"),
        ("no messages", "", ""),
    ];
    for &(name, message, want) in CASES {
        assert_eq!(written_message(message), want, "{name}");
    }
}

#[test]
fn no_tools_feed_nothing() {
    assert_eq!(written(r#"{"tools":null,"messages":[{"role":"user"}]}"#), "<2>user|!");
}

#[test]
fn a_malformed_message_ends_the_prompt() {
    assert_eq!(written_message("{} {}"), "<2>|", "no comma");
    assert_eq!(
        written_message(r#"{"role":"user","content":"a"},{"role":"user" "content":"b"},{}"#),
        "<2>user<3>a|!<2>user"
    );
    assert_eq!(written_message(r#"{"role":"user","content":[{"type":"text","text":"a"} 1]}"#), "<2>user<3>a|!");
}
