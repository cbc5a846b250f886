//! Two engines side by side: where do they first differ?
//!
//! Both take the same tokens, one by one, and give the residual stream behind the embedding and behind every part of
//! every layer ([`Engine::trace`]). The first of these points at which they are further apart than a tolerance names
//! the part to look at. Each engine goes on from its own values, so small differences grow on the way: a point is
//! judged by its own tolerance, not by that of the points before it.

mod text;

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::device::DeviceChoice;
use crate::engine::{Engine, EngineError, Result};
use crate::gpu::emulated::Emulated;
use crate::gpu::{GpuEngine, GpuOptions};
use crate::load::{EngineOptions, LoadError, Model};
use crate::model::{KvType, ModelSpec, Operation};
use crate::tuning::{Tuning, TuningSource};

/// An engine to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side {
    place: Place,
    /// In f32 with dequantised weights: a device's slow reference instead of what it is used for.
    f32: bool,
}

/// Where an engine computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Device(DeviceChoice),
    /// The GPU engine with its kernels run on the host, one emulated thread after another.
    Emulator,
}

/// `cpu`, `cuda`, `cuda:N` or `emulator`, with `-f32` behind it for its reference.
impl FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, f32) = match text.strip_suffix("-f32") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let place = match name.parse() {
            Ok(DeviceChoice::Auto) => None,
            Ok(device) => Some(Place::Device(device)),
            Err(_) => (name == "emulator").then_some(Place::Emulator),
        };
        let wrong = || "expected cpu, cuda, cuda:N or emulator, or one of them with -f32 behind it".to_owned();
        Ok(Self {
            place: place.ok_or_else(wrong)?,
            f32,
        })
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Device(device) => write!(f, "{device}")?,
            Place::Emulator => f.write_str("emulator")?,
        }
        f.write_str(if self.f32 { "-f32" } else { "" })
    }
}

impl Side {
    /// The engine.
    ///
    /// # Errors
    /// A device that cannot be used, or does not take the model.
    pub fn engine<'m>(
        self,
        model: &'m Model,
        settings: &Settings,
    ) -> std::result::Result<Box<dyn Engine + 'm>, LoadError> {
        let (device, emulated) = match self.place {
            Place::Emulator => (DeviceChoice::Auto, true),
            Place::Device(device) => (device, false),
        };
        let options = EngineOptions {
            device,
            context: settings.context,
            threads: settings.threads,
            sequences: 1,
            exact: self.f32,
            kv: settings.kv,
            tuning: TuningSource::Known,
        };
        if emulated {
            return on_emulator(model, &options.gpu(Tuning::default()));
        }
        model.engine(&options, &mut |_, _| {})
    }
}

/// What the engines of both sides have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Room for tokens.
    pub context: usize,
    /// Threads of a CPU engine; one per core if not given.
    pub threads: Option<usize>,
    /// Type of the key/value cache; each engine's own if not given.
    pub kv: Option<KvType>,
}

fn on_emulator(model: &Model, options: &GpuOptions) -> std::result::Result<Box<dyn Engine>, LoadError> {
    let (gguf, spec) = (&model.gguf, &model.spec);
    let engine = GpuEngine::load_with(Emulated::default(), gguf, spec, options, &mut |_, _| {});
    engine
        .map(|engine| Box::new(engine) as Box<dyn Engine>)
        .map_err(|error| LoadError::Emulator(error.0))
}

/// The names of the points of [`Engine::trace`] for a model, in order.
pub fn points(spec: &ModelSpec) -> Vec<String> {
    let parts = spec.layers.iter().enumerate().flat_map(|(number, layer)| {
        let parts = layer.parts.iter();
        parts.map(move |part| format!("layer {number} {}", operation_name(&part.operation)))
    });
    let first = std::iter::once("embedding".to_owned());
    first.chain(parts).chain(["logits".to_owned()]).collect()
}

fn operation_name(operation: &Operation) -> &'static str {
    match operation {
        Operation::Attention(_) => "attention",
        Operation::Dense(_) => "feed-forward",
        Operation::Moe(_) => "experts",
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceDiff {
    /// The two engines, as they describe themselves.
    pub engines: [String; 2],
    /// Tokens that were compared; those behind the first difference were not.
    pub tokens: usize,
    /// The largest relative difference that is allowed.
    pub tolerance: f64,
    /// The first point beyond it.
    pub first: Option<Difference>,
    /// The largest difference of each point.
    pub points: Vec<Difference>,
}

/// How far apart the engines are at a point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The point.
    pub point: String,
    /// Index of the token.
    pub token: usize,
    /// Root mean square of the difference over that of the first engine's values; infinite for a value that is no
    /// number.
    pub relative: f64,
    /// The element that is furthest apart.
    pub element: usize,
    /// Its value in both engines.
    pub values: [f32; 2],
}

/// Gives both engines the same tokens until they differ.
///
/// # Errors
/// An engine's own, or one that keeps no trace or another number of points.
pub fn compare(engines: [&mut dyn Engine; 2], points: &[String], tokens: &[u32], tolerance: f64) -> Result<TraceDiff> {
    let [a, b] = engines;
    let mut diff = TraceDiff {
        engines: [&*a, &*b].map(|engine| engine.description().device.clone()),
        tokens: 0,
        tolerance,
        first: None,
        points: Vec::new(),
    };
    for (index, &token) in tokens.iter().enumerate() {
        let found = differences(points, index, &a.trace(token)?, &b.trace(token)?)?;
        diff.tokens += 1;
        diff.first = found.iter().find(|found| found.relative > tolerance).cloned();
        keep_largest(&mut diff.points, found);
        if diff.first.is_some() {
            break;
        }
    }
    Ok(diff)
}

fn differences(points: &[String], token: usize, a: &[Vec<f32>], b: &[Vec<f32>]) -> Result<Vec<Difference>> {
    if a.len() != points.len() || b.len() != points.len() {
        let counts = format!("{} and {} points, not {}", a.len(), b.len(), points.len());
        return Err(EngineError::Invalid(format!("the engines traced {counts}")));
    }
    let values = a.iter().zip(b);
    let pairs = points.iter().zip(values);
    pairs.map(|(point, (a, b))| difference(point, token, a, b)).collect()
}

fn difference(point: &str, token: usize, a: &[f32], b: &[f32]) -> Result<Difference> {
    if a.len() != b.len() || a.is_empty() {
        let lengths = format!("{} and {} values", a.len(), b.len());
        return Err(EngineError::Invalid(format!("{point}: the engines traced {lengths}")));
    }
    let distance = |i: usize| match (f64::from(a[i]) - f64::from(b[i])).abs() {
        distance if distance.is_nan() => f64::INFINITY,
        distance => distance,
    };
    let element = (0..a.len()).fold(0, |most, i| if distance(i) > distance(most) { i } else { most });
    let apart: f64 = (0..a.len()).map(|i| distance(i).powi(2)).sum();
    let size: f64 = a.iter().map(|&a| f64::from(a).powi(2)).sum();
    Ok(Difference {
        point: point.to_owned(),
        token,
        relative: match (apart / size).sqrt() {
            _ if apart == 0.0 => 0.0,
            relative if relative.is_nan() => f64::INFINITY,
            relative => relative,
        },
        element,
        values: [a[element], b[element]],
    })
}

fn keep_largest(largest: &mut Vec<Difference>, found: Vec<Difference>) {
    if largest.is_empty() {
        *largest = found;
        return;
    }
    for (largest, found) in largest.iter_mut().zip(found) {
        if found.relative > largest.relative {
            *largest = found;
        }
    }
}

#[cfg(test)]
mod tests;
