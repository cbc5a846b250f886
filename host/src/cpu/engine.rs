//! Sequences on the CPU.

use sparkinfer_gguf::Gguf;

use super::bandwidth;
use super::cache::Cache;
use super::inputs::Inputs;
use super::layers::{Batch, Stack};
use super::pool::Pool;
use super::product::{Product, run, transpose};
use super::simd::rms_norm;
use super::weights::Weight;
use crate::engine::{Description, Engine, EngineError, Result, Sequence, Waiting, check_tokens};
use crate::model::{KvType, ModelSpec};

/// Tokens of a prompt that are computed together; few in tests, so that prompts have several such batches.
const BATCH: usize = if cfg!(test) { 128 } else { 512 };
/// Tokens whose logits are computed together.
const HEAD_BATCH: usize = 32;

/// The arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numerics {
    /// Weights dequantised, everything in f32 with wide sums: the reference that others are measured against.
    Reference,
    /// Quantised weights times 8-bit activations.
    Practical,
}

/// How to run a model on the CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuOptions {
    /// Room for this many tokens.
    pub context: usize,
    /// Threads; 0 means one per core.
    pub threads: usize,
    /// The arithmetic.
    pub numerics: Numerics,
    /// Type of the key/value cache.
    pub kv: KvType,
}

impl CpuOptions {
    /// 8-bit activations and an f16 cache: for use.
    pub fn practical(context: usize) -> Self {
        CpuOptions {
            context,
            threads: 0,
            numerics: Numerics::Practical,
            kv: KvType::F16,
        }
    }

    /// f32 throughout, the cache too: for measuring others.
    pub fn reference(context: usize) -> Self {
        CpuOptions {
            context,
            threads: 0,
            numerics: Numerics::Reference,
            kv: KvType::F32,
        }
    }
}

/// Why an engine cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is not the one that was described.
    #[error(transparent)]
    Gguf(#[from] sparkinfer_gguf::Error),
    /// No memory for the cache.
    #[error("a context of {context} tokens needs {bytes} bytes of key/value cache, more than there is: lower --ctx")]
    Memory {
        /// Tokens asked for.
        context: usize,
        /// Bytes of their cache.
        bytes: u64,
    },
    /// Heads that the cache's type does not take.
    #[error("a key/value cache of {kv} takes heads of a multiple of 32 dims, not of {head_dim}: use --kv-type f16")]
    KvType {
        /// The type asked for.
        kv: KvType,
        /// Dims of a head.
        head_dim: usize,
    },
    /// The threads could not be started.
    #[error("cannot start {threads} threads: {error}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// The system's reason.
        error: rayon::ThreadPoolBuildError,
    },
}

/// A model on the CPU. Weights stay where the file is mapped.
///
/// Results do not depend on the number of threads, on the machine's instructions, or on how a sequence
/// is cut into calls.
pub struct CpuEngine<'m> {
    spec: ModelSpec,
    pool: Pool,
    stack: Stack<'m>,
    table: Weight<'m>,
    output_norm: Vec<f32>,
    output: Weight<'m>,
    caches: Vec<Cache>,
    context: usize,
    position: usize,
    /// Caches and positions of the other sequences.
    waiting: Waiting<(Vec<Cache>, usize)>,
    logits: Vec<f32>,
    description: Description,
}

impl<'m> CpuEngine<'m> {
    /// Makes an engine for the model that `spec` describes, which was read from `gguf`.
    ///
    /// # Errors
    /// Heads that the cache's type does not take, no memory for the cache, no threads, or a `gguf` that does not belong to `spec`.
    pub fn new(gguf: &'m Gguf, spec: &ModelSpec, options: &CpuOptions) -> std::result::Result<Self, OpenError> {
        if let Some(odd) = spec
            .attentions()
            .find(|attention| !options.kv.takes(attention.head_dim))
        {
            return Err(OpenError::KvType {
                kv: options.kv,
                head_dim: odd.head_dim,
            });
        }
        let pool = Pool::new(options.threads).map_err(|error| OpenError::Threads {
            threads: options.threads,
            error,
        })?;
        let description = describe(spec, options, &pool);
        let cache = |attention: &crate::model::Attention| {
            Cache::new(options.kv, attention.kv_heads, attention.head_dim, options.context)
        };
        let caches: Option<Vec<Cache>> = spec.attentions().map(cache).collect();
        let numerics = options.numerics;
        Ok(CpuEngine {
            stack: Stack::load(gguf, spec, numerics)?,
            table: Weight::load(gguf, &spec.embedding.table, numerics)?,
            output_norm: spec.output_norm.values(gguf)?,
            output: Weight::load(gguf, &spec.output, numerics)?,
            caches: caches.ok_or(OpenError::Memory {
                context: options.context,
                bytes: description.kv_bytes,
            })?,
            context: options.context,
            position: 0,
            waiting: Waiting::new(),
            logits: Vec::new(),
            description,
            pool,
            spec: spec.clone(),
        })
    }

