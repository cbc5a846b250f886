//! Feed-forward parts: gated networks and mixtures of them.

use sparkinfer_gguf::{Error, Gguf};

use super::engine::Numerics;
use super::inputs::Inputs;
use super::layers::Batch;
use super::pool::Pool;
use super::product::{Product, run, transpose, transpose_each};
use super::simd::{gate, softmax};
use super::weights::Weight;
use crate::model::{Activation, Dense, Gating, Linear, Moe, SharedExpert};

/// Lower bound of the sum that gating values are divided by.
const MIN_SUM: f32 = 1.0 / 16384.0;
/// Activations that are gated by one task.
const GATED: usize = 1 << 14;

/// A gated network, or one per expert.
pub(super) struct Network<'m> {
    activation: Activation,
    width: usize,
    gate: Weight<'m>,
    up: Weight<'m>,
    down: Weight<'m>,
}

/// Rows of inputs that pass one expert's matrices.
struct Group {
    expert: usize,
    tokens: Vec<u32>,
}

impl<'m> Network<'m> {
    fn load(
        gguf: &'m Gguf,
        activation: Activation,
        width: usize,
        linears: [&Linear; 3],
        numerics: Numerics,
    ) -> Result<Self, Error> {
        let weight = |linear| Weight::load(gguf, linear, numerics);
        let [gate, up, down] = linears;
        Ok(Network {
            activation,
            width,
            gate: weight(gate)?,
            up: weight(up)?,
            down: weight(down)?,
        })
    }

    pub(super) fn dense(gguf: &'m Gguf, spec: &Dense, numerics: Numerics) -> Result<Self, Error> {
        Self::load(
            gguf,
            spec.activation,
            spec.width,
            [&spec.gate, &spec.up, &spec.down],
            numerics,
        )
    }

    /// `[tokens][embedding_length]` for inputs of the same shape, all through the only expert.
    pub(super) fn run(&self, batch: &Batch, x: &[f32]) -> Vec<f32> {
        let group = Group {
            expert: 0,
            tokens: batch.all.clone(),
        };
        self.run_groups(batch, x, &[group])
    }

    /// The results of all rows of all groups, in order: `[rows][embedding_length]`.
    fn run_groups(&self, batch: &Batch, x: &[f32], groups: &[Group]) -> Vec<f32> {
        let inputs = Inputs::new(batch.pool, x, &[&self.gate, &self.up]);
        let hidden = self.hidden(batch, &inputs, groups);
        let inputs = Inputs::new(batch.pool, &hidden, &[&self.down]);
        let mut first = 0;
        let in_order: Vec<Group> = groups
            .iter()
            .map(|group| {
                let tokens = (first..first + group.tokens.len() as u32).collect();
                first += group.tokens.len() as u32;
                Group {
                    expert: group.expert,
                    tokens,
                }
            })
            .collect();
        let mut out = vec![0.0; first as usize * self.down.rows];
        run(batch.pool, products(&self.down, &inputs, &in_order, &mut out));
        rows_first(batch.pool, out, self.down.rows, groups)
    }

    /// `activation(gate(x)) · up(x)` of all rows of all groups, `[rows][width]`.
    fn hidden(&self, batch: &Batch, inputs: &Inputs, groups: &[Group]) -> Vec<f32> {
        let rows: usize = groups.iter().map(|group| group.tokens.len()).sum();
        let (mut gates, mut ups) = (vec![0.0; rows * self.width], vec![0.0; rows * self.width]);
        let mut both = products(&self.gate, inputs, groups, &mut gates);
        both.extend(products(&self.up, inputs, groups, &mut ups));
        run(batch.pool, both);
        batch.pool.pieces(&mut gates, GATED, |i, gates| {
            let ups = &ups[i * GATED..][..gates.len()];
            gate(batch.pool.level, self.activation, gates, ups);
        });
        rows_first(batch.pool, gates, self.width, groups)
    }
}

/// A product per group, whose results follow each other in `out`.
fn products<'a>(
    weight: &'a Weight<'a>,
    inputs: &'a Inputs<'a>,
    groups: &'a [Group],
    mut out: &'a mut [f32],
) -> Vec<Product<'a>> {
    let mut products = Vec::with_capacity(2 * groups.len());
    for group in groups {
        let (own, rest) = out.split_at_mut(group.tokens.len() * weight.rows);
        products.push(Product {
            weight,
            expert: group.expert,
            inputs,
            tokens: &group.tokens,
            out: own,
        });
        out = rest;
    }
    products
}

/// Turns the results of each group from `[width][rows]` to `[rows][width]`.
fn rows_first(pool: &Pool, values: Vec<f32>, width: usize, groups: &[Group]) -> Vec<f32> {
    let rows: Vec<usize> = groups.iter().map(|group| group.tokens.len()).collect();
    transpose_each(pool, values, width, &rows)
}

/// A mixture of experts.
pub(super) struct Mixture<'m> {
    spec: Moe,
    router: Weight<'m>,
    experts: Network<'m>,
    shared: Option<(Network<'m>, Option<Weight<'m>>)>,
}

/// An expert that a token goes to.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Choice {
    expert: usize,
    weight: f32,
}

