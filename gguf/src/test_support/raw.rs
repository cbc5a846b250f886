//! A file put together field by field, with nothing checked.

/// Every field of a small GGUF file, free to be wrong.
///
/// The default is a valid file without keys and tensors; records are appended with the methods below.
#[derive(Clone, Debug)]
pub struct RawGguf {
    /// The first four bytes.
    pub magic: [u8; 4],
    /// Version of the container.
    pub version: u32,
    /// Number of tensors said to follow; `None` for the true one.
    pub n_tensors: Option<u64>,
    /// Number of keys said to follow; `None` for the true one.
    pub n_keys: Option<u64>,
    /// Where the data section is aligned to.
    pub alignment: usize,
    /// The data section.
    pub data: Vec<u8>,
    /// Metadata records, encoded.
    pub keys: Vec<Vec<u8>>,
    /// Tensor infos, encoded.
    pub tensors: Vec<Vec<u8>>,
}

impl Default for RawGguf {
    fn default() -> Self {
        Self {
            magic: *b"GGUF",
            version: 3,
            n_tensors: None,
            n_keys: None,
            alignment: 32,
            data: Vec::new(),
            keys: Vec::new(),
            tensors: Vec::new(),
        }
    }
}

impl RawGguf {
    /// Appends a metadata record: key, kind id, payload as it is.
    pub fn key(mut self, key: impl AsRef<[u8]>, kind: u32, payload: impl AsRef<[u8]>) -> Self {
        self.keys
            .push([&string(key), &kind.to_le_bytes()[..], payload.as_ref()].concat());
        self
    }

    /// Appends a string key.
    pub fn text(self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.key(key, 8, string(value))
    }

    /// Appends a `u32` key.
    pub fn u32(self, key: &str, value: u32) -> Self {
        self.key(key, 4, value.to_le_bytes())
    }

    /// Appends an array key: kind id of the elements, their number, payload as it is.
    pub fn array(self, key: &str, element: u32, len: u64, payload: impl AsRef<[u8]>) -> Self {
        let payload = [&element.to_le_bytes()[..], &len.to_le_bytes(), payload.as_ref()].concat();
        self.key(key, 9, payload)
    }

    /// Appends a tensor info.
    pub fn tensor(mut self, name: impl AsRef<[u8]>, dims: &[u64], ty: u32, offset: u64) -> Self {
        let mut info = string(name);
        info.extend((dims.len() as u32).to_le_bytes());
        info.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
        info.extend(ty.to_le_bytes());
        info.extend(offset.to_le_bytes());
        self.tensors.push(info);
        self
    }

    /// Replaces the data section by `len` bytes.
    pub fn data(mut self, len: usize) -> Self {
        self.data = (0..len).map(|i| i as u8).collect();
        self
    }

    /// Everything before the data section, without padding.
    pub fn header(&self) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.n_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        bytes.extend(self.n_keys.unwrap_or(self.keys.len() as u64).to_le_bytes());
        bytes.extend(self.keys.concat());
        bytes.extend(self.tensors.concat());
        bytes
    }

    /// The whole file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header();
        bytes.resize(bytes.len().next_multiple_of(self.alignment.max(1)), 0);
        bytes.extend(&self.data);
        bytes
    }
}

/// A string as stored: length, bytes.
fn string(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}
