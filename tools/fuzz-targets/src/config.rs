//! Configurations: any bytes are one or an error that says where, and JSON says what the same as a protobuf `Struct` does.

use prost::Message;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use warmroute::config::Config;
use warmroute::config::error::PROBLEMS_MAX;

use crate::document::Node;

/// Reads a configuration.
///
/// # Panics
/// When an error says nothing or is endless; when a configuration is another one as `Struct` than as JSON.
pub fn config(data: &[u8]) {
    let read = Config::from_bytes(data);
    if let Err(error) = &read {
        let text = error.to_string();
        assert!(!text.is_empty() && text.len() <= error_bytes_max(data), "{} bytes: {text}", text.len());
    }
    let Some(document) = Node::read(data).filter(|document| is_equal_in_both_forms(document, 0)) else { return };
    let Node::Object(members) = &document else {
        assert!(read.is_err(), "a configuration is an object");
        return;
    };
    let encoded = encode(members).encode_to_vec();
    let of_struct = Config::from_bytes(&encoded);
    match (read, of_struct) {
        (Ok(text), Ok(of_struct)) => assert_eq!(format!("{text:?}"), format!("{of_struct:?}")),
        (Err(text), Err(of_struct)) => assert_eq!(text.to_string(), of_struct.to_string()),
        (text, of_struct) => panic!("as text {text:?}, as Struct {of_struct:?}"),
    }
}

/// An error repeats keys as they are written and values as far as they are short, of a bounded number of problems.
const fn error_bytes_max(data: &[u8]) -> usize {
    PROBLEMS_MAX * (data.len() + 4_096)
}

/// Not numbers of more than 53 bits, which are others in a `Struct`, and not what nests too deep for one.
fn is_equal_in_both_forms(node: &Node, depth: usize) -> bool {
    depth < DEPTH_MAX
        && match node {
            Node::Number(number) => number.parse().is_ok_and(|number: i64| number.unsigned_abs() < 1 << 53),
            Node::List(items) => items.iter().all(|item| is_equal_in_both_forms(item, depth + 1)),
            Node::Object(members) => members.iter().all(|(_, value)| is_equal_in_both_forms(value, depth + 1)),
            Node::Null | Node::Bool(_) | Node::Text(_) => true,
        }
}

/// Half of what the reader of a `Struct` follows.
const DEPTH_MAX: usize = 16;

fn encode(members: &[(String, Node)]) -> Struct {
    Struct { fields: members.iter().map(|(key, value)| (key.clone(), encode_value(value))).collect() }
}

fn encode_value(node: &Node) -> Value {
    let kind = match node {
        Node::Null => Kind::NullValue(0),
        Node::Bool(truth) => Kind::BoolValue(*truth),
        Node::Number(number) => Kind::NumberValue(number.parse().unwrap_or_default()),
        Node::Text(text) => Kind::StringValue(text.clone()),
        Node::List(items) => Kind::ListValue(ListValue { values: items.iter().map(encode_value).collect() }),
        Node::Object(members) => Kind::StructValue(encode(members)),
    };
    Value { kind: Some(kind) }
}
