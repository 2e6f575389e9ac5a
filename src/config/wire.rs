//! The configuration as Envoy hands it over: JSON text, or a `google.protobuf.Struct` in its binary form.
//!
//! Envoy's API documents that a `Struct` is turned into JSON for the plugin; 1.40 hands over its binary form. A
//! `google.protobuf.StringValue` arrives as its text in all versions. All of them are read.
//!
//! Source: protobuf's `google/protobuf/struct.proto` (`Struct`, `Value`, `ListValue`) and its encoding guide.

use serde_json::{Map, Number, Value};

/// The configuration in `bytes` as JSON; `None` if it is no JSON text and no `Struct` either.
///
/// No bytes are an empty `Struct`. JSON is tried first: a `Struct` begins with a line feed, and so may JSON text, but
/// then with a length that no JSON has there.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(bytes).or_else(|error| parse_struct(bytes, 0).map(Value::Object).ok_or(error))
}

/// One field of a message: its number and its value.
enum Field<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
}

fn parse_struct(mut bytes: &[u8], depth: usize) -> Option<Map<String, Value>> {
    let mut members = Map::new();
    while !bytes.is_empty() {
        if let (1, Field::Bytes(mut entry)) = take_field(&mut bytes)? {
            let (mut key, mut value) = (String::new(), Value::Null);
            while !entry.is_empty() {
                match take_field(&mut entry)? {
                    (1, Field::Bytes(text)) => key = String::from_utf8(text.to_vec()).ok()?,
                    (2, Field::Bytes(encoded)) => value = parse_value(encoded, depth + 1)?,
                    _ => return None,
                }
            }
            members.insert(key, value);
        } else {
            return None;
        }
    }
    Some(members)
}

fn parse_value(mut bytes: &[u8], depth: usize) -> Option<Value> {
    if depth > DEPTH_MAX {
        return None;
    }
    let mut value = Value::Null;
    // Of a `oneof` that is written twice, the last counts.
    while !bytes.is_empty() {
        value = match take_field(&mut bytes)? {
            (1, Field::Varint(_)) => Value::Null,
            (2, Field::Fixed64(double)) => number(f64::from_le_bytes(double)),
            (3, Field::Bytes(text)) => Value::String(String::from_utf8(text.to_vec()).ok()?),
            (4, Field::Varint(truth)) => Value::Bool(truth != 0),
            (5, Field::Bytes(encoded)) => Value::Object(parse_struct(encoded, depth)?),
            (6, Field::Bytes(mut list)) => {
                let mut items = Vec::new();
                while !list.is_empty() {
                    let (1, Field::Bytes(item)) = take_field(&mut list)? else { return None };
                    items.push(parse_value(item, depth + 1)?);
                }
                Value::Array(items)
            }
            _ => return None,
        };
    }
    Some(value)
}

/// Whole numbers as such, so that an error repeats `8000` as it was written and not as `8000.0`.
fn number(double: f64) -> Value {
    if double.fract() == 0.0 && double.abs() < 9_007_199_254_740_992.0 {
        return Value::from(double as i64);
    }
    Number::from_f64(double).map_or(Value::Null, Value::Number)
}

fn take_field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let tag = take_varint(bytes)?;
    let field = match tag & 7 {
        0 => Field::Varint(take_varint(bytes)?),
        1 => {
            let (double, rest) = bytes.split_first_chunk::<8>()?;
            *bytes = rest;
            Field::Fixed64(*double)
        }
        2 => {
            let length = usize::try_from(take_varint(bytes)?).ok()?;
            let (field, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Field::Bytes(field)
        }
        _ => return None,
    };
    Some((tag >> 3, field))
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Deeper than any configuration nests; bounds the recursion.
const DEPTH_MAX: usize = 32;

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use serde_json::json;

    use super::*;
    use crate::rng::Rng;

    fn bytes(field: u8, content: &[u8]) -> Vec<u8> {
        let mut encoded = vec![field << 3 | 2];
        let mut length = content.len();
        while length >= 0x80 {
            encoded.push(length as u8 | 0x80);
            length >>= 7;
        }
        encoded.push(length as u8);
        encoded.extend_from_slice(content);
        encoded
    }

    fn encode_struct(members: &Map<String, Value>) -> Vec<u8> {
        let entry =
            |(key, value): (&String, &Value)| bytes(1, &[bytes(1, key.as_bytes()), bytes(2, &encode(value))].concat());
        members.iter().flat_map(entry).collect()
    }

    fn encode(value: &Value) -> Vec<u8> {
        match value {
            Value::Null => vec![1 << 3, 0],
            Value::Number(number) => [&[2 << 3 | 1], &number.as_f64().unwrap().to_le_bytes()[..]].concat(),
            Value::String(text) => bytes(3, text.as_bytes()),
            Value::Bool(truth) => vec![4 << 3, u8::from(*truth)],
            Value::Object(members) => bytes(5, &encode_struct(members)),
            Value::Array(items) => {
                bytes(6, &items.iter().flat_map(|item| bytes(1, &encode(item))).collect::<Vec<u8>>())
            }
        }
    }

    fn sample() -> Value {
        json!({
            "policy": {"name": "prefix-hash", "loadFactor": 1.25},
            "pools": [{"cluster": "llm", "workers": [{"address": "10.0.0.1:8000"}, {"address": "[::1]:8000"}]}],
            "poll": {"intervalMs": 500}, "responseHeaders": true, "none": null, "long": "x".repeat(300), "empty": {}, "list": [],
        })
    }

    #[test]
    fn a_struct_and_its_json_say_the_same() {
        let sample = sample();
        assert_eq!(parse(&encode_struct(sample.as_object().unwrap())).unwrap(), sample);
        assert_eq!(parse(sample.to_string().as_bytes()).unwrap(), sample);
        assert_eq!(parse(b"\n {\"a\": 1}").unwrap(), json!({"a": 1}));
        assert_eq!(parse(b"").unwrap(), json!({}));
    }

    #[test]
    fn whole_numbers_are_repeated_as_they_were_written() {
        assert_eq!(number(8000.0).to_string(), "8000");
        assert_eq!(number(-1.5).to_string(), "-1.5");
        assert_eq!(number(1e300).to_string(), "1e+300");
        assert_eq!(number(f64::NAN), Value::Null);
    }

    #[test]
    fn text_that_is_neither_is_told_as_json() {
        let error = parse(b"policy: random").unwrap_err().to_string();
        assert!(error.contains("line 1 column 1"), "{error}");
    }

    #[test]
    fn any_bytes_parse_without_a_panic_or_a_deep_recursion() {
        let encoded = encode_struct(sample().as_object().unwrap());
        for seed in 0..20_000 {
            let mut rng = Rng::new(seed);
            let mut bytes = encoded.clone();
            let at = rng.below(bytes.len() as u32) as usize;
            bytes[at] = rng.next_u64() as u8;
            bytes.truncate(rng.below(bytes.len() as u32 + 50) as usize);
            let _ = parse(&bytes);
        }
        let mut deep = encode(&json!(1));
        for _ in 0..200 {
            deep = bytes(6, &bytes(1, &deep));
        }
        assert!(parse(&bytes(1, &[bytes(1, b"deep"), bytes(2, &deep)].concat())).is_err());
    }
}
