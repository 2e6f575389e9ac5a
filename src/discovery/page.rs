//! Envoy's page of clusters, read in one pass: clusters that are not asked for leave nothing behind.
//!
//! Source: `envoy/admin/v3/clusters.proto` and `envoy/config/core/v3/health_check.proto` of envoyproxy/envoy, as JSON with
//! the names of the fields as they are there; fields with their default value are left out. A page of Envoy 1.40 is in
//! `tests/testdata`.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::worker::{Endpoint, Standing, WORKERS_MAX};

/// The longest page that is read. A page of a thousand clusters with ten endpoints each has some 9 MB and needs the filter of
/// [`super::question()`]; one cluster of [`WORKERS_MAX`] workers has half of one.
pub const PAGE_BYTES_MAX: usize = 8 << 20;

/// Endpoints of one cluster that are looked at: more than a pool takes, so that those which have a place in it are found
/// among those that have none.
pub const ENDPOINTS_MAX: usize = 8 * WORKERS_MAX;

/// The longest name of a host that is kept: that of DNS.
const HOSTNAME_BYTES_MAX: usize = 253;

/// What the page tells of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundCluster {
    /// Its endpoints, each address once and in their order; of several entries the better one. Those without an IP address
    /// (pipes, listeners within Envoy) are left out: no header can name them.
    pub endpoints: Vec<Endpoint>,
    /// Endpoints beyond [`ENDPOINTS_MAX`] that were not looked at.
    pub left_out: usize,
}

/// Why a page tells nothing.
#[derive(Debug)]
pub enum DiscoveryError {
    /// Longer than [`PAGE_BYTES_MAX`].
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// No page of clusters.
    Unreadable(serde_json::Error),
}

impl fmt::Display for DiscoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes } => {
                write!(f, "page of clusters has {bytes} bytes, at most {PAGE_BYTES_MAX} are read")
            }
            Self::Unreadable(error) => write!(f, "page of clusters is none: {error}"),
        }
    }
}

impl std::error::Error for DiscoveryError {}

/// What `page` tells of the clusters `wanted`, in their order; `None` for one that it does not have.
///
/// # Errors
/// A page that is too long, is cut or is no page of clusters: nothing of it is taken.
pub fn read_page(page: &[u8], wanted: &[&str]) -> Result<Vec<Option<FoundCluster>>, DiscoveryError> {
    if page.len() > PAGE_BYTES_MAX {
        return Err(DiscoveryError::TooLong { bytes: page.len() });
    }
    let mut found = vec![None; wanted.len()];
    let mut json = serde_json::Deserializer::from_slice(page);
    let whole = Page { wanted, found: &mut found }.deserialize(&mut json).and_then(|()| json.end());
    whole.map_err(DiscoveryError::Unreadable)?;
    for cluster in found.iter_mut().flatten() {
        cluster.endpoints.sort_by(|left, right| (&left.address, left.rank()).cmp(&(&right.address, right.rank())));
        cluster.endpoints.dedup_by(|next, kept| next.address == kept.address);
    }
    Ok(found)
}

/// The page as a whole.
struct Page<'p> {
    wanted: &'p [&'p str],
    found: &'p mut [Option<FoundCluster>],
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum PageKey {
    ClusterStatuses,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for Page<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Page<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with cluster_statuses")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key()? {
            match key {
                PageKey::ClusterStatuses => {
                    map.next_value_seed(ClusterList { wanted: self.wanted, found: &mut *self.found })?;
                }
                PageKey::Other => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

/// `cluster_statuses`.
struct ClusterList<'p> {
    wanted: &'p [&'p str],
    found: &'p mut [Option<FoundCluster>],
}

impl<'de> DeserializeSeed<'de> for ClusterList<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ClusterList<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of clusters")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(cluster) = list.next_element_seed(Cluster { wanted: self.wanted })? {
            let Some((index, cluster)) = cluster else { continue };
            if let Some(found) = self.found.get_mut(index) {
                let found = found.get_or_insert_default();
                found.endpoints.extend(cluster.endpoints);
                found.left_out += cluster.left_out;
            }
        }
        Ok(())
    }
}

