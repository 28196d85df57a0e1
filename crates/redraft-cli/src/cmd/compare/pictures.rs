//! Pictures of a comparison: the error of each tensor in execution order, and that of each row.

use std::collections::BTreeMap;
use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use redraft::gguf::Shown;
use redraft::trace::{Bounds, Report, Row, split_layer};

use crate::ui::page::Picture;
use crate::ui::progress::counted;

/// Width of a picture, in its own units.
const WIDTH: i32 = 900;
/// Width of the column of names at the side.
const NAMES: i32 = 190;
/// Characters of a name that are shown, of which so many at its end, where layers are counted.
const NAME_CHARS: usize = 28;
const NAME_END: usize = 8;
/// Kinds of taps that have a color of their own.
const COLORS: [RGBColor; 8] = [
    RGBColor(0x3b, 0x82, 0xd6),
    RGBColor(0xe0, 0x7a, 0x2e),
    RGBColor(0x2f, 0xa3, 0x5f),
    RGBColor(0xc0, 0x5f, 0xc4),
    RGBColor(0xb8, 0x96, 0x1e),
    RGBColor(0x22, 0xa7, 0xb5),
    RGBColor(0xdd, 0x5a, 0x86),
    RGBColor(0x8d, 0x74, 0xe8),
];
const OTHERS: RGBColor = RGBColor(0x88, 0x88, 0x88);
/// What is out of its limits, or no number.
const WRONG: RGBColor = RGBColor(0xe0, 0x30, 0x30);
/// Stands for the color of the page's text, `currentColor`: plotters knows colors by number only. Nothing else is black.
const INK: RGBColor = BLACK;

/// Decades of a scale of powers of ten, within what is worth telling apart.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Decades {
    low: i32,
    high: i32,
}

impl Decades {
    /// Those that hold all numbers that have a logarithm; one where there is none.
    fn of(numbers: impl Iterator<Item = f64>) -> Decades {
        let logs = numbers.filter(|x| x.is_finite() && *x > 0.0).map(|x| x.log10().clamp(-40.0, 40.0));
        let (low, high) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), x| (l.min(x), h.max(x)));
        if low > high {
            return Decades { low: -1, high: 0 };
        }
        let (low, high) = (low.floor() as i32, high.ceil() as i32);
        Decades { low, high: high.max(low + 1) }
    }

    /// Where a number is on the scale: 0 a decade below it, what is none a decade above.
    fn place(self, x: f64) -> f64 {
        match x {
            _ if !x.is_finite() => f64::from(self.high + 1),
            0.0 => f64::from(self.low - 1),
            _ => x.log10().clamp(f64::from(self.low), f64::from(self.high)),
        }
    }

    /// Decades to label, at most about ten.
    fn labeled(self) -> impl Iterator<Item = i32> {
        let by = (self.high - self.low) / 10 + 1;
        (self.low..=self.high).step_by(by as usize)
    }
}

/// An axis that is labeled where it is said.
struct Axis {
    range: Range<f64>,
    labels: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let at = (value - self.range.start) / (self.range.end - self.range.start);
        from + (at * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.labels.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

fn label(name: &str) -> String {
    let shown: Vec<char> = Shown(name).to_string().chars().collect();
    if shown.len() <= NAME_CHARS {
        return shown.into_iter().collect();
    }
    let (start, end) = (&shown[..NAME_CHARS - NAME_END - 1], &shown[shown.len() - NAME_END..]);
    start.iter().chain(&['…']).chain(end).collect()
}

fn words(size: i32, h: HPos, v: VPos) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK).pos(Pos::new(h, v))
}

/// Draws a picture of this height.
fn drawn(
    height: i32,
    caption: String,
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> anyhow::Result<()>,
) -> anyhow::Result<Picture> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
    draw(&root)?;
    root.present()?;
    drop(root);
    // The page is bright or dark as the reader's system is, and what is drawn in INK follows. plotters writes colors as
    // whole attributes with these digits; in a text, such as the name of a tensor, it escapes quotes.
    Ok(Picture { svg: svg.replace("\"#000000\"", "\"currentColor\""), caption })
}

