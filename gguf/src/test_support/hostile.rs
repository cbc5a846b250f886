//! Broken containers, each with the message that it must get.

use super::RawGguf;

/// Ids of value kinds.
mod kind {
    pub const U8: u32 = 0;
    pub const U16: u32 = 2;
    pub const U32: u32 = 4;
    pub const STR: u32 = 8;
    pub const ARRAY: u32 = 9;
    pub const U64: u32 = 10;
}

/// Ids of tensor types.
mod ty {
    pub const F32: u32 = 0;
    pub const Q8_0: u32 = 8;
    pub const Q4_K: u32 = 12;
}

/// A file that must be refused.
#[derive(Clone, Debug)]
pub struct Case {
    /// A short name, fit for a file name.
    pub name: &'static str,
    /// The file.
    pub bytes: Vec<u8>,
    /// What the message must be, after the file's name and `": "`.
    pub message: String,
}

/// Every broken container.
pub fn cases() -> Vec<Case> {
    [
        header(),
        truncated(),
        keys(),
        arrays(),
        alignments(),
        dimensions(),
        offsets(),
        tensors(),
    ]
    .concat()
}

fn case(name: &'static str, file: RawGguf, message: impl Into<String>) -> Case {
    bytes_case(name, file.bytes(), message)
}

fn bytes_case(name: &'static str, bytes: Vec<u8>, message: impl Into<String>) -> Case {
    Case {
        name,
        bytes,
        message: message.into(),
    }
}

fn raw() -> RawGguf {
    RawGguf::default()
}

/// One valid tensor of 32 bytes.
fn one() -> RawGguf {
    raw().tensor("a", &[8], ty::F32, 0).data(32)
}

fn header() -> Vec<Case> {
    let version = |version| RawGguf { version, ..raw() };
    let counts = |n_tensors, n_keys| RawGguf {
        n_tensors: Some(n_tensors),
        n_keys: Some(n_keys),
        ..raw()
    };
    let no_magic = "not a GGUF file: it does not start with 'GGUF' (at byte 0)";
    vec![
        case(
            "magic",
            RawGguf {
                magic: *b"GGML",
                ..raw()
            },
            no_magic,
        ),
        bytes_case("three-bytes", b"GGU".to_vec(), no_magic),
        bytes_case("text-file", b"Once upon a time there was a model.\n".to_vec(), no_magic),
        case(
            "version-0",
            version(0),
            "unknown GGUF version 0; versions 2 and 3 can be read (at byte 4)",
        ),
        case(
            "version-1",
            version(1),
            "GGUF version 1 is no longer supported; convert the file again (at byte 4)",
        ),
        case(
            "version-4",
            version(4),
            "unknown GGUF version 4; versions 2 and 3 can be read (at byte 4)",
        ),
        case(
            "big-endian",
            version(3 << 24),
            "big-endian GGUF files are not supported (at byte 4)",
        ),
        case(
            "tensor-count-max",
            counts(u64::MAX, 0),
            "18446744073709551615 tensors are too many; 1048576 at most are supported (at byte 8)",
        ),
        case(
            "key-count-max",
            counts(0, u64::MAX),
            "18446744073709551615 metadata keys are too many; 1048576 at most are supported (at byte 16)",
        ),
        case(
            "tensor-count-negative",
            counts(1 << 63, 0),
            "9223372036854775808 tensors are too many; 1048576 at most are supported (at byte 8)",
        ),
        case(
            "tensor-count-large",
            counts(1 << 20, 0),
            "1048576 tensors do not fit into the file (at byte 8)",
        ),
        case(
            "key-count-large",
            counts(0, 1 << 20),
            "1048576 metadata keys do not fit into the file (at byte 16)",
        ),
    ]
}

fn truncated() -> Vec<Case> {
    let whole = raw().text("k", "value").bytes();
    let cut = |len: usize| whole[..len].to_vec();
    let last = one().bytes();
    vec![
        bytes_case(
            "cut-in-version",
            cut(6),
            "the file ends within the version: 4 bytes wanted, 2 left (at byte 4)",
        ),
        bytes_case(
            "cut-in-counts",
            cut(20),
            "the file ends within the header: 8 bytes wanted, 4 left (at byte 16)",
        ),
        bytes_case(
            "cut-in-key",
            cut(25),
            "1 metadata keys do not fit into the file (at byte 16)",
        ),
        bytes_case(
            "cut-in-string",
            cut(47),
            "the file ends within a string: 5 bytes wanted, 2 left (at byte 45)",
        ),
        bytes_case(
            "cut-in-data",
            last[..last.len() - 1].to_vec(),
            "tensor 'a': its 32 bytes at offset 0 lie outside the file of 95 bytes; is the download complete?",
        ),
        bytes_case(
            "cut-before-data",
            one().header(),
            "tensor 'a': its 32 bytes at offset 0 lie outside the file of 57 bytes; is the download complete?",
        ),
    ]
}

