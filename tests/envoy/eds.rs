//! Clusters whose endpoints a test changes while Envoy runs, by files as EDS has them; and one that leads to Envoy's admin
//! endpoint.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;
use warmroute_harness::config::{EnvoyConfig, WORKER_CLUSTER, cluster};

/// The cluster that leads to the admin endpoint.
pub(crate) const ADMIN_CLUSTER: &str = "warmroute_admin";

/// The files of one Envoy.
pub(crate) struct Eds {
    directory: TempDir,
    /// Of the file that is written next: Envoy takes no version twice.
    version: AtomicU64,
    admin: SocketAddr,
}

impl Eds {
    /// Files for an Envoy that is yet to start, and a free port for its admin endpoint.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let directory = tempfile::tempdir()?;
        fs::create_dir(directory.path().join("eds"))?;
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let eds = Self { directory, version: AtomicU64::new(1), admin };
        eds.put(ADMIN_CLUSTER, &[endpoint(admin)])?;
        Ok(Arc::new(eds))
    }

    /// A configuration in which [`WORKER_CLUSTER`] has its endpoints from here, at first those that it had, and the admin
    /// endpoint can be asked.
    pub(crate) fn envoy(self: &Arc<Self>) -> impl FnOnce(EnvoyConfig) -> EnvoyConfig + use<> {
        let (with_admin, eds) = (self.admin_envoy(), Arc::clone(self));
        move |config| {
            with_admin(config).edit(move |bootstrap| eds.take_over(bootstrap).expect("the harness's bootstrap"))
        }
    }

    /// A configuration in which the admin endpoint can be asked.
    pub(crate) fn admin_envoy(self: &Arc<Self>) -> impl FnOnce(EnvoyConfig) -> EnvoyConfig + use<> {
        let mut admin = json!({ "name": ADMIN_CLUSTER, "connect_timeout": "1s" });
        self.make_eds(&mut admin);
        let port = self.admin.port();
        move |config| {
            let to_port = move |bootstrap: &mut Value| {
                bootstrap["admin"]["address"]["socket_address"]["port_value"] = port.into();
            };
            config.cluster(admin).edit(to_port)
        }
    }

    fn take_over(&self, bootstrap: &mut Value) -> Result<()> {
        let workers = cluster(bootstrap, WORKER_CLUSTER).context("a cluster of workers")?;
        let endpoints = workers["load_assignment"]["endpoints"][0]["lb_endpoints"].as_array().cloned();
        self.put(WORKER_CLUSTER, &endpoints.unwrap_or_default())?;
        self.make_eds(workers);
        Ok(())
    }

    /// Makes a cluster one whose endpoints are from here; [`Eds::put`] has to follow or to come before.
    pub(crate) fn make_eds(&self, cluster: &mut Value) {
        let name = cluster["name"].as_str().unwrap_or_default().to_owned();
        cluster["type"] = "EDS".into();
        cluster["eds_cluster_config"] = json!({
            "service_name": name,
            "eds_config": { "resource_api_version": "V3", "path_config_source": {
                "path": self.file(&name),
                "watched_directory": { "path": self.directory.path().join("eds") },
            } },
        });
        if let Some(cluster) = cluster.as_object_mut() {
            cluster.remove("load_assignment");
        }
    }

    /// Gives a cluster these endpoints, all at once: Envoy must never read half a file.
    pub(crate) fn put(&self, cluster: &str, endpoints: &[Value]) -> Result<()> {
        let version = self.version.fetch_add(1, Ordering::Relaxed);
        let response = json!({ "version_info": version.to_string(), "resources": [{
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": cluster,
            "endpoints": [{ "lb_endpoints": endpoints }],
        }] });
        let beside = self.directory.path().join(format!("{version}.json"));
        fs::write(&beside, response.to_string())?;
        fs::rename(beside, self.file(cluster))?;
        Ok(())
    }

    /// Gives [`WORKER_CLUSTER`] healthy endpoints at these addresses.
    pub(crate) fn put_workers(&self, addresses: impl IntoIterator<Item = SocketAddr>) -> Result<()> {
        let endpoints: Vec<Value> = addresses.into_iter().map(endpoint).collect();
        self.put(WORKER_CLUSTER, &endpoints)
    }

    /// Where the admin endpoint is.
    pub(crate) const fn admin(&self) -> SocketAddr {
        self.admin
    }

    fn file(&self, cluster: &str) -> PathBuf {
        self.directory.path().join("eds").join(cluster.replace(['|', '/'], "_"))
    }
}

/// A healthy endpoint.
pub(crate) fn endpoint(address: SocketAddr) -> Value {
    let (host, port) = (address.ip().to_string(), address.port());
    json!({ "endpoint": { "address": { "socket_address": { "address": host, "port_value": port } } } })
}
