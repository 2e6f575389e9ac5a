//! A JSON document with its keys in order, read by serde_json and written again in another spelling: the oracle for
//! what scans bodies without parsing them.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use warmroute::rng::Rng;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    /// A whole number, as it is written.
    Number(String),
    Text(String),
    List(Vec<Self>),
    /// No key twice.
    Object(Vec<(String, Self)>),
}

impl Node {
    /// The document in `bytes`; `None` if it is no JSON, has a key twice, or a number that is not whole: such a number
    /// means what it means as it is written, which is lost here.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The value at `key` of an object.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.members().iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The members of an object; none of anything else.
    pub(crate) fn members(&self) -> &[(String, Self)] {
        if let Self::Object(members) = self { members } else { &[] }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The number, if it is one of 32 bits.
    pub(crate) fn u32(&self) -> Option<u32> {
        if let Self::Number(number) = self { number.parse().ok() } else { None }
    }

    /// The same document with other white space and other escapes.
    pub(crate) fn respell(&self, rng: &mut Rng) -> String {
        let mut written = String::new();
        self.write(rng, &mut written);
        written
    }

    fn write(&self, rng: &mut Rng, to: &mut String) {
        space(rng, to);
        match self {
            Self::Null => to.push_str("null"),
            Self::Bool(truth) => to.push_str(if *truth { "true" } else { "false" }),
            Self::Number(number) => to.push_str(number),
            Self::Text(text) => write_text(text, rng, to),
            Self::List(items) => {
                to.push('[');
                for (index, item) in items.iter().enumerate() {
                    to.push_str(if index == 0 { "" } else { "," });
                    item.write(rng, to);
                }
                to.push(']');
            }
            Self::Object(members) => {
                to.push('{');
                for (index, (key, value)) in members.iter().enumerate() {
                    to.push_str(if index == 0 { "" } else { "," });
                    space(rng, to);
                    write_text(key, rng, to);
                    space(rng, to);
                    to.push(':');
                    value.write(rng, to);
                }
                to.push('}');
            }
        }
        space(rng, to);
    }
}

fn space(rng: &mut Rng, to: &mut String) {
    if rng.below(4) == 0 {
        to.push_str(["\n", " ", "\t ", "\r\n"].get(rng.below(4) as usize).copied().unwrap_or_default());
    }
}

fn write_text(text: &str, rng: &mut Rng, to: &mut String) {
    let is_plain = rng.below(2) == 0;
    to.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' if rng.below(2) == 0 => to.extend(['\\', char]),
            '\n' if rng.below(2) == 0 => to.push_str("\\n"),
            '/' if rng.below(2) == 0 => to.push_str("\\/"),
            ' ' | '!' | '#'..='[' | ']'..='\u{7f}' | '\u{80}'.. if is_plain || rng.below(3) > 0 => to.push(char),
            _ => char.encode_utf16(&mut [0; 2]).iter().for_each(|unit| to.push_str(&escape(*unit, rng))),
        }
    }
    to.push('"');
}

fn escape(unit: u16, rng: &mut Rng) -> String {
    if rng.below(2) == 0 { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON with whole numbers and without a key that is written twice")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Node, E> {
        Ok(Node::Bool(truth))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Number(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Number(number.to_string()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let (mut object, mut keys) = (Vec::new(), BTreeSet::new());
        while let Some((key, value)) = members.next_entry::<String, Node>()? {
            if !keys.insert(key.clone()) {
                return Err(A::Error::custom("a key is written twice"));
            }
            object.push((key, value));
        }
        Ok(Node::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_in_another_spelling_is_the_same_document() {
        let text = r#"{"a\n\"":[1,-2,null,true,{"\ud83d\ude00é":"\u0000/\\ x"}],"b":{},"":[]}"#;
        let document = Node::read(text.as_bytes());
        let mut spellings = BTreeSet::new();
        for seed in 0..50 {
            let respelled = document.as_ref().map(|node| node.respell(&mut Rng::new(seed))).unwrap_or_default();
            assert_eq!(Node::read(respelled.as_bytes()), document, "{respelled}");
            spellings.insert(respelled);
        }
        assert!(spellings.len() > 40);
    }

    #[test]
    fn what_would_lose_its_meaning_is_no_document() {
        for text in [r#"{"a":1,"\u0061":2}"#, "[1.0]", "[1e3]", "[-0]", "{", "[1] 2", r#"["\ud800"]"#] {
            assert_eq!(Node::read(text.as_bytes()), None, "{text}");
        }
    }
}
