//! Sends a workload on its schedule, whether or not what was sent before has been answered, and measures.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hyper::HeaderMap;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use warmroute_harness::client::{Client, body};
use warmroute_report::statistics::share;

use crate::sse::{Event, EventReader, Usage};
use crate::workload::{Planned, Workload};

/// A piece of an answer that takes longer is an error.
const PIECE_MAX: Duration = Duration::from_secs(60);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(4);
const TERMINAL_INTERVAL: Duration = Duration::from_millis(500);

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// From the moment of sending to the first byte of content.
    pub(crate) ttft: Duration,
    /// From the moment of sending to the end of the answer.
    pub(crate) latency: Duration,
    /// The response's headers.
    pub(crate) headers: HeaderMap,
    /// The engine's count of the prompt.
    pub(crate) usage: Usage,
}

/// What came of a workload.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Times to the first byte of content, of the requests without errors.
    pub(crate) ttft_ms: Vec<f64>,
    /// Times to the end of the answer, of the same requests.
    pub(crate) latency_ms: Vec<f64>,
    /// What went wrong, an entry for each request that failed.
    pub(crate) errors: Vec<String>,
    /// The most that a request was sent after its time: shows a machine that is too busy for the schedule.
    pub(crate) late_ms_max: f64,
    /// From the first request to the last answer.
    pub(crate) wall_s: f64,
}

/// The header that names the chat, where the setting wants one: as vllm-router documents it.
pub(crate) const SESSION_HEADER: &str = "x-session-id";

/// Sends one request and reads its whole answer. `with_session` names its chat in [`SESSION_HEADER`].
///
/// # Errors
/// When the status is not 200, the stream breaks, or it ends without content, usage and end mark.
pub(crate) async fn send(client: &Client, request: &Planned, with_session: bool) -> Result<Answer> {
    let sent = Instant::now();
    let session = request.turn.filter(|_| with_session).map(|turn| format!("chat-{}", turn.chat));
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(session.as_deref().map(|session| (SESSION_HEADER, session)));
    let mut stream = client.open("POST", request.path, &headers, body(request.body.clone())).await?;
    if stream.status != 200 {
        let status = stream.status;
        bail!("status {status}: {}", stream.finish().await?.text());
    }
    let (mut reader, mut ttft, mut usage, mut is_done) = (EventReader::default(), None, None, false);
    while let Some(piece) = stream.next().await? {
        for event in reader.read(&piece) {
            match event {
                Event::Content => _ = ttft.get_or_insert_with(|| sent.elapsed()),
                Event::Usage(counted) => usage = Some(counted),
                Event::Done => is_done = true,
            }
        }
    }
    ensure!(is_done, "the answer has no end");
    let ttft = ttft.context("the answer has no content")?;
    let usage = usage.context("the answer has no usage")?;
    Ok(Answer { ttft, latency: sent.elapsed(), headers: stream.headers, usage })
}

/// A client that waits for an answer as long as a busy engine may need.
pub(crate) fn patient_client(gateway: std::net::SocketAddr) -> Client {
    Client::http1(gateway).step_max(PIECE_MAX)
}

/// Sends all requests at their times, which `time_scale` stretches, and waits for all answers.
///
/// # Errors
/// Only when a task of its own fails; failed requests are counted in what it returns.
pub(crate) async fn drive(
    client: &Client,
    workload: &Workload,
    time_scale: f64,
    with_session: bool,
) -> Result<Measured> {
    let progress = Arc::new(Progress::default());
    let end_s = workload.end_s() * time_scale;
    let mut answers = JoinSet::new();
    let mut measured = Measured::default();
    let start = Instant::now();
    let all = async {
        for request in &workload.requests {
            let due = start + Duration::from_secs_f64(request.at_s * time_scale);
            sleep_until(due).await;
            measured.late_ms_max = measured.late_ms_max.max(due.elapsed().as_secs_f64() * 1e3);
            progress.sent.fetch_add(1, Ordering::Relaxed);
            let (client, request, progress) = (client.clone(), request.clone(), Arc::clone(&progress));
            answers.spawn(async move {
                let answer = send(&client, &request, with_session).await;
                progress.count(&answer);
                answer.map(|answer| (answer.ttft, answer.latency))
            });
        }
        while let Some(answer) = answers.join_next().await {
            match answer? {
                Ok((ttft, latency)) => {
                    measured.ttft_ms.push(ttft.as_secs_f64() * 1e3);
                    measured.latency_ms.push(latency.as_secs_f64() * 1e3);
                }
                Err(error) => measured.errors.push(format!("{error:#}")),
            }
        }
        anyhow::Ok(())
    };
    tokio::select! {
        done = all => done?,
        () = progress.show(start, end_s) => {}
    }
    measured.wall_s = start.elapsed().as_secs_f64();
    progress.finish(start, end_s);
    Ok(measured)
}

/// Counts for the line that shows how far it is.
#[derive(Debug, Default)]
struct Progress {
    sent: AtomicU64,
    answered: AtomicU64,
    errors: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    ttft_us: AtomicU64,
}

impl Progress {
    fn count(&self, answer: &Result<Answer>) {
        let Ok(answer) = answer else {
            self.errors.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let ttft_us = u64::try_from(answer.ttft.as_micros()).unwrap_or(u64::MAX);
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.prompt_tokens.fetch_add(answer.usage.prompt_tokens, Ordering::Relaxed);
        self.cached_tokens.fetch_add(answer.usage.cached_tokens, Ordering::Relaxed);
        self.ttft_us.fetch_add(ttft_us, Ordering::Relaxed);
    }

    fn line(&self, start: Instant, end_s: f64) -> String {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (sent, answered, errors) = (of(&self.sent), of(&self.answered), of(&self.errors));
        format!(
            "  {:>3.0} of {end_s:.0} s   {sent:>4} sent  {:>3} in flight  {errors} errors   so far: hit rate {:>2.0} %, mean TTFT {:>4.0} ms",
            start.elapsed().as_secs_f64(),
            sent.saturating_sub(answered + errors),
            share(of(&self.cached_tokens), of(&self.prompt_tokens)) * 100.0,
            share(of(&self.ttft_us), answered) / 1e3,
        )
    }

    /// Shows it for ever: on a terminal one line that changes, elsewhere a line every few seconds.
    async fn show(&self, start: Instant, end_s: f64) {
        let is_terminal = std::io::stderr().is_terminal();
        let mut ticks = interval(if is_terminal { TERMINAL_INTERVAL } else { PROGRESS_INTERVAL });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            if is_terminal {
                eprint!("\r{}", self.line(start, end_s));
                let _ = std::io::stderr().flush();
            } else {
                eprintln!("{}", self.line(start, end_s));
            }
        }
    }

    fn finish(&self, start: Instant, end_s: f64) {
        let begin = if std::io::stderr().is_terminal() { "\r" } else { "" };
        eprintln!("{begin}{}", self.line(start, end_s));
    }
}
