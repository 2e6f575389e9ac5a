//! The workload: what is sent and when, all of it decided by a seed before anything is sent.
//!
//! Open loop: arrivals are a Poisson process that does not wait for answers. The answers in a chat's history are made up
//! here, as long as the real ones; so both runs send the same bytes at the same times, however fast they are served.

pub(crate) mod agent;

use hyper::body::Bytes;
use serde_json::{Value, json};
use warmroute::rng::Rng;

/// Bytes of text that make about one token; the simulated engine takes exactly so many.
pub(crate) const TOKEN_BYTES: usize = 4;

/// The shared system prompts, each with its share of the chats in percent, uneven as the use of applications is.
const SYSTEM_PROMPTS: [SystemPrompt; 5] = [
    SystemPrompt { bytes: 4_000, share_percent: 35 },
    SystemPrompt { bytes: 2_000, share_percent: 25 },
    SystemPrompt { bytes: 3_000, share_percent: 18 },
    SystemPrompt { bytes: 6_000, share_percent: 12 },
    SystemPrompt { bytes: 8_000, share_percent: 10 },
];
/// Requests that belong to no chat, in percent.
const ONE_OFF_PERCENT: u32 = 12;
const ONE_OFF_BYTES: Span = Span(1_000, 12_000);
/// A user's message that is typed, and one that holds a pasted text or a tool's result.
const TYPED_BYTES: Span = Span(80, 800);
const PASTED_BYTES: Span = Span(2_000, 8_000);
const PASTED_PERCENT: u32 = 30;
/// User messages of a chat; after the last one another chat is opened in its place.
const TURNS: Span = Span(6, 16);
const OUTPUT_TOKENS: Span = Span(32, 160);
/// A chat's next message comes no sooner after the one before: its answer wants to be read.
const PAUSE_MIN_S: f64 = 1.0;

struct SystemPrompt {
    bytes: u32,
    share_percent: u32,
}

/// From the first to the second number, both included, all equally likely.
#[derive(Clone, Copy)]
struct Span(u32, u32);

/// How many system prompts are shared.
pub(crate) const SYSTEM_PROMPT_COUNT: usize = SYSTEM_PROMPTS.len();

/// What the workload is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Decides everything else.
    pub(crate) seed: u64,
    /// Chats open at the same time, at least 1.
    pub(crate) conversations: usize,
    /// Requests per second, on average; above 0.
    pub(crate) rate_per_s: f64,
    /// How long requests arrive, seconds.
    pub(crate) duration_s: f64,
}

/// One request, ready to be sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Planned {
    /// When, seconds after the start.
    pub(crate) at_s: f64,
    /// Where.
    pub(crate) path: &'static str,
    /// Its JSON.
    pub(crate) body: Bytes,
    /// Its place in its chat; `None` for a one-off.
    pub(crate) turn: Option<Turn>,
    /// Text in the prompt, all messages together.
    pub(crate) prompt_bytes: usize,
}

/// A request's place in its chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Number of the chat, from 0.
    pub(crate) chat: usize,
    /// Number of the user's message, from 1.
    pub(crate) number: u32,
}

/// All requests, in order of arrival.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Workload {
    /// At least one.
    pub(crate) requests: Vec<Planned>,
    /// One more turn of a chat, to look at closely when all else is done.
    pub(crate) example: Planned,
    /// Chats begun.
    pub(crate) chats: usize,
    /// Tokens in the histories of the chats that are open at one moment, on average; shared system prompts left out.
    pub(crate) open_tokens: usize,
}

impl Workload {
    /// Makes the workload of `shape`; equal shapes give equal workloads.
    pub(crate) fn generate(shape: &Shape) -> Self {
        let mut author = Author::new(shape.seed);
        let mut open: Vec<Chat> = (0..shape.conversations.max(1)).map(|_| author.open_chat()).collect();
        let mut requests = Vec::new();
        let (mut at_s, mut open_bytes_total) = (0.0, 0);
        loop {
            at_s += author.pause_s(shape.rate_per_s);
            if at_s > shape.duration_s && !requests.is_empty() {
                break;
            }
            requests.push(author.next_request(at_s, &mut open));
            open_bytes_total += open.iter().map(|chat| chat.own_bytes).sum::<usize>();
        }
        open.sort_by(|left, right| right.sent_s.total_cmp(&left.sent_s));
        let latest = open.first_mut().map(|chat| author.next_turn(at_s, chat));
        let example = latest.unwrap_or_else(|| author.one_off(at_s));
        let open_tokens = open_bytes_total / requests.len() / TOKEN_BYTES;
        Self { requests, example, chats: author.chats, open_tokens }
    }