/// One of the clusters: its number among those wanted, if it is one of them, and what is told.
struct Cluster<'p> {
    wanted: &'p [&'p str],
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum ClusterKey {
    Name,
    HostStatuses,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for Cluster<'_> {
    type Value = Option<(usize, FoundCluster)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Cluster<'_> {
    type Value = Option<(usize, FoundCluster)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a cluster")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        // Envoy writes the name first; where it does not, the endpoints wait for it.
        let (mut index, mut is_named) = (None, false);
        let mut cluster = FoundCluster::default();
        while let Some(key) = map.next_key()? {
            match key {
                ClusterKey::Name => {
                    let name: Name<'_> = map.next_value()?;
                    (index, is_named) = (self.wanted.iter().position(|wanted| *wanted == name.0), true);
                }
                ClusterKey::HostStatuses if index.is_some() || !is_named => {
                    map.next_value_seed(HostList { cluster: &mut cluster })?;
                }
                ClusterKey::HostStatuses | ClusterKey::Other => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(index.map(|index| (index, cluster)))
    }
}

/// Borrowed from the page wherever it has no escapes.
#[derive(Deserialize)]
struct Name<'p>(#[serde(borrow)] Cow<'p, str>);

/// `host_statuses` of a cluster.
struct HostList<'c> {
    cluster: &'c mut FoundCluster,
}

impl<'de> DeserializeSeed<'de> for HostList<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for HostList<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of endpoints")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while self.cluster.endpoints.len() < ENDPOINTS_MAX {
            let Some(host) = list.next_element::<HostStatus<'_>>()? else { return Ok(()) };
            self.cluster.endpoints.extend(host.endpoint());
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            self.cluster.left_out += 1;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct HostStatus<'p> {
    #[serde(borrow, default)]
    address: Address<'p>,
    #[serde(borrow, default)]
    health_status: HealthStatus<'p>,
    #[serde(borrow, default)]
    hostname: Cow<'p, str>,
    #[serde(default)]
    priority: u32,
}

/// Without a socket's address it is a pipe, or a listener within Envoy.
#[derive(Default, Deserialize)]
struct Address<'p> {
    #[serde(borrow, default)]
    socket_address: Option<SocketAddress<'p>>,
}

#[derive(Deserialize)]
struct SocketAddress<'p> {
    #[serde(borrow, default)]
    address: Cow<'p, str>,
    #[serde(default)]
    port_value: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HealthStatus<'p> {
    failed_active_health_check: bool,
    failed_outlier_check: bool,
    failed_active_degraded_check: bool,
    pending_dynamic_removal: bool,
    #[serde(borrow)]
    eds_health_status: Cow<'p, str>,
}

impl HostStatus<'_> {
    /// The endpoint; `None` if a header cannot name it.
    fn endpoint(self) -> Option<Endpoint> {
        let socket = self.address.socket_address?;
        let ip: IpAddr = socket.address.parse().ok()?;
        let port = u16::try_from(socket.port_value).ok().filter(|port| *port != 0)?;
        // What could not stand in a header is no host's name.
        let is_name = self.hostname.len() <= HOSTNAME_BYTES_MAX
            && self.hostname.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
        Some(Endpoint {
            address: SocketAddr::new(ip, port).to_string(),
            hostname: if is_name { self.hostname.into_owned() } else { String::new() },
            priority: u8::try_from(self.priority).unwrap_or(u8::MAX),
            standing: self.health_status.standing(),
        })
    }
}

impl HealthStatus<'_> {
    /// As Envoy's own load balancers weigh the flags, but that who drains is told from who is ill: Envoy has no requests for
    /// either. `pending_active_hc` is not asked: until its first check an endpoint has failed it.
    fn standing(&self) -> Standing {
        let eds = &*self.eds_health_status;
        if self.pending_dynamic_removal || eds == "DRAINING" {
            Standing::Draining
        } else if self.failed_active_health_check || self.failed_outlier_check || matches!(eds, "UNHEALTHY" | "TIMEOUT")
        {
            Standing::Unhealthy
        } else if self.failed_active_degraded_check || eds == "DEGRADED" {
            Standing::Degraded
        } else {
            Standing::Healthy
        }
    }
}
