//! The sums behind the marks, and the marks themselves where the feature is on.

use super::{HostCall, Stage};

/// What was measured of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTime {
    /// How often its end was marked: as often the clock was read in its time.
    pub count: u64,
    /// Its time, in nanoseconds, host calls and readings of the clock included.
    pub ns: u64,
    /// Host calls in it: twice as often the clock was read in its time, too.
    pub call_count: u64,
    /// Of its time, what passed in host calls, one reading of the clock for each included.
    pub call_ns: u64,
}

/// What was measured of one kind of host call, in callbacks of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTime {
    /// Calls.
    pub count: u64,
    /// Their time in nanoseconds, one reading of the clock for each included.
    pub ns: u64,
    /// Bytes that were copied for them.
    pub bytes: u64,
}

/// All that was measured, by the places in [`Stage::ALL`] and [`HostCall::ALL`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    /// By stage.
    pub stages: [StageTime; Stage::ALL.len()],
    /// By kind of host call.
    pub calls: [CallTime; HostCall::ALL.len()],
    last_ns: u64,
    /// Host calls since the last mark, and their time.
    open_calls: u64,
    open_call_ns: u64,
    callback: Option<Stage>,
}

impl Default for Times {
    fn default() -> Self {
        Self::new()
    }
}

impl Times {
    /// Nothing measured yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            stages: [StageTime { count: 0, ns: 0, call_count: 0, call_ns: 0 }; Stage::ALL.len()],
            calls: [CallTime { count: 0, ns: 0, bytes: 0 }; HostCall::ALL.len()],
            last_ns: 0,
            open_calls: 0,
            open_call_ns: 0,
            callback: None,
        }
    }

    /// A callback begins: the time before is nobody's.
    pub const fn begin_callback(&mut self, stage: Stage, now_ns: u64) {
        self.callback = Some(stage);
        self.last_ns = now_ns;
        self.open_calls = 0;
        self.open_call_ns = 0;
    }

    /// The callback ends; what remains of its time is its own.
    pub fn end_callback(&mut self, now_ns: u64) {
        if let Some(stage) = self.callback {
            self.end_stage(stage, now_ns);
        }
        self.callback = None;
    }

    /// A stage ends. Outside of callbacks nothing is measured.
    pub fn end_stage(&mut self, stage: Stage, now_ns: u64) {
        if self.callback.is_none() {
            return;
        }
        if let Some(time) = self.stages.get_mut(stage as usize) {
            time.count += 1;
            time.ns += now_ns.saturating_sub(self.last_ns);
            time.call_count += self.open_calls;
            time.call_ns += self.open_call_ns;
        }
        self.last_ns = now_ns;
        self.open_calls = 0;
        self.open_call_ns = 0;
    }

    /// A host call of so many nanoseconds has come back. By kind only the streams' are added up: the root's are no
    /// request's.
    pub fn add_call(&mut self, kind: HostCall, ns: u64, bytes: u64) {
        let Some(callback) = self.callback else { return };
        self.open_calls += 1;
        self.open_call_ns += ns;
        if callback.is_of_root() {
            return;
        }
        if let Some(time) = self.calls.get_mut(kind as usize) {
            time.count += 1;
            time.ns += ns;
            time.bytes += bytes;
        }
    }
}

#[cfg(feature = "stage-times")]
pub use marks::{Callback, RunningCall, call, callback, end, set_clock, take};

#[cfg(feature = "stage-times")]
mod marks {
    //! The marks of this thread.

    use std::cell::{Cell, RefCell};

    use super::{HostCall, Stage, Times};

    thread_local! {
        static CLOCK: Cell<fn() -> u64> = const { Cell::new(|| 0) };
        static TIMES: RefCell<Times> = const { RefCell::new(Times::new()) };
    }

    /// Hands in the clock: nanoseconds since any moment.
    pub fn set_clock(clock: fn() -> u64) {
        CLOCK.set(clock);
    }

