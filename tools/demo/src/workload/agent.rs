//! The agent workload: tool-using agents whose prompts grow by tool results, and that send out sub-agents.
//!
//! Few kinds of agents, each with a long system prompt and tool definitions that all its tasks share. A task's turns are
//! short: a tool call as the answer, its result as the next message. Now and then a task sends out sub-agents, which all
//! begin with its whole prompt, at almost the same time, and take a few turns of their own; then it goes on with what
//! they found. As in the chats, times are fixed beforehand: an answer is given the time that it takes on an idle engine.

use serde_json::{Value, json};

use super::{Author, Planned, Span, TOKEN_BYTES, Turn, Workload, streamed};

/// The kinds of agents, with their share of the tasks in percent.
pub(crate) const KINDS: [Kind; 3] = [
    Kind { system_bytes: 10_000, tools: 14, share_percent: 50 },
    Kind { system_bytes: 14_000, tools: 8, share_percent: 30 },
    Kind { system_bytes: 6_000, tools: 20, share_percent: 20 },
];
/// Text that describes one tool.
const TOOL_BYTES: usize = 800;
const TASK_BYTES: Span = Span(400, 2_000);
/// What a task begins with: files, a ticket, a page.
const CONTEXT_BYTES: Span = Span(4_000, 24_000);
const TURNS: Span = Span(6, 12);
const SMALL_RESULT_BYTES: Span = Span(200, 2_000);
const LARGE_RESULT_BYTES: Span = Span(2_000, 8_000);
const LARGE_RESULT_PERCENT: u32 = 25;
/// Of a task's turns, those after which it sends out sub-agents.
const FAN_OUT_PERCENT: u32 = 20;
const SUB_AGENTS: Span = Span(3, 6);
const SUB_AGENT_TURNS: Span = Span(2, 4);
const SUB_TASK_BYTES: Span = Span(200, 800);
/// What a branch of a task comes back with.
const FINDING_BYTES: Span = Span(300, 900);
const OUTPUT_TOKENS: Span = Span(24, 120);

/// Sub-agents of one fan-out begin within this time, seconds.
const BURST_S: f64 = 0.2;
/// What an idle engine needs for an answer, seconds: once, and for each token.
const ANSWER_S: f64 = 0.3;
const TOKEN_S: f64 = 0.009;
/// Tools run so many times a second: half a second to several.
const TOOL_RATE_PER_S: f64 = 0.5;
/// The first tasks do not all begin at once, seconds.
const RAMP_MS: Span = Span(0, 8_000);

/// One kind of agent.
pub(crate) struct Kind {
    system_bytes: usize,
    tools: usize,
    share_percent: u32,
}

/// What the agent workload is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgentShape {
    /// Decides everything else.
    pub(crate) seed: u64,
    /// Tasks at work at the same time, at least 1; when one is done another begins.
    pub(crate) tasks: usize,
    /// How long requests arrive, seconds.
    pub(crate) duration_s: f64,
}

impl Workload {
    /// Makes the agent workload of `shape`; equal shapes give equal workloads. A chat is a task, its sub-agents included.
    pub(crate) fn agents(shape: &AgentShape) -> Self {
        let mut agents = Agents::new(shape);
        for _place in 0..shape.tasks.max(1) {
            let mut at_s = f64::from(agents.author.draw(RAMP_MS)) / 1e3;
            while at_s < shape.duration_s {
                at_s = agents.work(at_s);
            }
        }
        let Agents { mut requests, own_bytes_total, author, .. } = agents;
        requests.sort_by(|left, right| left.at_s.total_cmp(&right.at_s));
        let open_tokens = own_bytes_total / requests.len().max(1) / TOKEN_BYTES * shape.tasks;
        let in_time = requests.partition_point(|request| request.at_s <= shape.duration_s).max(1);
        let example = requests.get(in_time).or(requests.last()).cloned().unwrap_or_default();
        requests.truncate(in_time);
        Self { requests, example, chats: author.chats, open_tokens }
    }
}

/// Makes tasks, one after the other.
struct Agents {
    author: Author,
    /// The tool definitions and the system prompt of each kind.
    shared: Vec<(Value, String)>,
    requests: Vec<Planned>,
    /// Of all requests, the text that no other task has.
    own_bytes_total: usize,
}

/// A prompt as it grows.
#[derive(Clone)]
struct Context {
    kind: usize,
    task: usize,
    messages: Vec<Value>,
    turn: u32,
    /// Text of all messages and of the tools, and what of it other tasks share.
    bytes: usize,
    shared_bytes: usize,
}

impl Agents {
    fn new(shape: &AgentShape) -> Self {
        let mut author = Author::new(shape.seed);
        let shared =
            KINDS.iter().map(|kind| (tools(&mut author, kind.tools), author.text(kind.system_bytes))).collect();
        Self { author, shared, requests: Vec::new(), own_bytes_total: 0 }
    }

