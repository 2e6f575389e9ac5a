//! All contexts of one VM, by the host's id. One VM belongs to one thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use super::abi::Action;
use super::logger;
use super::plugin::Plugin;
use super::root::Root;
use super::stream::Stream;

thread_local! {
    static VM: RefCell<Vm> = RefCell::new(Vm::default());
}

/// The contexts of this VM. Ordered maps, because the standard hash map draws random numbers from a WASI call that
/// Envoy does not have.
#[derive(Default)]
pub(super) struct Vm {
    roots: BTreeMap<u32, Root>,
    streams: BTreeMap<u32, Stream>,
    /// Every plugin that is still at work: a configuration that was replaced lives on in its last streams.
    plugins: Vec<Weak<RefCell<Plugin>>>,
}

/// Runs `act` on this thread's VM; `None` if it is running already (the host called back while we call the host).
pub(super) fn with<T>(act: impl FnOnce(&mut Vm) -> T) -> Option<T> {
    VM.with(|vm| vm.try_borrow_mut().ok().map(|mut vm| act(&mut vm)))
}

/// What is done once, before anything else.
pub(super) fn initialize() {
    logger::install();
}

impl Vm {
    /// A `root_id` of 0 means that the context is a root itself.
    pub(super) fn on_context_create(&mut self, context_id: u32, root_id: u32) {
        if root_id == 0 {
            self.roots.insert(context_id, Root::new(context_id));
        } else if let Some(plugin) = self.roots.get(&root_id).and_then(Root::plugin) {
            self.streams.insert(context_id, Stream::new(Rc::clone(plugin)));
        }
    }

    pub(super) fn on_configure(&mut self, root_id: u32, configuration_bytes: usize) -> bool {
        let Some(root) = self.roots.get_mut(&root_id) else { return false };
        let is_accepted = root.on_configure(configuration_bytes);
        if let Some(plugin) = root.plugin().filter(|_| is_accepted) {
            self.plugins.push(Rc::downgrade(plugin));
        }
        is_accepted
    }

    /// Ticks the root, and keeps the in-flight slots of replaced configurations alive.
    pub(super) fn on_tick(&mut self, root_id: u32) {
        if let Some(root) = self.roots.get(&root_id) {
            root.on_tick();
        }
        self.plugins.retain(|plugin| match plugin.upgrade() {
            Some(plugin) => {
                if let Ok(mut plugin) = plugin.try_borrow_mut() {
                    plugin.beat();
                }
                true
            }
            None => false,
        });
    }

    pub(super) fn on_call_response(&self, root_id: u32, token: u32, body_bytes: usize) {
        if let Some(root) = self.roots.get(&root_id) {
            root.on_call_response(token, body_bytes);
        }
    }

    pub(super) fn on_request_headers(&mut self, context_id: u32, is_end: bool) -> Action {
        self.on_stream(context_id, |stream| stream.on_request_headers(is_end))
    }

    pub(super) fn on_request_body(&mut self, context_id: u32, body_bytes: usize, is_end: bool) -> Action {
        self.on_stream(context_id, |stream| stream.on_request_body(body_bytes, is_end))
    }

    pub(super) fn on_request_trailers(&mut self, context_id: u32) -> Action {
        self.on_stream(context_id, Stream::on_request_trailers)
    }

    pub(super) fn on_response_headers(&mut self, context_id: u32) -> Action {
        self.on_stream(context_id, |stream| {
            stream.on_response_headers();
            Action::Continue
        })
    }

    pub(super) fn on_response_body(&mut self, context_id: u32, body_bytes: usize, is_end: bool) -> Action {
        self.on_stream(context_id, |stream| {
            stream.on_response_body(body_bytes, is_end);
            Action::Continue
        })
    }

    /// The host deletes each of its streams exactly once, however it ended.
    pub(super) fn on_delete(&mut self, context_id: u32) {
        if let Some(mut stream) = self.streams.remove(&context_id) {
            stream.on_end();
        }
        self.roots.remove(&context_id);
    }

    /// A stream without a context (its root was never configured) passes untouched.
    fn on_stream(&mut self, context_id: u32, act: impl FnOnce(&mut Stream) -> Action) -> Action {
        self.streams.get_mut(&context_id).map_or(Action::Continue, act)
    }
}
