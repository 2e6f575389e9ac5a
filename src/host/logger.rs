//! `log`'s macros, written to the host's log.

use log::{Level, LevelFilter, Log, Metadata, Record};

use super::abi;

struct HostLog;

impl Log for HostLog {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let level = match record.level() {
            Level::Trace => 0,
            Level::Debug => 1,
            Level::Info => 2,
            Level::Warn => 3,
            Level::Error => 4,
        };
        abi::log(level, &format!("warmroute: {}", record.args()));
    }

    fn flush(&self) {}
}

/// Sends the log to the host, from `info` on: nothing is logged per request at that level.
pub(super) fn install() {
    // Fails only if it is installed already.
    let _ = log::set_logger(&HostLog);
    log::set_max_level(LevelFilter::Info);
}
