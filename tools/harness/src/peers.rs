//! Running the routers that warmroute is compared with: start, wait, stop. `tools/setup/peers.sh` installs them.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::artefacts::repository_root;
use crate::client::Client;

/// A Python interpreter that loads a large module, on a busy machine; then the router registers its workers.
const START_MAX: Duration = Duration::from_secs(60);
/// After SIGTERM, before SIGKILL: they would wait minutes for requests that are under way.
const STOP_MAX: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Between the choice of a free port and its use somebody else may take it; so often other ones are tried.
const PORT_TRIES: u32 = 3;
const LOG_LINES: usize = 40;

/// Which router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerKind {
    /// SGLang's, `sglang-router` on PyPI.
    SglangRouter,
    /// vLLM's, `vllm-router` on PyPI.
    VllmRouter,
}

impl PeerKind {
    /// Its name on PyPI and for `tools/setup/peers.sh`.
    pub fn name(self) -> &'static str {
        match self {
            Self::SglangRouter => "sglang-router",
            Self::VllmRouter => "vllm-router",
        }
    }

    /// Its path, from `tools/setup/peers.sh`, which installs it where it is missing.
    ///
    /// # Errors
    /// When it cannot be installed; the script has then said why on stderr.
    pub fn launcher(self) -> Result<PathBuf> {
        let script = repository_root().join("tools/setup/peers.sh");
        let output = Command::new(&script)
            .arg(self.name())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("running {}", script.display()))?;
        ensure!(output.status.success(), "{}: {}", script.display(), output.status);
        let answer = String::from_utf8(output.stdout)?;
        let path = answer.lines().find_map(|line| line.strip_prefix(self.name())?.strip_prefix(' '));
        Ok(PathBuf::from(path.with_context(|| format!("{} printed no path: {answer}", script.display()))?))
    }

    /// What it is started with: the policy at the router's own defaults, everything on loopback, no log line a request.
    pub(crate) fn arguments(self, policy: &str, workers: &[SocketAddr], ports: Ports) -> Vec<String> {
        let (command, log_level): (&[&str], _) = match self {
            Self::SglangRouter => (&["launch"], "warn"),
            Self::VllmRouter => (&[], "warning"),
        };
        let mut arguments: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        arguments.push("--worker-urls".to_owned());
        arguments.extend(workers.iter().map(|worker| format!("http://{worker}")));
        let mut flag = |name: &str, value: &str| arguments.extend([name.to_owned(), value.to_owned()]);
        flag("--policy", policy);
        flag("--host", "127.0.0.1");
        flag("--port", &ports.router.to_string());
        // One of them would listen on all interfaces.
        flag("--prometheus-host", "127.0.0.1");
        flag("--prometheus-port", &ports.prometheus.to_string());
        flag("--worker-startup-check-interval", "1");
        flag("--log-level", log_level);
        arguments
    }

    /// Where it lists its workers.
    fn workers_path(self) -> &'static str {
        match self {
            Self::SglangRouter => "/workers",
            Self::VllmRouter => "/list_workers",
        }
    }
}

/// Where a router listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    router: u16,
    prometheus: u16,
}

/// A running router. Dropping it ends its processes and removes its files.
pub struct Peer {
    kind: PeerKind,
    child: Child,
    directory: TempDir,
    address: SocketAddr,
    prometheus: SocketAddr,
}

impl Peer {
    /// Starts a router with one of its own policies and returns when it serves all of `workers`, which must be running.
    ///
    /// # Errors
    /// When it cannot be installed, does not start, refuses the policy, or does not know all workers in a minute. The
    /// message ends with the last lines of its log.
    pub async fn start(kind: PeerKind, policy: &str, workers: &[SocketAddr]) -> Result<Self> {
        let launcher = kind.launcher()?;
        let mut tries = 1;
        loop {
            let mut peer = Self::spawn(kind, &launcher, policy, workers)?;
            let Err(error) = peer.wait_ready(workers.len()).await else { return Ok(peer) };
            let log = peer.log();
            if tries == PORT_TRIES || !is_port_clash(&log) {
                return Err(error.context(format!("{} did not start; its log ends:\n{}", kind.name(), tail(&log))));
            }
            tries += 1;
        }
    }

