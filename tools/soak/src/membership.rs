//! How Envoy and the plugin are told of the workers: the one place that knows both ways.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};
use tempfile::TempDir;
use warmroute_harness::config::{EnvoyConfig, POLL_CLUSTER, WORKER_CLUSTER, cluster};

/// The cluster through which the plugin reads Envoy's admin interface.
const ADMIN_CLUSTER: &str = "envoy_admin";
/// Between two scrapes of a worker.
const POLL_INTERVAL_MS: u64 = 200;
/// How long the lease to scrape lasts with such an interval: see `LEASE_MS_MIN` in `src/host/tick.rs`.
pub(crate) const LEASE_MS: u64 = 500;

/// Where the plugin has its workers from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Membership {
    /// Its configuration lists them, and is pushed anew with each change.
    Listed,
    /// It reads them from Envoy's admin interface, and is not told of changes.
    Discovered,
}

/// The plugin's configuration for these workers.
pub(crate) fn plugin_config(membership: Membership, workers: &[SocketAddr], policy: &str) -> Value {
    let mut config = json!({
        "policy": policy,
        "session": { "header": "x-session-id" },
        "poll": { "cluster": POLL_CLUSTER, "intervalMs": POLL_INTERVAL_MS, "timeoutMs": 500 },
        // Few enough to be full after a warm-up: what grows afterwards is a leak.
        "index": { "pages": 128 },
        "pools": [{ "cluster": WORKER_CLUSTER }],
    });
    match membership {
        Membership::Listed => {
            let rows = workers.iter().map(|address| json!({ "address": address })).collect();
            config["pools"][0]["workers"] = Value::Array(rows);
        }
        Membership::Discovered => config["discovery"] = json!({ "cluster": ADMIN_CLUSTER, "intervalMs": 200 }),
    }
    config
}

/// The cluster's endpoints as a file that Envoy watches.
#[derive(Debug)]
pub(crate) struct EndpointFile {
    folder: TempDir,
}

impl EndpointFile {
    /// A file of no workers yet.
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("warmroute-soak-").tempdir()?;
        fs::create_dir(folder.path().join("watched"))?;
        Ok(Self { folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("watched/endpoints.json")
    }

    /// Replaces the endpoints at once: Envoy never reads half a file.
    pub(crate) fn write(&self, workers: &[SocketAddr]) -> Result<()> {
        let endpoint = |worker: &SocketAddr| {
            let address = json!({ "address": worker.ip().to_string(), "port_value": worker.port() });
            json!({ "endpoint": { "address": { "socket_address": address } } })
        };
        let endpoints: Vec<Value> = workers.iter().map(endpoint).collect();
        let resource = json!({
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": WORKER_CLUSTER,
            "endpoints": [{ "lb_endpoints": endpoints }],
        });
        let beside = self.folder.path().join("endpoints.json.new");
        fs::write(&beside, json!({ "resources": [resource] }).to_string())?;
        fs::rename(beside, self.path())?;
        Ok(())
    }

    /// Lets the worker cluster take its endpoints from the file.
    pub(crate) fn watched_by(&self, envoy: EnvoyConfig) -> EnvoyConfig {
        let (path, folder) = (self.path(), self.folder.path().join("watched"));
        envoy.edit(move |bootstrap| {
            let Some(cluster) = cluster(bootstrap, WORKER_CLUSTER) else { return };
            cluster["type"] = "EDS".into();
            cluster["eds_cluster_config"] = json!({ "eds_config": {
                "path_config_source": { "path": path, "watched_directory": { "path": folder } },
                "resource_api_version": "V3",
            } });
            if let Some(keys) = cluster.as_object_mut() {
                keys.remove("load_assignment");
            }
        })
    }
}

/// The cluster through which the plugin reaches the admin interface, by way of `relay`.
pub(crate) fn admin_cluster(relay: SocketAddr) -> Value {
    let address = json!({ "address": relay.ip().to_string(), "port_value": relay.port() });
    let endpoint = json!({ "endpoint": { "address": { "socket_address": address } } });
    json!({
        "name": ADMIN_CLUSTER,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": { "cluster_name": ADMIN_CLUSTER, "endpoints": [{ "lb_endpoints": [endpoint] }] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discovered_pool_lists_no_workers_and_a_listed_one_asks_nobody() {
        let workers = [SocketAddr::from(([127, 0, 0, 1], 81))];
        let listed = plugin_config(Membership::Listed, &workers, "hybrid");
        assert_eq!(listed["pools"][0]["workers"], json!([{ "address": "127.0.0.1:81" }]));
        assert!(listed.get("discovery").is_none());
        warmroute::config::Config::from_bytes(listed.to_string().as_bytes()).unwrap();
        let discovered = plugin_config(Membership::Discovered, &workers, "hybrid");
        assert!(discovered["pools"][0].get("workers").is_none());
        assert_eq!(discovered["discovery"]["cluster"], admin_cluster(workers[0])["name"]);
    }
}