/// The normalised mean squared error of each tensor in execution order, with a line for each kind of tap and one for the
/// limits. None where no tensor has such an error.
pub(super) fn by_tensor(report: &Report, bounds: impl Fn(&str) -> Bounds) -> anyhow::Result<Option<Picture>> {
    let errors: Vec<f64> = report.rows.iter().filter_map(|r| r.nmse).collect();
    if errors.is_empty() {
        return Ok(None);
    }
    let limits = report.rows.iter().filter(|r| r.nmse.is_some()).map(|r| bounds(&r.name).nmse);
    let scale = Decades::of(errors.iter().copied().chain(limits));
    // The same tap of all layers of a pass; the worst first, those that are equally bad in execution order.
    let mut kinds: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    let mut index: BTreeMap<String, usize> = BTreeMap::new();
    for (x, row) in report.rows.iter().enumerate() {
        let (pass, bare, _) = split_layer(&row.name);
        let kind = if pass.is_empty() { bare.to_string() } else { format!("{pass}/{bare}") };
        let Some(nmse) = row.nmse else { continue };
        let at = *index.entry(kind).or_insert_with_key(|kind| {
            kinds.push((kind.clone(), Vec::new()));
            kinds.len() - 1
        });
        kinds[at].1.push((x as f64, scale.place(nmse)));
    }
    let top = |points: &[(f64, f64)]| points.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max);
    kinds.sort_by(|a, b| top(&b.1).total_cmp(&top(&a.1)));
    let others = kinds.len().saturating_sub(COLORS.len());
    let starts = layer_starts(&report.rows);
    let first = report.first.as_ref().and_then(|name| report.rows.iter().position(|r| r.name == *name));
    let caption = format!(
        "Normalised mean squared error of {} in execution order, with the limits (thin line){}. {}",
        counted(errors.len(), "tensor"),
        if first.is_some() { " and the first tensor that is out of them (red)" } else { "" },
        match others {
            0 => "A line for each kind of tap.".into(),
            n => format!(
                "In color the {} kinds of taps that are furthest from the golden, {n} others gray.",
                COLORS.len()
            ),
        }
    );
    let last = (report.rows.len() as f64 - 0.5).max(0.5);
    let picture = drawn(380, caption, |root| {
        let (plot, side) = root.split_horizontally(WIDTH - NAMES);
        let y = f64::from(scale.low - 1) - 0.5..f64::from(scale.high + 1) + 0.5;
        let decades = [scale.low - 1, scale.high + 1].into_iter().chain(scale.labeled());
        let mut chart = ChartBuilder::on(&plot)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(
                Axis { range: -0.5..last, labels: starts.iter().map(|s| s.0 as f64).collect() },
                Axis { range: y.clone(), labels: decades.map(f64::from).collect() },
            )?;
        let start = |x: &f64| starts.iter().find(|s| s.0 as f64 == *x).map_or(String::new(), |s| label(&s.1));
        let decade = |y: &f64| match *y as i32 {
            d if d < scale.low => "0".into(),
            d if d > scale.high => "NaN, inf".into(),
            d => format!("1e{d}"),
        };
        chart
            .configure_mesh()
            .bold_line_style(INK.mix(0.15))
            .light_line_style(TRANSPARENT)
            .axis_style(INK.mix(0.6))
            .label_style(words(14, HPos::Center, VPos::Center))
            .x_label_formatter(&start)
            .y_label_formatter(&decade)
            .draw()?;
        for (i, (_, points)) in kinds.iter().enumerate().rev() {
            let (color, width) = COLORS.get(i).map_or((OTHERS.mix(0.5), 1), |c| (c.mix(1.0), 2));
            chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(width)))?;
            chart.draw_series(points.iter().map(|&p| Circle::new(p, 2, color.filled())))?;
        }
        let limit = |(x, row): (usize, &Row)| {
            let limit = bounds(&row.name).nmse;
            // One of zero or infinity is no line.
            let shown = row.nmse.is_some() && limit > 0.0 && limit.is_finite();
            let (x, y) = (x as f64, scale.place(limit));
            shown.then(|| PathElement::new(vec![(x - 0.5, y), (x + 0.5, y)], INK.stroke_width(1)))
        };
        chart.draw_series(report.rows.iter().enumerate().filter_map(limit))?;
        if let Some(x) = first {
            let x = x as f64;
            chart.draw_series([PathElement::new(vec![(x, y.start), (x, y.end)], WRONG.stroke_width(1))])?;
        }
        let shown = kinds.iter().take(COLORS.len()).map(|(kind, _)| kind.as_str());
        for (i, kind) in shown.chain((others > 0).then_some("others")).enumerate() {
            let (y, color) = (24 + 20 * i as i32, COLORS.get(i).unwrap_or(&OTHERS));
            side.draw(&PathElement::new(vec![(0, y), (16, y)], color.stroke_width(3)))?;
            side.draw(&Text::new(label(kind), (22, y), words(14, HPos::Left, VPos::Center)))?;
        }
        Ok(())
    })?;
    Ok(Some(picture))
}

