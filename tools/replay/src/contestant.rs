//! Everything that can be run: our policy, the peers, the oracles.

use serde_json::{Value, json};

use crate::oracle::{ORACLES, OracleRegistration};
use crate::own::{Own, Settings};
use crate::peer::{PEERS, PeerRegistration, PeerSetup};
use crate::policy::Policy;
use crate::simulation::Setup;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub enum Contestant {
    /// The plugin's core with this policy.
    Own(&'static str),
    /// Somebody else's policy.
    Peer(&'static PeerRegistration),
    /// A policy that sees the engines from inside.
    Oracle(&'static OracleRegistration),
}

impl Contestant {
    /// All of them, in the order of runs.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let own = OWN.iter().map(|policy| Self::Own(policy));
        own.chain(PEERS.iter().map(Self::Peer)).chain(ORACLES.iter().map(Self::Oracle)).collect()
    }

    /// Its name in tables and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own(policy) => policy,
            Self::Peer(peer) => peer.name,
            Self::Oracle(oracle) => oracle.name,
        }
    }

    /// One gateway's policy before its first request, for a run with this setup; `seed` is the gateway's own.
    #[must_use]
    pub fn policy(self, seed: u64, setup: &Setup) -> Box<dyn Policy> {
        match self {
            Self::Own(policy) => Box::new(Own::new(Settings {
                policy: own(policy),
                gateways: setup.gateways,
                scrape_interval_s: setup.scrape_interval_s,
                seed,
                index_pages: INDEX_PAGES,
            })),
            Self::Peer(peer) => (peer.build)(PeerSetup { seed }),
            Self::Oracle(oracle) => (oracle.build)(seed),
        }
    }
}

/// The plugin's policies that are compared: the default, and with the constants of the study that its cost is from.
const OWN: [&str; 2] = ["hybrid", STUDY];

/// The name of the second.
pub const STUDY: &str = "hybrid-study";

/// The configuration's key `policy` for one of [`OWN`].
fn own(name: &str) -> Value {
    match name {
        STUDY => json!({
            "name": "hybrid", "prefillInterference": 0.3, "foreignInterference": 0.0, "requestTokens": 240.0,
        }),
        _ => json!(name),
    }
}

/// The default of the configuration's `index.pages`.
const INDEX_PAGES: u32 = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = Contestant::all().into_iter().map(Contestant::name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
