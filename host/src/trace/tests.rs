//! Engines that agree, and engines whose files do not.

use super::*;

#[test]
fn sides_parse_and_print() {
    for text in ["cpu", "cpu-f32", "cuda:1", "cuda:1-f32", "emulator-f32"] {
        assert_eq!(text.parse::<Side>().unwrap().to_string(), text);
    }
    for text in ["auto", "", "-f32", "gpu"] {
        assert!(text.parse::<Side>().is_err(), "{text}");
    }
}

#[test]
fn a_difference_is_relative_and_nan_is_infinite() {
    let found = difference("p", 3, &[3.0, 4.0], &[3.0, 4.5]).unwrap();
    assert_eq!((found.relative, found.element, found.values), (0.1, 1, [4.0, 4.5]));
    assert_eq!(difference("p", 0, &[0.0], &[0.0]).unwrap().relative, 0.0);
    assert!(
        difference("p", 0, &[1.0, 1.0], &[1.0, f32::NAN])
            .unwrap()
            .relative
            .is_infinite()
    );
    assert!(difference("p", 0, &[0.0], &[1.0]).unwrap().relative.is_infinite());
    for no_number in [f32::NAN, f32::INFINITY] {
        let both = difference("p", 0, &[1.0, no_number], &[1.0, no_number]).unwrap();
        assert!(both.relative.is_infinite(), "{no_number}");
    }
    assert!(difference("p", 0, &[1.0], &[]).is_err());
}

#[test]
fn the_largest_of_each_point_is_kept() {
    let at = |point: &str, token, value| difference(point, token, &[1.0], &[value]).unwrap();
    let mut largest = Vec::new();
    keep_largest(&mut largest, vec![at("a", 0, 1.5), at("b", 0, 1.0)]);
    keep_largest(&mut largest, vec![at("a", 1, 1.25), at("b", 1, 2.0)]);
    assert_eq!(largest.iter().map(|found| found.token).collect::<Vec<_>>(), [0, 1]);
}

#[cfg(feature = "bundled-model")]
mod bundled {
    use sparkinfer_gguf::Gguf;

    use super::*;
    use crate::tokenizer::Tokenizer;

    const TOKENS: [u32; 2] = [36, 1783];
    /// Above the rounding of the emulated kernels and of the f16 cache, far below any mistake.
    const TOLERANCE: f64 = 0.005;

    /// The bundled model with bits of a tensor flipped.
    fn faulty(tensor: &str) -> Model {
        let clean = Model::open(None).unwrap();
        let file = crate::bundled::model().unwrap();
        let data = clean.gguf.tensor(tensor).unwrap().data;
        let start = data.as_ptr().addr() - file.as_ptr().addr();
        let mut bytes = file.to_vec();
        bytes[start..start + data.len()]
            .iter_mut()
            .step_by(97)
            .for_each(|byte| *byte ^= 0x55);
        let gguf = Gguf::from_vec("planted fault", bytes).unwrap();
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
        let spec = ModelSpec::from_gguf(&gguf).unwrap();
        Model { gguf, spec, tokenizer }
    }

    const SETTINGS: Settings = Settings {
        context: 16,
        threads: Some(1),
        kv: None,
    };

    fn first_difference(a: (&str, &Model), b: (&str, &Model)) -> Option<String> {
        let engine = |(side, model): (&str, _)| side.parse::<Side>().unwrap().engine(model, &SETTINGS).unwrap();
        let (mut a, mut b, points) = (engine(a), engine(b), points(&a.1.spec));
        let diff = compare([a.as_mut(), b.as_mut()], &points, &TOKENS, TOLERANCE).unwrap();
        println!("{diff}");
        assert_eq!(diff.points.len(), points.len());
        assert!(diff.first.is_some() || diff.tokens == TOKENS.len());
        diff.first.map(|first| first.point)
    }

    #[test]
    fn the_emulated_gpu_follows_the_reference() {
        let model = Model::open(None).unwrap();
        assert_eq!(first_difference(("cpu-f32", &model), ("emulator", &model)), None);
        assert_eq!(first_difference(("cpu-f32", &model), ("emulator-f32", &model)), None);
    }

    #[test]
    fn a_planted_fault_is_found_where_it_is() {
        let clean = Model::open(None).unwrap();
        for (tensor, point) in [
            ("blk.1.ffn_down_exps.weight", "layer 1 experts"),
            ("blk.0.attn_output.weight", "layer 0 attention"),
            ("token_embd.weight", "embedding"),
        ] {
            let faulty = faulty(tensor);
            let found = first_difference(("cpu-f32", &clean), ("emulator", &faulty));
            assert_eq!(found.as_deref(), Some(point), "{tensor}");
        }
    }
}
