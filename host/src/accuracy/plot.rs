//! KL divergence over the position in a window as an SVG, on a logarithmic scale.

use std::fmt::{Result, Write};

use super::{Comparison, Report};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// Room around the plot for titles and numbers: left, top, right, bottom.
const MARGINS: [f64; 4] = [70.0, 70.0, 30.0, 60.0];
const COLOURS: [&str; 5] = ["#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#666666"];
/// Ticks of the positions.
const TICKS: usize = 4;
/// Divergences below this are drawn there: what is left of f64 sums.
const LEAST: f64 = 1e-12;

/// What is shown of the plane: positions, and powers of ten.
struct Scale {
    positions: [f64; 2],
    powers: [i32; 2],
}

/// The mean divergences of a report by position: ours from each reference, llama.cpp's, and what its file's format costs.
pub fn svg(report: &Report) -> String {
    let found = &report.found;
    let lines: Vec<&Comparison> = found.ours.iter().chain(&found.peer).chain(&found.peer_floor).collect();
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = draw(&mut out, report, &lines);
    out
}

fn draw(out: &mut String, report: &Report, lines: &[&Comparison]) -> Result {
    let scale = Scale::of(lines);
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"#
    )?;
    writeln!(out, r#"<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>"#)?;
    let title = escape(&format!(
        "{}: KL divergence by position, {}",
        report.model.title, report.text
    ));
    let middle = WIDTH / 2.0;
    writeln!(
        out,
        r#"<text x="{middle}" y="20" text-anchor="middle" font-size="14">{title}</text>"#
    )?;
    axes(out, &scale)?;
    for (number, comparison) in lines.iter().enumerate() {
        line(out, comparison, &scale, number)?;
    }
    writeln!(out, "</svg>")
}

impl Scale {
    fn of(lines: &[&Comparison]) -> Self {
        let points = || lines.iter().flat_map(|line| &line.kl_by_position);
        let power = |kl: f64| kl.max(LEAST).log10();
        let ends = |values: &mut dyn Iterator<Item = f64>| {
            values.fold([f64::INFINITY, f64::NEG_INFINITY], |[least, most], v| {
                [least.min(v), most.max(v)]
            })
        };
        let positions = ends(&mut points().map(|point| point.0 as f64));
        let [least, most] = ends(&mut points().map(|point| power(point.1)));
        let least = least.floor();
        Self {
            positions,
            powers: [least as i32, (most.ceil() as i32).max(least as i32 + 1)],
        }
    }

    fn x(&self, position: f64) -> f64 {
        let [first, last] = self.positions;
        let part = if last > first {
            (position - first) / (last - first)
        } else {
            0.5
        };
        MARGINS[0] + part * (WIDTH - MARGINS[0] - MARGINS[2])
    }

    fn y(&self, kl: f64) -> f64 {
        let [least, most] = self.powers.map(f64::from);
        let part = (kl.max(LEAST).log10() - least) / (most - least);
        HEIGHT - MARGINS[3] - part * (HEIGHT - MARGINS[1] - MARGINS[3])
    }
}

fn axes(out: &mut String, scale: &Scale) -> Result {
    let (left, right) = (MARGINS[0], WIDTH - MARGINS[2]);
    for power in scale.powers[0]..=scale.powers[1] {
        let y = scale.y(10f64.powi(power));
        writeln!(
            out,
            r##"<line x1="{left}" x2="{right}" y1="{y:.1}" y2="{y:.1}" stroke="#dddddd"/>"##
        )?;
        let (x, y) = (left - 8.0, y + 4.0);
        writeln!(out, r#"<text x="{x}" y="{y:.1}" text-anchor="end">1e{power}</text>"#)?;
    }
    let [first, last] = scale.positions;
    for tick in 0..=TICKS {
        let position = (first + (last - first) * tick as f64 / TICKS as f64).round();
        let (x, y) = (scale.x(position), HEIGHT - MARGINS[3] + 20.0);
        writeln!(
            out,
            r#"<text x="{x:.1}" y="{y}" text-anchor="middle">{position}</text>"#
        )?;
    }
    let (middle, y) = (WIDTH / 2.0, HEIGHT - 18.0);
    writeln!(
        out,
        r#"<text x="{middle}" y="{y}" text-anchor="middle">position in the window</text>"#
    )?;
    let half = (MARGINS[1] + HEIGHT - MARGINS[3]) / 2.0;
    writeln!(
        out,
        r#"<text transform="translate(16 {half}) rotate(-90)" text-anchor="middle">mean KL, nats</text>"#
    )
}

/// A line and its entry in the legend.
fn line(out: &mut String, comparison: &Comparison, scale: &Scale, number: usize) -> Result {
    let colour = COLOURS[number % COLOURS.len()];
    let points = comparison.kl_by_position.iter();
    let points: Vec<String> = points
        .map(|&(position, kl)| format!("{:.1},{:.1}", scale.x(position as f64), scale.y(kl)))
        .collect();
    writeln!(
        out,
        r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2"/>"#,
        points.join(" ")
    )?;
    let (x, y) = (
        MARGINS[0] + 210.0 * (number % 3) as f64,
        40.0 + 18.0 * (number / 3) as f64,
    );
    let name = escape(&format!("{} ‖ {}", comparison.base, comparison.candidate));
    writeln!(
        out,
        r#"<line x1="{x}" x2="{}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>"#,
        x + 24.0
    )?;
    writeln!(out, r#"<text x="{}" y="{}">{name}</text>"#, x + 30.0, y + 4.0)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
