//! The native stages' times, as criterion wrote them down.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Medians by stage and case, microseconds, of all that criterion's folder holds; none where there is no such folder.
pub(crate) fn medians_us(criterion: &Path) -> BTreeMap<String, f64> {
    let mut medians = BTreeMap::new();
    for stage in warmroute_micro::all().unwrap_or_default() {
        let file = criterion.join(stage.stage).join(&stage.case).join("new/estimates.json");
        let median_ns = fs::read_to_string(file).ok().and_then(|text| {
            let estimates: Value = serde_json::from_str(&text).ok()?;
            estimates.pointer("/median/point_estimate")?.as_f64()
        });
        if let Some(median_ns) = median_ns {
            medians.insert(stage.name(), median_ns / 1_000.0);
        }
    }
    medians
}

/// The native time of a VM's stage: the case with the body's size, or with the pool's, where there is one.
pub(crate) fn find(
    medians: &BTreeMap<String, f64>,
    stage: &str,
    body_bytes: usize,
    workers: usize,
    policy: &str,
) -> Option<f64> {
    let size =
        if body_bytes >= 1 << 20 { format!("{}MB", body_bytes >> 20) } else { format!("{}KB", body_bytes >> 10) };
    let cases = [size, format!("{workers}-workers"), format!("{policy}-{workers}-workers")];
    cases.iter().find_map(|case| medians.get(&format!("{stage}/{case}")).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_found_by_body_by_pool_or_by_policy() {
        let named = ["parse/4KB", "prepare/64-workers", "score/hybrid-64-workers"];
        let medians = named.iter().zip(1..).map(|(name, us)| ((*name).to_owned(), f64::from(us))).collect();
        let of = |stage, body_bytes| find(&medians, stage, body_bytes, 64, "hybrid");
        assert_eq!([of("parse", 4_096), of("prepare", 4_096), of("score", 4_096)], [Some(1.0), Some(2.0), Some(3.0)]);
        assert_eq!([of("parse", 65_536), of("log", 4_096)], [None, None]);
    }
}
