//! Decode rates over depth as an SVG.

use std::fmt::{Result, Write};

use super::{DecodeRow, Report};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// Room around the plot for titles and numbers: left, top, right, bottom.
const MARGINS: [f64; 4] = [70.0, 50.0, 30.0, 60.0];
const TICKS: usize = 5;

/// A line of the plot.
struct Series<'a> {
    name: &'a str,
    colour: &'a str,
    dashes: &'a str,
    /// A value a depth: the rate, and the smallest and largest measured.
    values: Vec<[f64; 3]>,
}

/// The decode rates of a report behind its first prompt: ours, the peer's and the limit's, at evenly spaced depths. Empty
/// without any depth.
pub fn svg(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = draw(&mut out, report);
    out
}

fn draw(out: &mut String, report: &Report) -> Result {
    let kind = report.prompts.first().map(|prompt| prompt.kind);
    let rows: Vec<&DecodeRow> = kind.into_iter().flat_map(|kind| report.decode_behind(kind)).collect();
    let series = series(report, &rows);
    let largest = series
        .iter()
        .flat_map(|series| &series.values)
        .fold(0.0, |most: f64, value| most.max(value[2]));
    if rows.is_empty() || largest <= 0.0 {
        return Ok(());
    }
    let top = round_up(largest);
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"#
    )?;
    writeln!(out, r#"<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>"#)?;
    let title = escape(&format!("{}, {}", report.model.title, report.device));
    writeln!(
        out,
        r#"<text x="{}" y="20" text-anchor="middle" font-size="14">{title}</text>"#,
        WIDTH / 2.0
    )?;
    axes(out, &rows, top)?;
    for (i, series) in series.iter().enumerate() {
        line(out, series, top)?;
        legend(out, series, i)?;
    }
    writeln!(out, "</svg>")
}

fn series<'a>(report: &'a Report, rows: &[&DecodeRow]) -> Vec<Series<'a>> {
    let peer_name = report.peer.as_ref().map_or("peer", |peer| &peer.name);
    let spread = |spread: &super::Spread| [spread.median, spread.least, spread.most];
    let ours = rows.iter().map(|row| spread(&row.ours)).collect();
    let peer = rows.iter().filter_map(|row| row.peer.as_ref().map(spread)).collect();
    let limit = rows
        .iter()
        .filter_map(|row| row.limit.map(|limit| [limit.tokens_per_second; 3]))
        .collect();
    let series = [
        Series {
            name: "sparkinfer",
            colour: "#c2410c",
            dashes: "none",
            values: ours,
        },
        Series {
            name: peer_name,
            colour: "#1d4ed8",
            dashes: "none",
            values: peer,
        },
        Series {
            name: "memory limit",
            colour: "#666666",
            dashes: "6 4",
            values: limit,
        },
    ];
    series
        .into_iter()
        .filter(|series| series.values.len() == rows.len())
        .collect()
}

/// The next of 1, 2, 2.5, 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps
        .iter()
        .map(|step| step * power)
        .find(|&step| step >= value)
        .unwrap_or(value)
}

fn x(index: usize, count: usize) -> f64 {
    let [left, _, right, _] = MARGINS;
    let part = if count < 2 {
        0.5
    } else {
        index as f64 / (count - 1) as f64
    };
    left + part * (WIDTH - left - right)
}

fn y(value: f64, top: f64) -> f64 {
    let [_, above, _, below] = MARGINS;
    HEIGHT - below - value / top * (HEIGHT - above - below)
}

fn axes(out: &mut String, rows: &[&DecodeRow], top: f64) -> Result {
    let [left, above, right, below] = MARGINS;
    for tick in 0..=TICKS {
        let value = top * tick as f64 / TICKS as f64;
        let y = y(value, top);
        writeln!(
            out,
            r##"<line x1="{left}" x2="{}" y1="{y:.1}" y2="{y:.1}" stroke="#dddddd"/>"##,
            WIDTH - right
        )?;
        writeln!(
            out,
            r#"<text x="{}" y="{:.1}" text-anchor="end">{value}</text>"#,
            left - 8.0,
            y + 4.0
        )?;
    }
    let bottom = HEIGHT - below;
    for (i, row) in rows.iter().enumerate() {
        let x = x(i, rows.len());
        writeln!(
            out,
            r#"<text x="{x:.1}" y="{}" text-anchor="middle">{}</text>"#,
            bottom + 20.0,
            row.depth
        )?;
    }
    let middle = WIDTH / 2.0;
    writeln!(
        out,
        r#"<text x="{middle}" y="{}" text-anchor="middle">tokens in the cache</text>"#,
        bottom + 42.0
    )?;
    let half = (above + bottom) / 2.0;
    writeln!(
        out,
        r#"<text transform="translate(16 {half}) rotate(-90)" text-anchor="middle">tokens a second</text>"#
    )
}

/// A line through the rates, with a bar from the smallest to the largest measured at each.
fn line(out: &mut String, series: &Series, top: f64) -> Result {
    let Series {
        colour, dashes, values, ..
    } = series;
    let points: Vec<String> = values
        .iter()
        .enumerate()
        .map(|(i, value)| format!("{:.1},{:.1}", x(i, values.len()), y(value[0], top)))
        .collect();
    writeln!(
        out,
        r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>"#,
        points.join(" ")
    )?;
    for (i, [rate, least, most]) in values.iter().enumerate() {
        let x = x(i, values.len());
        let (low, high) = (y(*least, top), y(*most, top));
        writeln!(
            out,
            r#"<line x1="{x:.1}" x2="{x:.1}" y1="{low:.1}" y2="{high:.1}" stroke="{colour}"/>"#
        )?;
        writeln!(
            out,
            r#"<circle cx="{x:.1}" cy="{:.1}" r="3" fill="{colour}"/>"#,
            y(*rate, top)
        )?;
    }
    Ok(())
}

fn legend(out: &mut String, series: &Series, index: usize) -> Result {
    let (x, y) = (MARGINS[0] + 150.0 * index as f64, 38.0);
    let Series {
        name, colour, dashes, ..
    } = series;
    writeln!(
        out,
        r#"<line x1="{x}" x2="{}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>"#,
        x + 24.0
    )?;
    writeln!(out, r#"<text x="{}" y="{}">{}</text>"#, x + 30.0, y + 4.0, escape(name))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_ends_at_a_round_number() {
        assert_eq!(
            [870.0, 1000.0, 0.3, 2100.0].map(round_up),
            [1000.0, 1000.0, 0.5, 2500.0]
        );
    }

    #[test]
    fn names_cannot_break_the_file() {
        assert_eq!(escape("<a & b>"), "&lt;a &amp; b&gt;");
    }
}
