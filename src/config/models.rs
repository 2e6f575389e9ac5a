//! Which names of models are rewritten, and to what.

use super::reader::Section;
use super::{NAME_BYTES_MAX, refuse_repeated};
use crate::model::{ModelAlias, ModelTarget};

/// Reads the list `models`.
pub(super) fn read_models(section: &mut Section<'_>) -> Vec<ModelAlias> {
    let models = section.list(
        "models",
        0..=ALIASES_MAX,
        "model aliases: where a body's `model` is `name`, it is replaced; every other byte stays. A model beyond `request.scanBytesMax` stays as it is",
        read_alias,
    );
    let names = models.iter().map(|alias| alias.name.as_str());
    refuse_repeated(section, "models", names, "aliases with different names");
    models
}

fn read_alias(section: &mut Section<'_>, _index: usize) -> ModelAlias {
    let name = section.required_string("name", 1..=NAME_BYTES_MAX, "what clients ask for");
    let targets = section.list(
        "targets",
        1..=TARGETS_MAX,
        "what it stands for; of several, a conversation gets one by weight and keeps it: by its session if it names one, else by the first user message of a chat. Other prompts, and those that go on by `previous_response_id`, draw anew with each request",
        |section, _| ModelTarget {
            name: section.required_string("name", 1..=NAME_BYTES_MAX, "the model's name as the engine serves it"),
            weight: section.u32(
                "weight",
                1,
                0..=1_000_000,
                "its share of the conversations is this over the sum of all weights",
            ),
        },
    );
    if section.is_clean() && targets.iter().all(|target| target.weight == 0) {
        section.refuse("targets", "a list with a weight above 0");
    }
    ModelAlias { name, targets }
}

/// Aliases, at the most: they are looked through for each request.
const ALIASES_MAX: usize = 256;

/// Models that one alias stands for, at the most.
const TARGETS_MAX: usize = 16;
