//! What engines count of a request, under all the names that they have for it, and the [`Usage`] that follows.

/// What an engine tells of a finished request. A number that it does not tell, or that is no whole number of 32 bits,
/// is `None`: unknown, which is not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, after the chat template, cached ones included.
    pub prompt_tokens: Option<u32>,
    /// Tokens that were generated.
    pub completion_tokens: Option<u32>,
    /// Tokens of the prompt that were in the KV cache; 0 if the engine says that none was.
    ///
    /// `None` if it does not say: vLLM tells it only with `--enable-prompt-tokens-details`, SGLang's OpenAI API only with
    /// `--enable-cache-report`. With their flags, SGLang (`_details_if_cached` in `usage_processor.py`) and vLLM's older
    /// releases (`enable_prompt_tokens_details and num_cached_tokens` in `serving_chat.py`) still leave it out when it
    /// would be 0, so one answer without it does not show whether nothing was cached or nothing is told.
    pub cached_tokens: Option<u32>,
}

/// One of the numbers in [`Counts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Count {
    /// Prompt tokens, all of them.
    Prompt,
    /// Prompt tokens, all of them or those that neither were cached nor are now: see [`Counts::usage`].
    Input,
    /// Prompt tokens that were cached.
    Cached,
    /// Prompt tokens that were cached, and are not in `Input`.
    CacheRead,
    /// Prompt tokens that were put into the cache on request, and are not in `Input`.
    CacheCreation,
    /// Tokens that were generated.
    Completion,
    /// Tokens of the prompt and of what was generated.
    Total,
    /// Prompt tokens that were computed.
    Computed,
    /// Prompt tokens that were not, for they were cached.
    Reused,
}

const COUNTS: usize = Count::Reused as usize + 1;

/// The numbers as they are told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts([Option<u32>; COUNTS]);

impl Counts {
    pub(super) fn set(&mut self, count: Count, number: Option<u32>) {
        if let Some(slot) = self.0.get_mut(count as usize) {
            *slot = number;
        }
    }

    /// As [`Self::set`], unless `number` is unknown.
    pub(super) fn set_if_told(&mut self, count: Count, number: Option<u32>) {
        if number.is_some() {
            self.set(count, number);
        }
    }

    /// Takes over what `later` tells.
    pub(super) fn update(&mut self, later: &Self) {
        for (slot, number) in self.0.iter_mut().zip(later.0) {
            *slot = number.or(*slot);
        }
    }

    fn get(&self, count: Count) -> Option<u32> {
        self.0.get(count as usize).copied().flatten()
    }

    /// What they say together.
    ///
    /// OpenAI's Responses API and Anthropic's messages have the same name, `input_tokens`, for all of the prompt and for
    /// what is left of it without the cached. Only Anthropic's has the other two beside it, so that the sum is right for
    /// both. It is over all events of a stream: vLLM tells all of the prompt first and takes the cached off in the last.
    pub(super) fn usage(&self) -> Usage {
        let beside = |count| self.get(count).unwrap_or_default();
        let input = self
            .get(Count::Input)
            .and_then(|input| input.checked_add(beside(Count::CacheRead))?.checked_add(beside(Count::CacheCreation)));
        // A rerank generates nothing and may tell only this.
        let total = self.get(Count::Total).filter(|_| self.get(Count::Completion).is_none());
        let timed = self.get(Count::Computed).and_then(|computed| computed.checked_add(beside(Count::Reused)));
        let cached = [Count::Cached, Count::CacheRead, Count::Reused];
        Usage {
            prompt_tokens: self.get(Count::Prompt).or(input).or(timed).or(total),
            completion_tokens: self.get(Count::Completion),
            cached_tokens: cached.into_iter().find_map(|count| self.get(count)),
        }
    }
}
