//! Page accounting of the KV cache: which pages are free, which sequences hold which.
//!
//! The cache is cut into pages of [`PAGE_TOKENS`] tokens. A sequence owns a list of pages; pages that are full can be
//! shared by several sequences with the same prefix, counted by reference. This module knows numbers only: the bytes
//! live on the device, the kernels find them through the page table that [`PagedSequence::pages`] is uploaded to.
//!
//! The lowest free page comes first, so a sequence alone has its pages in order: attention sends for where they then lie
//! before the table has answered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thiserror::Error;

/// Tokens in one page, the unit in which cache memory is handed out and shared.
pub const PAGE_TOKENS: usize = 64;

/// The cache has too few free pages for what was asked.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "the KV cache is full: {wanted} more pages of {PAGE_TOKENS} tokens are needed, {free} are free; \
     use a smaller --ctx or a smaller --kv-type"
)]
pub struct OutOfPages {
    /// Pages that were asked for.
    pub wanted: usize,
    /// Pages that were free.
    pub free: usize,
}

/// All pages of one device's cache, with a reference count each.
#[derive(Debug)]
pub struct PagePool {
    references: Vec<u32>,
    free: BinaryHeap<Reverse<u32>>,
}

impl PagePool {
    /// A pool of `pages` free pages, numbered from 0.
    pub fn new(pages: usize) -> Self {
        let last = u32::try_from(pages).unwrap_or(u32::MAX);
        Self {
            references: vec![0; last as usize],
            free: (0..last).map(Reverse).collect(),
        }
    }

    /// Pages that nobody holds.
    pub fn free_pages(&self) -> usize {
        self.free.len()
    }

    /// All pages, held or free.
    pub fn total_pages(&self) -> usize {
        self.references.len()
    }

    fn take(&mut self) -> Option<u32> {
        let Reverse(page) = self.free.pop()?;
        self.references[page as usize] = 1;
        Some(page)
    }

    fn retain(&mut self, page: u32) {
        self.references[page as usize] += 1;
    }

    fn release(&mut self, page: u32) {
        let count = &mut self.references[page as usize];
        debug_assert!(*count > 0, "page {page} released twice");
        *count -= 1;
        if *count == 0 {
            self.free.push(Reverse(page));
        }
    }

    fn is_shared(&self, page: u32) -> bool {
        self.references[page as usize] > 1
    }
}

/// A copy that the device has to make before a sequence may write into a page that it shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCopy {
    /// The shared page to read.
    pub from: u32,
    /// The sequence's own new page.
    pub to: u32,
}

/// The pages of one sequence, in token order, and the number of tokens in them.
///
/// Pages go back to the pool through [`PagedSequence::truncate`]; dropping a sequence without it keeps its pages held.
#[derive(Debug, Default)]
pub struct PagedSequence {
    pages: Vec<u32>,
    len: usize,
}

impl PagedSequence {
    /// An empty sequence.
    pub fn new() -> Self {
        Self::default()
    }

    /// Page numbers in token order: token `t` is in page `pages()[t / PAGE_TOKENS]` at slot `t % PAGE_TOKENS`.
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// Tokens in the cache.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no token is in the cache.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Tokens that fit in the pages held.
    pub fn capacity(&self) -> usize {
        self.pages.len() * PAGE_TOKENS
    }

    /// Tokens that can be added: to the pages held and to those that are free.
    pub fn room(&self, pool: &PagePool) -> usize {
        let copied = usize::from(self.shared_tail(pool).is_some());
        let pages = (self.pages.len() + pool.free_pages()).saturating_sub(copied);
        (pages * PAGE_TOKENS).saturating_sub(self.len)
    }

    /// Makes room for `tokens` tokens in all, and the page that the next token goes to writable.
    ///
    /// Returns the copy to make on the device when that page was shared.
    ///
    /// # Errors
    /// [`OutOfPages`], with nothing changed, when the pool has too few.
    pub fn reserve(&mut self, pool: &mut PagePool, tokens: usize) -> Result<Option<PageCopy>, OutOfPages> {
        let missing = tokens.div_ceil(PAGE_TOKENS).saturating_sub(self.pages.len());
        let shared = self.shared_tail(pool).filter(|_| tokens > self.len);
        let wanted = missing + usize::from(shared.is_some());
        if wanted > pool.free_pages() {
            return Err(OutOfPages {
                wanted,
                free: pool.free_pages(),
            });
        }
        let copy = shared.and_then(|slot| {
            let (from, to) = (self.pages[slot], pool.take()?);
            pool.release(from);
            self.pages[slot] = to;
            Some(PageCopy { from, to })
        });
        self.pages.extend((0..missing).map_while(|_| pool.take()));
        Ok(copy)
    }

