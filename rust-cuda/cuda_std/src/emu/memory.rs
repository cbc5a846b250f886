//! Shared memory with a shadow that remembers who used which byte, and checked global accesses.

use super::clocks::{Clocks, Stamp};
use super::fault::{FaultKind, raise};
use super::matrix::running;
use bytemuck::Pod;
use core::panic::Location;

/// Shared address at which dynamic shared memory begins: not 0, so that a null address is caught, and
/// a multiple of 128 as on the GPU.
pub(crate) const DYNAMIC_BASE: u32 = 1024;
/// Shared address at which static shared memory begins.
const STATIC_BASE: u32 = 1 << 20;
/// Static and dynamic shared memory of a block, at most.
const LIMIT: u32 = crate::launch::MAX_SHARED_BYTES;
/// Static shared memory of a block, at most.
const STATIC_LIMIT: u32 = 48 * 1024;

type Refusal = (FaultKind, String);

/// Who last wrote a byte, and the last two threads that read it.
#[derive(Clone, Copy, Default)]
struct Shadow {
    write: Stamp,
    atomic: bool,
    reads: [Stamp; 2],
}

pub(super) struct SharedMemory {
    dynamic_bytes: u32,
    /// Dynamic bytes, then static ones.
    bytes: Vec<u8>,
    shadow: Vec<Shadow>,
    statics: Vec<(&'static str, u32)>,
    static_bytes: u32,
}

impl SharedMemory {
    pub fn new(dynamic_bytes: u32) -> Self {
        let size = dynamic_bytes as usize;
        Self {
            dynamic_bytes,
            bytes: vec![0; size],
            shadow: vec![Shadow::default(); size],
            statics: Vec::new(),
            static_bytes: 0,
        }
    }

    /// A new block begins; the clocks' new epochs make all bytes unwritten.
    pub fn restart(&mut self) {
        self.bytes.fill(0xa5);
    }

    fn static_address(&mut self, key: &'static str, bytes: u32) -> Result<u32, Refusal> {
        if let Some((_, address)) = self.statics.iter().find(|(name, _)| *name == key) {
            return Ok(*address);
        }
        let address = STATIC_BASE + self.static_bytes;
        self.static_bytes += bytes.next_multiple_of(16);
        if self.static_bytes > STATIC_LIMIT || self.static_bytes + self.dynamic_bytes > LIMIT {
            let detail = format!(
                "{} static and {} dynamic bytes of shared memory",
                self.static_bytes, self.dynamic_bytes
            );
            return Err((FaultKind::SharedBounds, format!("{detail}: more than a block can have")));
        }
        let size = (self.dynamic_bytes + self.static_bytes) as usize;
        self.bytes.resize(size, 0xa5);
        self.shadow.resize(size, Shadow::default());
        self.statics.push((key, address));
        Ok(address)
    }

    /// Where the bytes of an access lie.
    pub fn locate(&self, address: u32, size: usize) -> Result<usize, Refusal> {
        let (base, first, length) = match address {
            STATIC_BASE.. => (STATIC_BASE, self.dynamic_bytes as usize, self.static_bytes),
            _ => (DYNAMIC_BASE, 0, self.dynamic_bytes),
        };
        let offset = i64::from(address) - i64::from(base);
        if offset < 0 || offset + size as i64 > i64::from(length) {
            let what = if base == STATIC_BASE { "static" } else { "dynamic" };
            let detail = format!("{size} bytes at offset {offset} of {length} {what} bytes of shared memory");
            return Err((FaultKind::SharedBounds, detail));
        }
        if !(address as usize).is_multiple_of(size) {
            return Err((
                FaultKind::Misaligned,
                format!("{size} bytes at offset {offset} of shared memory"),
            ));
        }
        Ok(first + offset as usize)
    }

    pub fn read(&mut self, clocks: &Clocks, thread: usize, address: u32, into: &mut [u8]) -> Result<(), Refusal> {
        let at = self.locate(address, into.len())?;
        let stamp = clocks.stamp(thread);
        for (i, shadow) in self.shadow[at..at + into.len()].iter_mut().enumerate() {
            if !clocks.is_set(shadow.write) {
                return Err((
                    FaultKind::SharedUninitialised,
                    format!("reads byte {} at {}", i, place(address)),
                ));
            }
            if !clocks.ordered(shadow.write, thread) {
                return Err(race(clocks, "reads", address, "wrote", shadow.write));
            }
            shadow.note_read(stamp);
        }
        into.copy_from_slice(&self.bytes[at..at + into.len()]);
        Ok(())
    }

    pub fn write(&mut self, clocks: &Clocks, stamp: Stamp, address: u32, from: &[u8]) -> Result<(), Refusal> {
        let at = self.locate(address, from.len())?;
        for shadow in &mut self.shadow[at..at + from.len()] {
            shadow.check_write(clocks, stamp.thread(), address)?;
            *shadow = Shadow {
                write: stamp,
                ..Shadow::default()
            };
        }
        self.bytes[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }

    /// Like [`Self::write`], for bytes at any alignment: bulk copies.
    pub fn write_bulk(&mut self, clocks: &Clocks, stamp: Stamp, address: u32, from: &[u8]) -> Result<(), Refusal> {
        from.iter()
            .enumerate()
            .try_for_each(|(i, byte)| self.write(clocks, stamp, address + i as u32, &[*byte]))
    }

    /// An atomic update: ordered against other atomics, and a write against all else.
    fn update<T: Pod>(
        &mut self,
        clocks: &Clocks,
        thread: usize,
        address: u32,
        f: impl FnOnce(T) -> T,
    ) -> Result<T, Refusal> {
        let size = size_of::<T>();
        let at = self.locate(address, size)?;
        let stamp = clocks.stamp(thread);
        for shadow in &mut self.shadow[at..at + size] {
            if !clocks.is_set(shadow.write) {
                return Err((
                    FaultKind::SharedUninitialised,
                    format!("an atomic at {}", place(address)),
                ));
            }
            if !shadow.atomic {
                shadow.check_write(clocks, thread, address)?;
            }
            *shadow = Shadow {
                write: stamp,
                atomic: true,
                ..Shadow::default()
            };
        }
        let bytes = &mut self.bytes[at..at + size];
        let old: T = bytemuck::pod_read_unaligned(bytes);
        bytes.copy_from_slice(bytemuck::bytes_of(&f(old)));
        Ok(old)
    }
}

impl Shadow {
    fn note_read(&mut self, stamp: Stamp) {
        if self.reads[0].thread() != stamp.thread() {
            self.reads[1] = self.reads[0];
        }
        self.reads[0] = stamp;
    }