    /// One task from its first request to its last answer; returns when that is.
    fn work(&mut self, start_s: f64) -> f64 {
        let mut context = self.open();
        let mut at_s = start_s;
        for _turn in 0..self.author.draw(TURNS) {
            at_s = self.turn(&mut context, at_s);
            if self.author.rng.below(100) < FAN_OUT_PERCENT {
                at_s = self.fan_out(&mut context, at_s);
            } else {
                at_s += self.author.pause_s(TOOL_RATE_PER_S);
                let result = self.result();
                context.tool(result);
            }
        }
        at_s
    }

    fn open(&mut self) -> Context {
        let mut draw = self.author.rng.below(100);
        let mut kind = 0;
        while let Some(row) = KINDS.get(kind).filter(|row| draw >= row.share_percent) {
            draw -= row.share_percent;
            kind += 1;
        }
        let task = self.author.chats;
        self.author.chats += 1;
        let (tools, system) = self.shared.get(kind).cloned().unwrap_or_default();
        let shared_bytes = tools.to_string().len() + system.len();
        let mut context = Context { kind, task, messages: Vec::new(), turn: 0, bytes: shared_bytes, shared_bytes };
        context.messages.push(json!({ "role": "system", "content": system }));
        let bytes = self.author.draw(TASK_BYTES) + self.author.draw(CONTEXT_BYTES);
        context.user(self.author.text(bytes as usize));
        context
    }

    /// Sends the prompt as it is, and appends the answer, a tool call. Returns when the answer is complete.
    fn turn(&mut self, context: &mut Context, at_s: f64) -> f64 {
        let output_tokens = self.author.draw(OUTPUT_TOKENS);
        context.turn += 1;
        let mut body = streamed(output_tokens);
        body["tools"] = self.shared.get(context.kind).map(|(tools, _)| tools.clone()).unwrap_or_default();
        body["messages"] = context.messages.clone().into();
        self.own_bytes_total += context.bytes - context.shared_bytes;
        self.requests.push(Planned {
            at_s,
            path: "/v1/chat/completions",
            body: body.to_string().into(),
            turn: Some(Turn { chat: context.task, number: context.turn }),
            prompt_bytes: context.bytes,
        });
        context.call(self.author.text(output_tokens as usize * TOKEN_BYTES));
        at_s + ANSWER_S + f64::from(output_tokens) * TOKEN_S
    }

    /// Sub-agents, each with all that the task knows; returns when the last one has reported.
    fn fan_out(&mut self, context: &mut Context, at_s: f64) -> f64 {
        let mut last_s = at_s;
        let mut findings = String::new();
        context.tool("The sub-agents have been started.".to_owned());
        for _sub_agent in 0..self.author.draw(SUB_AGENTS) {
            let mut own = context.clone();
            let task_bytes = self.author.draw(SUB_TASK_BYTES) as usize;
            own.user(self.author.text(task_bytes));
            let mut own_s = at_s + BURST_S * f64::from(self.author.rng.below(1_000)) / 1e3;
            for _turn in 0..self.author.draw(SUB_AGENT_TURNS) {
                own_s = self.turn(&mut own, own_s) + self.author.pause_s(TOOL_RATE_PER_S);
                let result = self.result();
                own.tool(result);
            }
            last_s = last_s.max(own_s);
            let finding_bytes = self.author.draw(FINDING_BYTES) as usize;
            findings += &self.author.text(finding_bytes);
        }
        context.user(findings);
        last_s
    }

    fn result(&mut self) -> String {
        let is_large = self.author.rng.below(100) < LARGE_RESULT_PERCENT;
        let bytes = self.author.draw(if is_large { LARGE_RESULT_BYTES } else { SMALL_RESULT_BYTES });
        self.author.text(bytes as usize)
    }
}

impl Context {
    fn user(&mut self, content: String) {
        self.bytes += content.len();
        self.messages.push(json!({ "role": "user", "content": content }));
    }

    fn call(&mut self, arguments: String) {
        self.bytes += arguments.len();
        let function = json!({ "name": "tool_0", "arguments": json!({ "input": arguments }).to_string() });
        let call = json!({ "id": self.call_id(), "type": "function", "function": function });
        self.messages.push(json!({ "role": "assistant", "content": "", "tool_calls": [call] }));
    }

    fn tool(&mut self, content: String) {
        self.bytes += content.len();
        self.messages.push(json!({ "role": "tool", "tool_call_id": self.call_id(), "content": content }));
    }

    /// The same for a call and for its result, which follows in the same turn.
    fn call_id(&self) -> String {
        format!("call_{}_{}", self.task, self.turn)
    }
}

