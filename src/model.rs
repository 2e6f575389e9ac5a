//! Model aliases: what a client calls a model, and what the engines behind this gateway are to be asked for.
//!
//! An alias with several targets is a canary: each conversation gets one of them, by weight, and keeps it, for a
//! conversation that changes its model finds nothing of itself in any cache.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use crate::rng::mix;

/// A name that clients use, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAlias {
    /// What a body's `model` says.
    pub name: String,
    /// What is put there instead: at least one, with weights of which one is above 0.
    pub targets: Vec<ModelTarget>,
}

/// One of the models that an alias stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTarget {
    /// The model's name, as the engine serves it.
    pub name: String,
    /// Its share of the conversations is this over the sum of all weights.
    pub weight: u32,
}

impl ModelAlias {
    /// The target of the conversation with this key, the same for equal keys; `None` without weights.
    ///
    /// Weights that are changed by a tenth of their sum move a tenth of the conversations, not all.
    #[must_use]
    pub fn pick(&self, conversation: u64) -> Option<&ModelTarget> {
        let sum: u64 = self.targets.iter().map(|target| u64::from(target.weight)).sum();
        // Of its own, or the keys that send conversations to workers would also choose their model.
        let key = mix(conversation ^ xxh3_64(self.name.as_bytes()));
        let point = (u128::from(key) * u128::from(sum)) >> u64::BITS;
        let mut end = 0_u128;
        self.targets.iter().find(|target| {
            end += u128::from(target.weight);
            point < end
        })
    }
}

/// `body` with `name` as a JSON string's contents where `span` is, and every other byte as it was; `None` for a span that
/// is not within it.
#[must_use]
pub fn splice(body: &[u8], span: &Range<usize>, name: &str) -> Option<Vec<u8>> {
    let (before, after) = (body.get(..span.start)?, body.get(span.end..)?);
    let name = json_contents(name);
    let mut spliced = Vec::with_capacity(before.len() + name.len() + after.len());
    spliced.extend_from_slice(before);
    spliced.extend_from_slice(name.as_bytes());
    spliced.extend_from_slice(after);
    Some(spliced)
}

/// What stands between the quotes of a JSON string that says `text`.
fn json_contents(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    let contents = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    contents.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    fn alias(targets: &[(&str, u32)]) -> ModelAlias {
        let targets = targets.iter().map(|&(name, weight)| ModelTarget { name: name.into(), weight }).collect();
        ModelAlias { name: "chat".into(), targets }
    }

    fn counts(alias: &ModelAlias) -> Vec<usize> {
        let picked: Vec<&str> = (0..10_000).map(|key| alias.pick(key).unwrap().name.as_str()).collect();
        let count = |name: &str| picked.iter().filter(|picked| **picked == name).count();
        alias.targets.iter().map(|target| count(&target.name)).collect()
    }

    #[test]
    fn conversations_are_shared_out_by_weight() {
        let counts = counts(&alias(&[("b", 90), ("c", 10), ("d", 0)]));
        assert!((8_850..9_150).contains(&counts[0]) && counts[2] == 0, "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), 10_000);
    }

    #[test]
    fn the_largest_weights_do_not_overflow() {
        let alias = alias(&[("b", u32::MAX), ("c", u32::MAX)]);
        let counts = counts(&alias);
        assert!((4_800..5_200).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn a_changed_weight_moves_only_its_share() {
        let (before, after) = (alias(&[("b", 90), ("c", 10)]), alias(&[("b", 80), ("c", 20)]));
        let names = |alias: &ModelAlias, key| alias.pick(key).unwrap().name.clone();
        let changed = (0..10_000).filter(|&key| names(&before, key) != names(&after, key)).count();
        assert!((850..1_150).contains(&changed), "{changed} of 10000");
        assert!((0..10_000).all(|key| names(&before, key) == "b" || names(&after, key) == "c"));
    }

    #[test]
    fn nothing_is_picked_without_weights() {
        assert_eq!(alias(&[("b", 0)]).pick(1), None);
        assert_eq!(alias(&[]).pick(1), None);
    }

    #[test]
    fn a_splice_changes_the_name_and_nothing_else() {
        const CASES: &[(&str, Range<usize>, &str, Option<&str>)] = &[
            (r#"{"model":"a","x": 1}"#, 10..11, "bcd", Some(r#"{"model":"bcd","x": 1}"#)),
            (r#"{"model":"","x": 1}"#, 10..10, "b", Some(r#"{"model":"b","x": 1}"#)),
            (r#"{"model":"long"}"#, 10..14, "b", Some(r#"{"model":"b"}"#)),
            (r#"{"model":"a"}"#, 10..11, "q\"\\\n", Some("{\"model\":\"q\\\"\\\\\\n\"}")),
            (r#"{"model":"a"}"#, 10..99, "b", None),
        ];
        for (body, span, name, want) in CASES {
            let got = splice(body.as_bytes(), span, name);
            assert_eq!(got.as_deref(), want.map(str::as_bytes), "{body} {name}");
        }
    }
}
