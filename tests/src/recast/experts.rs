//! Networks as experts, and an expert as a network: models whose results are known from another one's.

use std::borrow::Cow;

use anyhow::{Result, bail, ensure};
use sparkinfer_gguf::TensorType;
use sparkinfer_gguf::blocks::F16;

use super::{Piece, Recast};

/// The matrices of a gated network.
const MATRICES: [&str; 3] = ["gate", "up", "down"];

impl Recast<'_> {
    /// Makes every network `experts` equal experts, of which a token uses `used`: whatever the router says, the
    /// weights of those add up to 1, so the model computes what it did.
    ///
    /// # Errors
    /// A layer without a network.
    pub fn copy_into_experts(&mut self, experts: usize, used: usize) -> Result<&mut Self> {
        for layer in self.layers() {
            for matrix in MATRICES {
                let mut piece = self.take(&format!("blk.{layer}.ffn_{matrix}.weight"))?;
                piece.data = Cow::Owned(piece.data.repeat(experts));
                piece.shape.push(experts as u64);
                self.put_experts(layer, matrix, piece);
            }
            let prefer = |i: u64| ((i * 37 + layer as u64) % 17) as f32 / 17.0 - 0.5;
            self.put_router(layer, experts, prefer);
        }
        self.set("expert_count", experts as u32);
        Ok(self.set("expert_used_count", used as u32))
    }

    /// Cuts every network into `experts` of equal width, all of which every token uses. The router is zero, so each
    /// has the weight `1/experts`, and the down matrices are multiplied by `experts`: the sum is that of the whole
    /// network. Exact where `experts` is a power of two.
    ///
    /// # Errors
    /// A layer without a network; parts that are no whole blocks; a type whose blocks do not begin with an f16 scale.
    pub fn cut_into_experts(&mut self, experts: usize) -> Result<&mut Self> {
        let mut width = 0;
        for layer in self.layers() {
            for matrix in MATRICES {
                let mut piece = self.take(&format!("blk.{layer}.ffn_{matrix}.weight"))?;
                let cut = usize::from(matrix != "down");
                ensure!(
                    piece.shape[cut].is_multiple_of(experts as u64),
                    "layer {layer}: {:?} is not cut by {experts}",
                    piece.shape
                );
                if cut == 0 {
                    piece.data = Cow::Owned(columns_apart(&piece, experts)?);
                }
                piece.shape[cut] /= experts as u64;
                width = piece.shape[cut];
                piece.shape.push(experts as u64);
                self.put_experts(layer, matrix, piece);
            }
            self.put_router(layer, experts, |_| 0.0);
        }
        self.set("feed_forward_length", width as u32);
        self.set("expert_feed_forward_length", width as u32);
        self.set("expert_count", experts as u32);
        Ok(self.set("expert_used_count", experts as u32))
    }

    /// Makes the first expert of every layer the layer's network.
    ///
    /// # Errors
    /// A layer without experts.
    pub fn keep_first_expert(&mut self) -> Result<&mut Self> {
        let mut width = 0;
        for layer in self.layers() {
            self.take(&format!("blk.{layer}.ffn_gate_inp.weight"))?;
            for matrix in MATRICES {
                let mut piece = self.take(&format!("blk.{layer}.ffn_{matrix}_exps.weight"))?;
                ensure!(
                    piece.shape.len() == 3,
                    "layer {layer}: {:?} has no experts",
                    piece.shape
                );
                let experts = piece.shape.remove(2) as usize;
                let bytes = piece.data.len() / experts;
                piece.data = Cow::Owned(piece.data[..bytes].to_vec());
                width = piece.shape[usize::from(matrix != "down")];
                self.tensors.insert(format!("blk.{layer}.ffn_{matrix}.weight"), piece);
            }
        }
        for suffix in ["expert_count", "expert_used_count", "expert_feed_forward_length"] {
            self.metadata.remove(&format!("{}.{suffix}", self.architecture));
        }
        Ok(self.set("feed_forward_length", width as u32))
    }
}

impl<'a> Recast<'a> {
    fn put_experts(&mut self, layer: usize, matrix: &str, piece: Piece<'a>) {
        self.tensors
            .insert(format!("blk.{layer}.ffn_{matrix}_exps.weight"), piece);
    }

    /// A router whose value number `i` is `value(i)`.
    fn put_router(&mut self, layer: usize, experts: usize, value: impl Fn(u64) -> f32) {
        let width = self.tensors[&format!("blk.{layer}.ffn_norm.weight")].shape[0];
        let values = (0..width * experts as u64).flat_map(|i| value(i).to_le_bytes());
        let piece = Piece {
            ty: TensorType::F32,
            shape: vec![width, experts as u64],
            data: Cow::Owned(values.collect()),
        };
        self.tensors.insert(format!("blk.{layer}.ffn_gate_inp.weight"), piece);
    }
}

/// A matrix's columns in `parts` equal parts, each a matrix of all rows, the values multiplied by `parts`.
fn columns_apart(piece: &Piece, parts: usize) -> Result<Vec<u8>> {
    let (columns, rows) = (piece.shape[0] as usize, piece.shape[1] as usize);
    ensure!(
        (columns / parts).is_multiple_of(piece.ty.block_len()),
        "{} columns of {} are no whole blocks",
        columns / parts,
        piece.ty
    );
    let row_bytes = piece.data.len() / rows;
    let part_bytes = row_bytes / parts;
    let of_part = |part: usize| {
        let rows = piece.data.chunks_exact(row_bytes);
        rows.flat_map(move |row| row[part * part_bytes..][..part_bytes].iter().copied())
    };
    let mut data: Vec<u8> = (0..parts).flat_map(of_part).collect();
    multiply(piece.ty, &mut data, parts as f32)?;
    Ok(data)
}

/// Multiplies the values of blocks by a factor, through their f16 scales.
fn multiply(ty: TensorType, data: &mut [u8], factor: f32) -> Result<()> {
    let scales = match ty {
        TensorType::Q4_0 | TensorType::Q5_0 | TensorType::Q8_0 | TensorType::IQ4_NL => 1,
        TensorType::Q4_1 | TensorType::Q5_1 => 2,
        _ => bail!("blocks of {ty} do not begin with their scales"),
    };
    for block in data.chunks_exact_mut(ty.block_bytes()) {
        for bytes in block[..2 * scales].chunks_exact_mut(2) {
            let scale = F16::from_bits(u16::from_le_bytes([bytes[0], bytes[1]])).to_f32();
            bytes.copy_from_slice(&F16::from_f32(factor * scale).to_bits().to_le_bytes());
        }
    }
    Ok(())
}