/// Where a layer of a pass begins, with its name; every so many, where there are too many to be read.
fn layer_starts(rows: &[Row]) -> Vec<(usize, String)> {
    let mut starts: Vec<(usize, String)> = Vec::new();
    let mut current = None;
    for (x, row) in rows.iter().enumerate() {
        let (pass, _, layer) = split_layer(&row.name);
        if let Some(layer) = layer.filter(|_| current != Some((pass, layer))) {
            starts.push((x, format!("{pass} {layer}").trim_start().to_string()));
        }
        current = Some((pass, layer));
    }
    let by = starts.len() / 12 + 1;
    starts.into_iter().step_by(by).collect()
}

/// Lines of the map, at most.
const LINES: usize = 120;
/// Columns of it, at most.
const COLUMNS: usize = 128;
/// Height of a line.
const LINE: i32 = 15;

/// What the picture of rows shows.
struct Map {
    /// The name of a line, and the largest error in each of its columns.
    lines: Vec<(String, Vec<f64>)>,
    /// Rows in a column.
    rows: usize,
    /// Lines that are left out.
    left_out: usize,
    /// A line is a layer with all its tensors.
    layers: bool,
}

impl Map {
    fn of(rows: &[Row]) -> Map {
        let n = rows.iter().filter_map(|r| r.row).max().map_or(0, |last| last + 1);
        let tensors = rows.iter().filter(|r| r.row == Some(0)).count();
        let mut map =
            Map { lines: Vec::new(), rows: n.div_ceil(COLUMNS).max(1), left_out: 0, layers: tensors > LINES };
        let mut index: BTreeMap<String, usize> = BTreeMap::new();
        for row in rows {
            let name = match split_layer(&row.name) {
                (pass, _, Some(layer)) if map.layers => {
                    format!("{pass} layer {layer}").trim_start().to_string()
                }
                _ => row.name.clone(),
            };
            let at = *index.entry(name).or_insert_with_key(|name| {
                map.lines.push((name.clone(), Vec::new()));
                map.lines.len() - 1
            });
            let (line, column) = (&mut map.lines[at].1, row.row.unwrap_or(0) / map.rows);
            if line.len() <= column {
                line.resize(column + 1, 0.0);
            }
            line[column] = line[column].max(row.relative_error());
        }
        map.left_out = map.lines.len().saturating_sub(LINES);
        map.lines.truncate(LINES);
        map
    }

    fn caption(&self) -> String {
        let mut s = "Relative error |candidate - golden| / |golden| of each row (position of a pass, step of a generation); of \
                     integers the share that differs."
            .to_string();
        if self.layers {
            s.push_str(" A line is the largest error of all tensors of a layer.");
        }
        if self.rows > 1 {
            s.push_str(&format!(" A column is the largest error of {} rows.", self.rows));
        }
        if self.left_out > 0 {
            s.push_str(&format!(" {} more lines are left out.", self.left_out));
        }
        s
    }
}

