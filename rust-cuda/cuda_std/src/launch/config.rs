//! The shape of a launch, and the rules it keeps.

use super::KernelInfo;

/// Threads that a block can have on every GPU.
pub const MAX_THREADS: u32 = 1024;
/// Dynamic shared memory that a block can have on the GPU that has most (sm_90, sm_100), in bytes.
pub const MAX_SHARED_BYTES: u32 = 227 * 1024;

/// Blocks of a cluster, at most: 8 on every GPU that has clusters, 16 on those that allow it (sm_90).
pub const MAX_CLUSTER: u32 = 16;

/// Grid, block, dynamic shared memory, clusters, and whether the launch may start before the one before it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaunchConfig {
    /// Blocks, as x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block, as x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Programmatic dependent launch: the blocks may start when the launch before it calls
    /// `pdl::launch_dependents()`; allowed for kernels that call `pdl::wait()`.
    pub pdl: bool,
    /// Blocks of a cluster ([`crate::cluster`]), which follow one another along x; 1 for none.
    pub cluster: u32,
}

impl LaunchConfig {
    /// `blocks` blocks of `threads` threads in one dimension, without shared memory and without PDL.
    #[must_use]
    pub const fn new(blocks: u32, threads: u32) -> Self {
        Self::shaped([blocks, 1, 1], [threads, 1, 1])
    }

    /// A grid and a block in three dimensions.
    #[must_use]
    pub const fn shaped(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self {
            grid,
            block,
            shared_bytes: 0,
            pdl: false,
            cluster: 1,
        }
    }

    /// With `bytes` of dynamic shared memory.
    #[must_use]
    pub const fn shared(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// With programmatic dependent launch switched on or off.
    #[must_use]
    pub const fn pdl(mut self, pdl: bool) -> Self {
        self.pdl = pdl;
        self
    }

    /// With clusters of `blocks` blocks along x (1: none): at most [`MAX_CLUSTER`], of which the grid's x is a multiple.
    /// Needs sm_90.
    #[must_use]
    pub const fn cluster(mut self, blocks: u32) -> Self {
        self.cluster = blocks;
        self
    }

    /// Threads of a block.
    #[must_use]
    pub const fn threads(&self) -> u64 {
        self.block[0] as u64 * self.block[1] as u64 * self.block[2] as u64
    }

    /// Blocks of the grid.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.grid[0] as u64 * self.grid[1] as u64 * self.grid[2] as u64
    }

    /// Checks the rules for a launch of `kernel`.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self, kernel: &KernelInfo) -> Result<(), LaunchError> {
        let fail = |rule| {
            Err(LaunchError {
                kernel: kernel.name,
                config: *self,
                rule,
            })
        };
        let [_, grid_y, grid_z] = self.grid;
        if self.blocks() == 0 || self.threads() == 0 {
            return fail("grid and block must not be empty");
        }
        if self.threads() > u64::from(MAX_THREADS) || self.block[2] > 64 {
            return fail("a block has at most 1024 threads, 64 of them along z");
        }
        if self.grid[0] > i32::MAX as u32 || grid_y > 65_535 || grid_z > 65_535 {
            return fail("a grid has at most 2147483647 x 65535 x 65535 blocks");
        }
        if self.shared_bytes > MAX_SHARED_BYTES {
            return fail("a block has at most 227 KB of dynamic shared memory");
        }
        if self.pdl && !kernel.pdl {
            return fail("only a kernel that calls pdl::wait() may be launched with PDL");
        }
        if self.cluster == 0 || self.cluster > MAX_CLUSTER || !self.grid[0].is_multiple_of(self.cluster) {
            return fail("a cluster has 1 to 16 blocks, and the grid a multiple of that along x");
        }
        if self.cluster > 1 && !self.threads().is_multiple_of(32) {
            return fail("the blocks of a cluster have whole warps");
        }
        Ok(())
    }
}

/// A launch whose shape is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchError {
    /// The kernel.
    pub kernel: &'static str,
    /// The configuration that was asked for.
    pub config: LaunchConfig,
    /// The rule it breaks.
    pub rule: &'static str,
}

impl core::fmt::Display for LaunchError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let LaunchConfig {
            grid,
            block,
            shared_bytes,
            pdl,
            cluster,
        } = self.config;
        write!(
            f,
            "{}: {} (grid {grid:?}, block {block:?}, {shared_bytes} bytes shared, PDL {pdl}, clusters of {cluster})",
            self.kernel, self.rule
        )
    }
}

impl std::error::Error for LaunchError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(config: LaunchConfig, pdl: bool) -> Option<&'static str> {
        let kernel = KernelInfo {
            name: "k",
            file: "",
            doc: "",
            pdl,
            params: &[],
            emulate: |_| {},
        };
        config.check(&kernel).err().map(|error| error.rule)
    }

    #[test]
    fn shapes_outside_the_rules_are_refused() {
        assert_eq!(rule(LaunchConfig::new(4, 256).shared(1024), false), None);
        assert_eq!(rule(LaunchConfig::new(4, 256).pdl(true), true), None);
        assert_eq!(rule(LaunchConfig::new(32, 256).cluster(16), false), None);
        for refused in [
            LaunchConfig::new(32, 256).cluster(0),
            LaunchConfig::new(34, 256).cluster(17),
            LaunchConfig::new(12, 256).cluster(8),
        ] {
            assert!(rule(refused, false).unwrap().contains("1 to 16"));
        }
        assert!(
            rule(LaunchConfig::new(8, 48).cluster(8), false)
                .unwrap()
                .contains("whole warps")
        );
        assert!(rule(LaunchConfig::new(0, 256), false).unwrap().contains("empty"));
        assert!(rule(LaunchConfig::new(1, 1025), false).unwrap().contains("1024"));
        assert!(
            rule(LaunchConfig::new(1, 1).shared(1 << 20), false)
                .unwrap()
                .contains("227")
        );
        assert!(
            rule(LaunchConfig::new(1, 1).pdl(true), false)
                .unwrap()
                .contains("pdl::wait")
        );
        assert!(
            rule(LaunchConfig::shaped([1, 70_000, 1], [1; 3]), false)
                .unwrap()
                .contains("65535")
        );
    }
}
