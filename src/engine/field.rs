//! The numbers that a page may tell: their ranges, and what several series of one make together.

/// What a number of the page is: mostly a field of [`LoadReport`](crate::worker::LoadReport), where unit and meaning are
/// told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Requests in the queue.
    Waiting,
    /// Requests in the running batch.
    Running,
    /// Share of the KV cache in use.
    KvUsage,
    /// Blocks in use: the share of the KV cache where nothing tells it, as part of `KvBlocks`.
    KvUsedBlocks,
    /// Tokens in a block.
    BlockTokens,
    /// Blocks in all.
    KvBlocks,
    /// Start of the process.
    StartedAt,
    /// Places for LoRA adapters in the GPU's memory that are taken.
    AdapterPlacesTaken,
    /// Places for LoRA adapters in the GPU's memory.
    AdapterPlaces,
}

/// What several series of one metric make together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl Field {
    /// The fields that say how loaded a worker is. A page without any of them is no report.
    pub const LOAD: [Self; 3] = [Self::Waiting, Self::Running, Self::KvUsage];

    /// What the series of several engines behind one address make of this field.
    pub(super) const fn fold(self) -> Fold {
        match self {
            Self::Waiting | Self::Running | Self::KvUsedBlocks | Self::KvBlocks => Fold::Sum,
            // The fullest engine preempts first, and the server, not the router, says which engine a request goes to.
            Self::KvUsage | Self::AdapterPlacesTaken | Self::StartedAt => Fold::Max,
            // All engines of a server are started with one setting. Should they ever differ, the smallest is the one that
            // does not overstate what there is.
            Self::BlockTokens | Self::AdapterPlaces => Fold::Min,
        }
    }

    /// The number if it can be true of this field; the ranges are what no real engine comes near.
    pub(super) fn in_range(self, number: f64) -> Option<f64> {
        let (min, max) = match self {
            Self::Waiting | Self::Running | Self::KvUsedBlocks => (0.0, 1e9),
            // A share that was summed or divided in floating point may overshoot a little; more is another unit.
            Self::KvUsage => return (0.0..=1.001).contains(&number).then_some(number.min(1.0)),
            Self::BlockTokens => (1.0, 1e6),
            Self::KvBlocks => (1.0, 1e9),
            // Milliseconds since the epoch would be beyond.
            Self::StartedAt => (1.0, 1e11),
            Self::AdapterPlacesTaken | Self::AdapterPlaces => (0.0, 65_535.0),
        };
        (min..=max).contains(&number).then_some(number)
    }
}