    fn check_write(&self, clocks: &Clocks, thread: usize, address: u32) -> Result<(), Refusal> {
        if !clocks.ordered(self.write, thread) {
            return Err(race(clocks, "writes", address, "wrote", self.write));
        }
        match self.reads.iter().find(|read| !clocks.ordered(**read, thread)) {
            Some(read) => Err(race(clocks, "writes", address, "read", *read)),
            None => Ok(()),
        }
    }
}

fn place(address: u32) -> String {
    match address {
        STATIC_BASE.. => format!("offset {} of static shared memory", address - STATIC_BASE),
        _ => format!("offset {} of dynamic shared memory", address.wrapping_sub(DYNAMIC_BASE)),
    }
}

fn race(clocks: &Clocks, does: &str, address: u32, did: &str, other: Stamp) -> Refusal {
    let detail = format!(
        "{does} {} that {} {did}, with no barrier between",
        place(address),
        clocks.name(other)
    );
    (FaultKind::SharedRace, detail)
}

fn or_raise<T>(result: Result<T, Refusal>, site: &'static Location<'static>) -> T {
    result.unwrap_or_else(|(kind, detail)| raise(kind, Some(site), detail))
}

#[track_caller]
pub(crate) fn shared_read<T: Pod>(address: u32) -> T {
    let mut value = T::zeroed();
    let into = bytemuck::bytes_of_mut(&mut value);
    or_raise(
        running(|memory, clocks, thread| memory.read(clocks, thread, address, into)),
        Location::caller(),
    );
    value
}

#[track_caller]
pub(crate) fn shared_write<T: Pod>(address: u32, value: T) {
    let from = bytemuck::bytes_of(&value);
    let write = running(|memory, clocks, thread| memory.write(clocks, clocks.stamp(thread), address, from));
    or_raise(write, Location::caller());
}

#[track_caller]
pub(crate) fn shared_atomic<T: Pod>(address: u32, f: impl FnOnce(T) -> T) -> T {
    or_raise(
        running(|memory, clocks, thread| memory.update(clocks, thread, address, f)),
        Location::caller(),
    )
}

#[track_caller]
pub(crate) fn shared_index_fault(start: u32, count: u32, len: u32) -> ! {
    let detail = format!(
        "values {start} to {} of a handle of {len}",
        u64::from(start) + u64::from(count)
    );
    raise(FaultKind::SharedBounds, Some(Location::caller()), detail)
}

/// The address of the static shared array that `key` names: the same in all blocks of the cluster.
#[doc(hidden)]
#[track_caller]
pub fn static_shared(key: &'static str, bytes: u32) -> u32 {
    let address = super::context::with(|cluster| {
        let blocks = cluster.blocks.iter_mut();
        let addresses: Result<Vec<u32>, Refusal> =
            blocks.map(|block| block.shared.static_address(key, bytes)).collect();
        addresses.map(|all| all[0])
    });
    or_raise(address, Location::caller())
}

/// Checks what can be checked of a global address; the guard pages do the rest.
#[track_caller]
fn check_global<T>(pointer: *const T) {
    if pointer.addr() < 4096 {
        raise(
            FaultKind::GlobalAccess,
            Some(Location::caller()),
            format!("address {pointer:?} is null"),
        );
    }
    if !pointer.addr().is_multiple_of(size_of::<T>()) {
        let detail = format!("{} bytes at {pointer:?}", size_of::<T>());
        raise(FaultKind::Misaligned, Some(Location::caller()), detail);
    }
}

#[track_caller]
pub(crate) unsafe fn global_read<T: Pod>(from: *const T) -> T {
    check_global(from);
    // SAFETY: the caller's: readable; and it is aligned.
    unsafe { from.read_volatile() }
}

#[track_caller]
pub(crate) unsafe fn global_write<T: Pod>(to: *mut T, value: T) {
    check_global(to);
    // SAFETY: the caller's: writable; and it is aligned.
    unsafe { to.write_volatile(value) }
}

/// Loads what others may be about to change: the others get a turn first.
#[track_caller]
pub(crate) unsafe fn atomic_load<T: Pod>(from: *const T) -> T {
    super::context::pause();
    // SAFETY: the caller's.
    unsafe { global_read(from) }
}

/// Updates in one step, and returns what was there. The others get a turn first.
#[track_caller]
pub(crate) unsafe fn atomic_update<T: Pod + PartialEq>(at: *mut T, f: impl FnOnce(T) -> T) -> T {
    super::context::pause();
    // SAFETY: the caller's: readable and writable.
    let old = unsafe { global_read(at.cast_const()) };
    let new = f(old);
    // SAFETY: as above.
    unsafe { global_write(at, new) };
    if new != old {
        super::context::with(super::cluster::Cluster::progress);
    }
    old
}
