//! Who polls: one VM holds a lease that expires, and any other takes it once it has.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{PageError, Preamble};
use crate::time::Timestamp;

const PREAMBLE: Preamble = Preamble::new(*b"WRLE", 2);

/// The lease page: who holds it, and until when.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct LeasePage {
    preamble: Preamble,
    holder: U64,
    /// Fingerprint of the workers and the way of polling that the holder knows.
    polled: U64,
    expires_ns: U64,
    /// How long it is taken for: the holder's configuration says, and others may have another one.
    lease_ms: U64,
}

/// What a VM has to do about the lease, found by [`next_step`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// The lease is this VM's for a good while yet: poll.
    Hold,
    /// Write this page (compare and swap). If that succeeds the lease is this VM's: poll. If not, wait.
    Write(Vec<u8>),
    /// Another VM holds it: wait.
    Wait,
}

/// What VM `me` does about the lease in `page` (`None` = no page yet) at `now`; a lease lasts `lease_ms`.
///
/// `polled` is a fingerprint of the workers and the way of polling that `me` knows. A configuration that was replaced
/// lives on in its last streams, for hours maybe, and would go on polling the workers of yesterday: so a VM with another
/// fingerprint takes the lease at once if it is the younger one, and VMs are numbered by age. So of two filters that share
/// shared data and a pool the younger one asks for both: their pool, `poll` and `discovery` should be the same.
///
/// The holder renews in the second half of its lease, so that one missed tick costs nothing; a holder that died is
/// followed after `lease_ms` at the latest. A holder whose expiry lies further ahead than a lease lasts wrote it before
/// the clock stepped back, and is not believed.
///
/// # Errors
/// [`PageError::Newer`] when a later version of the plugin wrote the page; its VMs poll then.
pub fn next_step(
    page: Option<&[u8]>,
    me: u64,
    polled: u64,
    now: Timestamp,
    lease_ms: u64,
) -> Result<LeaseStep, PageError> {
    let lease_ms = lease_ms.min(LEASE_MS_MAX);
    let bytes = page.unwrap_or_default();
    let current = if PREAMBLE.matches(bytes)? { LeasePage::read_from_bytes(bytes).ok() } else { None };
    if let Some(current) = current {
        let left_ms = Timestamp::from_ns(current.expires_ns.get()).ms_since(now);
        let is_believable = left_ms > 0 && left_ms <= current.lease_ms.get().min(LEASE_MS_MAX).saturating_mul(2);
        let holder = current.holder.get();
        match (is_believable, holder == me) {
            (true, true) if left_ms > lease_ms / 2 => return Ok(LeaseStep::Hold),
            (true, false) if current.polled.get() == polled || holder > me => return Ok(LeaseStep::Wait),
            _ => {}
        }
    }
    let expires_ns = U64::new(now.plus_ms(lease_ms).as_ns());
    let next = LeasePage {
        preamble: PREAMBLE,
        holder: U64::new(me),
        polled: U64::new(polled),
        expires_ns,
        lease_ms: U64::new(lease_ms),
    };
    Ok(LeaseStep::Write(next.as_bytes().to_vec()))
}

/// No configuration has a longer one: twice the longest interval between two scrapes.
const LEASE_MS_MAX: u64 = 120_000;

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    const LEASE_MS: u64 = 1_000;
    const POLLED: u64 = 5;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(1_000_000 + ms)
    }

    fn taken(me: u64, ms: u64) -> Vec<u8> {
        match next_step(None, me, POLLED, at(ms), LEASE_MS) {
            Ok(LeaseStep::Write(page)) => page,
            other => panic!("a free lease is taken, got {other:?}"),
        }
    }

    #[test]
    fn the_lease_passes_on_only_when_it_has_run_out() {
        struct Case {
            name: &'static str,
            me: u64,
            ms: u64,
            want: &'static str,
        }
        const CASES: &[Case] = &[
            Case { name: "holder, fresh", me: 1, ms: 100, want: "hold" },
            Case { name: "holder, second half", me: 1, ms: 600, want: "write" },
            Case { name: "other, fresh", me: 2, ms: 100, want: "wait" },
            Case { name: "other, just before the end", me: 2, ms: 999, want: "wait" },
            Case { name: "other, at the end", me: 2, ms: 1_000, want: "write" },
        ];
        let page = taken(1, 0);
        for case in CASES {
            let got = match next_step(Some(&page), case.me, POLLED, at(case.ms), LEASE_MS) {
                Ok(LeaseStep::Hold) => "hold",
                Ok(LeaseStep::Write(_)) => "write",
                Ok(LeaseStep::Wait) => "wait",
                Err(_) => "error",
            };
            assert_eq!(got, case.want, "{}", case.name);
        }
    }

    #[test]
    fn a_younger_vm_that_knows_other_workers_takes_over_at_once() {
        let page = taken(3, 0);
        let step = |me, polled| next_step(Some(&page), me, polled, at(100), LEASE_MS).unwrap();
        assert_eq!([step(2, POLLED), step(4, POLLED), step(2, 6)], [LeaseStep::Wait, LeaseStep::Wait, LeaseStep::Wait]);
        let LeaseStep::Write(page) = step(4, 6) else { panic!("a younger VM with another configuration waits") };
        assert_eq!(next_step(Some(&page), 3, POLLED, at(200), LEASE_MS), Ok(LeaseStep::Wait));
    }

    #[test]
    fn a_lease_is_as_long_as_its_holder_says() {
        // A replaced configuration with a lease of a second looks at that of its successor, which takes four.
        let Ok(LeaseStep::Write(page)) = next_step(None, 3, 6, at(0), 4 * LEASE_MS) else { panic!("it is free") };
        for ms in [0, 500, 1_500, 3_999] {
            assert_eq!(next_step(Some(&page), 1, POLLED, at(ms), LEASE_MS), Ok(LeaseStep::Wait), "{ms}");
        }
        assert!(matches!(next_step(Some(&page), 1, POLLED, at(4_000), LEASE_MS), Ok(LeaseStep::Write(_))));
    }

    #[test]
    fn a_lease_from_before_the_clock_stepped_back_does_not_block_for_ever() {
        let page = taken(1, 2 * LEASE_MS + 1);
        assert!(matches!(next_step(Some(&page), 2, POLLED, at(0), LEASE_MS), Ok(LeaseStep::Write(_))));
    }

    #[test]
    fn garbage_is_replaced_and_a_newer_page_is_left_alone() {
        assert!(matches!(next_step(Some(b"xx"), 2, POLLED, at(0), LEASE_MS), Ok(LeaseStep::Write(_))));
        let mut newer = taken(1, 0);
        newer[4] = 9;
        assert_eq!(next_step(Some(&newer), 2, POLLED, at(0), LEASE_MS), Err(PageError::Newer { version: 9 }));
    }
}
