//! What is written can be read; what cannot be right is refused.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::{Value, reader};

/// Bytes that depend on the tensor's number and the place within it.
fn pattern(tensor: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (tensor * 31 + i * 7 + i / 256) as u8).collect()
}

/// Bytes of tensor `number` of a writer.
fn data_len(writer: &GgufWriter, number: usize) -> usize {
    writer.tensors[number].bytes as usize
}

/// Writes every tensor's pattern.
fn fill(writer: &GgufWriter) -> impl FnMut(usize, &mut dyn Write) -> io::Result<()> {
    |number, out| out.write_all(&pattern(number, data_len(writer, number)))
}

/// Four tensors of several types and shapes.
fn sample() -> GgufWriter {
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", "test").set("test.block_count", 3u32);
    writer.tensor("a", TensorType::Q4_K, &[512, 3]).expect("a");
    writer.tensor("b", TensorType::F32, &[5]).expect("b");
    writer.tensor("c", TensorType::Q6_K, &[256, 2, 2]).expect("c");
    writer.tensor("d", TensorType::F16, &[]).expect("d");
    writer
}

/// Checks that `gguf` holds what [`fill`] wrote.
fn assert_filled(writer: &GgufWriter, gguf: &Gguf) {
    assert_eq!(gguf.tensors().len(), writer.tensors.len());
    for (number, (spec, tensor)) in writer.tensors.iter().zip(gguf.tensors()).enumerate() {
        assert_eq!(
            (tensor.name, tensor.ty, tensor.dims),
            (spec.name.as_str(), spec.ty, spec.dims)
        );
        assert_eq!(tensor.data, pattern(number, data_len(writer, number)), "{}", spec.name);
    }
}

#[test]
fn values_round_trip() {
    let mut writer = GgufWriter::new();
    writer
        .set("u8", 200u8)
        .set("i8", -100i8)
        .set("u16", 60_000u16)
        .set("i16", -30_000i16)
        .set("u32", u32::MAX);
    writer
        .set("i32", i32::MIN)
        .set("f32", -0.5f32)
        .set("bool", true)
        .set("str", "größe")
        .set("u64", u64::MAX);
    writer
        .set("i64", i64::MIN)
        .set("f64", f64::MAX)
        .set("raw", MetaValue::bytes(b"\xff\0"));
    writer
        .set("u16s", &[1u16, 2][..])
        .set("bools", &[true, false][..])
        .set("strs", &["", "x"][..])
        .set("none", &[0i64; 0][..]);
    let gguf = Gguf::from_vec("test", writer.to_vec(|_, _| Ok(())).expect("bytes")).expect("file");
    let m = gguf.metadata();
    assert_eq!(m.get("u8"), Some(Value::U8(200)));
    assert_eq!(m.i32("i8"), Ok(Some(-100)));
    assert_eq!(m.u32("u16"), Ok(Some(60_000)));
    assert_eq!(m.i64("i16"), Ok(Some(-30_000)));
    assert_eq!((m.u32("u32"), m.i32("i32")), (Ok(Some(u32::MAX)), Ok(Some(i32::MIN))));
    assert_eq!(
        (m.f32("f32"), m.bool("bool"), m.str("str")),
        (Ok(Some(-0.5)), Ok(Some(true)), Ok(Some("größe")))
    );
    assert_eq!((m.u64("u64"), m.i64("i64")), (Ok(Some(u64::MAX)), Ok(Some(i64::MIN))));
    assert_eq!(m.scalar::<f64>("f64"), Ok(Some(f64::MAX)));
    assert_eq!(m.bytes("raw"), Ok(Some(&b"\xff\0"[..])));
    assert_eq!(m.list::<u32>("u16s"), Ok(Some(vec![1, 2])));
    assert_eq!(m.list::<bool>("bools"), Ok(Some(vec![true, false])));
    assert_eq!(
        m.require_strings("strs").map(|s| s.collect::<Vec<_>>()),
        Ok(vec![&b""[..], b"x"])
    );
    assert_eq!(m.array("none").map(|a| a.map(|a| a.is_empty())), Ok(Some(true)));
    assert_eq!(m.len(), 17);
}

#[test]
fn metadata_can_be_copied() {
    let first = Gguf::from_vec("first", sample().to_vec(fill(&sample())).expect("bytes")).expect("file");
    let mut copy = GgufWriter::new();
    copy.copy_metadata(&first).set("test.block_count", 4u32);
    let copy = Gguf::from_vec("copy", copy.to_vec(|_, _| Ok(())).expect("bytes")).expect("file");
    assert_eq!(copy.metadata().require_u32("test.block_count"), Ok(4));
    assert_eq!(copy.metadata().require_str("general.architecture"), Ok("test"));
}

#[test]
fn all_ways_of_filling_agree() {
    let writer = sample();
    let streamed = writer.to_vec(fill(&writer)).expect("bytes");
    let layout = writer.layout().expect("layout");
    assert_eq!(layout.file_bytes(), streamed.len() as u64);
    let mut sliced = vec![0; streamed.len()];
    for (number, slice) in layout.slices(&mut sliced).expect("slices") {
        slice.copy_from_slice(&pattern(number, slice.len()));
    }
    assert!(sliced == streamed);
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("sized.gguf");
    let file = layout.create_sized(&path).expect("file");
    fill_in_threads(&writer, &file);
    assert!(
        Gguf::open(&path).is_err(),
        "an unfinished file must not pass for a model"
    );
    file.finish().expect("header");
    assert!(std::fs::read(&path).expect("file") == streamed);
    assert_filled(&writer, &Gguf::open(&path).expect("file"));
}

