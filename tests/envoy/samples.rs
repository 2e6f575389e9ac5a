//! The configurations that readers copy, and the quickstart as its README tells it.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, sleep};
use warmroute_harness::artefacts::{Artefacts, repository_root};
use warmroute_harness::client::Client;
use worker_sim::WorkerSim;

use crate::world::{CHAT, WAIT_MAX, chat, instant};

/// Writes the files in `envoy/` to `directory`, with what is of this machine in place of what a reader is to replace.
/// Returns those that Envoy is started with.
pub(crate) fn write_samples(directory: &Path, workers: &[SocketAddr]) -> Result<Vec<PathBuf>> {
    let ecds = directory.join("ecds");
    fs::create_dir(&ecds)?;
    let mut bootstraps = Vec::new();
    for entry in fs::read_dir(repository_root().join("envoy"))? {
        let source = entry?.path();
        let name = source.file_name().context("a file")?;
        let mut text = fs::read_to_string(&source)?
            .replace("/etc/warmroute/warmroute.wasm", &Artefacts::find()?.wasm()?.to_string_lossy())
            .replace("/etc/warmroute/ecds", &ecds.to_string_lossy())
            .replace("0.0.0.0, port_value: 10000", "127.0.0.1, port_value: 0")
            .replace("/etc/warmroute/eds", &ecds.to_string_lossy())
            .replace("port_value: 9901", &format!("port_value: {}", free_port()?));
        for (worker, placeholder) in workers.iter().zip(["10.0.0.11", "10.0.0.12", "10.0.0.21"]) {
            let in_cluster = format!("address: {}, port_value: {}", worker.ip(), worker.port());
            text = text
                .replace(&format!("{placeholder}:8000"), &worker.to_string())
                .replace(&format!("address: {placeholder}, port_value: 8000"), &in_cluster);
        }
        let is_bootstrap = text.contains("\nstatic_resources:\n");
        let target = if is_bootstrap { directory.join(name) } else { ecds.join(name) };
        fs::write(&target, text)?;
        bootstraps.extend(is_bootstrap.then_some(target));
    }
    Ok(bootstraps)
}

/// For an admin endpoint that is named twice, where it listens and where it is asked.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// An Envoy with a configuration that is not the harness's; ends with it.
pub(crate) struct SampleEnvoy(Child);

impl SampleEnvoy {
    pub(crate) fn start(bootstrap: &Path) -> Result<Self> {
        let mut command = Command::new(Artefacts::find()?.envoy);
        command.arg("--config-path").arg(bootstrap).arg("--admin-address-path").arg(bootstrap.with_extension("admin"));
        command.args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]);
        let log = File::create(bootstrap.with_extension("log"))?;
        Ok(Self(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?))
    }
}

impl Drop for SampleEnvoy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client of the admin interface, one of the gateway, and the gateway's address, once the Envoy started with `bootstrap` takes requests.
pub(crate) async fn sample_clients(bootstrap: &Path) -> Result<(Client, Client, SocketAddr)> {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        if let Some(clients) = try_sample_clients(bootstrap).await {
            return Ok(clients);
        }
        let log = fs::read_to_string(bootstrap.with_extension("log"))?;
        ensure!(Instant::now() < deadline, "{} does not start:\n{log}", bootstrap.display());
        sleep(Duration::from_millis(20)).await;
    }
}

async fn try_sample_clients(bootstrap: &Path) -> Option<(Client, Client, SocketAddr)> {
    let admin = Client::http1(fs::read_to_string(bootstrap.with_extension("admin")).ok()?.trim().parse().ok()?);
    if admin.get("/ready").await.ok()?.status != 200 {
        return None;
    }
    let listeners = admin.get("/listeners?format=json").await.ok()?.json().ok()?;
    let port = listeners["listener_statuses"][0]["local_address"]["socket_address"]["port_value"].as_u64()?;
    let gateway = SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).ok()?));
    Some((admin, Client::http1(gateway), gateway))
}

