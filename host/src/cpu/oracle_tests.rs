//! Every architecture against a slow f64 implementation that shares no code with the engine: whole
//! sequences recomputed from the formulas in `model::spec`, position by position.

use sparkinfer_gguf::Gguf;

use super::{CpuEngine, CpuOptions};
use crate::engine::Engine;
use crate::model::fixture::{EXPERTS, Fixture, HEADS, VOCAB, WIDTH};
use crate::model::*;

struct Oracle<'a> {
    gguf: &'a Gguf,
    spec: &'a ModelSpec,
}

impl Oracle<'_> {
    fn all(&self, name: &str) -> Vec<f64> {
        self.gguf
            .tensor(name)
            .unwrap()
            .dequantize()
            .unwrap()
            .into_iter()
            .map(f64::from)
            .collect()
    }

    fn vector(&self, vector: &Vector) -> Vec<f64> {
        self.all(&vector.tensor)[vector.first..][..vector.len].to_vec()
    }

    fn linear(&self, linear: &Linear, expert: usize, x: &[f64]) -> Vec<f64> {
        let m = &linear.matrix;
        let weights = self.all(&m.tensor);
        let scale = linear.scale.as_ref().map_or(1.0, |scale| {
            let all = self.vector(scale);
            all[if all.len() == 1 { 0 } else { expert }]
        });
        let bias = linear.bias.as_ref().map_or(vec![0.0; m.rows], |bias| self.vector(bias));
        let row = |r: usize| &weights[(expert * m.expert_rows + m.first_row + r) * m.cols..][..m.cols];
        let dot = |w: &[f64]| w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
        (0..m.rows).map(|r| dot(row(r)) * scale + bias[r]).collect()
    }

    fn norm(&self, x: &[f64], weight: &Vector) -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + f64::from(self.spec.norm_eps)).sqrt();
        x.iter().zip(self.vector(weight)).map(|(x, w)| x * scale * w).collect()
    }

    fn heads(&self, rope: &Rope, norm: &Option<Vector>, width: usize, position: usize, x: &[f64]) -> Vec<Vec<f64>> {
        let head = |head: &[f64]| {
            let normed = norm.as_ref().map_or(head.to_vec(), |norm| self.norm(head, norm));
            rotate(rope, position, normed)
        };
        x.chunks(width).map(head).collect()
    }

    /// Results for all positions from normed inputs of all positions.
    fn attention(&self, a: &Attention, x: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let turned = |linear, norm, p: usize| self.heads(&a.rope, norm, a.head_dim, p, &self.linear(linear, 0, &x[p]));
        let keys: Vec<_> = (0..x.len()).map(|p| turned(&a.k, &a.k_norm, p)).collect();
        let values: Vec<_> = x.iter().map(|x| self.linear(&a.v, 0, x)).collect();
        let mix = |p: usize| {
            let first = a.window.map_or(0, |window| (p + 1).saturating_sub(window));
            let queries = turned(&a.q, &a.q_norm, p);
            let head = |(h, q): (usize, &Vec<f64>)| {
                let kv = h / (a.heads / a.kv_heads);
                let score = |j: usize| {
                    let dot: f64 = q.iter().zip(&keys[j][kv]).map(|(q, k)| q * k).sum();
                    f64::from(a.scale) * dot
                };
                let weights = probabilities(&(first..=p).map(score).collect::<Vec<_>>());
                (0..a.head_dim)
                    .map(|d| {
                        weights
                            .iter()
                            .zip(first..)
                            .map(|(w, j)| w * values[j][kv * a.head_dim + d])
                            .sum()
                    })
                    .collect::<Vec<f64>>()
            };
            let mixed: Vec<f64> = queries.iter().enumerate().flat_map(head).collect();
            self.linear(&a.output, 0, &mixed)
        };
        (0..x.len()).map(mix).collect()
    }

    fn network(&self, activation: Activation, linears: [&Linear; 3], expert: usize, x: &[f64]) -> Vec<f64> {
        let up = self.linear(linears[1], expert, x);
        let gate = self
            .linear(linears[0], expert, x)
            .into_iter()
            .map(|x| match activation {
                Activation::Silu => x / (1.0 + (-x).exp()),
                Activation::GeluTanh => {
                    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
                }
            });
        let hidden: Vec<f64> = gate.zip(up).map(|(g, u)| g * u).collect();
        self.linear(linears[2], expert, &hidden)
    }

    fn mixture(&self, moe: &Moe, x: &[f64]) -> Vec<f64> {
        let p = probabilities(&self.linear(&moe.router, 0, x));
        let mut order: Vec<usize> = (0..moe.experts).collect();
        order.sort_by(|&a, &b| p[b].partial_cmp(&p[a]).unwrap());
        order.truncate(moe.used);
        let sum: f64 = order.iter().map(|&e| p[e]).sum();
        let mut out = vec![0.0; x.len()];
        for expert in order {
            let result = self.network(moe.activation, [&moe.gate, &moe.up, &moe.down], expert, x);
            out.iter_mut()
                .zip(result)
                .for_each(|(out, result)| *out += p[expert] / sum * result);
        }
        out
    }

    fn logits(&self, tokens: &[u32]) -> Vec<f64> {
        let table = self.all(&self.spec.embedding.table.matrix.tensor);
        let width = self.spec.embedding_length;
        let row = |&t: &u32| {
            table[t as usize * width..][..width]
                .iter()
                .map(|x| x * f64::from(self.spec.embedding.scale))
        };
        let mut x: Vec<Vec<f64>> = tokens.iter().map(|t| row(t).collect()).collect();
        for part in self.spec.layers.iter().flat_map(|layer| &layer.parts) {
            let normed: Vec<Vec<f64>> = x.iter().map(|x| self.norm(x, &part.norm)).collect();
            let out: Vec<Vec<f64>> = match &part.operation {
                Operation::Attention(a) => self.attention(a, &normed),
                Operation::Dense(d) => normed
                    .iter()
                    .map(|x| self.network(d.activation, [&d.gate, &d.up, &d.down], 0, x))
                    .collect(),
                Operation::Moe(moe) => normed.iter().map(|x| self.mixture(moe, x)).collect(),
            };
            for (x, out) in x.iter_mut().zip(out) {
                let out = part
                    .post_norm
                    .as_ref()
                    .map_or(out.clone(), |norm| self.norm(&out, norm));
                x.iter_mut().zip(out).for_each(|(x, out)| *x += out);
            }
        }
        let cap = self.spec.logit_softcap.map_or(f64::INFINITY, f64::from);
        let bound = |z: f64| if cap.is_finite() { cap * (z / cap).tanh() } else { z };
        let head = |x: &Vec<f64>| self.linear(&self.spec.output, 0, &self.norm(x, &self.spec.output_norm));
        x.iter().flat_map(head).map(bound).collect()
    }
}