/// Colors from small to large errors: of about the same steps to the eye, on bright and dark pages.
const RAMP: [(u8, u8, u8); 5] =
    [(0x4b, 0x2a, 0x86), (0x3b, 0x62, 0xa8), (0x21, 0x96, 0x8c), (0x66, 0xc4, 0x5c), (0xfd, 0xe7, 0x25)];

/// The color of an error.
fn color(scale: Decades, error: f64) -> RGBAColor {
    if !error.is_finite() {
        return WRONG.mix(1.0);
    }
    if error == 0.0 {
        return OTHERS.mix(0.25);
    }
    let at = (scale.place(error) - f64::from(scale.low)) / f64::from(scale.high - scale.low);
    let at = at * (RAMP.len() - 1) as f64;
    let i = (at as usize).min(RAMP.len() - 2);
    let between =
        |a: u8, b: u8| (f64::from(a) + (at - i as f64) * (f64::from(b) - f64::from(a))).round() as u8;
    let ((r, g, b), (r2, g2, b2)) = (RAMP[i], RAMP[i + 1]);
    RGBColor(between(r, r2), between(g, g2), between(b, b2)).mix(1.0)
}

/// The relative error of each row: a line for each tensor (or each layer, where tensors are many), a column for each row
/// (or several, where rows are many). None where there are no rows.
pub(super) fn by_row(rows: &[Row]) -> anyhow::Result<Option<Picture>> {
    let map = Map::of(rows);
    let columns = map.lines.iter().map(|(_, line)| line.len()).max().unwrap_or(0);
    if columns == 0 {
        return Ok(None);
    }
    let errors: Vec<f64> = map.lines.iter().flat_map(|(_, line)| line.iter().copied()).collect();
    let scale = Decades::of(errors.iter().copied());
    let (cell, top) = (((WIDTH - NAMES - 120) / columns as i32).min(28), 28);
    // The scale at the side needs a height of its own.
    let bottom = top + LINE * (map.lines.len() as i32).max(14);
    let picture = drawn(bottom + 12, map.caption(), |root| {
        for column in (0..columns).step_by((columns / 12).max(1)) {
            let at = (NAMES + cell * column as i32 + cell / 2, top - 8);
            let text = (column * map.rows).to_string();
            root.draw(&Text::new(text, at, words(13, HPos::Center, VPos::Center)))?;
        }
        for (i, (name, line)) in map.lines.iter().enumerate() {
            let y = top + LINE * i as i32;
            let at = (NAMES - 8, y + LINE / 2);
            root.draw(&Text::new(label(name), at, words(13, HPos::Right, VPos::Center)))?;
            for (column, &error) in line.iter().enumerate() {
                let x = NAMES + cell * column as i32;
                let gap = i32::from(cell > 8);
                let corners = [(x, y), (x + cell - gap, y + LINE - 1)];
                root.draw(&Rectangle::new(corners, color(scale, error).filled()))?;
            }
        }
        scale_at_the_side(root, scale, top, &errors)
    })?;
    Ok(Some(picture))
}

