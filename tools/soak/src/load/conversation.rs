//! Bodies: conversations that share system prompts and grow, and large ones.

use serde_json::{Value, json};
use warmroute::rng::Rng;

/// Turns after which a conversation is replaced.
const TURNS_MAX: usize = 10;
/// System prompts that all clients share.
const SYSTEMS: u32 = 3;

/// A chat that grows with each turn.
#[derive(Debug)]
pub(crate) struct Conversation {
    messages: Vec<Value>,
}

impl Conversation {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let number = rng.below(SYSTEMS);
        let system = format!("You are assistant number {number}. ").repeat(60);
        Self { messages: vec![json!({ "role": "system", "content": system })] }
    }

    pub(crate) fn is_long(&self) -> bool {
        self.messages.len() > 2 * TURNS_MAX
    }

    /// What the user says next.
    pub(crate) fn ask(&mut self, rng: &mut Rng) {
        let words = 5 + rng.below(80) as usize;
        self.messages.push(json!({ "role": "user", "content": text(rng, words) }));
    }

    /// What the worker said to that.
    pub(crate) fn answered(&mut self, text: &str) {
        self.messages.push(json!({ "role": "assistant", "content": text }));
    }

    /// The body of the next request.
    pub(crate) fn body(&self, is_stream: bool, max_tokens: u32) -> String {
        let mut body = json!({ "model": "sim", "max_tokens": max_tokens, "messages": self.messages });
        if is_stream {
            body["stream"] = true.into();
            body["stream_options"] = json!({ "include_usage": true });
        }
        body.to_string()
    }
}

/// A body of 100 to 500 KB; the plugin reads 256 KB.
pub(crate) fn large(rng: &mut Rng) -> String {
    let words = 20_000 + rng.below(60_000) as usize;
    let messages = json!([{ "role": "user", "content": text(rng, words) }]);
    json!({ "model": "sim", "max_tokens": 2, "messages": messages }).to_string()
}

/// Words with all that JSON has to escape among them.
fn text(rng: &mut Rng, words: usize) -> String {
    const WORDS: [&str; 12] = [
        "the",
        "worker",
        "\u{1f600}",
        "\"quoted\"",
        "back\\slash",
        "line\n",
        "caf\u{e9}",
        "prefix",
        "\u{1}",
        "of",
        "cache",
        "7",
    ];
    let mut text = format!("{:x}", rng.next_u64());
    for _ in 0..words {
        text.push(' ');
        text += WORDS[rng.below(WORDS.len() as u32) as usize];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_body_begins_with_the_earlier_ones_messages() {
        let mut rng = Rng::new(1);
        let mut conversation = Conversation::new(&mut rng);
        conversation.ask(&mut rng);
        let first = conversation.messages.clone();
        conversation.answered("yes");
        conversation.ask(&mut rng);
        let body: Value = serde_json::from_str(&conversation.body(true, 5)).unwrap();
        assert_eq!(body["messages"].as_array().unwrap()[..2], first);
        assert_eq!((body["messages"].as_array().unwrap().len(), &body["stream"]), (4, &json!(true)));
        while !conversation.is_long() {
            conversation.answered("more");
        }
    }

    #[test]
    fn large_bodies_are_some_hundred_kilobytes() {
        let mut rng = Rng::new(2);
        for _ in 0..20 {
            let bytes = large(&mut rng).len();
            assert!((90_000..800_000).contains(&bytes), "{bytes}");
        }
    }
}
