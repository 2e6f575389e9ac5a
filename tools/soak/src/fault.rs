//! The faults, one row each: what is done, how long it lasts, what heals it.

use worker_sim::MetricsFault;

/// One kind of fault.
#[derive(Debug)]
pub struct Fault {
    /// As in the report.
    pub name: &'static str,
    /// What is done to whom.
    pub inject: Inject,
    /// How it ends, for the report.
    pub heal: &'static str,
    /// How long it lasts, from and to, milliseconds; 0 for what is done at once.
    pub lasts_ms: (u32, u32),
    /// Whether requests at the worker may break: then streams from it may be cut, and only few workers at a time may be so.
    pub is_breaking: bool,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inject {
    /// The worker's process ends: its port is closed, its connections are cut.
    Kill,
    /// The worker stands still: it accepts connections and answers nothing, its scrapes neither.
    Hang,
    /// The worker's process is replaced by one that answers 503 until it has started.
    SlowStart,
    /// The worker's process is replaced at once: connections cut, cache empty.
    Restart,
    /// The worker serves, but its metrics page is wrong.
    Metrics(MetricsFault),
    /// The worker leaves the pool, is drained and stopped.
    ScaleDown,
    /// One more worker starts and joins the pool.
    ScaleUp,
    /// Connections to Envoy's admin interface are refused or cut.
    AdminCut,
    /// Envoy's admin interface takes connections and answers nothing.
    AdminSilent,
    /// The plugin's configuration is replaced by one with another policy.
    SwapConfig,
    /// The plugin's binary is replaced.
    SwapBinary,
    /// A configuration that the plugin has to refuse.
    BadConfig,
}

/// Whom a fault is done to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// One of the workers that the run starts with.
    Worker,
    /// A worker that the run does not start with.
    Spare,
    /// Envoy and the plugin.
    Gateway,
}

/// All of them.
pub const FAULTS: &[Fault] = &[
    breaking("kill", Inject::Kill, "started again on its port", (1_000, 4_000)),
    breaking("hang", Inject::Hang, "goes on", (1_000, 5_000)),
    breaking("slow start", Inject::SlowStart, "has started", (1_000, 3_000)),
    breaking("restart", Inject::Restart, "at once", (0, 0)),
    harmless("scale down", Inject::ScaleDown, "started, and back in the pool", (2_000, 5_000)),
    harmless("scale up", Inject::ScaleUp, "drained and stopped", (2_000, 6_000)),
    harmless("metrics: garbage", Inject::Metrics(MetricsFault::Garbage), "true values", (1_000, 4_000)),
    harmless("metrics: NaN", Inject::Metrics(MetricsFault::Nan), "true values", (1_000, 4_000)),
    harmless("metrics: no series", Inject::Metrics(MetricsFault::Missing), "true values", (1_000, 4_000)),
    harmless("metrics: 404", Inject::Metrics(MetricsFault::NotFound), "true values", (1_000, 4_000)),
    harmless("metrics: no answer", Inject::Metrics(MetricsFault::Hang), "true values", (1_000, 4_000)),
    harmless("admin refuses", Inject::AdminCut, "reachable", (1_000, 5_000)),
    harmless("admin is silent", Inject::AdminSilent, "answers", (1_000, 5_000)),
    harmless("new configuration", Inject::SwapConfig, "taken", (0, 0)),
    harmless("new binary", Inject::SwapBinary, "taken", (0, 0)),
    harmless("bad configuration", Inject::BadConfig, "refused", (0, 0)),
];

const fn breaking(name: &'static str, inject: Inject, heal: &'static str, lasts_ms: (u32, u32)) -> Fault {
    Fault { name, inject, heal, lasts_ms, is_breaking: true }
}

const fn harmless(name: &'static str, inject: Inject, heal: &'static str, lasts_ms: (u32, u32)) -> Fault {
    Fault { name, inject, heal, lasts_ms, is_breaking: false }
}

impl Inject {
    /// Whom it is done to.
    #[must_use]
    pub fn victim(self) -> Victim {
        match self {
            Self::Kill | Self::Hang | Self::SlowStart | Self::Restart | Self::Metrics(_) | Self::ScaleDown => {
                Victim::Worker
            }
            Self::ScaleUp => Victim::Spare,
            Self::AdminCut | Self::AdminSilent | Self::SwapConfig | Self::SwapBinary | Self::BadConfig => {
                Victim::Gateway
            }
        }
    }

    /// Whether it is felt only where the plugin learns its workers from the admin interface.
    #[must_use]
    pub fn needs_discovery(self) -> bool {
        matches!(self, Self::AdminCut | Self::AdminSilent)
    }
}
