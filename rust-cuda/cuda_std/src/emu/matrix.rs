//! Tensor-core operations of a warp.

use super::cluster::Cluster;
use super::collective::{Collective, collective_all};
use super::context::with;
use super::fault::FaultKind;
use super::lanes::Lane;
use core::panic::Location;
use half::{bf16, f16};

/// `ldmatrix`: each lane brings the address of a row, and takes a register of each matrix.
#[track_caller]
pub(crate) fn load_matrices<const N: usize>(row: u32, transposed: bool) -> [u32; N] {
    let result = collective_all(Collective::Matrices(N as u8, transposed), &[row]);
    core::array::from_fn(|i| result[i])
}

impl Cluster {
    /// Reads `count` matrices by the rows that the lanes name, and deals them out.
    pub fn deliver_matrices(
        &mut self,
        base: usize,
        count: usize,
        transposed: bool,
        site: &'static Location<'static>,
    ) -> Result<(), (FaultKind, String)> {
        let mut elements = [[[0u16; 8]; 8]; 4];
        for lane in 0..8 * count {
            let address = self.lanes[base + lane].input[0];
            let mut bytes = [0u8; 16];
            self.read_shared_bytes(base + lane, address, &mut bytes, site)?;
            elements[lane / 8][lane % 8] =
                core::array::from_fn(|i| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]));
        }
        for lane in 0..32 {
            let (row, column) = (lane / 4, 2 * (lane % 4));
            for (matrix, result) in elements.iter().zip(&mut self.lanes[base + lane].result) {
                let [low, high] = match transposed {
                    false => [matrix[row][column], matrix[row][column + 1]],
                    true => [matrix[column][row], matrix[column + 1][row]],
                };
                *result = u32::from(low) | u32::from(high) << 16;
            }
        }
        Ok(())
    }
}

/// D = A·B + C from the lanes' registers a0…a3, b0, b1, c0…c3.
pub(super) fn multiply(kind: Collective, lanes: &mut [Lane]) -> Result<(), (FaultKind, String)> {
    let registers: [[u32; 10]; 32] = core::array::from_fn(|lane| lanes[lane].input);
    for (lane, state) in lanes.iter_mut().enumerate() {
        state.result = core::array::from_fn(|i| {
            let (row, column) = (lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2);
            let c = registers[lane][6 + i];
            match kind {
                Collective::MmaS8 => integer(&registers, row, column, c, |byte| i32::from(byte as i8)),
                Collective::MmaU8S8 => integer(&registers, row, column, c, i32::from),
                Collective::MmaBf16 => float(&registers, row, column, c, |bits| bf16::from_bits(bits).to_f64()),
                _ => float(&registers, row, column, c, |bits| f16::from_bits(bits).to_f64()),
            }
        });
    }
    Ok(())
}

/// The register and lane that hold element (row, k) of A, where a register holds `per` elements.
fn a_place(row: usize, k: usize, per: usize) -> (usize, usize) {
    (4 * (row % 8) + k % (4 * per) / per, row / 8 + 2 * (k / (4 * per)))
}

/// The register and lane that hold element (k, column) of B.
fn b_place(k: usize, column: usize, per: usize) -> (usize, usize) {
    (4 * column + k % (4 * per) / per, 4 + k / (4 * per))
}

fn integer(registers: &[[u32; 10]; 32], row: usize, column: usize, c: u32, signed: impl Fn(u8) -> i32) -> u32 {
    let byte = |(lane, register): (usize, usize), k: usize| registers[lane][register].to_le_bytes()[k % 4];
    let product = |k| signed(byte(a_place(row, k, 4), k)) * i32::from(byte(b_place(k, column, 4), k) as i8);
    (0..32).map(product).fold(c as i32, i32::wrapping_add) as u32
}

fn float(registers: &[[u32; 10]; 32], row: usize, column: usize, c: u32, value: impl Fn(u16) -> f64) -> u32 {
    let half = |(lane, register): (usize, usize), k: usize| (registers[lane][register] >> (16 * (k % 2))) as u16;
    let product = |k| value(half(a_place(row, k, 2), k)) * value(half(b_place(k, column, 2), k));
    let sum: f64 = (0..16).map(product).sum();
    ((sum + f64::from(f32::from_bits(c))) as f32).to_bits()
}

impl Cluster {
    /// Reads shared memory as `thread`.
    fn read_shared_bytes(
        &mut self,
        thread: usize,
        address: u32,
        into: &mut [u8],
        site: &'static Location<'static>,
    ) -> Result<(), (FaultKind, String)> {
        self.blocks[thread / self.threads]
            .shared
            .read(&self.clocks, thread, address, into)
            .map_err(|(kind, detail)| (kind, format!("{detail} (at {site})")))
    }
}

/// The running thread's access to shared memory.
pub(super) fn running<R>(f: impl FnOnce(&mut super::memory::SharedMemory, &super::clocks::Clocks, usize) -> R) -> R {
    with(|cluster| {
        let rank = cluster.rank();
        f(&mut cluster.blocks[rank].shared, &cluster.clocks, cluster.current)
    })
}
