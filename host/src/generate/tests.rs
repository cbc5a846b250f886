use super::*;
use crate::engine::{Description, Result as EngineResult, check_tokens};

const VOCAB: usize = 128;
const END: u32 = 0;

/// Says the bytes of `script` one after the other, whatever it is told.
struct Parrot {
    script: &'static [u8],
    prompt: usize,
    prefills: Vec<usize>,
    position: usize,
    context: usize,
    logits: Vec<f32>,
    description: Description,
}

impl Parrot {
    fn new(script: &'static str, prompt: usize, context: usize) -> Self {
        let description = Description {
            model: String::new(),
            device: String::new(),
            weight_bytes: 0,
            kv_bytes: 0,
            kv: crate::model::KvType::F16,
        };
        let logits = vec![0.0; VOCAB];
        Self {
            script: script.as_bytes(),
            prompt,
            prefills: vec![],
            position: 0,
            context,
            logits,
            description,
        }
    }

    fn advance(&mut self, tokens: &[u32]) -> EngineResult<&[f32]> {
        check_tokens(tokens, self.position, self.context, VOCAB)?;
        self.position += tokens.len();
        self.logits.fill(0.0);
        let said = self.position.checked_sub(self.prompt);
        let next = said.and_then(|at| self.script.get(at).copied()).unwrap_or(END as u8);
        self.logits[usize::from(next)] = 1.0;
        Ok(&self.logits)
    }
}

impl Engine for Parrot {
    fn prefill(&mut self, tokens: &[u32]) -> EngineResult<&[f32]> {
        self.prefills.push(tokens.len());
        self.advance(tokens)
    }
    fn decode(&mut self, token: u32) -> EngineResult<&[f32]> {
        self.advance(&[token])
    }
    fn logits_of_all(
        &mut self,
        _: &[u32],
        _: usize,
        _: &mut dyn FnMut(usize, &[f32]) -> EngineResult<()>,
    ) -> EngineResult<()> {
        Ok(())
    }
    fn truncate(&mut self, len: usize) {
        self.position = self.position.min(len);
    }
    fn position(&self) -> usize {
        self.position
    }
    fn context(&self) -> usize {
        self.context
    }
    fn vocab_size(&self) -> usize {
        VOCAB
    }
    fn description(&self) -> &Description {
        &self.description
    }
}

/// A token is an ASCII character.
struct Ascii;

impl TextStream for Ascii {
    fn ends_text(&self, token: u32) -> bool {
        token == END
    }
    fn push(&mut self, token: u32) -> String {
        char::from(token as u8).to_string()
    }
    fn finish(&mut self) -> String {
        String::new()
    }
}

fn request(prompt: usize, limit: usize, stops: &[&str]) -> Request {
    let stops = stops.iter().map(|stop| stop.to_string()).collect();
    Request {
        prompt_ids: vec![1; prompt],
        limit,
        stops,
        ..Request::default()
    }
}

fn run(request: &Request, context: usize) -> (Generation, Vec<String>) {
    let mut engine = Parrot::new("hello, world", request.prompt_ids.len(), context);
    let mut pieces = Vec::new();
    let flag = AtomicBool::new(false);
    let generation = generate(&mut engine, &mut Ascii, request, &flag, &mut |text| {
        pieces.push(text.to_owned());
        Ok(())
    });
    (generation.unwrap(), pieces)
}

#[test]
fn ends_where_the_model_ends() {
    let (generation, pieces) = run(&request(3, 100, &[]), 100);
    assert_eq!(
        (generation.text.as_str(), generation.finish),
        ("hello, world", Finish::EndOfText)
    );
    assert_eq!(generation.output_ids.len(), 12);
    assert_eq!(
        (generation.timings.prompt_tokens, generation.timings.generated_tokens),
        (3, 13)
    );
    assert_eq!(pieces.len(), 12, "text streams token by token");
}