/// Two threads take tensors in turn and write them in pieces, last piece first.
fn fill_in_threads(writer: &GgufWriter, file: &SizedFile) {
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= writer.tensors.len() {
                break;
            }
            let data = pattern(number, data_len(writer, number));
            for (i, piece) in data.chunks(100).enumerate().rev() {
                file.write(number, 100 * i as u64, piece).expect("write");
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
}

#[test]
fn sized_files_refuse_what_does_not_fit() {
    let dir = tempfile::tempdir().expect("folder");
    let file = sample()
        .layout()
        .expect("layout")
        .create_sized(dir.path().join("f"))
        .expect("file");
    assert!(file.write(1, 0, &[0; 20]).is_ok());
    assert!(file.write(1, 1, &[0; 20]).is_err());
    assert!(file.write(1, u64::MAX, &[0; 20]).is_err());
    assert!(file.write(9, 0, &[]).is_err());
}

#[test]
fn data_of_the_wrong_size_is_refused() {
    let writer = sample();
    let short = writer.to_vec(|_, out| out.write_all(&[0])).unwrap_err().to_string();
    assert_eq!(
        short,
        "new GGUF file: cannot be written: the data of tensor 0 has the wrong size: 863 bytes are missing"
    );
    assert!(writer.to_vec(|_, out| out.write_all(&[0; 4096])).is_err());
}

#[test]
fn impossible_tensors_are_refused() {
    let mut writer = sample();
    let cases = [
        ("a", TensorType::F32, &[1][..], "tensor 'a': occurs twice"),
        (
            "",
            TensorType::F32,
            &[1],
            "tensor '': the name has 0 bytes; 1 to 63 are allowed",
        ),
        (
            "x",
            TensorType::Q4_K,
            &[255],
            "tensor 'x': rows of 255 values are no multiple of Q4_K's block of 256",
        ),
        (
            "y",
            TensorType::F32,
            &[1, 0],
            "tensor 'y': a dimension of [1, 0, 1, 1] is zero",
        ),
        (
            "z",
            TensorType::F32,
            &[1; 5],
            "tensor 'z': has 5 dimensions; 4 at most are supported",
        ),
    ];
    for (name, ty, shape, message) in cases {
        let error = writer.tensor(name, ty, shape).unwrap_err().to_string();
        assert_eq!(error, format!("new GGUF file: {message}"));
    }
    writer.set("general.alignment", 48u32);
    assert!(writer.layout().is_err());
}

#[test]
fn split_files_are_read_as_one() {
    let writer = sample();
    let dir = tempfile::tempdir().expect("folder");
    let paths = writer
        .write_split_files(dir.path().join("m"), 900, fill(&writer))
        .expect("files");
    let names: Vec<_> = paths.iter().map(|p| p.file_name().expect("name").to_owned()).collect();
    assert_eq!(names, ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]);
    let gguf = Gguf::open(&paths[0]).expect("set");
    assert_eq!(gguf.file_count(), 2);
    assert_filled(&writer, &gguf);
    assert_eq!(gguf.metadata().require_u32("test.block_count"), Ok(3));
}

#[test]
fn one_part_is_an_ordinary_file() {
    let writer = sample();
    let dir = tempfile::tempdir().expect("folder");
    let paths = writer
        .write_split_files(dir.path().join("m"), 1 << 20, fill(&writer))
        .expect("files");
    assert_eq!(paths, [dir.path().join("m.gguf")]);
    assert_filled(&writer, &Gguf::open(&paths[0]).expect("file"));
}

/// A type and a shape of few, whole blocks.
fn any_tensor() -> impl Strategy<Value = (TensorType, Vec<u64>)> {
    let types: Vec<TensorType> = TensorType::all().collect();
    (
        prop::sample::select(types),
        1..4u64,
        prop::collection::vec(1..4u64, 0..4),
    )
        .prop_map(|(ty, blocks, outer)| {
            let mut shape = vec![blocks * ty.block_len() as u64];
            shape.extend(outer);
            (ty, shape)
        })
}

proptest! {
    #[test]
    fn any_file_round_trips(
        tensors in prop::collection::vec(any_tensor(), 0..8),
        entries in prop::collection::hash_map("[a-z.]{1,20}", prop::collection::vec(any::<u8>(), 0..40), 0..8),
        alignment in prop::sample::select(vec![1u32, 2, 8, 32, 64, 4096]),
    ) {
        let mut writer = GgufWriter::new();
        writer.set("general.alignment", alignment);
        for (key, value) in &entries {
            writer.set(&format!("x.{key}"), MetaValue::bytes(value));
        }
        for (i, (ty, shape)) in tensors.iter().enumerate() {
            writer.tensor(&format!("t{i}"), *ty, shape).expect("tensor");
        }
        let gguf = Gguf::from_vec("any", writer.to_vec(fill(&writer)).expect("bytes")).expect("file");
        prop_assert_eq!(gguf.alignment(), alignment);
        for (key, value) in &entries {
            prop_assert_eq!(gguf.metadata().bytes(&format!("x.{key}")), Ok(Some(&value[..])));
        }
        assert_filled(&writer, &gguf);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut file = b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
        file.extend(bytes);
        if let Err(error) = reader::Gguf::from_vec("any", file) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }
}
