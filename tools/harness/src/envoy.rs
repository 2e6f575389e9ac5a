//! A running Envoy: start, ask, reconfigure, stop.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::artefacts::Artefacts;
use crate::client::Client;
use crate::config::{ECDS_DIRECTORY, ECDS_FILE, EnvoyConfig, PLUGIN, PluginForm, Routing, discovery_response};

/// Compiling the plugin takes V8 a second or two, on a busy machine much longer.
const START_MAX: Duration = Duration::from_secs(60);
/// After SIGTERM, before SIGKILL.
const STOP_MAX: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running Envoy. Dropping it ends the process and removes its files.
pub struct Envoy {
    child: Child,
    directory: TempDir,
    admin: Client,
    address: SocketAddr,
    /// What was pushed last.
    plugin: Mutex<Plugin>,
}

#[derive(Default)]
struct Plugin {
    wasm: std::path::PathBuf,
    form: PluginForm,
    version: u64,
}

/// How many plugin configs Envoy has taken and refused since it started; the one it started with counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigUpdates {
    /// Loaded and in use.
    pub accepted: u64,
    /// Refused; the one before stays in use.
    pub rejected: u64,
}

impl Envoy {
    /// Starts Envoy and returns when it takes requests, with the plugin loaded.
    ///
    /// # Errors
    /// When Envoy or the plugin is missing, does not start, refuses its config, or is not ready in a minute. The message
    /// ends with the last lines of Envoy's log.
    pub async fn start(config: EnvoyConfig) -> Result<Self> {
        let artefacts = Artefacts::find()?;
        let directory = tempfile::Builder::new().prefix("warmroute-envoy-").tempdir()?;
        let path = directory.path();
        fs::create_dir(path.join(ECDS_DIRECTORY))?;
        fs::write(path.join("envoy.json"), serde_json::to_vec_pretty(&config.bootstrap(path))?)?;
        if matches!(config.routing, Routing::NoOp) {
            artefacts.noop_wasm()?;
        }
        let mut plugin = Plugin::default();
        if let Routing::Warmroute { plugin: value } = &config.routing {
            let wasm = config.plugin_file.as_deref().map_or_else(|| artefacts.wasm(), Ok)?.to_path_buf();
            plugin = Plugin { wasm, form: config.plugin_form, version: 1 };
            write_plugin(path, value, &plugin)?;
        }

        let mut child = spawn(&artefacts.envoy, &config, path)?;
        match wait_ready(&mut child, path, plugin.version > 0).await {
            Ok((admin, address)) => Ok(Self { child, directory, admin, address, plugin: Mutex::new(plugin) }),
            Err(error) => {
                stop(&mut child);
                Err(error.context(format!("Envoy did not start; its log ends:\n{}", log_tail(path))))
            }
        }
    }

    /// Where requests go.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port of [`Envoy::address`].
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The process, for reading its CPU time and memory from `/proc`.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// The run's directory: `envoy.json`, `ecds/warmroute.json`, `envoy.log`.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A client of the admin interface, for `/clusters`, `/config_dump`, `/logging` and the like.
    pub fn admin(&self) -> &Client {
        &self.admin
    }

    /// All counters and gauges by name. The plugin's own begin with `wasmcustom.`.
    ///
    /// # Errors
    /// When the admin interface does not answer.
    pub async fn stats(&self) -> Result<BTreeMap<String, u64>> {
        stats(&self.admin).await
    }

    /// One counter or gauge; 0 if Envoy has none of that name (it creates many at their first use).
    ///
    /// # Errors
    /// When the admin interface does not answer.
    pub async fn stat(&self, name: &str) -> Result<u64> {
        Ok(self.stats().await?.get(name).copied().unwrap_or(0))
    }

