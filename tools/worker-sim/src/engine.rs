//! One worker's engine: the scheduler behind a lock, and the loop that makes its steps take time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use crate::adapters::AdapterSeries;
use crate::config::SimConfig;
use crate::faults::Faults;
use crate::scheduler::{Counters, Job, Progress, Scheduler};
use crate::server::unix_time_s;

/// Tokio's timer counts milliseconds: shorter waits are owed, and paid together.
const TIMER_GRAIN: Duration = Duration::from_millis(1);
/// How far the engine may run behind its own clock and still catch up. More would turn a stalled host into a burst.
const MAX_LAG: Duration = Duration::from_millis(20);

/// Load and totals of an engine at one moment.
#[derive(Debug, Clone)]
pub(crate) struct EngineState {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) queue_max: usize,
    /// 0 to 1.
    pub(crate) kv_usage: f64,
    pub(crate) counters: Counters,
    pub(crate) adapters: Vec<AdapterSeries>,
}

/// A scheduler shared by the requests and the step loop.
#[derive(Debug)]
pub(crate) struct Engine {
    config: SimConfig,
    scheduler: Mutex<Scheduler>,
    work: Notify,
    next_id: AtomicU64,
}

impl Engine {
    pub(crate) fn new(config: SimConfig) -> Self {
        let scheduler = Mutex::new(Scheduler::new(&config));
        Self { config, scheduler, work: Notify::new(), next_id: AtomicU64::new(0) }
    }