    /// Requests that belong to no chat.
    pub(crate) fn one_offs(&self) -> usize {
        self.requests.iter().filter(|request| request.turn.is_none()).count()
    }

    /// Mean length of a prompt, tokens.
    pub(crate) fn prompt_tokens_mean(&self) -> usize {
        let bytes: usize = self.requests.iter().map(|request| request.prompt_bytes).sum();
        bytes / self.requests.len().max(1) / TOKEN_BYTES
    }

    /// When the last request is sent, seconds after the start.
    pub(crate) fn end_s(&self) -> f64 {
        self.requests.last().map_or(0.0, |request| request.at_s)
    }
}

/// A chat that is not over.
struct Chat {
    number: usize,
    messages: Vec<Value>,
    /// Text of the messages, and what of it is not the shared system prompt.
    bytes: usize,
    own_bytes: usize,
    turn: u32,
    turns: u32,
    /// When its latest request was sent; before all time if none was.
    sent_s: f64,
}

/// Writes texts and draws numbers.
struct Author {
    rng: Rng,
    system_prompts: Vec<String>,
    chats: usize,
}

impl Author {
    fn new(seed: u64) -> Self {
        let mut author = Self { rng: Rng::new(seed), system_prompts: Vec::new(), chats: 0 };
        author.system_prompts = SYSTEM_PROMPTS.iter().map(|prompt| author.text(prompt.bytes as usize)).collect();
        author
    }

    fn next_request(&mut self, at_s: f64, open: &mut [Chat]) -> Planned {
        if self.rng.below(100) < ONE_OFF_PERCENT {
            return self.one_off(at_s);
        }
        let mut ready: Vec<&mut Chat> = open.iter_mut().filter(|chat| at_s - chat.sent_s >= PAUSE_MIN_S).collect();
        let drawn = self.rng.below(u32::try_from(ready.len()).unwrap_or(u32::MAX)) as usize;
        // With few chats at a high rate nobody may be ready; the rate is kept all the same.
        let Some(chat) = ready.get_mut(drawn) else { return self.one_off(at_s) };
        if chat.turn >= chat.turns {
            **chat = self.open_chat();
        }
        self.next_turn(at_s, chat)
    }

    fn open_chat(&mut self) -> Chat {
        let number = self.chats;
        self.chats += 1;
        let mut draw = self.rng.below(100);
        let mut system_prompt = String::new();
        for (prompt, text) in SYSTEM_PROMPTS.iter().zip(&self.system_prompts) {
            if draw < prompt.share_percent {
                system_prompt.clone_from(text);
                break;
            }
            draw -= prompt.share_percent;
        }
        let bytes = system_prompt.len();
        let messages = vec![json!({ "role": "system", "content": system_prompt })];
        Chat { number, messages, bytes, own_bytes: 0, turn: 0, turns: self.draw(TURNS), sent_s: f64::NEG_INFINITY }
    }

    /// The user's next message with all before it. The answer is put into the history at once: see the head of the file.
    fn next_turn(&mut self, at_s: f64, chat: &mut Chat) -> Planned {
        let span = if self.rng.below(100) < PASTED_PERCENT { PASTED_BYTES } else { TYPED_BYTES };
        let question_bytes = self.draw(span) as usize;
        let output_tokens = self.draw(OUTPUT_TOKENS);
        chat.messages.push(json!({ "role": "user", "content": self.text(question_bytes) }));
        chat.turn += 1;
        chat.sent_s = at_s;
        let prompt_bytes = chat.bytes + question_bytes;
        let mut body = streamed(output_tokens);
        body["messages"] = chat.messages.clone().into();
        let answer_bytes = output_tokens as usize * TOKEN_BYTES;
        chat.messages.push(json!({ "role": "assistant", "content": self.text(answer_bytes) }));
        chat.bytes = prompt_bytes + answer_bytes;
        chat.own_bytes += question_bytes + answer_bytes;
        let turn = Some(Turn { chat: chat.number, number: chat.turn });
        Planned { at_s, path: "/v1/chat/completions", body: body.to_string().into(), turn, prompt_bytes }
    }

    fn one_off(&mut self, at_s: f64) -> Planned {
        let prompt_bytes = self.draw(ONE_OFF_BYTES) as usize;
        let mut body = streamed(self.draw(OUTPUT_TOKENS));
        body["prompt"] = self.text(prompt_bytes).into();
        Planned { at_s, path: "/v1/completions", body: body.to_string().into(), turn: None, prompt_bytes }
    }