/// So many tool definitions.
fn tools(author: &mut Author, count: usize) -> Value {
    let one = |number: usize| {
        let properties = json!({ "input": { "type": "string" } });
        json!({ "type": "function", "function": {
            "name": format!("tool_{number}"),
            "description": author.text(TOOL_BYTES),
            "parameters": { "type": "object", "properties": properties },
        } })
    };
    (0..count).map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    const SHAPE: AgentShape = AgentShape { seed: 1, tasks: 24, duration_s: 30.0 };

    fn json_of(request: &Planned) -> Value {
        serde_json::from_slice(&request.body).unwrap()
    }

    fn task(request: &Planned) -> usize {
        request.turn.unwrap().chat
    }

    #[test]
    fn a_seed_decides_every_byte_and_time() {
        assert_eq!(Workload::agents(&SHAPE), Workload::agents(&SHAPE));
        assert_ne!(Workload::agents(&SHAPE), Workload::agents(&AgentShape { seed: 2, ..SHAPE }));
    }

    #[test]
    fn requests_are_in_order_and_in_time_and_end_with_a_tool_result_or_a_user() {
        for seed in 0..4 {
            let workload = Workload::agents(&AgentShape { seed, ..SHAPE });
            assert!(workload.requests.is_sorted_by_key(|request| request.at_s) && workload.end_s() <= SHAPE.duration_s);
            for request in &workload.requests {
                let body = json_of(request);
                let last = body["messages"].as_array().unwrap().last().unwrap()["role"].clone();
                assert!(last == "tool" || last == "user", "{last}");
            }
        }
    }

    #[test]
    fn tasks_of_a_kind_share_their_tools_and_system_prompt_and_these_are_a_large_part() {
        let workload = Workload::agents(&SHAPE);
        let mut beginnings = HashSet::new();
        let (mut shared, mut all) = (0, 0);
        for request in &workload.requests {
            let body = json_of(request);
            let (tools, system) = (body["tools"].to_string(), body["messages"][0]["content"].to_string());
            shared += tools.len() + system.len();
            all += request.prompt_bytes;
            beginnings.insert((tools, system));
        }
        assert_eq!(beginnings.len(), KINDS.len());
        assert_eq!(KINDS.iter().map(|kind| kind.share_percent).sum::<u32>(), 100);
        assert!((30..70).contains(&(shared * 100 / all)), "{} %", shared * 100 / all);
    }

    /// Each request of a task either begins it, or repeats a whole earlier request of it and adds little.
    #[test]
    fn each_turn_repeats_an_earlier_one_and_adds_a_call_and_its_result() {
        let mut earlier: HashMap<usize, Vec<(Vec<Value>, usize)>> = HashMap::new();
        let (mut turns, mut growth) = (0, 0);
        for request in &Workload::agents(&SHAPE).requests {
            let messages = json_of(request)["messages"].as_array().unwrap().clone();
            let before = earlier.entry(task(request)).or_default();
            let parent =
                before.iter().filter(|(earlier, _)| messages.starts_with(earlier)).max_by_key(|(m, _)| m.len());
            if let Some((_, bytes)) = parent {
                let grown = request.prompt_bytes - bytes;
                // The longest: a call, the word that sub-agents have started, and the reports of six of them.
                assert!((1..=480 + 8_000 + 6 * 900).contains(&grown), "{grown}");
                turns += 1;
                growth += grown;
            } else {
                assert!(before.is_empty() && messages.len() == 2, "only a task's first request begins anew");
            }
            before.push((messages, request.prompt_bytes));
        }
        assert!(turns > 200 && growth / turns < 4_000, "{turns} turns, {growth} bytes");
    }

    #[test]
    fn sub_agents_begin_together_with_all_that_the_task_knows() {
        let mut beginnings: HashMap<(usize, String), Vec<f64>> = HashMap::new();
        for request in &Workload::agents(&SHAPE).requests {
            let messages = json_of(request)["messages"].as_array().unwrap().clone();
            let [history @ .., _own_task] = &messages[..] else { panic!("no messages") };
            if messages.len() > 2 {
                let key = (task(request), Value::from(history).to_string());
                beginnings.entry(key).or_default().push(request.at_s);
            }
        }
        let bursts: Vec<&Vec<f64>> = beginnings.values().filter(|times| times.len() > 1).collect();
        assert!(bursts.len() > 10, "{} bursts", bursts.len());
        for times in bursts {
            // The task itself goes on with the same history when they have all reported.
            let [first, .., last_sub_agent, _task] = times[..] else { continue };
            assert!(times.len() <= 7 && last_sub_agent - first <= BURST_S, "{times:?}");
        }
    }

    #[test]
    fn no_prompt_is_longer_than_an_engine_takes() {
        for seed in 0..4 {
            let workload = Workload::agents(&AgentShape { seed, ..SHAPE });
            let longest = workload.requests.iter().map(|request| request.prompt_bytes).max();
            assert!(longest.is_some_and(|bytes| bytes < 240_000), "{longest:?}");
        }
    }
}
