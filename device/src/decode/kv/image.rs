//! Caches on the host: what device memory holds, byte by byte, for references and tests.

use super::{BLOCK, KvFormat, Place};
use ::half::{bf16, f16};
use sparkinfer_gguf::blocks::BlockQ8_0;
use sparkinfer_gguf::quantize::Quantize;

impl KvFormat {
    /// A token's values of one head as the format keeps them; with q8_0 a multiple of 32.
    #[must_use]
    pub fn round(self, values: &[f32]) -> Vec<f32> {
        let places = (0..values.len()).map(|i| Place {
            value: i as u32 * self.value_bytes(),
            scale: (values.len() + i / BLOCK as usize * 2) as u32,
            offset: 0,
        });
        let places: Vec<Place> = places.collect();
        let mut bytes = vec![0; 3 * values.len()];
        self.put(&mut bytes, &places, values);
        places.iter().map(|place| self.get(&bytes, *place)).collect()
    }

    /// The value at a place.
    fn get(self, bytes: &[u8], place: Place) -> f32 {
        let half = |at: u32| u16::from_le_bytes([bytes[at as usize], bytes[at as usize + 1]]);
        match self {
            Self::F16 => f16::from_bits(half(place.value)).to_f32(),
            Self::Bf16 => bf16::from_bits(half(place.value)).to_f32(),
            Self::Q8_0 => {
                f32::from((bytes[place.value as usize] ^ place.offset) as i8)
                    * f16::from_bits(half(place.scale)).to_f32()
            }
        }
    }

    /// Stores a token's values of one head at their places.
    fn put(self, bytes: &mut [u8], places: &[Place], values: &[f32]) {
        let mut set = |at: u32, bits: u16| bytes[at as usize..at as usize + 2].copy_from_slice(&bits.to_le_bytes());
        match self {
            Self::F16 => places
                .iter()
                .zip(values)
                .for_each(|(p, v)| set(p.value, f16::from_f32(*v).to_bits())),
            Self::Bf16 => places
                .iter()
                .zip(values)
                .for_each(|(p, v)| set(p.value, bf16::from_f32(*v).to_bits())),
            Self::Q8_0 => {
                for (places, values) in places.chunks(BLOCK as usize).zip(values.chunks(BLOCK as usize)) {
                    let block = BlockQ8_0::quantize(values);
                    let scale = block.d.to_bits().to_le_bytes();
                    bytes[places[0].scale as usize..places[0].scale as usize + 2].copy_from_slice(&scale);
                    places
                        .iter()
                        .zip(block.qs)
                        .for_each(|(p, q)| bytes[p.value as usize] = q as u8 ^ p.offset);
                }
            }
        }
    }
}

/// A layer's pool of keys, or of values.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The format.
    pub format: KvFormat,
    /// Dims of a head.
    pub head_dim: u32,
    /// Bytes from one page to the next.
    pub page_bytes: u32,
    /// Whether it holds keys: values lie in another order.
    pub keys: bool,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A token's head in a pool.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The page.
    pub page: u32,
    /// Position of the token mod 64.
    pub slot: u32,
    /// The key or value head.
    pub kv_head: u32,
}

impl Pool {
    /// Where dim `dim` of a cell lies in the pool.
    #[must_use]
    pub fn place(&self, cell: Cell, dim: u32) -> Place {
        let head = self
            .format
            .head_at(cell.page, self.page_bytes, cell.kv_head, self.head_dim) as u32;
        let place = match self.keys {
            true => self.format.key(cell.slot, dim, self.head_dim),
            false => self.format.value(cell.slot, dim, self.head_dim),
        };
        Place {
            value: head + place.value,
            scale: head + place.scale,
            ..place
        }
    }

    /// Dim `dim` of a cell.
    #[must_use]
    pub fn get(&self, cell: Cell, dim: u32) -> f32 {
        self.format.get(&self.bytes, self.place(cell, dim))
    }

    /// Stores a cell.
    pub fn put(&mut self, cell: Cell, values: &[f32]) {
        let places: Vec<Place> = (0..self.head_dim).map(|dim| self.place(cell, dim)).collect();
        self.format.put(&mut self.bytes, &places, values);
    }

    /// The bytes that belong to a cell.
    #[must_use]
    pub fn bytes_of(&self, cell: Cell) -> Vec<usize> {
        let places = (0..self.head_dim).map(|dim| self.place(cell, dim));
        let bytes = places.flat_map(|place| {
            let value = place.value..place.value + self.format.value_bytes();
            let scale = place.scale..place.scale + 2 * u32::from(self.format.scaled());
            value.chain(scale)
        });
        bytes.map(|byte| byte as usize).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_comes_back_rounded() {
        for format in KvFormat::ALL {
            for keys in [true, false] {
                let mut pool = Pool {
                    format,
                    head_dim: 64,
                    page_bytes: format.page_bytes(2, 64),
                    keys,
                    bytes: vec![0xff; 3 * format.page_bytes(2, 64) as usize],
                };
                let values: Vec<f32> = (0..64).map(|i| (i as f32 - 20.0) / 7.0).collect();
                let cell = Cell {
                    page: 2,
                    slot: 37,
                    kv_head: 1,
                };
                pool.put(cell, &values);
                let got: Vec<f32> = (0..64).map(|dim| pool.get(cell, dim)).collect();
                assert_eq!(got, format.round(&values));
                let worst = got.iter().zip(&values).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
                assert!(worst > 0.0 && worst < 0.03, "{}: {worst}", format.name());
                let written = pool.bytes.iter().filter(|byte| **byte != 0xff).count();
                assert!(written <= pool.bytes_of(cell).len(), "{}", format.name());
            }
        }
    }
}