    /// What was measured since the last call.
    #[must_use]
    pub fn take() -> Times {
        TIMES.with(|times| times.try_borrow_mut().map(|mut times| std::mem::take(&mut *times)).unwrap_or_default())
    }

    fn now_ns() -> u64 {
        (CLOCK.get())()
    }

    fn with(change: impl FnOnce(&mut Times)) {
        TIMES.with(|times| {
            if let Ok(mut times) = times.try_borrow_mut() {
                change(&mut times);
            }
        });
    }

    /// A callback that is running: see [`callback`].
    #[derive(Debug)]
    pub struct Callback(());

    impl Drop for Callback {
        fn drop(&mut self) {
            let now_ns = now_ns();
            with(|times| times.end_callback(now_ns));
        }
    }

    /// A callback begins; it ends when what is returned is dropped.
    #[must_use]
    pub fn callback(stage: Stage) -> Callback {
        let now_ns = now_ns();
        with(|times| times.begin_callback(stage, now_ns));
        Callback(())
    }

    /// The time since the last mark belongs to `stage`.
    pub fn end(stage: Stage) {
        let now_ns = now_ns();
        with(|times| times.end_stage(stage, now_ns));
    }

    /// A host call that is running: see [`call`].
    #[derive(Debug)]
    pub struct RunningCall {
        kind: HostCall,
        began_ns: u64,
    }

    impl RunningCall {
        /// The call has come back, and so many bytes were copied for it.
        pub fn end(self, bytes: usize) {
            let ns = now_ns().saturating_sub(self.began_ns);
            with(|times| times.add_call(self.kind, ns, bytes as u64));
        }
    }

    /// A host call begins.
    #[must_use]
    pub fn call(kind: HostCall) -> RunningCall {
        RunningCall { kind, began_ns: now_ns() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_since_the_last_mark_belongs_to_the_stage_that_ends_and_calls_to_the_stage_they_are_in() {
        let mut times = Times::new();
        times.add_call(HostCall::Metric, 9, 9);
        times.end_stage(Stage::Parse, 50);
        assert_eq!(times, Times::new(), "outside of callbacks nothing is measured");

        times.begin_callback(Stage::RequestBody, 100);
        times.add_call(HostCall::GetBuffer, 7, 4_096);
        times.end_stage(Stage::ReadBody, 110);
        times.end_stage(Stage::Parse, 130);
        times.add_call(HostCall::Metric, 2, 0);
        times.end_callback(135);
        times.begin_callback(Stage::Tick, 1_000);
        times.add_call(HostCall::Metric, 5, 0);
        times.end_callback(1_010);

        let stage = |stage: Stage| times.stages[stage as usize];
        let time = |count, ns, call_count, call_ns| StageTime { count, ns, call_count, call_ns };
        assert_eq!(stage(Stage::ReadBody), time(1, 10, 1, 7));
        assert_eq!(stage(Stage::Parse), time(1, 20, 0, 0));
        assert_eq!(stage(Stage::RequestBody), time(1, 5, 1, 2), "what remains is the callback's");
        assert_eq!(stage(Stage::Tick), time(1, 10, 1, 5));
        assert_eq!(times.calls[HostCall::GetBuffer as usize], CallTime { count: 1, ns: 7, bytes: 4_096 });
        assert_eq!(
            times.calls[HostCall::Metric as usize],
            CallTime { count: 1, ns: 2, bytes: 0 },
            "the root's are not"
        );
    }

    #[test]
    fn the_lists_are_in_the_order_of_the_numbers_and_the_names_differ() {
        assert!(Stage::ALL.iter().enumerate().all(|(index, stage)| *stage as usize == index));
        assert!(HostCall::ALL.iter().enumerate().all(|(index, kind)| *kind as usize == index));
        let mut names: Vec<&str> = Stage::ALL.iter().map(|stage| stage.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Stage::ALL.len());
    }
}
