//! The metrics of NVIDIA Dynamo's own parts, whatever engine is inside.
//!
//! Source: pages captured from Dynamo 1.6.1, of its frontend and of a worker with its simulated engine
//! (`tests/testdata/dynamo-1.6.1-*`), and for the cache's gauges, which that worker lacks, `ComponentGauges` in
//! `lib/backend-common` of ai-dynamo/dynamo and its test of `snapshot_publisher`.

use super::{Dialect, Field, Gauge};

/// What a worker says on its system port (`DYN_SYSTEM_PORT`), or a frontend beside its API.
///
/// A worker of Dynamo's takes no HTTP requests: a frontend does, and is the worker here. Where each frontend has one worker,
/// that worker's system port is the `metricsAddress` which tells more. A worker passes on the metrics of the engine inside,
/// which tell more still and are then read instead of these.
pub static DYNAMO: Dialect = Dialect {
    name: "dynamo",
    doc: "NVIDIA Dynamo (1.6.1, captured): a frontend's requests in flight, block size, models; a worker's queue, batch, KV usage and blocks by rank, or what the engine inside tells",
    prefix: "dynamo_",
    gauges: &[
        Gauge::new(Field::Waiting, "dynamo_work_handler_queue_depth"),
        // Other endpoints of the worker answer other questions.
        Gauge::new(Field::Running, "dynamo_component_inflight_requests").only("dynamo_endpoint", "generate"),
        // Of a frontend: all requests that it has, those that wait among them.
        Gauge::new(Field::Running, "dynamo_frontend_inflight_requests"),
        // "percent" notwithstanding a share, 0 to 1.
        Gauge::new(Field::KvUsage, "dynamo_component_gpu_cache_usage_percent"),
        Gauge::new(Field::KvBlocks, "dynamo_component_total_blocks"),
        Gauge::new(Field::BlockTokens, "dynamo_frontend_model_kv_cache_block_size"),
    ],
    // Only the cache's gauges have it.
    rank_label: "dp_rank",
    shows_copies: false,
    model_label: "model",
    adapters: None,
};

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use crate::engine::{Engine, PageReader};
    use crate::worker::{AdapterHash, LoadReport};

    use super::DYNAMO;

    const FRONTEND: &str = include_str!("../../tests/testdata/dynamo-1.6.1-frontend-metrics.txt");
    const WORKER: &str = include_str!("../../tests/testdata/dynamo-1.6.1-worker-metrics.txt");

    fn read(engine: Engine, page: &str, rank: Option<u32>) -> LoadReport {
        PageReader::new(engine, &[]).read(page.as_bytes(), rank).unwrap()
    }

    #[test]
    fn a_frontend_tells_its_requests() {
        let want = LoadReport {
            running: Some(3.0),
            block_tokens: Some(16.0),
            models: [AdapterHash::of(b"mock")].into_iter().collect(),
            ..LoadReport::UNKNOWN
        };
        assert_eq!(read(Engine::Auto, FRONTEND, None), want);
    }

    #[test]
    fn a_worker_tells_of_the_engine_inside_and_of_itself_where_that_is_asked() {
        let inside = LoadReport {
            waiting: Some(0.0),
            running: Some(3.0),
            kv_usage: Some(0.022_949_218_75),
            models: [AdapterHash::of(b"mock")].into_iter().collect(),
            ..LoadReport::UNKNOWN
        };
        assert_eq!(read(Engine::Auto, WORKER, None), inside);
        let own = LoadReport { waiting: Some(0.0), running: Some(3.0), ..LoadReport::UNKNOWN };
        assert_eq!(read(Engine::Known(&DYNAMO), WORKER, None), own);
    }

    #[test]
    fn a_worker_tells_the_cache_of_each_rank() {
        const CACHES: &str = "\
dynamo_component_total_blocks{dp_rank=\"0\",dynamo_component=\"backend\",model=\"m\"} 100
dynamo_component_total_blocks{dp_rank=\"1\",dynamo_component=\"backend\",model=\"m\"} 100
dynamo_component_gpu_cache_usage_percent{dp_rank=\"0\",dynamo_component=\"backend\",model=\"m\"} 0.25
dynamo_component_gpu_cache_usage_percent{dp_rank=\"1\",dynamo_component=\"backend\",model=\"m\"} 0.5
";
        let cache = |rank| {
            let report = read(Engine::Auto, CACHES, rank);
            (report.kv_usage, report.kv_blocks)
        };
        assert_eq!(cache(None), (Some(0.5), Some(200.0)));
        assert_eq!(cache(Some(0)), (Some(0.25), Some(100.0)));
    }
}
