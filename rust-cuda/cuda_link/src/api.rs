//! The driver calls that the engine makes itself, with result codes that may hold any number.
//!
//! `cust_raw` declares most of them too, but as returning an enumeration of the codes known when it was written; a
//! newer code in such a type is undefined behaviour. Handles are opaque pointers here: the same ones that `cust` has.
#![allow(non_snake_case)]

use crate::status::Status;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// A device, by number.
pub type Device = c_int;
/// A context handle.
pub type Context = *mut c_void;
/// A stream handle; null is the default stream.
pub type Stream = *mut c_void;
/// A kernel of a loaded module.
pub type Function = *mut c_void;
/// A captured graph.
pub type Graph = *mut c_void;
/// A graph ready to be launched.
pub type GraphExec = *mut c_void;
/// A compilation of PTX in progress.
pub type LinkState = *mut c_void;
/// A device address.
pub type DeviceAddress = u64;

/// One attribute of a launch (`CUlaunchAttribute`): an identifier and a 64-byte value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchAttribute {
    /// Which attribute.
    pub id: c_uint,
    /// Alignment of the value.
    pub padding: c_uint,
    /// The value; an integer attribute uses the first four bytes.
    pub value: [u64; 8],
}

impl LaunchAttribute {
    /// Lets the kernel start before the one in front of it in the stream has ended (programmatic dependent launch):
    /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`, value 1.
    pub const PROGRAMMATIC: Self = Self {
        id: 6,
        padding: 0,
        value: [1, 0, 0, 0, 0, 0, 0, 0],
    };

    /// Clusters of `blocks` blocks along x: `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`, whose value is three 32-bit numbers.
    pub const fn cluster(blocks: u32) -> Self {
        Self {
            id: 4,
            padding: 0,
            // x and y share the first word.
            value: [(1 << 32) | blocks as u64, 1, 0, 0, 0, 0, 0, 0],
        }
    }
}

/// A launch's shape and attributes (`CUlaunchConfig`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfig {
    /// Blocks in x, y, z.
    pub grid: [c_uint; 3],
    /// Threads a block in x, y, z.
    pub block: [c_uint; 3],
    /// Bytes of dynamic shared memory a block.
    pub shared_bytes: c_uint,
    /// Where it runs.
    pub stream: Stream,
    /// The attributes.
    pub attributes: *const LaunchAttribute,
    /// How many.
    pub attribute_count: c_uint,
}

/// Attribute numbers of `cuDeviceGetAttribute`.
pub mod device_attribute {
    use std::ffi::c_int;
    /// Streaming multiprocessors.
    pub const MULTIPROCESSORS: c_int = 16;
    /// Highest core clock in kHz.
    pub const CLOCK_RATE: c_int = 13;
    /// Highest memory clock in kHz.
    pub const MEMORY_CLOCK_RATE: c_int = 36;
    /// Width of the memory bus in bits.
    pub const MEMORY_BUS_WIDTH: c_int = 37;
    /// Bytes of L2 cache.
    pub const L2_BYTES: c_int = 38;
    /// Compute capability, major part.
    pub const CAPABILITY_MAJOR: c_int = 75;
    /// Compute capability, minor part.
    pub const CAPABILITY_MINOR: c_int = 76;
    /// Bytes of shared memory of a multiprocessor.
    pub const SHARED_BYTES_OF_MULTIPROCESSOR: c_int = 81;
    /// Bytes of shared memory that a block may have at most when it asks.
    pub const SHARED_BYTES_OPT_IN: c_int = 97;
}

/// Option numbers of `cuLinkCreate`.
pub mod jit_option {
    use std::ffi::c_uint;
    /// Where the compiler writes what is wrong.
    pub const ERROR_LOG: c_uint = 5;
    /// Bytes of that buffer.
    pub const ERROR_LOG_BYTES: c_uint = 6;
}

/// Attribute numbers of `cuFuncGetAttribute` and `cuFuncSetAttribute`.
pub mod function_attribute {
    use std::ffi::c_int;
    /// Most threads a block.
    pub const MAX_THREADS: c_int = 0;
    /// Bytes of static shared memory.
    pub const STATIC_SHARED_BYTES: c_int = 1;
    /// Bytes of local memory a thread.
    pub const LOCAL_BYTES: c_int = 3;
    /// Registers a thread.
    pub const REGISTERS: c_int = 4;
    /// Bytes of dynamic shared memory that a launch may ask for; settable.
    pub const MAX_DYNAMIC_SHARED_BYTES: c_int = 8;
    /// Percent of the memory that shared memory and L1 divide that shared memory should get; settable.
    pub const SHARED_CARVEOUT: c_int = 9;
    /// Whether clusters may have more than the 8 blocks that work on every GPU; settable.
    pub const LARGE_CLUSTERS: c_int = 14;
}

#[allow(
    missing_docs,
    reason = "the names and arguments are the driver API's own, documented by NVIDIA"
)]
unsafe extern "C" {
    pub fn cuInit(flags: c_uint) -> Status;
    pub fn cuDriverGetVersion(version: *mut c_int) -> Status;
    pub fn cuGetErrorString(code: u32, text: *mut *const c_char) -> Status;

    pub fn cuDeviceGetCount(count: *mut c_int) -> Status;
    pub fn cuDeviceGet(device: *mut Device, ordinal: c_int) -> Status;
    pub fn cuDeviceGetName(name: *mut c_char, length: c_int, device: Device) -> Status;
    pub fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: Device) -> Status;
    pub fn cuDeviceTotalMem_v2(bytes: *mut usize, device: Device) -> Status;

    pub fn cuDevicePrimaryCtxRetain(context: *mut Context, device: Device) -> Status;
    pub fn cuDevicePrimaryCtxRelease_v2(device: Device) -> Status;
    pub fn cuCtxSetCurrent(context: Context) -> Status;
    pub fn cuCtxSynchronize() -> Status;

    pub fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status;
    pub fn cuMemAlloc_v2(address: *mut DeviceAddress, bytes: usize) -> Status;
    pub fn cuMemFree_v2(address: DeviceAddress) -> Status;
    pub fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint) -> Status;
    pub fn cuMemFreeHost(address: *mut c_void) -> Status;
    pub fn cuMemHostGetDevicePointer_v2(address: *mut DeviceAddress, host: *mut c_void, flags: c_uint) -> Status;
    pub fn cuMemcpyHtoDAsync_v2(to: DeviceAddress, from: *const c_void, bytes: usize, stream: Stream) -> Status;
    pub fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: DeviceAddress, bytes: usize, stream: Stream) -> Status;
    pub fn cuMemcpyDtoDAsync_v2(to: DeviceAddress, from: DeviceAddress, bytes: usize, stream: Stream) -> Status;
    pub fn cuMemsetD8Async(to: DeviceAddress, value: u8, bytes: usize, stream: Stream) -> Status;

    pub fn cuStreamSynchronize(stream: Stream) -> Status;
    pub fn cuStreamQuery(stream: Stream) -> Status;
    pub fn cuStreamBeginCapture_v2(stream: Stream, mode: c_uint) -> Status;
    pub fn cuStreamEndCapture(stream: Stream, graph: *mut Graph) -> Status;
    pub fn cuGraphGetNodes(graph: Graph, nodes: *mut *mut c_void, count: *mut usize) -> Status;
    pub fn cuGraphInstantiateWithFlags(exec: *mut GraphExec, graph: Graph, flags: u64) -> Status;
    pub fn cuGraphUpload(exec: GraphExec, stream: Stream) -> Status;
    pub fn cuGraphLaunch(exec: GraphExec, stream: Stream) -> Status;
    pub fn cuGraphDestroy(graph: Graph) -> Status;
    pub fn cuGraphExecDestroy(exec: GraphExec) -> Status;

    pub fn cuLinkCreate_v2(
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
        state: *mut LinkState,
    ) -> Status;
    pub fn cuLinkAddData_v2(
        state: LinkState,
        kind: c_uint,
        data: *mut c_void,
        bytes: usize,
        name: *const c_char,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) -> Status;
    pub fn cuLinkComplete(state: LinkState, cubin: *mut *mut c_void, bytes: *mut usize) -> Status;
    pub fn cuLinkDestroy(state: LinkState) -> Status;

    pub fn cuLaunchKernelEx(
        config: *const LaunchConfig,
        function: Function,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Status;
    pub fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: Function) -> Status;
    pub fn cuFuncSetAttribute(function: Function, attribute: c_int, value: c_int) -> Status;
    pub fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: Function,
        block_size: c_int,
        shared_bytes: usize,
    ) -> Status;
    pub fn cuOccupancyMaxActiveClusters(
        clusters: *mut c_int,
        function: Function,
        config: *const LaunchConfig,
    ) -> Status;
}

#[cfg(test)]
mod tests {
    use super::{LaunchAttribute, LaunchConfig};

    /// The sizes and offsets of the driver's C structures on 64-bit machines.
    #[test]
    fn launch_structures_have_the_layout_of_the_c_header() {
        assert_eq!(size_of::<LaunchAttribute>(), 72);
        assert_eq!(std::mem::offset_of!(LaunchAttribute, value), 8);
        assert_eq!(size_of::<LaunchConfig>(), 56);
        assert_eq!(std::mem::offset_of!(LaunchConfig, stream), 32);
        assert_eq!(std::mem::offset_of!(LaunchConfig, attributes), 40);
    }

    #[test]
    fn a_cluster_is_three_numbers_of_32_bits() {
        let bytes: Vec<u8> = LaunchAttribute::cluster(16)
            .value
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        assert_eq!(bytes[..12], [16, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
    }
}