    /// Waits until a counter or gauge is at least `at_least`, and returns it.
    ///
    /// # Errors
    /// When it is still lower after `limit`.
    pub async fn wait_stat(&self, name: &str, at_least: u64, limit: Duration) -> Result<u64> {
        let deadline = Instant::now() + limit;
        loop {
            let value = self.stat(name).await?;
            if value >= at_least {
                return Ok(value);
            }
            ensure!(Instant::now() < deadline, "{name} is {value}, not {at_least} or more, after {limit:?}");
            sleep(POLL_INTERVAL).await;
        }
    }

    /// One histogram as the admin interface prints it (`P0(interval,total) P25(...) ...`), values up to the last flush
    /// (every 250 ms); `None` if there is none of that name.
    ///
    /// # Errors
    /// When the admin interface does not answer.
    pub async fn histogram(&self, name: &str) -> Result<Option<String>> {
        let page = self.admin.get("/stats?type=Histograms").await?.text();
        Ok(page.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned())))
    }

    /// Gives the plugin a new config, without waiting for it to be taken.
    ///
    /// # Errors
    /// In plain mode, and when the file cannot be written.
    pub fn push_plugin_config(&self, plugin: &Value) -> Result<()> {
        let mut last = self.plugin.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        ensure!(last.version > 0, "this Envoy runs without the plugin");
        last.version += 1;
        write_plugin(self.directory.path(), plugin, &last)
    }

    /// As [`Envoy::push_plugin_config`], with other code: what a roll-out of a new version does.
    ///
    /// # Errors
    /// As there.
    pub fn push_plugin(&self, plugin: &Value, wasm: &Path) -> Result<()> {
        self.plugin.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).wasm = wasm.to_path_buf();
        self.push_plugin_config(plugin)
    }

    /// The plugin configs taken and refused so far.
    ///
    /// # Errors
    /// When the admin interface does not answer.
    pub async fn config_updates(&self) -> Result<ConfigUpdates> {
        Ok(config_updates(&self.stats().await?))
    }

    /// Waits until at least `accepted` configs have been taken or `rejected` have been refused.
    ///
    /// # Errors
    /// When neither is so after ten seconds.
    pub async fn wait_config(&self, accepted: u64, rejected: u64) -> Result<ConfigUpdates> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let updates = self.config_updates().await?;
            if updates.accepted >= accepted || updates.rejected >= rejected {
                return Ok(updates);
            }
            ensure!(Instant::now() < deadline, "no config update in 10 s: {updates:?}; log:\n{}", self.log_tail());
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Gives the plugin a new config and waits for the verdict: whether it was taken.
    ///
    /// # Errors
    /// As [`Envoy::push_plugin_config`] and [`Envoy::wait_config`].
    pub async fn apply_plugin_config(&self, plugin: &Value) -> Result<bool> {
        let before = self.config_updates().await?;
        self.push_plugin_config(plugin)?;
        let after = self.wait_config(before.accepted + 1, before.rejected + 1).await?;
        // The counters are the main thread's; the others take the config a moment later.
        sleep(POLL_INTERVAL).await;
        Ok(after.accepted > before.accepted)
    }

    /// All of Envoy's log so far.
    pub fn log(&self) -> String {
        read_log(self.directory.path())
    }

    /// The last 40 lines of Envoy's log, for messages of failing tests.
    pub fn log_tail(&self) -> String {
        log_tail(self.directory.path())
    }

    /// The process has not ended (it ends by itself only when it crashes).
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        stop(&mut self.child);
        if std::thread::panicking() {
            eprintln!("Envoy's log ends:\n{}", self.log_tail());
        }
    }
}

fn spawn(envoy: &Path, config: &EnvoyConfig, directory: &Path) -> Result<Child> {
    let log = File::create(directory.join("envoy.log"))?;
    Command::new(envoy)
        .arg("--config-path")
        .arg(directory.join("envoy.json"))
        .arg("--admin-address-path")
        .arg(directory.join("admin.address"))
        .args(["--concurrency", &config.concurrency.to_string()])
        .args(["--log-level", &config.log_level])
        .args(component_log_level(&config.log_level))
        // Without it, two Envoys on one machine would meet in shared memory.
        .arg("--disable-hot-restart")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("starting {}", envoy.display()))
}

