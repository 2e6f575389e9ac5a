//! Pages of shared data: any bytes open or are begun anew, and what is done to them afterwards stays in bounds.

use warmroute::config::HealthConfig;
use warmroute::shared::PageError;
use warmroute::shared::adapters::{AdaptersPage, SENDINGS_MAX, Sending};
use warmroute::shared::fleet::Fleet;
use warmroute::shared::inflight::{Held, InflightPage, SLOTS_MAX};
use warmroute::shared::learned::LearnedPage;
use warmroute::shared::lease::{LeaseStep, next_step};
use warmroute::shared::responses::{Holder, ResponsesPage};
use warmroute::shared::trunk::{Prompt, TrunkPage};
use warmroute::time::Timestamp;
use warmroute::worker::{AdapterHash, AdapterList, Adapters, DatedReport, LoadReport, WORKERS_MAX, WorkerId};

use crate::choices::Choices;

/// Opens a page of one of the kinds, damaged or not, and works on it.
///
/// # Panics
/// When a page grows beyond its bound, does not say what was written into it, or gives numbers out of range.
pub fn pages(data: &[u8]) {
    let mut choices = Choices::new(data);
    match choices.below(7) {
        0 => fleet(&mut choices),
        1 => inflight(&mut choices),
        2 => learned(&mut choices),
        3 => lease(&mut choices),
        4 => adapters(&mut choices),
        5 => responses(&mut choices),
        _ => trunk(&mut choices),
    }
}

/// A page of a newer version is left alone; it must be one.
fn opened<T>(page: Result<T, PageError>) -> Option<T> {
    match page {
        Ok(page) => Some(page),
        Err(PageError::Newer { version }) => {
            assert!(version > 0);
            None
        }
    }
}

fn moment(choices: &mut Choices<'_>) -> Timestamp {
    match choices.below(4) {
        0 => Timestamp::from_ns(choices.u64()),
        _ => Timestamp::from_ms(1_000_000_000 + u64::from(choices.u32() % 100_000)),
    }
}

fn addresses(choices: &mut Choices<'_>) -> Vec<String> {
    (0..choices.below(9)).map(|_| format!("10.0.0.{}:80", choices.below(12))).collect()
}

fn report(choices: &mut Choices<'_>) -> LoadReport {
    let mut number = || choices.is_set().then(|| choices.f64()).filter(|number| !number.is_nan());
    LoadReport {
        waiting: number(),
        running: number(),
        kv_usage: number(),
        block_tokens: number(),
        kv_blocks: number(),
        started_at_s: number(),
        ..LoadReport { adapters: some_adapters(choices), models: list(choices, 4), ..LoadReport::UNKNOWN }
    }
}

/// What a page keeps of adapters: places are above 0, and a hash of 0 is no name.
pub(crate) fn some_adapters(choices: &mut Choices<'_>) -> Adapters {
    let max = choices.is_set().then(|| choices.below(5) as u16 + 1);
    Adapters { max, running: list(choices, 16), waiting: list(choices, 16) }
}

/// Up to `named_max` of a few hashes, and sometimes more that are only counted.
pub(crate) fn list(choices: &mut Choices<'_>, named_max: usize) -> AdapterList {
    let named: AdapterList = (0..choices.below(named_max + 1)).map(|_| hash(choices)).collect();
    if choices.below(4) == 0 { named.cut() } else { named }
}

/// One of a few: "m" and others that requests ask for.
pub(crate) fn hash(choices: &mut Choices<'_>) -> AdapterHash {
    AdapterHash::of(NAMES[choices.below(NAMES.len())].as_bytes())
}

/// What requests call models and adapters.
pub(crate) const NAMES: [&str; 6] = ["m", "a", "b", "c", "d", "e"];