/// What colors mean: a box for each decade from the top, then zero and what is no number where they occur.
fn scale_at_the_side(
    root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    scale: Decades,
    top: i32,
    errors: &[f64],
) -> anyhow::Result<()> {
    let (x, width, height) = (WIDTH - 100, 16, 150);
    let any = |is: fn(&f64) -> bool| errors.iter().any(is);
    let scaled = any(|e| e.is_finite() && *e > 0.0);
    let n = scale.high - scale.low;
    let edge = |decade: i32| top + height * (scale.high - decade) / n;
    let decades = if scaled { scale.low..scale.high } else { 0..0 };
    for decade in decades {
        let middle = 10f64.powf(f64::from(decade) + 0.5);
        let corners = [(x, edge(decade + 1)), (x + width, edge(decade))];
        root.draw(&Rectangle::new(corners, color(scale, middle).filled()))?;
    }
    for decade in scale.labeled().filter(|_| scaled) {
        let at = (x + width + 6, edge(decade));
        root.draw(&Text::new(format!("1e{decade}"), at, words(13, HPos::Left, VPos::Center)))?;
    }
    let extra = [(any(|e| *e == 0.0), 0.0, "0"), (any(|e| !e.is_finite()), f64::INFINITY, "NaN, inf")]
        .into_iter()
        .filter(|e| e.0);
    for (i, (_, error, text)) in extra.enumerate() {
        let y = top + height + 14 + 20 * i as i32;
        root.draw(&Rectangle::new([(x, y), (x + width, y + 12)], color(scale, error).filled()))?;
        root.draw(&Text::new(text, (x + width + 6, y + 6), words(13, HPos::Left, VPos::Center)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use redraft::trace::{Elements, Limits, Preset, TraceFile, compare, compare_rows};

    use super::*;

    /// Tensors of rows of two elements, of which the golden's are 3 and 4 and the candidate's so much more.
    fn files(tensors: &[(&str, &[f32])]) -> (TraceFile, TraceFile) {
        let (mut golden, mut candidate) = (TraceFile::default(), TraceFile::default());
        for (name, errors) in tensors {
            let n = errors.len();
            golden.insert(*name, vec![n, 2], Elements::F32([3.0, 4.0].repeat(n)));
            let theirs = errors.iter().flat_map(|e| [3.0, 4.0 + e]).collect();
            candidate.insert(*name, vec![n, 2], Elements::F32(theirs));
        }
        (golden, candidate)
    }

    fn pictures(tensors: &[(&str, &[f32])]) -> (Option<Picture>, Option<Picture>) {
        let (golden, candidate) = files(tensors);
        let limits = Limits::from(Preset::F32);
        let report = compare(&golden, &candidate, &limits);
        let rows = compare_rows(&golden, &candidate, &limits);
        (by_tensor(&report, |n| limits.of(n, false)).unwrap(), by_row(&rows).unwrap())
    }

    /// Boxes in these colors.
    fn boxes(svg: &str, colors: &[RGBAColor]) -> usize {
        let hex = |c: &RGBAColor| format!("fill=\"#{:02X}{:02X}{:02X}\"", c.0, c.1, c.2);
        let wanted = |line: &&str| line.starts_with("<rect") && colors.iter().any(|c| line.contains(&hex(c)));
        svg.lines().filter(wanted).count()
    }

    #[test]
    fn a_row_is_a_box_in_the_color_of_its_error() {
        // 5 is the length of a golden row: relative errors of 0.05, 0, 0.00625 and NaN.
        let (_, map) = pictures(&[("dec/l_out-0", &[0.25, 0.0, 0.03125]), ("dec/l_out-1", &[f32::NAN])]);
        let svg = map.unwrap().svg;
        let scale = Decades { low: -3, high: -1 };
        assert_eq!(boxes(&svg, &[color(scale, 0.05)]), 1);
        assert_eq!(boxes(&svg, &[color(scale, 0.00625)]), 1);
        assert_eq!(boxes(&svg, &[WRONG.mix(1.0)]), 2, "a row and the scale's");
        assert_eq!(boxes(&svg, &[OTHERS.mix(0.25)]), 2, "a row and the scale's");
        assert_eq!(svg.matches("<rect").count(), 4 + 2 + 2, "rows, decades, zero and what is no number");
        assert!(svg.contains("NaN, inf") && svg.contains("dec/l_out-1"));
        assert!(!svg.contains("#000000") && svg.contains("currentColor"));
    }

    #[test]
    fn long_names_keep_their_layer() {
        assert_eq!(label("dec/ffn_moe_weights_scaled-0"), "dec/ffn_moe_weights_scaled-0");
        assert_eq!(label("dec/ffn_moe_weights_scaled-17"), "dec/ffn_moe_weights…caled-17");
    }

    #[test]
    fn colors_go_from_small_to_large() {
        let scale = Decades { low: -4, high: 0 };
        let rgb = |c: RGBAColor| (c.0, c.1, c.2);
        for (i, want) in RAMP.into_iter().enumerate() {
            assert_eq!(rgb(color(scale, 10f64.powi(i as i32 - 4))), want);
        }
        assert_eq!(rgb(color(scale, f64::NAN)), (WRONG.0, WRONG.1, WRONG.2));
    }

    #[test]
    fn scales_hold_everything_and_places_stand_apart() {
        assert_eq!(Decades::of([3e-9, 0.0, f64::NAN, 2e-3].into_iter()), Decades { low: -9, high: -2 });
        assert_eq!(Decades::of([0.0, f64::INFINITY].into_iter()), Decades { low: -1, high: 0 });
        assert_eq!(Decades::of([1e-300, 1e300].into_iter()), Decades { low: -40, high: 40 });
        assert_eq!(Decades::of(std::iter::once(1e-3)), Decades { low: -3, high: -2 });
        let scale = Decades { low: -9, high: -2 };
        assert_eq!([0.0, 1e-9, 1e-4, f64::NAN].map(|x| scale.place(x)), [-10.0, -9.0, -4.0, -1.0]);
    }

    #[test]
    fn many_rows_and_tensors_are_put_together_by_the_largest() {
        let mut errors = vec![0.0f32; 1000];
        errors[517] = 5.0;
        let (_, map) = pictures(&[("logits", &errors)]);
        let map = map.unwrap();
        // 1000 rows are 125 columns of 8; one of them is 1, the others 0.
        assert!(map.caption.contains("A column is the largest error of 8 rows."), "{}", map.caption);
        assert_eq!(boxes(&map.svg, &[OTHERS.mix(0.25)]), 124 + 1);
        let names: Vec<String> = (0..200).map(|i| format!("enc/{}-{}", ["a", "b"][i % 2], i / 2)).collect();
        let tensors: Vec<(&str, &[f32])> = names.iter().map(|n| (n.as_str(), &[1.0f32][..])).collect();
        let map = pictures(&tensors).1.unwrap();
        assert!(map.caption.contains("all tensors of a layer") && map.svg.contains("enc layer 99"));
        let names: Vec<String> = (0..200).map(|i| format!("t{i}")).collect();
        let tensors: Vec<(&str, &[f32])> = names.iter().map(|n| (n.as_str(), &[0.0f32][..])).collect();
        let (line, map) = pictures(&tensors);
        assert!(map.unwrap().caption.ends_with(" 80 more lines are left out."));
        assert!(line.unwrap().caption.contains("192 others gray"));
    }

    #[test]
    fn the_line_of_a_kind_has_a_point_for_each_layer() {
        let names = ["enc/l_out-0", "enc/l_out-1", "enc/Qcur-0", "logits"];
        let (line, _) = pictures(&names.map(|n| (n, &[1e-3f32, 0.0][..])));
        let svg = line.unwrap().svg;
        assert_eq!(svg.matches("<circle").count(), 4);
        for text in ["enc/l_out", "enc/Qcur", "logits", "enc 0", "enc 1", "1e-9", "1e-7", "0"] {
            assert!(svg.contains(&format!("\n{text}\n")), "{text}: {svg}");
        }
        assert!(svg.contains("#E03030"), "the first tensor that is out of its limits");
        // Integers have no such error.
        let mut ints = TraceFile::default();
        ints.insert("accepted", vec![1], Elements::U8(vec![1]));
        let report = compare(&ints, &ints, &Preset::F32.into());
        assert!(by_tensor(&report, |n| Limits::from(Preset::F32).of(n, false)).unwrap().is_none());
        assert!(by_row(&[]).unwrap().is_none());
        // Where all is equal there is no scale but zero.
        let (line, map) = pictures(&[("logits", &[0.0])]);
        assert!(line.unwrap().caption.starts_with("Normalised mean squared error of 1 tensor in"));
        assert_eq!(map.unwrap().svg.matches("<rect").count(), 1 + 1);
    }

    #[test]
    fn names_of_others_stay_names() {
        let name = "</text><script>alert(1)</script>\"#000000\"\u{1b}[2J-3";
        let (line, map) = pictures(&[(name, &[1.0, 0.0])]);
        for svg in [line.unwrap().svg, map.unwrap().svg] {
            assert!(!svg.contains("<script") && svg.contains("&lt;/text&gt;&lt;script"), "{svg}");
            assert!(!svg.contains('\u{1b}'), "{svg}");
        }
    }
}
