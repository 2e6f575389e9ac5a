//! The prompt that was read, as the trunk sees it: the places where prompts are told apart.

use crate::prefix::{BlockHash, CUTS_MAX, Chain};
use crate::shared::trunk::Prompt;

/// See the module.
pub(super) struct ReadPrompt<'a>(pub(super) &'a Chain);

impl Prompt for ReadPrompt<'_> {
    /// All message ends, and block ends at distances that grow: the trunk is learned some places at a time, so a long one
    /// must not have many.
    fn prefixes(&self) -> impl Iterator<Item = u64> {
        let cuts = self.0.cuts();
        let mut blocks = self.0.blocks().iter().zip(1_u32..).peekable();
        let milestones = cuts.iter().filter(move |cut| match blocks.next_if(|(block, _)| **block == cut.hash) {
            Some((_, blocks)) => is_milestone(blocks),
            None => true,
        });
        let are_not_all = cuts.len() == CUTS_MAX || (cuts.is_empty() && self.0.prompt_bytes() > 0);
        milestones.map(|cut| cut.hash.0).chain(are_not_all.then(|| self.beyond_cuts()))
    }

    fn end(&self) -> u64 {
        let last_cut = self.0.cuts().last().filter(|_| self.0.cuts().len() < CUTS_MAX);
        last_cut.map_or_else(|| self.beyond_cuts(), |cut| cut.hash.0)
    }

    fn last_block(&self) -> u64 {
        self.0.blocks().last().map_or(0, |block| block.0)
    }

    fn begins_with(&self, hash: u32) -> bool {
        let is_it = |block: &BlockHash| block.0 as u32 == hash;
        self.0.blocks().iter().any(is_it) || self.0.cuts().iter().any(|cut| is_it(&cut.hash))
    }
}

impl ReadPrompt<'_> {
    /// What tells prompts apart where the shared part is longer than the cuts reach: the end of the first user message,
    /// which all turns have, or, where that lies within the cuts or was not read, the last block.
    fn beyond_cuts(&self) -> u64 {
        let is_beyond = |root: &BlockHash| self.0.cuts().iter().all(|cut| cut.hash != *root);
        let root = self.0.told_root().filter(is_beyond).or_else(|| self.0.blocks().last().copied());
        root.unwrap_or_else(|| self.0.root()).0
    }
}

/// Whether the end of the `blocks`-th block is a place where prompts are told apart.
const fn is_milestone(blocks: u32) -> bool {
    blocks <= 4 || blocks.is_power_of_two() || (blocks.is_multiple_of(3) && (blocks / 3).is_power_of_two())
}
