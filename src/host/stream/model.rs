//! The model that a body asks for: told to the route, and replaced where it is an alias.

use crate::host::abi::{self, Buffer, HeaderMap};
use crate::host::plugin::Plugin;
use crate::host::stream::headers::announced_bytes;
use crate::model::splice;
use crate::router::{Model, Reading};
use crate::stats::Stat;

/// Whether the body's model is told to the route, so that a request has no pool before its body was read.
pub(super) fn chooses_route(plugin: &Plugin) -> bool {
    !plugin.router.config().model_header.is_empty()
}

/// Removes what a client says of its model, and the route that this has chosen.
pub(super) fn remove_header(plugin: &Plugin) {
    abi::remove_header(HeaderMap::Request, &plugin.router.config().model_header);
    abi::clear_route_cache();
}

/// Tells the body's model to the route, which is then chosen anew. A body without one, or with one that no header may hold,
/// keeps the route that it has.
pub(super) fn choose_route(plugin: &Plugin, model: Option<&Model>) {
    let Some(model) = model else { return };
    if abi::set_header(HeaderMap::Request, &plugin.router.config().model_header, &model.name) {
        abi::clear_route_cache();
    }
}

/// The model that was read, if it is one that can be told.
pub(super) fn of(reading: Option<&Reading>) -> Option<&Model> {
    reading?.model.as_ref().filter(|model| is_header_value(&model.name))
}

/// Whether a model's name may stand in a header: Envoy takes any bytes here and answers 503 when it comes to send them.
fn is_header_value(name: &str) -> bool {
    name.len() <= HEADER_VALUE_BYTES_MAX && name.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// As long as the configuration's own names of models may be; engines refuse headers of some kilobytes.
const HEADER_VALUE_BYTES_MAX: usize = 256;

/// Puts the model that the body's stands for in its place, and mends the length that the headers announce.
///
/// Only where the name was read: an alias beyond `request.scanBytesMax`, or in a body that is no JSON, stays.
pub(super) fn forward(plugin: &Plugin, reading: Option<&Reading>) {
    let config = plugin.router.config();
    if config.models.is_empty() && config.model_header.is_empty() {
        return;
    }
    let Some(model) = of(reading) else {
        return plugin.stats.count(Stat::ModelUnread);
    };
    if let Some(is_replaced) = replace(model) {
        plugin.stats.count(if is_replaced { Stat::ModelReplaced } else { Stat::ModelUnread });
    }
}

/// Whether the body now names another model; `None` if it is to stay as it is.
fn replace(model: &Model) -> Option<bool> {
    let span = model.replaces.as_ref()?;
    // More may be buffered than was read, and only all of it can be replaced.
    let buffered = abi::buffer(Buffer::RequestBody, usize::MAX >> 1)?;
    let Some(spliced) = splice(&buffered, span, &model.name) else { return Some(false) };
    if !abi::replace_buffer(Buffer::RequestBody, &spliced) {
        return Some(false);
    }
    if let Some(announced) = announced_bytes() {
        let grown = announced.saturating_add(spliced.len() as u64).saturating_sub(buffered.len() as u64);
        abi::set_header(HeaderMap::Request, "content-length", &grown.to_string());
    }
    Some(true)
}