    /// Index of a partly filled last page that another sequence holds too.
    fn shared_tail(&self, pool: &PagePool) -> Option<usize> {
        let slot = self.len / PAGE_TOKENS;
        let partial = !self.len.is_multiple_of(PAGE_TOKENS);
        (partial && pool.is_shared(self.pages[slot])).then_some(slot)
    }

    /// Counts `tokens` more tokens as written; room must have been reserved.
    pub fn advance(&mut self, tokens: usize) {
        self.len += tokens;
        debug_assert!(
            self.len <= self.capacity(),
            "{} tokens in {} slots",
            self.len,
            self.capacity()
        );
    }

    /// Forgets all tokens from `len` on and gives back the pages that become empty.
    pub fn truncate(&mut self, pool: &mut PagePool, len: usize) {
        self.len = self.len.min(len);
        for page in self.pages.drain(self.len.div_ceil(PAGE_TOKENS)..) {
            pool.release(page);
        }
    }

    /// A new sequence that shares the pages of this one's first `len` tokens.
    pub fn fork(&self, pool: &mut PagePool, len: usize) -> Self {
        let len = len.min(self.len);
        let pages = self.pages[..len.div_ceil(PAGE_TOKENS)].to_vec();
        pages.iter().for_each(|&page| pool.retain(page));
        Self { pages, len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pages_come_back() {
        let mut pool = PagePool::new(4);
        let mut sequence = PagedSequence::new();
        assert_eq!(sequence.reserve(&mut pool, 130), Ok(None));
        sequence.advance(130);
        assert_eq!((sequence.pages(), pool.free_pages()), (&[0, 1, 2][..], 1));
        sequence.truncate(&mut pool, 64);
        assert_eq!((sequence.pages(), pool.free_pages()), (&[0][..], 3));
        sequence.truncate(&mut pool, 0);
        assert_eq!(pool.free_pages(), 4);
    }

    #[test]
    fn a_sequence_alone_has_its_pages_in_order_whatever_was_before() {
        let mut pool = PagePool::new(8);
        let (mut first, mut second) = (PagedSequence::new(), PagedSequence::new());
        for tokens in [64, 128, 192] {
            first.reserve(&mut pool, tokens).unwrap();
            second.reserve(&mut pool, tokens).unwrap();
        }
        first.truncate(&mut pool, 0);
        second.truncate(&mut pool, 0);
        first.reserve(&mut pool, 8 * 64).unwrap();
        assert_eq!(first.pages(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_full_pool_changes_nothing() {
        let mut pool = PagePool::new(1);
        let mut sequence = PagedSequence::new();
        let error = sequence.reserve(&mut pool, 65).unwrap_err();
        assert_eq!(error, OutOfPages { wanted: 2, free: 1 });
        assert_eq!((sequence.capacity(), pool.free_pages()), (0, 1));
    }

    #[test]
    fn a_shared_partial_page_is_copied_before_writing() {
        let mut pool = PagePool::new(4);
        let mut first = PagedSequence::new();
        first.reserve(&mut pool, 70).unwrap();
        first.advance(70);
        let mut second = first.fork(&mut pool, 70);
        assert_eq!(second.reserve(&mut pool, 71), Ok(Some(PageCopy { from: 1, to: 2 })));
        assert_eq!(second.pages(), [0, 2]);
        assert_eq!(
            first.reserve(&mut pool, 71),
            Ok(None),
            "the page is the first one's alone again"
        );
    }

    proptest! {
        /// Whatever is reserved, forked and truncated, the pool gets every page back.
        #[test]
        fn nothing_leaks(steps in proptest::collection::vec((0u8..4, 0usize..400), 1..60)) {
            let mut pool = PagePool::new(24);
            let mut all: Vec<PagedSequence> = vec![PagedSequence::new()];
            for (what, n) in steps {
                let at = n % all.len();
                match what {
                    0 | 1 => {
                        let target = all[at].len() + n % 150;
                        if all[at].reserve(&mut pool, target).is_ok() {
                            let more = target - all[at].len();
                            all[at].advance(more);
                        }
                    }
                    2 => { let fork = all[at].fork(&mut pool, n); all.push(fork); }
                    _ => all[at].truncate(&mut pool, n),
                }
                let held: usize = pool.references.iter().filter(|&&count| count > 0).count();
                prop_assert_eq!(held + pool.free_pages(), pool.total_pages());
            }
            all.iter_mut().for_each(|sequence| sequence.truncate(&mut pool, 0));
            prop_assert_eq!(pool.free_pages(), pool.total_pages());
        }
    }
}
