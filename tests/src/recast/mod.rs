//! Model files made out of other model files: a few layers of a real model, a shorter vocabulary, its networks as
//! experts.
//!
//! Tests of whole models want real weights and little time. A [`Recast`] holds a file's metadata and tensors, the
//! bytes borrowed as long as nothing changes them; each method changes one thing.

mod experts;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use sparkinfer_gguf::{Gguf, GgufWriter, MetaValue, TensorType};

/// A tensor of the new file.
#[derive(Debug, Clone)]
struct Piece<'a> {
    ty: TensorType,
    shape: Vec<u64>,
    data: Cow<'a, [u8]>,
}

/// A file being made.
#[derive(Debug, Clone)]
pub struct Recast<'a> {
    source: &'a Gguf,
    architecture: String,
    metadata: BTreeMap<String, MetaValue>,
    tensors: BTreeMap<String, Piece<'a>>,
}

impl<'a> Recast<'a> {
    /// All of a file.
    ///
    /// # Errors
    /// It does not name its architecture.
    pub fn of(gguf: &'a Gguf) -> Result<Self> {
        let pieces = gguf.tensors().map(|tensor| {
            let piece = Piece {
                ty: tensor.ty,
                shape: tensor.shape().to_vec(),
                data: Cow::Borrowed(tensor.data),
            };
            (tensor.name.to_owned(), piece)
        });
        let metadata = gguf.metadata();
        Ok(Self {
            source: gguf,
            architecture: metadata.require_str("general.architecture")?.to_owned(),
            metadata: metadata
                .iter()
                .map(|(key, value)| (key.to_owned(), value.into()))
                .collect(),
            tensors: pieces.collect(),
        })
    }

    /// Sets a key of the architecture.
    pub fn set(&mut self, suffix: &str, value: impl Into<MetaValue>) -> &mut Self {
        self.metadata
            .insert(format!("{}.{suffix}", self.architecture), value.into());
        self
    }

    /// Keeps `count` layers from number `first` on, which become the first ones.
    ///
    /// # Errors
    /// There are not so many.
    pub fn keep_layers(&mut self, first: usize, count: usize) -> Result<&mut Self> {
        let (mut kept, mut found) = (BTreeMap::new(), 0);
        for (name, piece) in std::mem::take(&mut self.tensors) {
            match layer_of(&name) {
                None => {
                    kept.insert(name, piece);
                }
                Some((layer, rest)) if (first..first + count).contains(&layer) => {
                    found = found.max(layer + 1 - first);
                    kept.insert(format!("blk.{}.{rest}", layer - first), piece);
                }
                Some(_) => {}
            }
        }
        self.tensors = kept;
        ensure!(found == count, "there are no {count} layers from layer {first} on");
        Ok(self.set("block_count", count as u32))
    }

    /// Calls the model another architecture, which has the same keys.
    pub fn rename(&mut self, architecture: &str) -> &mut Self {
        let old = format!("{}.", self.architecture);
        let renamed = |key: String| match key.strip_prefix(&old) {
            Some(suffix) => format!("{architecture}.{suffix}"),
            None => key,
        };
        self.metadata = std::mem::take(&mut self.metadata)
            .into_iter()
            .map(|(key, value)| (renamed(key), value))
            .collect();
        self.metadata.insert("general.architecture".into(), architecture.into());
        self.architecture = architecture.into();
        self
    }

    /// The new file in memory.
    ///
    /// # Errors
    /// The writer's or the reader's.
    pub fn to_gguf(&self) -> Result<Gguf> {
        let bytes = self.writer()?.to_vec(|number, out| out.write_all(self.data(number)))?;
        Ok(Gguf::from_vec(&format!("recast {}", self.architecture), bytes)?)
    }

    /// Writes the new file.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_file(&self, path: &Path) -> Result<()> {
        Ok(self
            .writer()?
            .write_file(path, |number, out| out.write_all(self.data(number)))?)
    }

    /// Writes the new file in parts of at most `max_bytes` of tensors, `PREFIX-00001-of-0000N.gguf`.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_parts(&self, prefix: &Path, max_bytes: u64) -> Result<()> {
        self.writer()?
            .write_split_files(prefix, max_bytes, |number, out| out.write_all(self.data(number)))?;
        Ok(())
    }

    fn writer(&self) -> Result<GgufWriter> {
        let mut writer = GgufWriter::new();
        for (key, value) in &self.metadata {
            writer.set(key, value.clone());
        }
        for (name, piece) in &self.tensors {
            writer.tensor(name, piece.ty, &piece.shape)?;
        }
        Ok(writer)
    }

    /// The bytes of tensor `number`, in the order of the writer.
    fn data(&self, number: usize) -> &[u8] {
        self.tensors.values().nth(number).map_or(&[], |piece| &piece.data)
    }

    /// The numbers of all layers.
    fn layers(&self) -> Vec<usize> {
        let mut layers: Vec<usize> = self.tensors.keys().filter_map(|name| Some(layer_of(name)?.0)).collect();
        layers.sort_unstable();
        layers.dedup();
        layers
    }

    fn take(&mut self, name: &str) -> Result<Piece<'a>> {
        self.tensors.remove(name).with_context(|| format!("there is no {name}"))
    }
}

/// Layer and the rest of the name of a layer's tensor.
fn layer_of(name: &str) -> Option<(usize, &str)> {
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, rest))
}
