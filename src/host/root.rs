//! A root context: takes a configuration or refuses it, and passes the host's ticks and answers on to the plugin.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::abi::{self, Buffer};
use super::plugin::Plugin;
use crate::config::Config;

/// A root context of the host: one configuration, once it was accepted.
pub(super) struct Root {
    context_id: u32,
    plugin: Option<Rc<RefCell<Plugin>>>,
    /// The period that ticks are to have once the pools have workers; `None`: they have it.
    tick_ms_later: Cell<Option<u32>>,
}

impl Root {
    pub(super) const fn new(context_id: u32) -> Self {
        Self { context_id, plugin: None, tick_ms_later: Cell::new(None) }
    }

    pub(super) const fn plugin(&self) -> Option<&Rc<RefCell<Plugin>>> {
        self.plugin.as_ref()
    }

    /// Takes the configuration, or refuses it and says why: the host then keeps the one before.
    pub(super) fn on_configure(&mut self, configuration_bytes: usize) -> bool {
        let text = abi::buffer(Buffer::PluginConfiguration, configuration_bytes).unwrap_or_default();
        let config = match Config::from_bytes(&text) {
            Ok(config) => config,
            Err(error) => {
                log::error!("configuration refused: {error}");
                return false;
            }
        };
        let tick_ms = (config.poll.interval_ms / 5).clamp(TICK_MS_MIN, TICK_MS_MAX);
        let plugin = Plugin::new(config);
        let is_hurried = plugin.is_hurried();
        self.plugin = Some(Rc::new(RefCell::new(plugin)));
        self.tick_ms_later.set(is_hurried.then_some(tick_ms));
        abi::set_tick_period(if is_hurried { TICK_MS_MIN } else { tick_ms });
        true
    }

    pub(super) fn on_tick(&self) {
        if let Some(Ok(mut plugin)) = self.plugin.as_ref().map(|plugin| plugin.try_borrow_mut()) {
            // The host ticks in the root's context already; calls made from it must be the root's in any case.
            if abi::set_effective_context(self.context_id) {
                plugin.on_tick();
                let tick_ms_later = self.tick_ms_later.get().filter(|_| !plugin.is_hurried());
                if let Some(tick_ms) = tick_ms_later {
                    self.tick_ms_later.set(None);
                    abi::set_tick_period(tick_ms);
                }
            }
        }
    }

    pub(super) fn on_call_response(&self, token: u32, body_bytes: usize) {
        if let Some(Ok(mut plugin)) = self.plugin.as_ref().map(|plugin| plugin.try_borrow_mut()) {
            plugin.on_call_response(token, body_bytes);
        }
    }
}

/// Ticks take in the fleet page and renew the lease; a fifth of the scrape interval keeps scrapes on time.
const TICK_MS_MIN: u32 = 10;
const TICK_MS_MAX: u32 = 100;