fn rotate(rope: &Rope, position: usize, mut head: Vec<f64>) -> Vec<f64> {
    let magnitude = f64::from(rope.magnitude());
    for (i, frequency) in rope.frequencies().into_iter().enumerate() {
        let (a, b) = match rope.layout {
            RopeLayout::Halves => (i, i + rope.dims / 2),
            RopeLayout::Interleaved => (2 * i, 2 * i + 1),
        };
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        let (x, y) = (head[a] * magnitude, head[b] * magnitude);
        (head[a], head[b]) = (x * cos - y * sin, x * sin + y * cos);
    }
    head
}

fn probabilities(scores: &[f64]) -> Vec<f64> {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
    scores.iter().map(|s| (s - max).exp() / sum).collect()
}

/// Largest difference between the engine's logits and the oracle's, over a sequence given in two pieces.
fn difference(gguf: &Gguf, options: &CpuOptions) -> f64 {
    let spec = ModelSpec::from_gguf(gguf).unwrap();
    let tokens: Vec<u32> = (0..24).map(|i| (i * i * 7 + 3 * i) % VOCAB as u32).collect();
    let mut engine = CpuEngine::new(gguf, &spec, options).unwrap();
    let mut found = Vec::new();
    for piece in [&tokens[..13], &tokens[13..]] {
        let mut each = |_: usize, logits: &[f32]| {
            found.extend(logits.iter().map(|&x| f64::from(x)));
            Ok(())
        };
        engine.logits_of_all(piece, 0, &mut each).unwrap();
    }
    let expected = Oracle { gguf, spec: &spec }.logits(&tokens);
    assert_eq!(found.len(), expected.len());
    let spread = expected.iter().fold(0.0f64, |max, x| max.max(x.abs()));
    assert!(spread > 0.5, "the fixture says nothing: largest logit {spread}");
    found
        .iter()
        .zip(&expected)
        .fold(0.0, |max, (a, b)| (a - b).abs().max(max))
}

