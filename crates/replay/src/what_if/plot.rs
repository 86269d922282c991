//! The picture of a comparison: for each wait the share of cases that were over by then, and beside it the counts.

use super::WhatIfReport;
use std::fmt::Write;

const WIDTH: u32 = 960;
const ROW: u32 = 220;
const LEFT: f64 = 60.0;
const CURVE_WIDTH: f64 = 840.0;
const CURVE_HEIGHT: f64 = 140.0;
const TOP: f64 = 60.0;
/// Dark enough on white and apart for every kind of colour vision (Okabe and Ito).
const COLOURS: [(&str, &str); 3] = [("recorded", "#999999"), ("before", "#0072b2"), ("after", "#d55e00")];

pub(super) fn svg(report: &WhatIfReport) -> String {
    let tallies = [&report.recorded, &report.before, &report.after];
    let waits = [0, 1, 2];
    let height = 60 + ROW * waits.len() as u32 + 40 + 44 * report.before.counts().len() as u32;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">
<rect width="100%" height="100%" fill="white"/>
<text x="{LEFT}" y="24" font-size="16">{} calls: {}</text>
"##,
        report.calls.len(),
        escaped(&report.overrides.join(" "))
    );
    for (place, (name, colour)) in COLOURS.iter().enumerate() {
        let x = 620 + place * 110;
        let _ = writeln!(
            out,
            r#"<rect x="{x}" y="14" width="12" height="12" fill="{colour}"/><text x="{}" y="25">{name}</text>"#,
            x + 18
        );
    }
    for (row, wait) in waits.into_iter().enumerate() {
        let top = TOP + f64::from(ROW) * row as f64;
        curves(&mut out, top, report.before.spreads()[wait].0, tallies.map(|tally| tally.spreads()[wait].1));
    }
    let top = 60.0 + f64::from(ROW) * waits.len() as f64;
    for (row, (name, _)) in report.before.counts().into_iter().enumerate() {
        bars(&mut out, top + 44.0 * row as f64, name, tallies.map(|tally| tally.counts()[row].1));
    }
    out.push_str("</svg>\n");
    out
}

/// Cumulative curves: higher on the left is quicker.
fn curves(out: &mut String, top: f64, name: &str, lists: [&[u32]; 3]) {
    let longest = lists.iter().flat_map(|list| list.iter()).copied().max().unwrap_or(0);
    let step = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000].into_iter().find(|step| longest / step < 10);
    let step = step.unwrap_or(60_000);
    let end = (longest / step + 1) * step;
    let x = |ms: u32| LEFT + CURVE_WIDTH * f64::from(ms) / f64::from(end);
    let y = |share: f64| top + 20.0 + CURVE_HEIGHT * (1.0 - share);
    let _ = writeln!(out, r#"<text x="{LEFT}" y="{}">{} (share over by then)</text>"#, top + 10.0, escaped(name));
    for (share, label) in [(0.0, "0"), (0.5, "50 %"), (1.0, "100 %")] {
        let y = y(share);
        let _ = writeln!(
            out,
            r##"<line x1="{LEFT}" x2="{}" y1="{y:.1}" y2="{y:.1}" stroke="#ddd"/><text x="8" y="{:.1}">{label}</text>"##,
            LEFT + CURVE_WIDTH,
            y + 4.0
        );
    }
    for ms in (0..=end).step_by(step as usize) {
        let x = x(ms);
        let _ = writeln!(out, r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{ms} ms</text>"#, y(0.0) + 18.0);
    }
    for (list, (_, colour)) in lists.into_iter().zip(COLOURS) {
        if list.is_empty() {
            continue;
        }
        let mut sorted = list.to_vec();
        sorted.sort_unstable();
        let mut path = format!("M{:.1} {:.1}", x(0), y(0.0));
        for (place, ms) in sorted.iter().enumerate() {
            let share = (place + 1) as f64 / sorted.len() as f64;
            let _ = write!(path, "H{:.1}V{:.1}", x(*ms), y(share));
        }
        let _ = writeln!(out, r#"<path d="{path}H{:.1}" fill="none" stroke="{colour}" stroke-width="2"/>"#, x(end));
    }
}

fn bars(out: &mut String, top: f64, name: &str, counts: [u64; 3]) {
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let _ = writeln!(out, r#"<text x="{LEFT}" y="{:.1}">{}</text>"#, top + 20.0, escaped(name));
    for (place, (count, (_, colour))) in counts.into_iter().zip(COLOURS).enumerate() {
        let y = top + 11.0 * place as f64;
        let width = 480.0 * count as f64 / most as f64;
        let _ = writeln!(
            out,
            r#"<rect x="320" y="{y:.1}" width="{width:.1}" height="9" fill="{colour}"/><text x="{:.1}" y="{:.1}" font-size="10">{count}</text>"#,
            326.0 + width,
            y + 9.0
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