fn fleet(choices: &mut Choices<'_>) {
    let mut fresh = Fleet::default();
    let admitted = addresses(choices);
    fresh.admit(admitted.iter().map(String::as_str), moment(choices));
    let page = choices.damage(fresh.encode());
    let Some(damaged) = opened(Fleet::decode(page.as_deref())) else { return };
    // What damage says and no writer does (an address that is no text, more models than a row has places for) is written
    // in another way once, and then stays.
    let Some(mut fleet) = opened(Fleet::decode(Some(&damaged.encode()))) else { panic!("it is of our version") };
    assert_eq!(fleet.len(), damaged.len());
    while !choices.is_empty() {
        let address = format!("10.0.0.{}:80", choices.below(12));
        match choices.below(4) {
            0 => {
                let listed = addresses(choices);
                fleet.admit(listed.iter().map(String::as_str), moment(choices));
                assert!(listed.iter().all(|address| fleet.find(address).is_some()), "whoever is admitted has a row");
            }
            1 => {
                let dated = DatedReport { taken_at: moment(choices), report: report(choices) };
                fleet.record_report(&address, dated, choices.u32(), choices.u32());
            }
            2 => fleet.remember_sent(&sent(choices)),
            _ => fleet.record_failure(&address),
        }
        assert!(fleet.len() <= WORKERS_MAX);
        assert!(fleet.foreign_share().is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
    let encoded = fleet.encode();
    assert_eq!(opened(Fleet::decode(Some(&encoded))), Some(fleet), "what is encoded is decoded");
}

/// A few sendings to workers that are there or not, some of them served.
fn sent(choices: &mut Choices<'_>) -> AdaptersPage {
    let mut page = AdaptersPage::default();
    for _ in 0..choices.below(8) {
        let (adapter, worker, generation) = (hash(choices), WorkerId(choices.below(12) as u16), choices.u32() % 3);
        match choices.is_set() {
            true => page.confirm(adapter, worker, generation, moment(choices)),
            false => page.note(adapter, worker, generation, moment(choices)),
        };
    }
    page
}

fn held(choices: &mut Choices<'_>) -> Vec<Held> {
    let workers = match choices.below(8) {
        0 => WORKERS_MAX + choices.below(3),
        _ => choices.below(6),
    };
    let mut few = || choices.u32() >> (choices.byte() % 32);
    let some = Held { requests: few(), prefilling: few(), prefill_tokens: few(), context_tokens: few() };
    vec![some; workers]
}

fn inflight(choices: &mut Choices<'_>) {
    let Ok(mut fresh) = InflightPage::open(None) else { panic!("no page is an empty page") };
    for owner in 0..choices.below(4) as u64 {
        fresh.write_slot(owner, &held(choices), moment(choices));
    }
    let page = choices.damage(fresh.into_bytes());
    let Some(mut page) = opened(InflightPage::open(page)) else { return };
    while !choices.is_empty() {
        let (owner, now, held) = (choices.below(200) as u64, moment(choices), held(choices));
        let of_others = |page: &InflightPage| {
            let mut totals = [Held::default(); 8];
            page.add_up(owner, &[], now, &mut totals);
            totals
        };
        let before = of_others(&page);
        if choices.is_set() {
            let turn = page.turn();
            page.advance_turn();
            assert_eq!(page.turn(), turn.wrapping_add(1));
        }
        page.write_slot(owner, &held, now);
        assert_eq!(of_others(&page), before, "what others hold is theirs");
        let bytes_max = 64 + SLOTS_MAX * (16 + WORKERS_MAX * 12);
        assert!(page.as_bytes().len() <= bytes_max, "{} bytes", page.as_bytes().len());
        let reopened = opened(InflightPage::open(Some(page.as_bytes().to_vec())));
        assert_eq!(reopened.as_ref().map(of_others), Some(before), "what is stored is read");
        assert_eq!(reopened.map(|page| page.turn()), Some(page.turn()));
    }
}

fn learned(choices: &mut Choices<'_>) {
    let mut fresh = LearnedPage::default();
    for worker in 0..choices.below(4) {
        fresh.change(WorkerId(worker as u16), choices.u32() % 3, |learned| learned.odometer = 7);
    }
    let page = choices.damage(fresh.into_bytes());
    let Some(mut page) = opened(LearnedPage::open(page)) else { return };
    while !choices.is_empty() {
        let worker = WorkerId(choices.u32() as u16 % 600);
        let generation = if choices.is_set() { choices.u32() % 4 } else { choices.u32() };
        match choices.below(4) {
            0 => page.learn_bytes_per_token(choices.u64(), choices.u32()),
            1 => page.learn_uncached_tokens(choices.f64()),
            2 => change_learned(&mut page, worker, generation, choices),
            _ => _ = page.has_failing(moment(choices), &HealthConfig::default()),
        }
        assert!((2.0..=8.0).contains(&page.bytes_per_token()), "{}", page.bytes_per_token());
        assert!(page.uncached_tokens() >= 0.0, "{}", page.uncached_tokens());
        let factor = page.worker(worker, generation).capacity_factor;
        assert!((0.01..=8.0).contains(&factor), "{factor}");
        assert!(page.as_bytes().len() <= 32 + WORKERS_MAX * 64, "{} bytes", page.as_bytes().len());
    }
}

fn change_learned(page: &mut LearnedPage, worker: WorkerId, generation: u32, choices: &mut Choices<'_>) {
    let (sent_at, now, odometer, factor) = (moment(choices), moment(choices), choices.u32(), choices.f64() as f32);
    let before = page.worker(worker, generation);
    let mut changed = before;
    page.change(worker, generation, |learned| {
        learned.odometer = odometer;
        learned.set_capacity_factor(factor);
        let (failures, health) = (&mut learned.failures, HealthConfig::default());
        match odometer % 4 {
            0 => _ = failures.fail(sent_at, now, &health),
            1 => failures.succeed(sent_at, now),
            2 => failures.refuse(sent_at),
            _ => failures.probe(now, &health),
        }
        let _ = (failures.is_ejected(now, &health), failures.is_on_trial(now, &health));
        assert!((0.0..=1.0).contains(&failures.share), "{failures:?}");
        changed = *learned;
    });
    // Rows keep milliseconds.
    let got = page.worker(worker, generation);
    let is_kept =
        got == before || (got.odometer, got.failures.in_a_row) == (changed.odometer, changed.failures.in_a_row);
    assert!(is_kept, "{got:?} is neither {before:?} nor {changed:?}");
}

fn lease(choices: &mut Choices<'_>) {
    let (me, polled, lease_ms) = (choices.u64() % 4, choices.u64() % 2, u64::from(choices.u32() % 600_000) + 1);
    let mut page = None;
    while !choices.is_empty() {
        page = choices.damage(page.unwrap_or_default());
        let now = Timestamp::from_ms(1_000_000_000 + u64::from(choices.u32()));
        let Ok(step) = next_step(page.as_deref(), me, polled, now, lease_ms) else { return };
        let LeaseStep::Write(written) = step else { continue };
        assert_eq!(next_step(Some(&written), me, polled, now, lease_ms), Ok(LeaseStep::Hold), "who takes it has it");
        let other = next_step(Some(&written), me + 1, polled, now, lease_ms);
        assert_eq!(other, Ok(LeaseStep::Wait), "and nobody else who knows the same workers");
        page = Some(written);
    }
}

fn adapters(choices: &mut Choices<'_>) {
    let mut fresh = AdaptersPage::default();
    for number in 0..choices.below(300) as u32 {
        fresh.note(AdapterHash(number % 7), WorkerId(number as u16), 1, Timestamp::from_ms(1_000_000_000));
    }
    let page = choices.damage(fresh.into_bytes());
    let Some(mut page) = opened(AdaptersPage::open(page)) else { return };
    while !choices.is_empty() {
        let (adapter, worker) = (AdapterHash(choices.u32() % 7), WorkerId(choices.u32() as u16 % 300));
        let is_there =
            |page: &AdaptersPage| page.sendings().any(|sending| sending.adapter == adapter && sending.worker == worker);
        let (action, generation, at) = (choices.below(4), choices.u32() % 3, moment(choices));
        if action == 0 {
            page.note(adapter, worker, generation, at);
            assert!(is_there(&page), "what is noted is told");
        } else if action == 1 {
            page.confirm(adapter, worker, generation, at);
            let is_it = |sending: &Sending| (sending.adapter, sending.worker) == (adapter, worker);
            assert!(page.sendings().any(|sending| is_it(&sending) && sending.is_confirmed), "what is served is told");
        } else {
            let known = page.sendings().find(|sending| sending.adapter == adapter && sending.worker == worker);
            let at = known.filter(|_| action == 2).map_or(at, |sending| sending.sent_at);
            let before = page.sendings().count();
            let is_changed = page.forget(adapter, worker, at);
            assert_eq!(page.sendings().count() + usize::from(is_changed), before);
        }
        assert!(page.sendings().count() <= SENDINGS_MAX);
    }
}

fn responses(choices: &mut Choices<'_>) {
    let Ok(mut fresh) = ResponsesPage::open(None) else { panic!("no page is an empty page") };
    for number in 0..choices.below(600) as u64 {
        fresh.record(number, Holder { worker: WorkerId(1), address_tag: 1 });
    }
    let page = choices.damage(fresh.into_bytes());
    let Some(mut page) = opened(ResponsesPage::open(page)) else { return };
    while !choices.is_empty() {
        let response = if choices.is_set() { choices.u64() % 700 } else { choices.u64() };
        let before = page.find(response);
        // The last id has no place in a row; no pool is so large.
        let holder = Holder { worker: WorkerId(choices.u32() as u16 % 1_000), address_tag: choices.byte() };
        page.record(response, holder);
        assert_eq!(page.find(response), Some(holder), "{before:?} before");
        let bytes = page.clone().into_bytes();
        assert_eq!(bytes.len(), 4_096);
        assert_eq!(opened(ResponsesPage::open(Some(bytes))).and_then(|page| page.find(response)), Some(holder));
    }
}

/// A prompt whose prefixes are its first words.
struct Words(Vec<u64>);

impl Prompt for Words {
    fn prefixes(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied()
    }
    fn end(&self) -> u64 {
        self.0.last().copied().unwrap_or_default()
    }
    fn last_block(&self) -> u64 {
        self.0.first().copied().unwrap_or_default()
    }
    fn begins_with(&self, hash: u32) -> bool {
        self.0.iter().any(|prefix| *prefix as u32 == hash)
    }
}

fn trunk(choices: &mut Choices<'_>) {
    let Ok(mut fresh) = TrunkPage::open(None) else { panic!("no page is an empty page") };
    let repeats = choices.below(40);
    (0..repeats).for_each(|number| _ = fresh.observe(&Words(vec![1, 2, 100 + number as u64]), 2));
    let page = choices.damage(fresh.as_bytes().to_vec());
    let Some(mut page) = opened(TrunkPage::open(page)) else { return };
    let bytes = page.as_bytes().len();
    while !choices.is_empty() {
        let length = choices.below(24);
        let end = choices.u64();
        let prefixes: Vec<u64> = (0..length as u64).map(|at| if at + 1 == length as u64 { end } else { at }).collect();
        let known_by = page.observe(&Words(prefixes.clone()), choices.below(WORKERS_MAX + 1));
        assert_eq!(known_by.is_some(), !prefixes.is_empty());
        assert!(known_by.is_none_or(|prefix| prefixes.contains(&prefix)), "a prompt is known by a part of its own");
        assert_eq!(page.as_bytes().len(), bytes);
    }
}