fn check(fixture: &Fixture) {
    let gguf = fixture.build();
    let reference = difference(
        &gguf,
        &CpuOptions {
            threads: 1,
            ..CpuOptions::reference(24)
        },
    );
    assert!(reference < 2e-5, "reference: {reference}");
    let practical = difference(
        &gguf,
        &CpuOptions {
            threads: 1,
            ..CpuOptions::practical(24)
        },
    );
    assert!(practical < 2e-2, "practical: {practical}");
}

#[test]
fn plain_architectures() {
    architectures().for_each(|arch| check(&Fixture::new(arch)));
}

#[test]
fn yarn_linear_and_partial_rotation() {
    let yarn = |f: &mut Fixture| {
        f.set("rope.scaling.type", "yarn").set("rope.scaling.factor", 4f32);
        f.set("rope.scaling.original_context_length", 16u32);
    };
    let mut fixture = Fixture::new("qwen3");
    yarn(&mut fixture);
    check(&fixture);
    let mut fixture = Fixture::new("llama");
    fixture
        .set("rope.scaling.type", "linear")
        .set("rope.scaling.factor", 2f32)
        .set("rope.dimension_count", 16u32);
    check(fixture.tensor("rope_freqs.weight", &[8]));
}

#[test]
fn biases_scales_and_an_untied_head() {
    let [heads, kv_heads, head_dim] = HEADS;
    let mut fixture = Fixture::new("qwen2");
    for layer in 0..2 {
        for (name, len) in [("attn_q", heads), ("attn_k", kv_heads), ("attn_v", kv_heads)] {
            fixture.tensor(&format!("blk.{layer}.{name}.bias"), &[len * head_dim]);
        }
        fixture.tensor(&format!("blk.{layer}.ffn_up.bias"), &[96]);
        fixture.tensor(&format!("blk.{layer}.ffn_down.scale"), &[1]);
    }
    check(
        fixture
            .tensor("output.weight", &[WIDTH, VOCAB])
            .tensor("output.bias", &[VOCAB]),
    );
}

#[test]
fn fused_tensors_experts_and_their_scales() {
    let [heads, kv_heads, head_dim] = HEADS;
    let mut fixture = Fixture::new("llama");
    fixture.add_experts();
    for layer in 0..2 {
        for name in ["attn_q", "attn_k", "attn_v", "ffn_gate_exps", "ffn_up_exps"] {
            fixture.remove(&format!("blk.{layer}.{name}.weight"));
        }
        let rows = (heads + 2 * kv_heads) * head_dim;
        fixture.tensor(&format!("blk.{layer}.attn_qkv.weight"), &[WIDTH, rows]);
        fixture.tensor(&format!("blk.{layer}.attn_qkv.bias"), &[rows]);
        fixture.tensor(&format!("blk.{layer}.ffn_gate_up_exps.weight"), &[WIDTH, 192, EXPERTS]);
        fixture.tensor(&format!("blk.{layer}.ffn_down_exps.scale"), &[EXPERTS]);
    }
    check(&fixture);
}

#[test]
fn softcapped_logits() {
    check(Fixture::new("gemma3").set("final_logit_softcapping", 1.5f32));
}