fn keys() -> Vec<Case> {
    let length = |len: u64| raw().key("k", kind::STR, [&len.to_le_bytes()[..], &[0; 16]].concat());
    vec![
        case("key-empty", raw().u32("", 1), "a metadata key is empty (at byte 24)"),
        case("key-twice", raw().u32("k", 1).u32("k", 1), "key 'k': occurs twice"),
        case(
            "key-not-utf8",
            raw().key(b"a\xff", kind::U32, [0; 4]),
            "a metadata key is not valid UTF-8: 'a\u{fffd}' (at byte 24)",
        ),
        case(
            "kind-unknown",
            raw().key("k", 13, [0; 8]),
            "key 'k': unknown value kind 13",
        ),
        case(
            "kind-max",
            raw().key("k", u32::MAX, [0; 8]),
            "key 'k': unknown value kind 4294967295",
        ),
        case(
            "string-length-max",
            length(u64::MAX),
            "the file ends within a string: 18446744073709551615 bytes wanted, 19 left (at byte 45)",
        ),
        case(
            "string-length-large",
            length(1 << 40),
            "the file ends within a string: 1099511627776 bytes wanted, 19 left (at byte 45)",
        ),
        case(
            "key-length-max",
            {
                let mut file = raw();
                file.n_keys = Some(1);
                file.alignment = 1;
                file.data = vec![0xff; 64];
                file
            },
            "the file ends within a metadata key: 18446744073709551615 bytes wanted, 56 left (at byte 32)",
        ),
        case(
            "key-escapes",
            raw().key("a\n\u{1b}[31m", 99, []),
            "key 'a\\n\\u{1b}[31m': unknown value kind 99",
        ),
    ]
}

fn arrays() -> Vec<Case> {
    let nested = [&kind::U8.to_le_bytes()[..], &1u64.to_le_bytes(), &[0; 32]].concat();
    vec![
        case(
            "array-nested",
            raw().array("k", kind::ARRAY, 1, nested),
            "key 'k': nested arrays are not supported",
        ),
        case(
            "array-kind-unknown",
            raw().array("k", 77, 1, [0; 8]),
            "key 'k': unknown value kind 77",
        ),
        case(
            "array-length-max",
            raw().array("k", kind::U8, u64::MAX, []),
            "key 'k': an array of 18446744073709551615 u8 does not fit into the file",
        ),
        case(
            "array-length-wraps",
            raw().array("k", kind::U64, 1 << 61, [0; 8]),
            "key 'k': an array of 2305843009213693952 u64 does not fit into the file",
        ),
        case(
            "array-length-large",
            raw().array("k", kind::U16, 1000, [0; 8]),
            "key 'k': an array of 1000 u16 does not fit into the file",
        ),
        case(
            "array-strings-large",
            raw().array("k", kind::STR, 1 << 30, [0; 64]),
            "key 'k': an array of 1073741824 str does not fit into the file",
        ),
        case(
            "array-string-length",
            raw().array("k", kind::STR, 2, [0xff; 32]),
            "the file ends within a string: 18446744073709551615 bytes wanted, 39 left (at byte 57)",
        ),
    ]
}

fn alignments() -> Vec<Case> {
    let key = "general.alignment";
    let not_power = |v: u32| format!("key 'general.alignment': {v} is not a power of two up to 1048576");
    vec![
        case("alignment-0", raw().u32(key, 0), not_power(0)),
        case("alignment-3", raw().u32(key, 3), not_power(3)),
        case("alignment-2-31", raw().u32(key, 1 << 31), not_power(1 << 31)),
        case("alignment-max", raw().u32(key, u32::MAX), not_power(u32::MAX)),
        case(
            "alignment-text",
            raw().text(key, "32"),
            "key 'general.alignment': must be a u32, but is a string",
        ),
        case(
            "alignment-u64",
            raw().key(key, kind::U64, 32u64.to_le_bytes()),
            "key 'general.alignment': must be a u32, but is the u64 32",
        ),
    ]
}

