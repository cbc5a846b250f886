//! Searches in the emulator: times mean nothing there, but what is computed must stay.

use std::time::Duration;

use super::search::Verdict;
use super::{CHOICES, Choice, TrialSizes, TuneOptions, Tuning, tune};
use crate::engine::Engine;
use crate::gpu::emulated::Emulated;
use crate::gpu::{GpuEngine, GpuOptions};
use crate::model::ModelSpec;

fn run(choices: &[&Choice], seconds: u64) -> super::Report {
    let gguf = crate::load::gguf(None).unwrap();
    let spec = ModelSpec::from_gguf(&gguf).unwrap();
    let options = TuneOptions {
        sizes: TrialSizes::fitting(&[3, 0], 2, 7, spec.context_length),
        rounds: 1,
        budget: Duration::from_secs(seconds),
    };
    let gpu = GpuOptions::practical(options.sizes.context());
    let mut engine = GpuEngine::load_with(Emulated::default(), &gguf, &spec, &gpu, &mut |_, _| {}).unwrap();
    let pages = engine.free_pages();
    let report = tune(&mut engine, Tuning::default(), choices, &options).unwrap();
    assert_eq!(engine.tuning(), Some(report.after));
    assert_eq!((engine.position(), engine.free_pages()), (0, pages));
    report
}

/// The general path's choice makes no difference to this model, another one may win or not, but is never wrong.
#[test]
fn a_search_leaves_the_engine_with_what_it_found() {
    let choices: Vec<&Choice> = CHOICES
        .iter()
        .filter(|choice| ["attention_warps", "row_blocks"].contains(&choice.name))
        .collect();
    let report = run(&choices, 3600);
    let [warps, rows] = report.findings.as_slice() else {
        panic!("{:?}", report.findings);
    };
    assert!(matches!(warps.verdict, Verdict::Better | Verdict::Kept), "{warps:?}");
    assert_eq!((warps.tried.len(), warps.tried[0].value), (3, 8));
    assert_eq!((rows.verdict, rows.after), (Verdict::NoMatter, rows.before));
    assert_eq!(report.rates.len(), if report.after == report.before { 0 } else { 2 });
}

#[test]
fn without_time_nothing_changes() {
    let choices: Vec<&Choice> = CHOICES.iter().collect();
    let report = run(&choices, 0);
    assert_eq!((report.after, report.rates.len()), (Tuning::default(), 0));
    assert!(report.findings.iter().all(|finding| finding.tried.is_empty()));
}
