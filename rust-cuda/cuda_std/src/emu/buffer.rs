//! Buffers in "device" memory between guard pages.

use crate::launch::DevicePtr;
use bytemuck::Pod;
use core::marker::PhantomData;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread::ThreadId;

/// What fills memory that is not a buffer's own, around it in its pages.
const CANARY: u8 = 0xc7;
/// What fills outputs before a kernel writes them: a NaN as f32, and no likely value otherwise.
const POISON: [u8; 8] = [0xe7, 0xc3, 0xa5, 0xff, 0x9b, 0x5d, 0xb1, 0xff];
/// Buffers begin at multiples of this, as the widest access asks; so up to 15 bytes may lie between
/// the end of one and its guard page.
const ALIGN: usize = 16;

/// The buffers that exist: first data byte, length, owner, first mapped byte.
static LIVE: Mutex<BTreeMap<usize, Entry>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy)]
struct Entry {
    length: usize,
    owner: ThreadId,
    mapping: usize,
    mapped: usize,
}

fn live() -> std::sync::MutexGuard<'static, BTreeMap<usize, Entry>> {
    LIVE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Where an address lies as seen from the nearest buffer.
pub(super) fn describe(address: usize) -> String {
    let live = live();
    let below = live
        .range(..=address)
        .next_back()
        .map(|(start, e)| (address - (start + e.length).min(address), start, e));
    let above = live
        .range(address..)
        .next()
        .map(|(start, e)| (start - address, start, e));
    let nearest = |distance: usize, other: Option<usize>| distance < 1 << 20 && other.is_none_or(|o| distance <= o);
    let (past, before) = (below.map(|(past, ..)| past), above.map(|(before, ..)| before));
    match (below, above) {
        (Some((past, _, entry)), _) if nearest(past, before) => {
            format!("{past} bytes past the end of a buffer of {} bytes", entry.length)
        }
        (_, Some((before, _, entry))) if nearest(before, past) => {
            format!("{before} bytes before a buffer of {} bytes", entry.length)
        }
        _ => "near no buffer".to_owned(),
    }
}

/// A buffer of this host thread whose surroundings have been written to.
pub(super) fn damaged() -> Option<String> {
    let owner = std::thread::current().id();
    live()
        .iter()
        .filter(|(_, entry)| entry.owner == owner)
        .find_map(|(&start, entry)| damage(start, entry))
}

fn damage(start: usize, entry: &Entry) -> Option<String> {
    let (page, end) = (page_bytes(), start + entry.length);
    let (first, last) = (entry.mapping + page, entry.mapping + entry.mapped - page);
    let broken = |from: usize, to: usize| {
        // SAFETY: these bytes are mapped, readable, and hold the canary.
        let bytes = unsafe { core::slice::from_raw_parts(from as *const u8, to - from) };
        bytes.iter().position(|&byte| byte != CANARY)
    };
    let before = broken(first, start).map(|at| format!("{} bytes before", start - first - at));
    let place = before.or_else(|| broken(end, last).map(|at| format!("{at} bytes past the end of")))?;
    Some(format!("wrote {place} a buffer of {} bytes", entry.length))
}

fn page_bytes() -> usize {
    // SAFETY: asks for a constant of the system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Bytes between two guard pages, their end close to the second.
pub struct Guarded {
    start: *mut u8,
    length: usize,
}

// SAFETY: it owns its mapping.
unsafe impl Send for Guarded {}
// SAFETY: shared access reads only.
unsafe impl Sync for Guarded {}

impl Guarded {
    /// `length` bytes, all of them the canary.
    ///
    /// # Panics
    /// Where the system has no memory left.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let page = page_bytes();
        let inner = length.next_multiple_of(ALIGN).next_multiple_of(page).max(page);
        let mapped = inner + 2 * page;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping; its middle is made accessible and filled.
        let base = unsafe { libc::mmap(core::ptr::null_mut(), mapped, libc::PROT_NONE, flags, -1, 0) };
        assert!(base != libc::MAP_FAILED, "no memory for a buffer of {length} bytes");
        let first = base.cast::<u8>().wrapping_add(page);
        // SAFETY: as above.
        unsafe {
            assert_eq!(
                libc::mprotect(first.cast(), inner, libc::PROT_READ | libc::PROT_WRITE),
                0,
                "mprotect"
            );
            first.write_bytes(CANARY, inner);
        }
        let start = first.wrapping_add(inner - length.next_multiple_of(ALIGN));
        let entry = Entry {
            length,
            owner: std::thread::current().id(),
            mapping: base as usize,
            mapped,
        };
        live().insert(start as usize, entry);
        Self { start, length }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(entry) = live().remove(&(self.start as usize)) {
            // SAFETY: the mapping is this buffer's own, and nothing refers to it any more.
            unsafe { libc::munmap(entry.mapping as *mut libc::c_void, entry.mapped) };
        }
    }
}