fn dimensions() -> Vec<Case> {
    let shape = |dims: &[u64]| raw().tensor("a", dims, ty::F32, 0).data(32);
    let block = |dims: &[u64], ty| raw().tensor("a", dims, ty, 0).data(1024);
    vec![
        case(
            "dims-5",
            shape(&[1; 5]),
            "tensor 'a': has 5 dimensions; 4 at most are supported",
        ),
        case(
            "dim-0",
            shape(&[4, 0]),
            "tensor 'a': a dimension of [4, 0, 1, 1] is zero",
        ),
        case(
            "dim-max",
            shape(&[u64::MAX]),
            "tensor 'a': dimensions [18446744073709551615, 1, 1, 1] are too large",
        ),
        case(
            "dims-wrap",
            shape(&[1 << 32, 1 << 32]),
            "tensor 'a': dimensions [4294967296, 4294967296, 1, 1] are too large",
        ),
        case(
            "dims-bytes-wrap",
            shape(&[1 << 31, 1 << 31]),
            "tensor 'a': dimensions [2147483648, 2147483648, 1, 1] are too large",
        ),
        case(
            "row-no-block",
            block(&[255, 2], ty::Q4_K),
            "tensor 'a': rows of 255 values are no multiple of Q4_K's block of 256",
        ),
        case(
            "row-half-block",
            block(&[48], ty::Q8_0),
            "tensor 'a': rows of 48 values are no multiple of Q8_0's block of 32",
        ),
        case(
            "dims-large",
            shape(&[1 << 20, 1 << 20]),
            "tensor 'a': its 4398046511104 bytes at offset 0 lie outside the file of 128 bytes; is the download complete?",
        ),
    ]
}

fn offsets() -> Vec<Case> {
    let at = |offset| raw().tensor("a", &[8], ty::F32, offset).data(64);
    let outside = |offset: u64| {
        format!(
            "tensor 'a': its 32 bytes at offset {offset} lie outside the file of 128 bytes; is the download complete?"
        )
    };
    let two = |offset| one().tensor("b", &[4], ty::F32, offset).data(128);
    vec![
        case("offset-past-end", at(64), outside(64)),
        case(
            "offset-misaligned",
            at(16),
            "tensor 'a': offset 16 is not aligned to 32 bytes",
        ),
        case("offset-wraps", at(u64::MAX - 31), outside(u64::MAX - 31)),
        case(
            "offset-max",
            at(u64::MAX),
            "tensor 'a': offset 18446744073709551615 is not aligned to 32 bytes",
        ),
        case("overlap", two(0), "tensor 'b': overlaps tensor 'a'"),
        case(
            "overlap-inside",
            raw()
                .tensor("a", &[64], ty::F32, 0)
                .tensor("b", &[4], ty::F32, 64)
                .data(256),
            "tensor 'b': overlaps tensor 'a'",
        ),
    ]
}

fn tensors() -> Vec<Case> {
    let of_type = |ty| raw().tensor("a", &[256], ty, 0).data(1024);
    let named = |name: &[u8]| raw().tensor(name, &[8], ty::F32, 0).data(32);
    let unknown = |ty: u32| format!("tensor 'a': type {ty} is unknown or no longer in use");
    vec![
        case("type-removed", of_type(4), unknown(4)),
        case("type-activation", of_type(15), unknown(15)),
        case("type-max", of_type(u32::MAX), unknown(u32::MAX)),
        case(
            "tensor-twice",
            one().tensor("a", &[8], ty::F32, 32).data(64),
            "tensor 'a': occurs twice",
        ),
        case(
            "name-empty",
            named(b""),
            "a tensor's name has 0 bytes; 1 to 63 are allowed (at byte 24)",
        ),
        case(
            "name-long",
            named(&[b'x'; 64]),
            "a tensor's name has 64 bytes; 1 to 63 are allowed (at byte 24)",
        ),
        case(
            "name-not-utf8",
            named(b"\xc3\x28"),
            "a tensor's name is not valid UTF-8: '\u{fffd}(' (at byte 24)",
        ),
        case(
            "split-from-memory",
            raw().key("split.count", kind::U16, [2, 0]),
            "is one of 2 parts; only a file can be opened so",
        ),
    ]
}
