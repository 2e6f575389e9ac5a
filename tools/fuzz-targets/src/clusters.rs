//! Envoy's page of clusters: any bytes are endpoints that can be named or an error, and clusters that are not asked for
//! change nothing.

use std::net::SocketAddr;

use warmroute::discovery::{ENDPOINTS_MAX, read_page};
use warmroute::shared::fleet::{Admission, Fleet};
use warmroute::time::Timestamp;
use warmroute::worker::WORKERS_MAX;

/// Reads a page for one cluster, for several, and takes it into a fleet twice.
///
/// # Panics
/// When an endpoint has no address, stands in no cluster or twice in one; when another cluster's page changes what ours has;
/// when the fleet does not have just the endpoints that have a place.
pub fn clusters(page: &[u8]) {
    let Ok(found) = read_page(page, &["llm"]) else {
        assert!(read_page(page, &["llm", "dns"]).is_err(), "a page is none whatever is asked for");
        return;
    };
    // Where the page of another cluster is none, so is the whole.
    if let Ok(among_others) = read_page(page, &["nobody", "llm", "dns"]) {
        assert_eq!(among_others.get(1), found.first());
    }
    let Some(Some(cluster)) = found.first() else { return };
    assert!(cluster.left_out == 0 || cluster.endpoints.len() <= ENDPOINTS_MAX);
    assert!(cluster.endpoints.is_sorted_by(|left, right| left.address < right.address));
    for endpoint in &cluster.endpoints {
        let address: Option<SocketAddr> = endpoint.address.parse().ok();
        assert_eq!(address.map(|address| address.to_string()).as_ref(), Some(&endpoint.address));
        assert!(endpoint.standing.is_in_cluster() && !endpoint.hostname.contains(['\r', '\n', '\0']));
    }
    let (mut fleet, now) = (Fleet::default(), Timestamp::from_ms(1_000_000));
    let changes = fleet.take_in_endpoints(&cluster.endpoints, Admission::All, now);
    assert_eq!(changes.added as usize, cluster.endpoints.len().min(WORKERS_MAX));
    let again = fleet.take_in_endpoints(&cluster.endpoints, Admission::All, now.plus_ms(1));
    assert_eq!((again.added, again.removed, again.is_changed), (0, 0, false));
    assert_eq!(Fleet::decode(Some(&fleet.encode())), Ok(fleet));
}
