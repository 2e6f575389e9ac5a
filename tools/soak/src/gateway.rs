//! Envoy with the plugin, and what operators do to it: other workers, configurations and binaries.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::sync::Mutex;
use warmroute_harness::artefacts::Artefacts;
use warmroute_harness::config::{EnvoyConfig, http_manager};
use warmroute_harness::envoy::Envoy;

use crate::membership::{EndpointFile, Membership, admin_cluster, plugin_config};
use crate::options::Options;
use crate::relay::{Passing, Relay};
use crate::watch::workers_gauge;

/// After it an attempt that hangs is tried elsewhere. Far longer than the engines take to begin an answer.
const PER_TRY_TIMEOUT_MS: u64 = 2_000;
/// What bodies need in the route where the plugin reads 256 KB and a connection buffers 1 MB.
const BODY_BUFFER_BYTES_MAX: u32 = 2 << 20;
/// The policies that a new configuration changes between.
const POLICIES: [&str; 5] = ["hybrid", "prefix-hash", "least-load", "prefix-cache", "session"];

/// A running Envoy. Changes of it are made one after the other.
pub(crate) struct Gateway {
    /// For stats and logs.
    pub(crate) envoy: Envoy,
    membership: Membership,
    endpoints: EndpointFile,
    relay: Relay,
    wanted: Mutex<Wanted>,
}

/// What Envoy was told last.
#[derive(Debug, Default)]
struct Wanted {
    workers: BTreeSet<SocketAddr>,
    /// Into [`POLICIES`].
    policy: usize,
    binaries: u64,
    bad_configs: u64,
    /// The configuration that the plugin has taken.
    taken: Value,
}

impl Gateway {
    /// Starts Envoy before these workers.
    pub(crate) async fn start(options: &Options, workers: &[SocketAddr]) -> Result<Self> {
        let membership = if options.listed { Membership::Listed } else { Membership::Discovered };
        let (endpoints, relay) = (EndpointFile::new()?, Relay::start().await?);
        endpoints.write(workers)?;
        let taken = plugin_config(membership, workers, POLICIES[0]);
        let mut config = EnvoyConfig::warmroute(taken.clone())
            .concurrency(options.threads)
            .per_try_timeout_ms(PER_TRY_TIMEOUT_MS)
            .retries_max(options.retries)
            .edit(|bootstrap| {
                let route = &mut http_manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"][0];
                route["request_body_buffer_limit"] = BODY_BUFFER_BYTES_MAX.into();
            });
        if !options.listed {
            config = config.cluster(admin_cluster(relay.address()));
        }
        let envoy = Envoy::start(endpoints.watched_by(config)).await?;
        let wanted = Wanted { workers: workers.iter().copied().collect(), taken, ..Wanted::default() };
        let gateway = Self { envoy, membership, endpoints, relay, wanted: Mutex::new(wanted) };
        gateway.restore_admin()?;
        Ok(gateway)
    }

    /// Whether the plugin knows as many workers as Envoy was told.
    pub(crate) async fn knows_its_workers(&self) -> bool {
        let wanted = self.wanted.lock().await.workers.len() as u64;
        self.envoy.stats().await.is_ok_and(|stats| stats.get(&workers_gauge()) == Some(&wanted))
    }

    /// One worker more.
    pub(crate) async fn add_worker(&self, worker: SocketAddr) -> Result<()> {
        let mut wanted = self.wanted.lock().await;
        wanted.workers.insert(worker);
        self.tell_workers(&mut wanted).await
    }

    /// One worker less. What it still answers goes on.
    pub(crate) async fn remove_worker(&self, worker: SocketAddr) -> Result<()> {
        let mut wanted = self.wanted.lock().await;
        wanted.workers.remove(&worker);
        self.tell_workers(&mut wanted).await
    }

    async fn tell_workers(&self, wanted: &mut Wanted) -> Result<()> {
        let workers: Vec<SocketAddr> = wanted.workers.iter().copied().collect();
        self.endpoints.write(&workers)?;
        self.configure(wanted).await
    }

    /// Gives the plugin the configuration that is wanted, if it has another one.
    async fn configure(&self, wanted: &mut Wanted) -> Result<()> {
        let workers: Vec<SocketAddr> = wanted.workers.iter().copied().collect();
        let config = plugin_config(self.membership, &workers, POLICIES[wanted.policy % POLICIES.len()]);
        if config != wanted.taken {
            ensure!(self.envoy.apply_plugin_config(&config).await?, "the plugin refuses {config}");
            wanted.taken = config;
        }
        Ok(())
    }

    /// A configuration with another policy.
    pub(crate) async fn swap_config(&self) -> Result<()> {
        let mut wanted = self.wanted.lock().await;
        wanted.policy += 1;
        self.configure(&mut wanted).await
    }

    /// A configuration that the plugin has to refuse; what it has stays in use.
    pub(crate) async fn push_bad_config(&self) -> Result<()> {
        let mut wanted = self.wanted.lock().await;
        wanted.bad_configs += 1;
        let mut config = wanted.taken.clone();
        // Another one each time: what Envoy has just refused it does not look at again, and counts as a success.
        config[format!("polcy{}", wanted.bad_configs)] = "random".into();
        let before = self.envoy.config_updates().await?;
        self.envoy.push_plugin_config(&config)?;
        let after = self.envoy.wait_config(before.accepted + 1, before.rejected + 1).await?;
        let is_refused = (after.accepted, after.rejected) == (before.accepted, before.rejected + 1);
        ensure!(is_refused, "{before:?} became {after:?} with {config}");
        Ok(())
    }

    /// The same code as another binary, as a roll-out of a new version has.
    pub(crate) async fn swap_binary(&self) -> Result<()> {
        let mut wanted = self.wanted.lock().await;
        wanted.binaries += 1;
        let before = self.envoy.config_updates().await?;
        self.envoy.push_plugin(&wanted.taken, &self.write_binary(wanted.binaries)?)?;
        let after = self.envoy.wait_config(before.accepted + 1, before.rejected + 1).await?;
        ensure!(after.accepted > before.accepted, "the binary is refused");
        // The one before may be read until now.
        let _ = fs::remove_file(self.binary_path(wanted.binaries - 1));
        Ok(())
    }

    fn binary_path(&self, number: u64) -> PathBuf {
        self.envoy.directory().join(format!("binary-{number}.wasm"))
    }

    /// The plugin's code and a custom section, which changes nothing but the bytes and hence the VM.
    fn write_binary(&self, number: u64) -> Result<PathBuf> {
        let (mut code, name) = (fs::read(Artefacts::find()?.wasm()?)?, format!("soak-{number}"));
        let name_bytes = u8::try_from(name.len()).context("a long name")?;
        code.extend_from_slice(&[0, name_bytes + 1, name_bytes]);
        code.extend_from_slice(name.as_bytes());
        let path = self.binary_path(number);
        fs::write(&path, code)?;
        Ok(path)
    }

    /// The plugin can no longer read the admin interface, which is silent or refuses.
    pub(crate) fn break_admin(&self, passing: Passing) {
        self.relay.pass(passing);
    }

    /// It can again.
    pub(crate) fn restore_admin(&self) -> Result<()> {
        let admin = fs::read_to_string(self.envoy.directory().join("admin.address"))?;
        self.relay.pass(Passing::To(admin.trim().parse()?));
        Ok(())
    }
}