    /// Computes `tokens` behind the cached ones and gives the last residual stream, `[tokens][embedding_length]`;
    /// adds what it is behind the embedding and each part to `trace`. Where it is not `wanted`, only the caches are right.
    fn forward(&mut self, tokens: &[u32], wanted: bool, mut trace: Option<&mut Vec<Vec<f32>>>) -> Vec<f32> {
        let width = self.spec.embedding_length;
        let mut x = vec![0.0; tokens.len() * width];
        for (x, &token) in x.chunks_exact_mut(width).zip(tokens) {
            self.table.dequantize(self.table.rows_of(0, token as usize, 1), x);
            let scale = self.spec.embedding.scale * self.table.scale(0);
            x.iter_mut().for_each(|x| *x *= scale);
        }
        for rotation in &mut self.stack.rotations {
            rotation.prepare(self.position, tokens.len());
        }
        if let Some(trace) = &mut trace {
            trace.push(x.clone());
        }
        let batch = Batch {
            pool: &self.pool,
            first: self.position,
            all: (0..tokens.len() as u32).collect(),
            rotations: &self.stack.rotations,
            eps: self.spec.norm_eps,
            wanted,
        };
        let (stack, caches) = (&self.stack, &mut self.caches);
        self.pool.enter(|| stack.run(&batch, caches, &mut x, trace));
        self.position += tokens.len();
        x
    }

    /// The logits of rows of the residual stream, `[rows][vocab_size]`.
    fn head(&self, x: &[f32]) -> Vec<f32> {
        let rows = x.len() / self.spec.embedding_length;
        let tokens: Vec<u32> = (0..rows as u32).collect();
        let mut normed = x.to_vec();
        rms_norm(self.pool.level, &mut normed, &self.output_norm, self.spec.norm_eps);
        let inputs = Inputs::new(&self.pool, &normed, &[&self.output]);
        let mut logits = vec![0.0; rows * self.spec.vocab_size];
        self.pool.enter(|| {
            let product = Product {
                weight: &self.output,
                expert: 0,
                inputs: &inputs,
                tokens: &tokens,
                out: &mut logits,
            };
            run(&self.pool, vec![product]);
            if let Some(cap) = self.spec.logit_softcap {
                logits.iter_mut().for_each(|logit| *logit = cap * (*logit / cap).tanh());
            }
            transpose(&self.pool, logits, rows)
        })
    }

    fn check(&self, tokens: &[u32]) -> Result<()> {
        check_tokens(tokens, self.position, self.context, self.spec.vocab_size)
    }
}

fn describe(spec: &ModelSpec, options: &CpuOptions, pool: &Pool) -> Description {
    let memory = spec.memory(options.kv);
    let arithmetic = match options.numerics {
        Numerics::Reference => "f32 reference arithmetic",
        Numerics::Practical => "8-bit activations",
    };
    let plural = if pool.threads() == 1 { "" } else { "s" };
    Description {
        model: spec.title(),
        device: format!(
            "CPU, {} thread{plural}, {}, {arithmetic}",
            pool.threads(),
            pool.level.name()
        ),
        weight_bytes: memory.weights,
        kv_bytes: memory.kv_per_token.saturating_mul(options.context as u64),
        kv: options.kv,
    }
}

impl Engine for CpuEngine<'_> {
    fn prefill(&mut self, tokens: &[u32]) -> Result<&[f32]> {
        self.check(tokens)?;
        let mut last = Vec::new();
        for (b, batch) in tokens.chunks(BATCH).enumerate() {
            let wanted = b * BATCH + batch.len() == tokens.len();
            last = self.forward(batch, wanted, None);
        }
        self.logits = self.head(&last[last.len() - self.spec.embedding_length..]);
        Ok(&self.logits)
    }

    fn decode(&mut self, token: u32) -> Result<&[f32]> {
        self.prefill(&[token])
    }

    fn logits_of_all(
        &mut self,
        tokens: &[u32],
        from: usize,
        each: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        self.check(tokens)?;
        let width = self.spec.embedding_length;
        for (b, batch) in tokens.chunks(BATCH).enumerate() {
            let first = b * BATCH;
            let skipped = from.saturating_sub(first).min(batch.len());
            let x = self.forward(batch, skipped < batch.len(), None);
            for (h, x) in x[skipped * width..].chunks(HEAD_BATCH * width).enumerate() {
                let first = first + skipped + h * HEAD_BATCH;
                for (i, logits) in self.head(x).chunks_exact(self.spec.vocab_size).enumerate() {
                    each(first + i, logits)?;
                }
            }
        }
        Ok(())
    }

    fn trace(&mut self, token: u32) -> Result<Vec<Vec<f32>>> {
        self.check(&[token])?;
        let mut trace = Vec::new();
        let last = self.forward(&[token], true, Some(&mut trace));
        trace.push(self.head(&last));
        Ok(trace)
    }

    fn read_bandwidth(&mut self) -> Result<Option<f64>> {
        Ok(Some(bandwidth::measure(&self.pool)))
    }

    fn truncate(&mut self, len: usize) {
        self.position = self.position.min(len);
    }

    /// A copy: the whole of what both begin with.
    fn fork(&mut self, len: usize) -> Result<Sequence> {
        self.waiting.abandoned().for_each(drop);
        let len = len.min(self.position);
        let caches: Option<Vec<Cache>> = self.caches.iter().map(|cache| cache.fork(len)).collect();
        let missing = || EngineError::Device("there is no memory for another sequence".into());
        Ok(self.waiting.keep((caches.ok_or_else(missing)?, len)))
    }

    fn switch(&mut self, to: Sequence) -> Result<Sequence> {
        let foreign = || EngineError::Invalid("the sequence is another engine's".into());
        let (caches, position) = self.waiting.take(&to).ok_or_else(foreign)?;
        let caches = std::mem::replace(&mut self.caches, caches);
        let position = std::mem::replace(&mut self.position, position);
        Ok(self.waiting.keep((caches, position)))
    }

    fn position(&self) -> usize {
        self.position
    }

    fn context(&self) -> usize {
        self.context
    }

    fn vocab_size(&self) -> usize {
        self.spec.vocab_size
    }

    fn description(&self) -> &Description {
        &self.description
    }
}
