//! A pool's part of the configuration: its cluster and its workers.

use super::reader::Section;
use super::{NAME_BYTES_MAX, refuse_repeated};
use crate::worker::WORKERS_MAX;

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The Envoy cluster whose requests it serves.
    pub cluster: String,
    /// Its workers' addresses, all different.
    pub workers: Vec<String>,
    /// The models whose requests are routed to its cluster by the header that tells the model.
    pub models: Vec<String>,
}

pub(super) fn read_pool(section: &mut Section<'_>, _index: usize) -> PoolConfig {
    let cluster =
        section.required_string("cluster", 1..=NAME_BYTES_MAX, "the name of the Envoy cluster that the pool is");
    let workers =
        section.list("workers", 1..=WORKERS_MAX, "the workers; the cluster has the same endpoints", |section, _| {
            section.address("address", "where the worker listens, as the cluster's endpoint has it; no host names")
        });
    refuse_repeated(section, "workers", workers.iter().map(String::as_str), "workers with different addresses");
    let models = section.strings(
        "models",
        &[],
        0..=POOL_MODELS_MAX,
        1..=NAME_BYTES_MAX,
        "with `modelHeader`: the models, after aliases, that the routes lead to this cluster. Envoy does not tell a filter where a route that was chosen anew leads; other models are taken to stay where they were routed without the header",
    );
    PoolConfig { cluster, workers, models }
}

/// Models of one pool, at the most: they are looked through for each request.
const POOL_MODELS_MAX: usize = 64;