/// Values in emulated device memory. An access past its end hits a guard page and ends the launch with
/// a fault; the bytes around it are checked after each launch.
pub struct Buffer<T> {
    memory: Guarded,
    element: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    fn filled(length: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let memory = Guarded::new(length * size_of::<T>());
        // SAFETY: this many bytes lie there, and nothing else refers to them.
        fill(unsafe { core::slice::from_raw_parts_mut(memory.start, memory.length) });
        Self {
            memory,
            element: PhantomData,
        }
    }

    /// `length` zeros.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        Self::filled(length, |bytes| bytes.fill(0))
    }

    /// A copy of `values`.
    #[must_use]
    pub fn from_slice(values: &[T]) -> Self {
        Self::filled(values.len(), |bytes| {
            bytes.copy_from_slice(bytemuck::cast_slice(values))
        })
    }

    /// `length` values of poison, which [`Self::check_written`] looks for.
    #[must_use]
    pub fn poisoned(length: usize) -> Self {
        Self::filled(length, |bytes| {
            bytes
                .chunks_mut(POISON.len())
                .for_each(|chunk| chunk.copy_from_slice(&POISON[..chunk.len()]));
        })
    }

    /// The address to launch kernels with.
    #[must_use]
    pub fn ptr(&self) -> DevicePtr<T> {
        DevicePtr::from_raw(self.memory.start.expose_provenance() as u64)
    }

    /// How many values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.length / size_of::<T>()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.length == 0
    }

    /// The values.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: the memory holds this many values of a type for which all bytes are valid; kernels
        // write to it during launches only, which borrow nothing.
        unsafe { core::slice::from_raw_parts(self.memory.start.cast(), self.len()) }
    }

    /// The values, to change.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed alone.
        unsafe { core::slice::from_raw_parts_mut(self.memory.start.cast(), self.len()) }
    }

    /// A copy of the values.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        self.as_slice().to_vec()
    }

    /// Checks that a kernel has written every value of a buffer that was poisoned.
    ///
    /// The grain is a value, or 8 bytes where values are smaller than 4 bytes.
    ///
    /// # Errors
    /// The first values that still hold poison.
    pub fn check_written(&self) -> Result<(), Unwritten> {
        let bytes: &[u8] = bytemuck::cast_slice(self.as_slice());
        let grain = if size_of::<T>() < 4 { 8 } else { size_of::<T>() };
        let is_poison = |(i, chunk): (usize, &[u8])| {
            chunk.len() == grain
                && chunk
                    .iter()
                    .enumerate()
                    .all(|(j, &byte)| byte == POISON[(i * grain + j) % 8])
        };
        let poisoned: Vec<bool> = bytes.chunks(grain).enumerate().map(is_poison).collect();
        let Some(first) = poisoned.iter().position(|&p| p) else {
            return Ok(());
        };
        let count = poisoned.iter().filter(|&&p| p).count();
        let per = (grain / size_of::<T>()).max(1);
        Err(Unwritten {
            first: first * per,
            count: count * per,
            length: self.len(),
        })
    }
}

/// Checks that `length` bytes from `address` on lie in one buffer that exists.
fn check_range(address: u64, length: usize) -> Result<usize, OutOfBuffer> {
    let start = address as usize;
    let inside =
        |(&first, entry): (&usize, &Entry)| start - first <= entry.length && length <= entry.length - (start - first);
    match live().range(..=start).next_back() {
        Some(buffer) if inside(buffer) => Ok(start),
        _ => Err(OutOfBuffer { address, length }),
    }
}