#[tokio::test]
async fn sample_configs_load() -> Result<()> {
    let workers = [WorkerSim::start(instant())?, WorkerSim::start(instant())?, WorkerSim::start(instant())?];
    let directory = tempfile::tempdir()?;
    let bootstraps = write_samples(directory.path(), &workers.each_ref().map(WorkerSim::addr))?;
    assert_eq!(bootstraps.len(), 5, "{bootstraps:?}");
    for bootstrap in bootstraps {
        let checked = Command::new(Artefacts::find()?.envoy)
            .args(["--mode", "validate", "--config-path"])
            .arg(&bootstrap)
            .output()?;
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));

        // Validation does not read what is discovered.
        let _envoy = SampleEnvoy::start(&bootstrap)?;
        let (admin, gateway, _) = sample_clients(&bootstrap).await?;
        // Workers that are discovered are known a moment later, and to the thread that serves a tick after that.
        wait_for_stat(&admin, &bootstrap, "pool.llm.known_workers", 2).await?;
        let deadline = Instant::now() + WAIT_MAX;
        while stat(&admin, "answered_first_pick_total").await? == 0 {
            let reply = gateway.post_json(CHAT, &chat("s", &["hello"])).await?;
            assert_eq!((reply.status, reply.header("x-worker").is_some()), (200, true), "{}", bootstrap.display());
            ensure!(Instant::now() < deadline, "{}: nothing is decided", bootstrap.display());
        }
    }
    Ok(())
}

/// One of the plugin's stats; 0 if there is none.
async fn stat(admin: &Client, name: &str) -> Result<u64> {
    let stats = admin.get("/stats?filter=wasmcustom").await?.text();
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix("wasmcustom.warmroute_")?.strip_prefix(name)?.strip_prefix(": "));
    Ok(line.unwrap_or("0").parse()?)
}

async fn wait_for_stat(admin: &Client, bootstrap: &Path, name: &str, want: u64) -> Result<()> {
    let deadline = Instant::now() + WAIT_MAX;
    while stat(admin, name).await? != want {
        ensure!(Instant::now() < deadline, "{}: {name} does not become {want}", bootstrap.display());
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_quickstart_prints_what_its_readme_says() -> Result<()> {
    let example = repository_root().join("examples/quickstart");
    let workers = [WorkerSim::start(instant())?, WorkerSim::start(instant())?, WorkerSim::start(instant())?];
    let directory = tempfile::tempdir()?;
    let bootstrap = directory.path().join("envoy.yaml");
    let mut text = fs::read_to_string(example.join("envoy.yaml"))?
        .replace("target/warmroute.wasm", &Artefacts::find()?.wasm()?.to_string_lossy())
        .replace("port_value: 10000", "port_value: 0")
        .replace("port_value: 9901", "port_value: 0");
    for (worker, port) in workers.iter().zip(8001..) {
        text = text
            .replace(&format!("127.0.0.1:{port}"), &worker.addr().to_string())
            .replace(&format!("port_value: {port}"), &format!("port_value: {}", worker.addr().port()));
    }
    fs::write(&bootstrap, text)?;
    let _envoy = SampleEnvoy::start(&bootstrap)?;
    let (_, _, gateway) = sample_clients(&bootstrap).await?;

    let mut ask = std::process::Command::new(example.join("ask.sh"));
    ask.arg(gateway.to_string());
    let asked = tokio::task::spawn_blocking(move || ask.output()).await??;
    let printed = String::from_utf8(asked.stdout)?;
    assert!(asked.status.success(), "{printed}{}", String::from_utf8_lossy(&asked.stderr));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 8, "{printed}");
    for turns in lines.chunks(2) {
        let word = |line: &str, name: &str| {
            line.split([' ', ','].as_ref()).find(|word| word.starts_with(name)).map(str::to_owned)
        };
        let workers = [turns[0], turns[1]]
            .map(|line| line.split("x-warmroute-worker: ").nth(1).map(|rest| rest.split(' ').next()));
        assert!(workers[0].is_some() && workers[0] == workers[1], "{turns:?}");
        assert_eq!(word(turns[0], "\"cached_tokens\""), Some("\"cached_tokens\":0".to_owned()), "{turns:?}");
        assert_ne!(word(turns[1], "\"cached_tokens\""), Some("\"cached_tokens\":0".to_owned()), "{turns:?}");
    }
    Ok(())
}