    fn spawn(kind: PeerKind, launcher: &Path, policy: &str, workers: &[SocketAddr]) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("warmroute-peer-").tempdir()?;
        let ports = free_ports()?;
        let log = File::create(directory.path().join("router.log"))?;
        let child = Command::new(launcher)
            .args(kind.arguments(policy, workers, ports))
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A group of its own, so that whatever it starts can be ended with it.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", launcher.display()))?;
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Self { kind, child, directory, address: at(ports.router), prometheus: at(ports.prometheus) })
    }

    async fn wait_ready(&mut self, workers: usize) -> Result<()> {
        let client = Client::http1(self.address);
        let deadline = Instant::now() + START_MAX;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended: {status}");
            }
            let reply = client.get(self.kind.workers_path()).await;
            let page = reply.ok().and_then(|reply| reply.json().ok()).unwrap_or_default();
            if healthy_workers(&page) == workers {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "not all of {workers} workers after {START_MAX:?}: {page}");
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Where requests go.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its own metrics are (`/metrics`).
    pub fn prometheus(&self) -> SocketAddr {
        self.prometheus
    }

    /// Its own counts of its decisions, as lines of its metrics page; empty for a policy that counts none.
    ///
    /// # Errors
    /// When the page cannot be had.
    pub async fn decisions(&self) -> Result<Vec<String>> {
        let page = Client::http1(self.prometheus).get("/metrics").await?.text();
        let counts = page.lines().filter(|line| !line.starts_with('#') && line.contains("decisions_total"));
        Ok(counts.map(str::to_owned).collect())
    }

    /// The process that serves, for reading its CPU time and memory from `/proc`. Both routers are a native library that
    /// runs in the Python process itself, in threads.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// All of its log so far.
    pub fn log(&self) -> String {
        fs::read(self.directory.path().join("router.log"))
            .map_or_else(|_| String::new(), |log| String::from_utf8_lossy(&log).into_owned())
    }

    /// The last 40 lines of its log, for messages of failing tests.
    pub fn log_tail(&self) -> String {
        tail(&self.log())
    }
}

impl Drop for Peer {
    /// SIGTERM, then SIGKILL, to the whole group. Blocks, as it has to.
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let signal = |name: &str| Command::new("kill").args([name, "--", &group]).stderr(Stdio::null()).status();
        let _ = signal("-TERM");
        let tries = STOP_MAX.as_millis() / POLL_INTERVAL.as_millis();
        let mut has_ended = false;
        for _ in 0..tries {
            has_ended = !matches!(self.child.try_wait(), Ok(None));
            if has_ended {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        // Also after its end: something that it started may have outlived it, and keeps the group's id from being reused.
        let _ = signal("-KILL");
        if !has_ended {
            let _ = self.child.wait();
        }
    }
}

/// How many workers the router's list says are usable: SGLang's rows say of each whether it is healthy, vLLM's are URLs.
fn healthy_workers(page: &Value) -> usize {
    let rows = |name: &str| page[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let healthy = rows("workers").iter().filter(|row| row["is_healthy"] == true).count();
    healthy + rows("urls").len()
}

fn free_ports() -> Result<Ports> {
    // Both are held until both are known, or they might be the same.
    let (router, prometheus) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    Ok(Ports { router: router.local_addr()?.port(), prometheus: prometheus.local_addr()?.port() })
}

fn is_port_clash(log: &str) -> bool {
    ["Address already in use", "AddrInUse", "address in use"].iter().any(|words| log.contains(words))
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_that_a_router_opens_is_on_loopback_and_its_policy_is_the_asked_one() {
        let workers = ["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()];
        let ports = Ports { router: 3, prometheus: 4 };
        let line = |kind: PeerKind| kind.arguments("cache_aware", &workers, ports).join(" ");
        let common = "--worker-urls http://127.0.0.1:1 http://127.0.0.1:2 --policy cache_aware --host 127.0.0.1 --port 3 \
                      --prometheus-host 127.0.0.1 --prometheus-port 4 --worker-startup-check-interval 1 --log-level";
        assert_eq!(line(PeerKind::SglangRouter), format!("launch {common} warn"));
        assert_eq!(line(PeerKind::VllmRouter), format!("{common} warning"));
    }

    #[test]
    fn only_workers_that_can_be_used_are_counted() {
        let sglang = json!({ "workers": [{ "url": "a", "is_healthy": true }, { "url": "b", "is_healthy": false }] });
        let cases = [(json!(null), 0), (sglang, 1), (json!({ "urls": ["a", "b"] }), 2), (json!({ "urls": [] }), 0)];
        for (page, want) in cases {
            assert_eq!(healthy_workers(&page), want, "{page}");
        }
    }

    #[test]
    fn free_ports_differ() {
        let ports = free_ports().unwrap();
        assert_ne!(ports.router, ports.prometheus);
    }

    #[test]
    fn a_taken_port_is_told_from_other_failures() {
        assert!(is_port_clash("Os { code: 98, kind: AddrInUse, message: \"Address already in use\" }"));
        assert!(!is_port_clash("error: argument --policy: invalid choice: 'guess'"));
    }
}