    /// Queues a request. Dropping the ticket aborts it.
    pub(crate) fn submit(self: &Arc<Self>, job: Job) -> Ticket {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, progress) = unbounded_channel();
        self.lock().submit(id, job, sender);
        self.work.notify_one();
        Ticket { id, progress, engine: Arc::clone(self), done: false }
    }

    /// Forgets everything, as a new process does. The tickets of running requests end without `done`.
    pub(crate) fn restart(&self) {
        *self.lock() = Scheduler::new(&self.config);
    }

    /// Empties the prefix cache and `queue_max`; running requests go on.
    pub(crate) fn reset(&self) {
        let mut scheduler = self.lock();
        scheduler.clear_cache();
        scheduler.queue_max = 0;
    }

    pub(crate) fn state(&self) -> EngineState {
        let scheduler = self.lock();
        EngineState {
            running: scheduler.running(),
            waiting: scheduler.waiting(),
            queue_max: scheduler.queue_max,
            kv_usage: scheduler.kv_usage(),
            counters: scheduler.counters,
            adapters: scheduler.adapter_series(),
        }
    }

    /// Makes steps for ever; sleeps while there is nothing to do, stands still during a `hang`.
    pub(crate) async fn run(self: Arc<Self>, mut faults: watch::Receiver<Faults>) {
        let mut clock = StepClock { due: Instant::now() };
        loop {
            if faults.wait_for(|faults| !faults.hang).await.is_err() {
                return;
            }
            let Some(load) = self.lock().plan() else {
                self.work.notified().await;
                clock.wake(Instant::now());
                continue;
            };
            let step = self.config.timing.step(load.prefill_tokens, load.decode_seqs);
            let step = step.saturating_add(self.config.load_adapters(load.adapter_loads));
            match clock.end_of(step, Instant::now()) {
                Some(due) => sleep_until(due).await,
                None => tokio::task::yield_now().await,
            }
            let mut scheduler = self.lock();
            scheduler.finish();
            scheduler.tell_adapters(unix_time_s());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Scheduler> {
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The engine's own time. Steps follow each other on it exactly; sleeping late is made up by the next steps.
#[derive(Debug)]
struct StepClock {
    due: Instant,
}

impl StepClock {
    /// Work has come after a time without any: that time is not made up, or the first steps would take none.
    fn wake(&mut self, now: Instant) {
        self.due = self.due.max(now);
    }

    /// When the step that begins now ends; `None` if so soon that the wait is left to a later step.
    fn end_of(&mut self, step: Duration, now: Instant) -> Option<Instant> {
        let earliest = now.checked_sub(MAX_LAG).unwrap_or(now);
        self.due = self.due.max(earliest).checked_add(step)?;
        (self.due >= now + TIMER_GRAIN).then_some(self.due)
    }
}

/// A place in the engine. Dropped before its end, it aborts the request and frees what it held.
#[derive(Debug)]
pub(crate) struct Ticket {
    id: u64,
    progress: UnboundedReceiver<Progress>,
    engine: Arc<Engine>,
    done: bool,
}

impl Ticket {
    /// The next report; `None` before `done` means that the engine was restarted.
    pub(crate) fn poll_progress(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<Progress>> {
        let next = self.progress.poll_recv(cx);
        if let std::task::Poll::Ready(Some(Progress { done: true, .. }) | None) = next {
            self.done = true;
        }
        next
    }

    /// Like [`Self::poll_progress`], for one that waits.
    pub(crate) async fn progress(&mut self) -> Option<Progress> {
        std::future::poll_fn(|cx| self.poll_progress(cx)).await
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.done {
            self.engine.lock().abort(self.id);
            // Its blocks may be what the head of the queue waits for.
            self.engine.work.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Timing;
    use crate::prompt::{Prompt, PromptText};

    struct Rig {
        engine: Arc<Engine>,
        faults: watch::Sender<Faults>,
    }

    impl Rig {
        fn start(time_scale: f64) -> Self {
            let timing = Timing { time_scale, ..Timing::default() };
            let engine = Arc::new(Engine::new(SimConfig { timing, ..SimConfig::default() }));
            let (faults, watched) = watch::channel(Faults::default());
            tokio::spawn(Arc::clone(&engine).run(watched));
            Self { engine, faults }
        }

        fn submit(&self, prompt_tokens: u32, max_tokens: usize, every_token: bool) -> Ticket {
            let mut text = PromptText::default();
            (0..prompt_tokens).for_each(|id| text.push_token_id(id));
            self.engine.submit(Job { prompt: Prompt::new(text, 16, "m", ""), adapter: None, max_tokens, every_token })
        }

        /// Simulated milliseconds that one request takes.
        async fn time_ms(&self, prompt_tokens: u32, max_tokens: usize) -> f64 {
            let start = Instant::now();
            self.submit(prompt_tokens, max_tokens, false).progress().await.unwrap();
            start.elapsed().as_secs_f64() * 1e3
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_takes_the_time_of_its_steps() {
        // 1 prefill step, then one decode step for each further token; steps above 8192 tokens are chunked.
        for (scale, prompt_tokens, max_tokens, want_ms) in [
            (1.0, 1000, 1, 43.0),
            (1.0, 1000, 101, 43.0 + 100.0 * 7.02),
            (0.1, 1000, 101, 4.3 + 100.0 * 0.702),
            (0.01, 1000, 1001, 0.43 + 1000.0 * 0.0702),
            (1.0, 10_000, 1, 2.0 * 7.0 + 360.0),
        ] {
            let took_ms = Rig::start(scale).time_ms(prompt_tokens, max_tokens).await;
            assert!((took_ms - want_ms).abs() <= 2.0, "scale {scale}: {took_ms} ms, not {want_ms}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cached_prompt_is_faster_and_scale_zero_takes_no_time() {
        let rig = Rig::start(1.0);
        let (cold_ms, warm_ms) = (rig.time_ms(8000, 1).await, rig.time_ms(8000, 1).await);
        assert!(cold_ms > 290.0 && warm_ms < 10.0, "{cold_ms} ms, then {warm_ms} ms");
        assert!(Rig::start(0.0).time_ms(8000, 500).await < 0.001);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_makes_no_step_shorter() {
        let rig = Rig::start(1.0);
        for prompt_tokens in [100, 101, 102] {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let (took_ms, want_ms) = (rig.time_ms(prompt_tokens, 2).await, 7.0 + 3.6 + 7.02);
            // Later prompts are mostly cached: they save up to their 96 cached tokens, and no whole step.
            assert!((want_ms - 3.6 - 1.0..want_ms + 2.0).contains(&took_ms), "{prompt_tokens} tokens: {took_ms} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_a_ticket_frees_its_place_at_once() {
        let rig = Rig::start(1.0);
        let mut ticket = rig.submit(100, 1000, true);
        ticket.progress().await.unwrap();
        assert_eq!(rig.engine.state().running, 1);
        drop(ticket);
        let state = rig.engine.state();
        assert_eq!((state.running, state.counters.aborted), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hang_stops_the_steps_and_a_restart_ends_the_tickets() {
        let rig = Rig::start(1.0);
        let mut ticket = rig.submit(100, 1000, true);
        ticket.progress().await.unwrap();
        rig.faults.send_replace(Faults { hang: true, ..Faults::default() });
        tokio::time::sleep(Duration::from_secs(9)).await;
        let before = rig.engine.state().counters.generation_tokens;
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(rig.engine.state().counters.generation_tokens, before);
        rig.faults.send_replace(Faults::default());
        ticket.progress().await.unwrap();
        rig.engine.restart();
        while ticket.progress().await.is_some() {}
        assert_eq!(rig.engine.state().counters, Counters::default());
    }
}
