//! The host's shared data as the store of pages.

use super::abi;
use crate::shared::store::{Store, Version};

/// The values that all VMs of one `vm_id` share.
pub(super) struct SharedData;

impl Store for SharedData {
    fn get(&mut self, key: &str) -> (Option<Vec<u8>>, Version) {
        abi::shared_data(key)
    }

    fn set(&mut self, key: &str, bytes: &[u8], version: Version) -> bool {
        abi::set_shared_data(key, bytes, version)
    }
}
