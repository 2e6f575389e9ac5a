//! Which cells to run: workloads at loads with numbers of gateways, and the serial model's two.

use crate::contestant::Contestant;
use crate::engine::batching::BatchingSetup;
use crate::engine::serial::SerialSetup;
use crate::engine::step_time::{M8, M70};
use crate::report::select::{BATCHING, HELD_OUT, SERIAL};
use crate::request::Request;
use crate::simulation::{EngineSetup, Setup};
use crate::workload::Workload;
use crate::workload::mooncake::{self, Stamps, Trace};

/// Workers of every pool but the held-out one.
const WORKERS: usize = 8;
/// The load at which numbers of gateways are compared, as a share of what the pool can serve.
const GATEWAYS_LOAD: f64 = 0.8;
/// KV-cache capacity of a batching engine, tokens.
const KV_TOKENS: u32 = 420_000;
/// Seconds between two scrapes of a worker.
const SCRAPE_INTERVAL_S: f64 = 0.2;
/// How far off a gateway's estimate of a prompt's tokens may be, as a share, where not all is exact.
const TOKEN_ERROR: f64 = 0.2;

/// What the constants of our policy were not chosen on: a smaller model, which is about twice as fast, and more workers.
const HELD_OUT_WORKERS: usize = 12;
const HELD_OUT_KV_TOKENS: u32 = 400_000;
const HELD_OUT_SPEED: f64 = 2.0;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cells, in the order of rows.
    pub cells: Vec<PlannedCell>,
    /// Seeds of each, from 1.
    pub seeds: u32,
    /// The policies, in the order of rows.
    pub contestants: Vec<Contestant>,
}

/// What the engines of a cell are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// See [`crate::engine::serial`].
    Serial,
    /// See [`crate::engine::batching`]: the 70B model on 8 workers.
    Batching,
    /// The same with an 8B model on 12 workers.
    HeldOut,
}

/// A cell of the plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedCell {
    /// The requests.
    pub workload: Workload,
    /// Offered load as a share of what the pool can serve; of the serial model, the trace's own speed is 1.
    pub load: f64,
    /// Gateways.
    pub gateways: usize,
    /// The engines.
    pub model: Model,
}

impl Plan {
    /// Cells of `workloads` on the batching model, each load with one gateway and each further number of gateways at load
    /// 0.8, and the serial model's cells of those workloads that have one.
    #[must_use]
    pub fn cells(workloads: &[Workload], loads: &[f64], gateways: &[usize]) -> Vec<PlannedCell> {
        let mut cells = Vec::new();
        for &workload in workloads {
            if serial(workload).is_some() {
                cells.push(PlannedCell { workload, load: 1.0, gateways: 1, model: Model::Serial });
            }
        }
        for &workload in workloads {
            for &count in gateways {
                let loads = if count == 1 { loads } else { &[GATEWAYS_LOAD] };
                cells.extend(loads.iter().map(|&load| PlannedCell {
                    workload,
                    load,
                    gateways: count,
                    model: Model::Batching,
                }));
            }
        }
        cells
    }

    /// The held-out cells of `workloads`: one gateway at load 0.8.
    #[must_use]
    pub fn held_out_cells(workloads: &[Workload]) -> Vec<PlannedCell> {
        let cell = |&workload| PlannedCell { workload, load: GATEWAYS_LOAD, gateways: 1, model: Model::HeldOut };
        workloads.iter().map(cell).collect()
    }
}

impl PlannedCell {
    /// The name of the engines' model in rows.
    #[must_use]
    pub const fn model(&self) -> &'static str {
        match self.model {
            Model::Serial => SERIAL,
            Model::Batching => BATCHING,
            Model::HeldOut => HELD_OUT,
        }
    }

    /// Workers of its pool.
    #[must_use]
    pub const fn workers(&self) -> usize {
        match self.model {
            Model::Serial | Model::Batching => WORKERS,
            Model::HeldOut => HELD_OUT_WORKERS,
        }
    }

    /// The requests of a seed. The serial model's are the trace as recorded, whatever the seed.
    #[must_use]
    pub fn requests(&self, seed: u64) -> Vec<Request> {
        match serial(self.workload) {
            Some((trace, _)) if self.model == Model::Serial => mooncake::requests(trace, 1.0, Stamps::Raw, seed),
            _ if self.model == Model::HeldOut => {
                self.workload.requests(seed, self.load * HELD_OUT_SPEED, self.workers())
            }
            _ => self.workload.requests(seed, self.load, self.workers()),
        }
    }

    /// The simulation of a seed.
    #[must_use]
    pub fn setup(&self, seed: u64) -> Setup {
        let (engine, token_error) = match serial(self.workload) {
            Some((_, engine)) if self.model == Model::Serial => (EngineSetup::Serial(engine), 0.0),
            _ if self.model == Model::HeldOut => {
                (EngineSetup::Batching(BatchingSetup::new(M8, HELD_OUT_KV_TOKENS)), TOKEN_ERROR)
            }
            _ => (EngineSetup::Batching(BatchingSetup::new(M70, KV_TOKENS)), TOKEN_ERROR),
        };
        Setup {
            workers: self.workers(),
            engine,
            gateways: self.gateways,
            scrape_interval_s: Some(SCRAPE_INTERVAL_S),
            token_error,
            seed,
            incidents: Vec::new(),
        }
    }

    /// The cell in words.
    #[must_use]
    pub fn words(&self) -> String {
        let gateways = if self.gateways == 1 { "1 gateway".to_owned() } else { format!("{} gateways", self.gateways) };
        format!("{} model, {} at load {}, {gateways}", self.model(), self.workload, self.load)
    }
}

/// The serial model of a trace: its engines keep 4000 blocks and prefill at a rate that their pool can just serve.
fn serial(workload: Workload) -> Option<(Trace, SerialSetup)> {
    let (trace, prefill_tokens_per_s) = match workload {
        Workload::Conversation => (Trace::Conversation, 8_000.0),
        Workload::Synthetic => (Trace::Synthetic, 10_000.0),
        _ => return None,
    };
    let piece_tokens = mooncake::PIECE_TOKENS;
    Some((trace, SerialSetup { cache_pieces: 4_000, piece_tokens, prefill_tokens_per_s, output_token_s: 0.020 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::marks::marks;
    use crate::report::row::Row;
    use crate::report::select::testing::row;
    use crate::report::select::{ORACLE_TTFT, OURS, WORKLOADS};

    #[test]
    fn the_full_plan_has_every_cell_that_the_marks_ask_for() {
        let workloads: Vec<Workload> = WORKLOADS.iter().map(|name| name.parse().unwrap()).collect();
        let cells = Plan::cells(&workloads, &[0.6, 0.8, 1.0, 1.2], &[1, 2, 4, 8]);
        assert_eq!(cells.len(), 2 + 5 * 7);
        let rows: Vec<Row> = cells
            .iter()
            .flat_map(|cell| {
                [OURS, ORACLE_TTFT, "random"].map(|policy| {
                    let row = row(policy, cell.workload.name(), cell.load, cell.gateways as u32, 1.0, 0.5);
                    Row { model: cell.model().to_owned(), ..row }
                })
            })
            .collect();
        for mark in marks(&rows) {
            assert_eq!(mark.missing, 0, "{mark:?}");
        }
    }
}
