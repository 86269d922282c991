//! The picture of a comparison: the verdict, for each wait the share of cases that were over by then, and beside it the
//! counts. It says its units, and which way is better.

use super::WhatIfReport;
use super::measures::Spread;
use std::fmt::Write;

const WIDTH: u32 = 960;
const ROW: u32 = 240;
const LEFT: f64 = 90.0;
const CURVE_WIDTH: f64 = 820.0;
const CURVE_HEIGHT: f64 = 140.0;
const BAR: f64 = 46.0;
/// Waits that are drawn: the last list of a tally is no wait.
const WAITS: usize = 3;
/// Characters in a line of the verdict.
const LINE: usize = 118;
/// Dark enough on white and apart for every kind of colour vision (Okabe and Ito).
const COLOURS: [&str; 3] = ["#999999", "#0072b2", "#d55e00"];
/// Curves that lie on each other stay visible: the later, the thinner.
const STROKES: [u32; 3] = [7, 4, 2];

pub(super) fn svg(report: &WhatIfReport) -> String {
    let tallies = [&report.recorded, &report.before, &report.after];
    let verdict = lines(&format!("Verdict: {}", report.verdict()));
    let top = 84.0 + 18.0 * verdict.len() as f64;
    let counts: Vec<usize> =
        (0..report.before.counts().len()).filter(|row| tallies.iter().any(|t| t.counts()[*row].1 > 0)).collect();
    let bars_top = top + f64::from(ROW) * WAITS as f64;
    let height = bars_top + 40.0 + BAR * counts.len() as f64;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">
<rect width="100%" height="100%" fill="white"/>
<text x="20" y="28" font-size="17">{} recorded calls: {}</text>
"##,
        report.calls.len(),
        escaped(&report.changes.join(", "))
    );
    for (row, line) in verdict.iter().enumerate() {
        let _ = writeln!(out, r#"<text x="20" y="{}">{}</text>"#, 52 + 18 * row, escaped(line));
    }
    legend(&mut out, top - 22.0);
    for wait in 0..WAITS {
        let lists = tallies.map(|tally| tally.spreads()[wait].1);
        curves(&mut out, top + f64::from(ROW) * wait as f64, report.before.spreads()[wait].0, lists);
    }
    let _ = writeln!(
        out,
        r##"<text x="20" y="{:.1}" fill="#555">Counts over all calls (but for "deliveries heard", fewer is better)</text>"##,
        bars_top + 4.0
    );
    for (place, row) in counts.into_iter().enumerate() {
        let y = bars_top + 24.0 + BAR * place as f64;
        bars(&mut out, y, report.before.counts()[row].0, tallies.map(|tally| tally.counts()[row].1));
    }
    out.push_str("</svg>\n");
    out
}

fn legend(out: &mut String, y: f64) {
    let told = [
        "recorded: what really happened",
        "before: the recorded policy, modelled",
        "after: the changed policy, modelled",
    ];
    for (place, (name, colour)) in told.iter().zip(COLOURS).enumerate() {
        let x = 20 + place * 300;
        let _ = writeln!(
            out,
            r#"<rect x="{x}" y="{:.1}" width="12" height="12" fill="{colour}"/><text x="{}" y="{y:.1}">{name}</text>"#,
            y - 11.0,
            x + 18
        );
    }
}

/// Cumulative curves: higher on the left is quicker.
fn curves(out: &mut String, top: f64, name: &str, lists: [&[u32]; 3]) {
    let longest = lists.iter().flat_map(|list| list.iter()).copied().max().unwrap_or(0);
    let step = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000].into_iter().find(|step| longest / step < 10);
    let step = step.unwrap_or(60_000);
    let end = (longest / step + 1) * step;
    let x = |ms: u32| LEFT + CURVE_WIDTH * f64::from(ms) / f64::from(end);
    let y = |share: f64| top + 28.0 + CURVE_HEIGHT * (1.0 - share);
    let medians = lists.map(|list| Spread::of(list).median);
    let _ = writeln!(
        out,
        r##"<text x="20" y="{:.1}" font-size="14">{}: median {} → {} ms (recorded {}), {} cases</text>"##,
        top + 10.0,
        escaped(name),
        medians[1],
        medians[2],
        medians[0],
        lists[1].len()
    );
    for (share, label) in [(0.0, "0 %"), (0.5, "50 %"), (1.0, "100 %")] {
        let y = y(share);
        let _ = writeln!(
            out,
            r##"<line x1="{LEFT}" x2="{}" y1="{y:.1}" y2="{y:.1}" stroke="#ddd"/><text x="{}" y="{:.1}" text-anchor="end">{label}</text>"##,
            LEFT + CURVE_WIDTH,
            LEFT - 8.0,
            y + 4.0
        );
    }
    let middle = y(0.5);
    let _ = writeln!(
        out,
        r##"<text x="20" y="{middle:.1}" fill="#555" text-anchor="middle" transform="rotate(-90 20 {middle:.1})">share over by then</text>"##
    );
    for ms in (0..=end).step_by(step as usize) {
        let x = x(ms);
        let _ = writeln!(
            out,
            r##"<line x1="{x:.1}" x2="{x:.1}" y1="{:.1}" y2="{:.1}" stroke="#ddd"/><text x="{x:.1}" y="{:.1}" text-anchor="middle">{ms}</text>"##,
            y(0.0),
            y(0.0) + 4.0,
            y(0.0) + 18.0
        );
    }
    let _ = writeln!(
        out,
        r##"<text x="{:.1}" y="{:.1}" fill="#555" text-anchor="middle">milliseconds (a curve further left is quicker)</text>"##,
        LEFT + CURVE_WIDTH / 2.0,
        y(0.0) + 36.0
    );
    for ((list, colour), stroke) in lists.into_iter().zip(COLOURS).zip(STROKES) {
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
        let _ =
            writeln!(out, r#"<path d="{path}H{:.1}" fill="none" stroke="{colour}" stroke-width="{stroke}"/>"#, x(end));
    }
}

fn bars(out: &mut String, top: f64, name: &str, counts: [u64; 3]) {
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let _ = writeln!(out, r#"<text x="20" y="{:.1}">{}</text>"#, top + 21.0, escaped(name));
    for (place, (count, colour)) in counts.into_iter().zip(COLOURS).enumerate() {
        let y = top + 12.0 * place as f64;
        let width = 480.0 * count as f64 / most as f64;
        let _ = writeln!(
            out,
            r#"<rect x="300" y="{y:.1}" width="{width:.1}" height="10" fill="{colour}"/><text x="{:.1}" y="{:.1}" font-size="11">{count}</text>"#,
            306.0 + width,
            y + 9.5
        );
    }
}

/// Broken between words.
fn lines(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let full =
            lines.last().is_some_and(|line| !line.is_empty() && line.chars().count() + word.chars().count() >= LINE);
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