/// Copies `bytes` to the emulated device address `address`. No launch may run meanwhile on another thread.
///
/// # Errors
/// The range does not lie in one buffer.
pub fn write_bytes(address: u64, bytes: &[u8]) -> Result<(), OutOfBuffer> {
    let start = check_range(address, bytes.len())?;
    let to: *mut u8 = core::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the range lies in a live buffer, whose address was exposed, and `bytes` in no buffer.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

/// Copies from the emulated device address `address`. No launch may run meanwhile on another thread.
///
/// # Errors
/// The range does not lie in one buffer.
pub fn read_bytes(address: u64, bytes: &mut [u8]) -> Result<(), OutOfBuffer> {
    let start = check_range(address, bytes.len())?;
    let from: *const u8 = core::ptr::with_exposed_provenance(start);
    // SAFETY: as above.
    unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    Ok(())
}

/// A range of addresses that lies in no buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfBuffer {
    /// Its first byte.
    pub address: u64,
    /// Its length.
    pub length: usize,
}

impl core::fmt::Display for OutOfBuffer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { address, length } = self;
        write!(
            f,
            "{length} bytes at {address:#x} lie in no buffer: {}",
            describe(*address as usize)
        )
    }
}

impl std::error::Error for OutOfBuffer {}

/// Values that a kernel should have written and did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unwritten {
    /// The first of them.
    pub first: usize,
    /// How many.
    pub count: usize,
    /// Of so many.
    pub length: usize,
}

impl core::fmt::Display for Unwritten {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { first, count, length } = self;
        write!(
            f,
            "{count} of {length} values were not written, the first is number {first}"
        )
    }
}

impl std::error::Error for Unwritten {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_addresses_are_aligned() {
        let buffer = Buffer::from_slice(&[1u8, 2, 3]);
        assert_eq!(buffer.to_vec(), [1, 2, 3]);
        assert!(buffer.ptr().as_raw().is_multiple_of(16));
        assert!(Buffer::<f32>::zeroed(0).is_empty());
        assert!(Buffer::<f32>::zeroed(5000).as_slice().iter().all(|&x| x == 0.0));
    }

    #[test]
    fn poison_is_found_where_it_is_left() {
        let mut buffer = Buffer::<f32>::poisoned(5);
        assert!(buffer.as_slice().iter().all(|x| x.is_nan()));
        assert_eq!(
            buffer.check_written(),
            Err(Unwritten {
                first: 0,
                count: 5,
                length: 5
            })
        );
        buffer.as_mut_slice()[..4].fill(0.0);
        assert_eq!(
            buffer.check_written(),
            Err(Unwritten {
                first: 4,
                count: 1,
                length: 5
            })
        );
        buffer.as_mut_slice()[4] = 1.0;
        assert_eq!(buffer.check_written(), Ok(()));
        let mut small = Buffer::<u8>::poisoned(32);
        small.as_mut_slice()[..16].fill(1);
        assert_eq!(
            small.check_written(),
            Err(Unwritten {
                first: 16,
                count: 16,
                length: 32
            })
        );
    }

    #[test]
    fn copies_stay_inside_a_buffer() {
        let buffer = Buffer::from_slice(&[0u8; 32]);
        let address = buffer.ptr().as_raw();
        write_bytes(address + 30, &[5, 6]).unwrap();
        let mut back = [0; 3];
        read_bytes(address + 29, &mut back).unwrap();
        assert_eq!(back, [0, 5, 6]);
        assert_eq!(
            write_bytes(address + 31, &[1, 2]),
            Err(OutOfBuffer {
                address: address + 31,
                length: 2
            })
        );
        assert!(read_bytes(address - 1, &mut back).is_err());
    }

    #[test]
    fn writes_around_a_buffer_are_noticed() {
        let buffer = Buffer::from_slice(&[7u8; 20]);
        assert_eq!(damaged(), None);
        // SAFETY: the byte is mapped: it lies between the buffer and its guard page.
        unsafe { buffer.memory.start.add(21).write(0) };
        assert_eq!(damaged().unwrap(), "wrote 1 bytes past the end of a buffer of 20 bytes");
    }
}