/// The plugin's lines are wanted from `info` on, also where Envoy's own would be too many.
fn component_log_level(level: &str) -> &'static [&'static str] {
    match level {
        "trace" | "debug" | "info" => &[],
        _ => &["--component-log-level", "wasm:info"],
    }
}

async fn wait_ready(child: &mut Child, directory: &Path, with_plugin: bool) -> Result<(Client, SocketAddr)> {
    let deadline = Instant::now() + START_MAX;
    loop {
        if let Some(status) = child.try_wait()? {
            bail!("it ended: {status}");
        }
        if let Some(ready) = try_ready(directory, with_plugin).await? {
            return Ok(ready);
        }
        ensure!(Instant::now() < deadline, "not ready after {START_MAX:?}");
        sleep(POLL_INTERVAL).await;
    }
}

/// The admin client and the listener's address, once Envoy is live and the plugin is loaded.
async fn try_ready(directory: &Path, with_plugin: bool) -> Result<Option<(Client, SocketAddr)>> {
    let Some(admin) =
        fs::read_to_string(directory.join("admin.address")).ok().and_then(|text| text.trim().parse().ok())
    else {
        return Ok(None);
    };
    let admin = Client::http1(admin);
    // The file appears before the admin interface answers.
    let Ok(ready) = admin.get("/ready").await else { return Ok(None) };
    if with_plugin {
        let updates = config_updates(&stats(&admin).await?);
        ensure!(updates.rejected == 0, "the plugin or its config was refused");
        if updates.accepted == 0 {
            return Ok(None);
        }
    }
    if ready.status != 200 {
        return Ok(None);
    }
    let listeners = admin.get("/listeners?format=json").await?.json()?;
    let socket = &listeners["listener_statuses"][0]["local_address"]["socket_address"];
    let (Some(host), Some(port)) = (socket["address"].as_str(), socket["port_value"].as_u64()) else { return Ok(None) };
    Ok(Some((admin, SocketAddr::new(host.parse()?, u16::try_from(port)?))))
}

async fn stats(admin: &Client) -> Result<BTreeMap<String, u64>> {
    let page = admin.get("/stats").await?.text();
    let named = page.lines().filter_map(|line| line.rsplit_once(": "));
    Ok(named.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
}

fn config_updates(stats: &BTreeMap<String, u64>) -> ConfigUpdates {
    let of = |suffix: &str| {
        let end = format!("extension_config_discovery.http_filter.{PLUGIN}.{suffix}");
        stats.iter().filter(|(name, _)| name.ends_with(&end)).map(|(_, value)| value).sum()
    };
    ConfigUpdates { accepted: of("update_success"), rejected: of("update_rejected") }
}

/// Written beside the watched directory and renamed into it: Envoy must never read half a file.
fn write_plugin(directory: &Path, value: &Value, plugin: &Plugin) -> Result<()> {
    let beside = directory.join("warmroute.json.new");
    let response = discovery_response(value, plugin.form, &plugin.wasm, plugin.version);
    fs::write(&beside, serde_json::to_vec_pretty(&response)?)?;
    fs::rename(beside, directory.join(ECDS_FILE))?;
    Ok(())
}

fn read_log(directory: &Path) -> String {
    fs::read(directory.join("envoy.log"))
        .map_or_else(|_| String::new(), |log| String::from_utf8_lossy(&log).into_owned())
}

fn log_tail(directory: &Path) -> String {
    let log = read_log(directory);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// SIGTERM, then SIGKILL. Blocks, as `Drop` has to.
pub(crate) fn stop(child: &mut Child) {
    let ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
    if ended(child) {
        return;
    }
    // The standard library can send only SIGKILL, and its child is not yet reaped, so the id is still its own.
    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    let tries = STOP_MAX.as_millis() / POLL_INTERVAL.as_millis();
    for _ in 0..tries {
        if ended(child) {
            return;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let _ = child.kill();
    let _ = child.wait();
}
