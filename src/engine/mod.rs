//! What the engines call the numbers that say how loaded a worker is.
//!
//! An engine is a [`Dialect`]: a table of names, one file an engine. A new engine is a new file and two lines here.
//! A pool reads its pages with one [`PageReader`], which knows the dialects it may meet.

pub mod dynamo;
pub mod field;
pub mod llamacpp;
pub mod lmdeploy;
mod lookup;
pub mod prometheus;
pub mod reader;
pub mod series;
pub mod sglang;
mod tally;
pub mod tgi;
pub mod triton_trtllm;
pub mod trtllm;
pub mod vllm;

pub use field::Field;
pub use reader::{PageError, PageReader};
pub use series::Series;

use std::fmt;

/// Every engine whose metrics can be read. Where a page tells as much in two dialects, the earlier one counts.
///
/// Dynamo is the last: its workers pass the metrics of the engine inside on, which tell more.
pub static DIALECTS: &[&Dialect] = &[
    &vllm::VLLM,
    &sglang::SGLANG,
    &trtllm::TRTLLM,
    &triton_trtllm::TRITON_TRTLLM,
    &llamacpp::LLAMACPP,
    &tgi::TGI,
    &lmdeploy::LMDEPLOY,
    &dynamo::DYNAMO,
];

/// Which engine a pool's workers run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Whichever a page shows: workers of one pool may differ, and may be changed for others.
    #[default]
    Auto,
    /// This one.
    Known(&'static Dialect),
    /// One that tells nothing of its load: it is never asked.
    Silent,
}

impl Engine {
    /// Whether its workers are frontends of NVIDIA Dynamo, which obey hints in a body; `None`: nobody knows.
    #[must_use]
    pub fn is_dynamo(self) -> Option<bool> {
        match self {
            Self::Known(dialect) => Some(dialect == &dynamo::DYNAMO),
            Self::Auto | Self::Silent => None,
        }
    }
}

/// How one engine tells its load.
pub struct Dialect {
    /// The engine's name in the configuration.
    pub name: &'static str,
    /// What its page tells, and which version's page it was read from, for documents.
    pub doc: &'static str,
    /// How the names of the engine's own metrics begin, whether they tell of load or not: who shows one is such an engine.
    pub prefix: &'static str,
    /// What is read. Of several gauges for one field, the first that gives a number counts, together with the adding ones.
    pub gauges: &'static [Gauge],
    /// The label that tells a series' data-parallel rank; empty if there is none.
    pub rank_label: &'static str,
    /// Whether a rank may show one number several times, once for each of its processes, under labels besides the rank's.
    pub shows_copies: bool,
    /// The label of the load's gauges that tells the base model; empty if there is none.
    pub model_label: &'static str,
    /// Where the LoRA adapters stand by name; `None` if the engine does not tell them so.
    pub adapters: Option<AdapterLabels>,
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Dialect {}

/// Where one field of the report stands in the page.
#[derive(Clone, Copy, Debug)]
pub struct Gauge {
    /// The field.
    pub field: Field,
    /// The metric's whole name.
    pub metric: &'static str,
    /// Where in the sample the number stands.
    pub reading: Reading,
    /// Label and value that a series must have to count. An empty value is that of an absent label, as in Prometheus.
    pub only: Option<(&'static str, &'static str)>,
    /// Whether it is added to what the field's other gauges give, where it is in the page, and does not stand in for them.
    pub is_adding: bool,
}

impl Gauge {
    /// The values of the metric's series.
    #[must_use]
    pub const fn new(field: Field, metric: &'static str) -> Self {
        Self { field, metric, reading: Reading::Value, only: None, is_adding: false }
    }

    /// What a label of the metric's series says: metrics of the "info" kind have the value 1 and tell all in labels.
    #[must_use]
    pub const fn in_label(self, label: &'static str) -> Self {
        Self { reading: Reading::Label(label), ..self }
    }

    /// Only of series whose `label` says `value`.
    #[must_use]
    pub const fn only(self, label: &'static str, value: &'static str) -> Self {
        Self { only: Some((label, value)), ..self }
    }

    /// Added to the field's other gauges.
    #[must_use]
    pub const fn adding(self) -> Self {
        Self { is_adding: true, ..self }
    }
}

/// Where in a sample the number stands.
#[derive(Clone, Copy, Debug)]
pub enum Reading {
    /// It is the sample's value.
    Value,
    /// It is the text of this label.
    Label(&'static str),
}

/// The labels of one metric that tell the LoRA adapters, each list separated by commas.
///
/// The metric's value is the time of the telling. Each mix of adapters is a series of its own that stays in the page,
/// so only the newest is true.
#[derive(Debug)]
pub struct AdapterLabels {
    /// The metric's whole name.
    pub metric: &'static str,
    /// The label with the most adapters of one batch.
    pub max: &'static str,
    /// The label with the adapters in the running batch.
    pub running: &'static str,
    /// The label with the adapters in the queue.
    pub waiting: &'static str,
}

#[cfg(test)]
mod laws;