    /// Exactly so many bytes of made-up words.
    fn text(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 12);
        while text.len() < bytes {
            for _ in 0..2 + self.rng.below(6) {
                text.push(char::from(b'a' + self.rng.below(26) as u8));
            }
            text.push(' ');
        }
        text.truncate(bytes);
        text
    }

    fn draw(&mut self, Span(least, most): Span) -> u32 {
        least + self.rng.below(most - least + 1)
    }

    /// Time to the next arrival of a Poisson process.
    fn pause_s(&mut self, rate_per_s: f64) -> f64 {
        let uniform = ((self.rng.next_u64() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        -uniform.ln() / rate_per_s
    }
}

fn streamed(output_tokens: u32) -> Value {
    json!({ "model": "sim", "stream": true, "stream_options": { "include_usage": true }, "max_tokens": output_tokens })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const SHAPE: Shape = Shape { seed: 1, conversations: 60, rate_per_s: 20.0, duration_s: 30.0 };

    fn json_of(request: &Planned) -> Value {
        serde_json::from_slice(&request.body).unwrap()
    }

    #[test]
    fn a_seed_decides_every_byte_and_time() {
        assert_eq!(Workload::generate(&SHAPE), Workload::generate(&SHAPE));
        assert_ne!(Workload::generate(&SHAPE), Workload::generate(&Shape { seed: 2, ..SHAPE }));
    }

    #[test]
    fn arrivals_are_in_order_and_come_at_the_rate() {
        for seed in 0..4 {
            let workload = Workload::generate(&Shape { seed, ..SHAPE });
            assert!(workload.requests.is_sorted_by_key(|request| request.at_s));
            assert!(workload.end_s() <= SHAPE.duration_s);
            // 600 expected, standard deviation 24.5.
            assert!((480..720).contains(&workload.requests.len()), "seed {seed}: {}", workload.requests.len());
            let one_offs = workload.one_offs() * 100 / workload.requests.len();
            assert!((6..20).contains(&one_offs), "seed {seed}: {one_offs} %");
        }
    }

    #[test]
    fn each_turn_repeats_the_chat_before_it_and_adds_one_question() {
        let mut histories: HashMap<usize, Vec<Value>> = HashMap::new();
        for request in Workload::generate(&SHAPE).requests {
            let Some(turn) = request.turn else { continue };
            let messages = json_of(&request)["messages"].as_array().unwrap().clone();
            assert_eq!(messages.len(), turn.number as usize * 2, "system, then questions and answers by turns");
            let history = histories.insert(turn.chat, messages.clone()).unwrap_or_default();
            assert_eq!(history[..], messages[..history.len()], "{turn:?}");
        }
        assert!(histories.len() > 50);
    }

    #[test]
    fn sizes_are_what_is_said_of_them() {
        let workload = Workload::generate(&SHAPE);
        for request in workload.requests.iter().chain([&workload.example]) {
            let body = json_of(request);
            let texts = match &body["prompt"] {
                Value::String(prompt) => vec![prompt.clone()],
                _ => body["messages"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|message| message["content"].as_str().unwrap().to_owned())
                    .collect(),
            };
            assert_eq!(texts.iter().map(String::len).sum::<usize>(), request.prompt_bytes);
            assert!((32..=160).contains(&body["max_tokens"].as_u64().unwrap()) && body["stream"] == true);
            // The longest possible: the longest system prompt and as many of the longest turns as there can be.
            assert!(request.prompt_bytes <= 8_000 + 17 * (8_000 + 160 * TOKEN_BYTES), "{}", request.prompt_bytes);
        }
        assert!((500..6_000).contains(&workload.prompt_tokens_mean()), "{}", workload.prompt_tokens_mean());
    }

    #[test]
    fn a_chat_is_given_time_to_read() {
        let mut sent: HashMap<usize, f64> = HashMap::new();
        for request in Workload::generate(&Shape { conversations: 2, ..SHAPE }).requests {
            let Some(turn) = request.turn else { continue };
            let before = sent.insert(turn.chat, request.at_s);
            assert!(before.is_none_or(|before| request.at_s - before >= PAUSE_MIN_S), "{turn:?}");
        }
    }

    #[test]
    fn the_shares_of_the_system_prompts_are_all_chats() {
        assert_eq!(SYSTEM_PROMPTS.iter().map(|prompt| prompt.share_percent).sum::<u32>(), 100);
        let workload = Workload::generate(&SHAPE);
        let mut chats_of: HashMap<String, usize> = HashMap::new();
        for request in workload.requests.iter().filter(|request| request.turn.is_some_and(|turn| turn.number == 1)) {
            *chats_of.entry(json_of(request)["messages"][0]["content"].to_string()).or_default() += 1;
        }
        assert_eq!(chats_of.len(), SYSTEM_PROMPTS.len());
    }
}
