//! The engine's threads.

use rayon::prelude::*;

use super::simd::Level;

/// A number of threads, and the instructions that they use. What is computed does not depend on either.
pub(super) struct Pool {
    threads: usize,
    /// None for one thread: the caller's.
    workers: Option<rayon::ThreadPool>,
    pub(super) level: Level,
}

impl Pool {
    /// `threads` threads; 0 means one per core.
    ///
    /// # Errors
    /// The system refuses to start them.
    pub(super) fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { cores() } else { threads };
        let build = || rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let workers = if threads == 1 { None } else { Some(build()?) };
        Ok(Pool {
            threads,
            workers,
            level: Level::best(),
        })
    }

    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `work` on the pool, so that [`Pool::each`] within it need not hand over between threads.
    pub(super) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.workers {
            Some(workers) => workers.install(work),
            None => work(),
        }
    }

    /// Calls `work` with every task, on any thread, in any order.
    pub(super) fn each<T: Send>(&self, tasks: Vec<T>, work: impl Fn(T) + Sync + Send) {
        if self.threads == 1 || tasks.len() < 2 {
            tasks.into_iter().for_each(work);
        } else {
            tasks.into_par_iter().with_max_len(1).for_each(work);
        }
    }

    /// Calls `work` with the number and the content of each piece of `len` items, on any thread, in any order.
    pub(super) fn pieces<T: Send>(&self, items: &mut [T], len: usize, work: impl Fn(usize, &mut [T]) + Sync + Send) {
        let pieces = items.chunks_mut(len.max(1)).enumerate().collect();
        self.each(pieces, |(i, piece)| work(i, piece));
    }
}