#[test]
fn ends_at_the_limit() {
    let (generation, _) = run(&request(3, 5, &[]), 100);
    assert_eq!((generation.text.as_str(), generation.finish), ("hello", Finish::Length));
    let (generation, _) = run(&request(3, 0, &[]), 100);
    assert_eq!((generation.text.as_str(), generation.finish), ("", Finish::Length));
}

#[test]
fn ends_where_the_context_is_full() {
    let (generation, _) = run(&request(3, 100, &[]), 5);
    assert_eq!((generation.text.as_str(), generation.finish), ("hel", Finish::Context));
}

#[test]
fn ends_before_a_stop_string() {
    let (generation, pieces) = run(&request(3, 100, &["lo, w"]), 100);
    assert_eq!((generation.text.as_str(), generation.finish), ("hel", Finish::Stop));
    assert_eq!(pieces.concat(), "hel");
}

#[test]
fn a_stop_string_that_never_completes_loses_nothing() {
    let (generation, pieces) = run(&request(3, 100, &["world!"]), 100);
    assert_eq!(generation.text, "hello, world");
    assert_eq!(pieces.last().unwrap(), "world", "held back until the end");
}

#[test]
fn goes_on_after_the_end_when_asked() {
    let wanted = Request {
        ignore_eos: true,
        ..request(3, 15, &[])
    };
    let (generation, _) = run(&wanted, 100);
    assert_eq!(
        (generation.text.as_str(), generation.finish),
        ("hello, world\0\0\0", Finish::Length)
    );
}

#[test]
fn long_prompts_are_read_in_parts() {
    let wanted = request(2 * PROMPT_CHUNK + 1, 3, &[]);
    let mut engine = Parrot::new("hello", wanted.prompt_ids.len(), 2000);
    let flag = AtomicBool::new(false);
    let generation = generate(&mut engine, &mut Ascii, &wanted, &flag, &mut |_| Ok(())).unwrap();
    assert_eq!(generation.text, "hel");
    assert_eq!(engine.prefills, [PROMPT_CHUNK, PROMPT_CHUNK, 1]);
}

#[test]
fn an_interrupt_keeps_what_there_is() {
    let flag = AtomicBool::new(false);
    let mut engine = Parrot::new("hello", 3, 100);
    let mut pieces = 0;
    let generation = generate(&mut engine, &mut Ascii, &request(3, 100, &[]), &flag, &mut |_| {
        pieces += 1;
        flag.store(pieces == 2, Ordering::Relaxed);
        Ok(())
    });
    let generation = generation.unwrap();
    assert_eq!(
        (generation.text.as_str(), generation.finish),
        ("he", Finish::Interrupted)
    );
}

#[test]
fn an_interrupt_before_the_first_token_ends_at_once() {
    let flag = AtomicBool::new(true);
    let mut engine = Parrot::new("hello", 3, 100);
    let generation = generate(&mut engine, &mut Ascii, &request(3, 100, &[]), &flag, &mut |_| Ok(())).unwrap();
    assert_eq!((generation.text.as_str(), generation.finish), ("", Finish::Interrupted));
}

#[test]
fn a_closed_reader_ends_the_run() {
    let flag = AtomicBool::new(false);
    let mut engine = Parrot::new("hello", 3, 100);
    let result = generate(&mut engine, &mut Ascii, &request(3, 100, &[]), &flag, &mut |_| {
        Err(io::Error::from(io::ErrorKind::BrokenPipe))
    });
    assert!(matches!(result, Err(GenerateError::Output(_))));
    assert_eq!(engine.position, 3, "nothing was computed after the failure");
}

#[test]
fn a_prompt_that_does_not_fit_is_refused() {
    let flag = AtomicBool::new(false);
    let mut engine = Parrot::new("hello", 9, 8);
    let result = generate(&mut engine, &mut Ascii, &request(9, 1, &[]), &flag, &mut |_| Ok(()));
    assert!(matches!(
        result,
        Err(GenerateError::Engine(EngineError::ContextFull { .. }))
    ));
}
