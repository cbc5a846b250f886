//! Mutated files: valid ones with a few fields or bytes changed, and everything a program may do with the result.

use crate::{Gguf, GgufWriter, MetaValue, TensorType, TensorView};

/// Numbers that break careless arithmetic.
const AWKWARD: [u64; 14] = [
    0,
    1,
    2,
    31,
    0x7f,
    0xff,
    0xffff,
    1 << 20,
    (1 << 31) - 1,
    u32::MAX as u64,
    1 << 32,
    1 << 61,
    (1 << 63) - 1,
    u64::MAX,
];

/// A source of mutated files that depends on its seed only.
pub struct Mutator {
    state: u64,
    bases: Vec<Vec<u8>>,
}

impl Mutator {
    /// Starts the sequence of this seed.
    ///
    /// # Errors
    /// The unchanged files cannot be made (a bug in the writer).
    pub fn new(seed: u64) -> Result<Self, crate::Error> {
        let bases = vec![metadata_file()?, tensor_file()?, super::RawGguf::default().bytes()];
        Ok(Self { state: seed, bases })
    }

    /// The next file: a valid one with one to four changes.
    pub fn next_file(&mut self) -> Vec<u8> {
        let base = self.below(self.bases.len());
        let mut file = self.bases[base].clone();
        for _ in 0..=self.below(4) {
            self.change(&mut file);
        }
        file
    }

    /// A number below `n`, or 0.
    fn below(&mut self, n: usize) -> usize {
        (self.random() % n.max(1) as u64) as usize
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn change(&mut self, file: &mut Vec<u8>) {
        let at = self.below(file.len());
        match self.below(8) {
            0 => flip(file, at, 1 << self.below(8)),
            1 => flip(file, at, self.random() as u8),
            2 => self.overwrite(file, at, 4),
            3 | 4 => self.overwrite(file, at, 8),
            5 => file.truncate(at),
            6 => drop(file.drain(at..(at + self.below(16)).min(file.len()))),
            _ => self.repeat(file, at),
        }
    }

    /// Writes an awkward number, or one near the number that is there.
    fn overwrite(&mut self, file: &mut [u8], at: usize, width: usize) {
        let Some(field) = file.get_mut(at..at + width) else {
            return;
        };
        let mut number = [0; 8];
        number[..width].copy_from_slice(field);
        let value = match self.below(3) {
            0 => u64::from_le_bytes(number)
                .wrapping_add(self.below(5) as u64)
                .wrapping_sub(2),
            _ => AWKWARD[self.below(AWKWARD.len())],
        };
        field.copy_from_slice(&value.to_le_bytes()[..width]);
    }

    /// Copies a piece of the file to another place.
    fn repeat(&mut self, file: &mut Vec<u8>, at: usize) {
        let from = self.below(file.len());
        let piece = file[from..(from + self.below(64)).min(file.len())].to_vec();
        file.splice(at..at, piece);
    }
}

fn flip(file: &mut [u8], at: usize, mask: u8) {
    if let Some(byte) = file.get_mut(at) {
        *byte ^= mask;
    }
}

/// A file with a key of every kind.
fn metadata_file() -> Result<Vec<u8>, crate::Error> {
    let mut writer = GgufWriter::new();
    writer
        .set("general.architecture", "test")
        .set("general.alignment", 32u32);
    writer
        .set("a", 1u8)
        .set("b", -1i8)
        .set("c", 2u16)
        .set("d", -2i16)
        .set("e", 3i32)
        .set("f", 0.5f32);
    writer.set("g", true).set("h", 4u64).set("i", -4i64).set("j", 0.25f64);
    writer
        .set("k", &[1u32, 2, 3][..])
        .set("l", &[1.0f32, f32::NAN][..])
        .set("m", &[true, false][..]);
    writer.set("n", MetaValue::strings([&b"token"[..], b"\xff\xfe", b""]));
    writer
        .set("split.no", 0u16)
        .set("split.count", 1u16)
        .set("split.tensors.count", 0i32);
    writer.to_vec(|_, _| Ok(()))
}

/// A file with a tensor of every type.
fn tensor_file() -> Result<Vec<u8>, crate::Error> {
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", "test");
    for ty in TensorType::all() {
        writer.tensor(ty.name(), ty, &[ty.block_len() as u64, 2])?;
    }
    let types: Vec<TensorType> = TensorType::all().collect();
    writer.to_vec(|i, out| {
        let data: Vec<u8> = (0..2 * types[i].block_bytes())
            .map(|k| (k * 37 + i * 11) as u8)
            .collect();
        out.write_all(&data)
    })
}

/// What became of the files that were tried.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Files that opened.
    pub opened: u64,
    /// Files that were refused.
    pub refused: u64,
    /// Rows that were dequantised.
    pub rows: u64,
}

impl Tally {
    /// Opens a file and uses everything in it.
    ///
    /// # Panics
    /// When a message is not a single short line. Anything else that panics is a bug in the reader.
    pub fn try_file(&mut self, file: Vec<u8>) {
        match Gguf::from_vec("mutated", file) {
            Ok(gguf) => {
                self.opened += 1;
                use_metadata(&gguf);
                gguf.tensors().for_each(|tensor| self.use_tensor(&gguf, &tensor));
            }
            Err(error) => {
                self.refused += 1;
                check_message(&error);
            }
        }
    }

    fn use_tensor(&mut self, gguf: &Gguf, tensor: &TensorView<'_>) {
        assert_eq!(
            gguf.tensor(tensor.name).map(|t| t.data.as_ptr()),
            Some(tensor.data.as_ptr())
        );
        assert_eq!(tensor.rows() * tensor.row_bytes(), tensor.data.len());
        let mut out = vec![0.0; tensor.row_len()];
        for row in [0, tensor.rows() - 1] {
            self.rows += u64::from(tensor.dequantize_row(row, &mut out).is_ok());
        }
    }
}

/// Reads every value in every way.
fn use_metadata(gguf: &Gguf) {
    let metadata = gguf.metadata();
    for (key, value) in metadata.iter() {
        assert!(metadata.get(key).is_some(), "{value}");
        let errors = [
            metadata.u32(key).err(),
            metadata.i64(key).err(),
            metadata.f32(key).err(),
            metadata.bool(key).err(),
            metadata.str(key).err(),
            metadata.strings(key).map(|s| s.into_iter().flatten().count()).err(),
            metadata.list::<f32>(key).err(),
            metadata.list::<i32>(key).err(),
            metadata.per_layer::<u32>(key, 3).err(),
        ];
        errors.iter().flatten().for_each(check_message);
    }
}

/// A message must be one line of bounded length.
fn check_message(error: &crate::Error) {
    let text = error.to_string();
    assert!(!text.chars().any(char::is_control) && text.len() < 2000, "{text:?}");
}