impl<'m> Mixture<'m> {
    pub(super) fn load(gguf: &'m Gguf, spec: &Moe, numerics: Numerics) -> Result<Self, Error> {
        let shared = |shared: &SharedExpert| {
            let network = Network::dense(gguf, &shared.network, numerics)?;
            let gate = shared.gate.as_ref().map(|gate| Weight::load(gguf, gate, numerics));
            Ok((network, gate.transpose()?))
        };
        let linears = [&spec.gate, &spec.up, &spec.down];
        Ok(Mixture {
            router: Weight::load(gguf, &spec.router, numerics)?,
            experts: Network::load(gguf, spec.activation, spec.width, linears, numerics)?,
            shared: spec.shared.as_ref().map(shared).transpose()?,
            spec: spec.clone(),
        })
    }

    /// `[tokens][embedding_length]` for inputs of the same shape.
    pub(super) fn run(&self, batch: &Batch, x: &[f32]) -> Vec<f32> {
        let choices = self.route(batch, x);
        let (groups, rows) = group(&choices, self.spec.experts);
        let results = self.experts.run_groups(batch, x, &groups);
        let width = x.len() / batch.tokens();
        let mut out = vec![0.0; x.len()];
        batch.pool.pieces(&mut out, width, |token, out| {
            for (choice, &row) in choices[token].iter().zip(&rows[token]) {
                let result = &results[row * width..][..width];
                out.iter_mut()
                    .zip(result)
                    .for_each(|(out, result)| *out += choice.weight * result);
            }
        });
        self.add_shared(batch, x, &mut out);
        out
    }

    /// The experts of each token, the likeliest first.
    fn route(&self, batch: &Batch, x: &[f32]) -> Vec<Vec<Choice>> {
        let inputs = Inputs::new(batch.pool, x, &[&self.router]);
        let mut logits = vec![0.0; batch.tokens() * self.spec.experts];
        let product = Product {
            weight: &self.router,
            expert: 0,
            inputs: &inputs,
            tokens: &batch.all,
            out: &mut logits,
        };
        run(batch.pool, vec![product]);
        let mut logits = transpose(batch.pool, logits, batch.tokens());
        logits
            .chunks_exact_mut(self.spec.experts)
            .map(|logits| {
                match self.spec.gating {
                    Gating::Softmax => softmax(batch.pool.level, logits),
                }
                choose(&self.spec, logits)
            })
            .collect()
    }

    fn add_shared(&self, batch: &Batch, x: &[f32], out: &mut [f32]) {
        let Some((network, gate)) = &self.shared else { return };
        let results = network.run(batch, x);
        let gates = gate.as_ref().map(|gate| {
            let inputs = Inputs::new(batch.pool, x, &[gate]);
            let mut gates = vec![0.0; batch.tokens()];
            let product = Product {
                weight: gate,
                expert: 0,
                inputs: &inputs,
                tokens: &batch.all,
                out: &mut gates,
            };
            run(batch.pool, vec![product]);
            gates
        });
        let width = x.len() / batch.tokens();
        for (i, (out, result)) in out.chunks_exact_mut(width).zip(results.chunks_exact(width)).enumerate() {
            let weight = gates
                .as_ref()
                .map_or(1.0, |gates| 1.0 / (1.0 + crate::exp::exp(-gates[i])));
            out.iter_mut()
                .zip(result)
                .for_each(|(out, result)| *out += weight * result);
        }
    }
}

/// The `used` experts of highest gating value, the lowest index first among equals, with their weights.
fn choose(spec: &Moe, gating: &[f32]) -> Vec<Choice> {
    let mut order: Vec<usize> = (0..gating.len()).collect();
    order.sort_by(|&a, &b| gating[b].total_cmp(&gating[a]));
    order.truncate(spec.used);
    let sum: f32 = order.iter().map(|&expert| gating[expert]).sum();
    let factor = if spec.renormalise {
        spec.weight_scale / sum.max(MIN_SUM)
    } else {
        spec.weight_scale
    };
    order
        .into_iter()
        .map(|expert| Choice {
            expert,
            weight: gating[expert] * factor,
        })
        .collect()
}

/// Gathers the tokens of each expert. Also returns, for each token and choice, its row among all groups.
fn group(choices: &[Vec<Choice>], experts: usize) -> (Vec<Group>, Vec<Vec<usize>>) {
    let mut tokens: Vec<Vec<u32>> = vec![Vec::new(); experts];
    for (choices, token) in choices.iter().zip(0..) {
        choices.iter().for_each(|choice| tokens[choice.expert].push(token));
    }
    let mut next: Vec<usize> = tokens
        .iter()
        .scan(0, |sum, tokens| {
            let first = *sum;
            *sum += tokens.len();
            Some(first)
        })
        .collect();
    let mut row = |choice: &Choice| {
        next[choice.expert] += 1;
        next[choice.expert] - 1
    };
    let rows = choices
        .iter()
        .map(|choices| choices.iter().map(&mut row).collect())
        .collect();
    let groups = tokens.into_iter().enumerate().filter(|(_, tokens)| !tokens.is_empty());
    (groups.map(|(expert, tokens)| Group { expert, tokens }).collect(), rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grouping_keeps_every_choice() {
        let choice = |expert| Choice { expert, weight: 1.0 };
        let choices = vec![vec![choice(2), choice(0)], vec![choice(2), choice(3)]];
        let (groups, rows) = group(&choices, 4);
        let found: Vec<_> = groups.iter().map(|g| (g.expert, g.tokens.clone())).collect();
        assert_eq!(found, [(0, vec![0]), (2, vec![0, 1]), (3, vec![1])]);
        assert_eq!(rows, [[1, 0], [2, 3]]);
    }
}
