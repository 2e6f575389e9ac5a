//! Metrics pages: any bytes are a report in range or none.

use warmroute::engine::{DIALECTS, Engine, PageReader};

/// An input as the fuzzer writes it: the engine (beyond the dialects: whichever the page shows), the page.
pub(crate) fn input(dialect: u8, page: &[u8]) -> Vec<u8> {
    [&[dialect], page].concat()
}

/// Reads a page in one of the dialects.
///
/// # Panics
/// When a number is out of its range, or comments and blank lines between the lines change the report.
pub fn metrics(data: &[u8]) {
    let Some((&engine, page)) = data.split_first() else { return };
    let dialect = DIALECTS.get(usize::from(engine) % (DIALECTS.len() + 1));
    let engine_read = dialect.map_or(Engine::Auto, |dialect| Engine::Known(dialect));
    let rank = (engine >= 0x80).then_some(u32::from(engine & 1));
    let reader = PageReader::new(engine_read, &[]);
    let report = reader.read(page, rank);
    let mut with_comments = Vec::with_capacity(page.len() * 2);
    for line in page.split_inclusive(|byte| *byte == b'\n') {
        with_comments.extend_from_slice(b"# HELP w \xff{\"\n\n");
        with_comments.extend_from_slice(line);
    }
    assert_eq!(reader.read(&with_comments, rank), report, "comments mean nothing");
    let Ok(report) = report else { return };
    for (number, range) in [
        (report.waiting, 0.0..=1e9),
        (report.running, 0.0..=1e9),
        (report.kv_usage, 0.0..=1.0),
        (report.block_tokens, 1.0..=1e6),
        (report.kv_blocks, 1.0..=1e9),
        (report.started_at_s, 1.0..=1e11),
    ] {
        assert!(number.is_none_or(|number| range.contains(&number)), "{number:?} is not in {range:?}");
    }
    assert!(report.adapters.max != Some(0));
}
