//! What llama.cpp's `llama-eval-callback` prints: each node of the graph with its name, type, operation and extents, the
//! first extent running fastest; then its elements, of extents above six the first and the last three, and their sum
//! (`common/debug.cpp`; before that `ggml_debug` in `examples/eval-callback`, whose sum was at first that of the elements
//! which are shown):
//!
//! ```text
//! common_debug_cb_eval:     attn_norm-0 = (f32)        MUL(norm-0{64, 4, 1, 1}, blk.0.attn_norm.weight{64, 1, 1, 1}}) = {64, 4, 1, 1}
//!     [
//!         [
//!             [      0.1234,      0.5678,     -0.9012,    ...,       0.3456,      0.7890,     -0.1234  ],
//!             ...
//!         ],
//!     ]
//!     sum = 12.345678
//! ```
//!
//! Of nodes of one name the last counts: `Qcur-0` is there after the projection, its bias and RoPE. So it is with a second
//! pass in the same text.

use redraft_gguf::Shown;

use crate::Error;
use crate::trace::{Elements, Given, Printed, Tensor, TraceFile, in_pass, split_layer};

/// How much of a file may stand before the first node: what a program says when it loads a model.
const MAX_PREAMBLE: usize = 4 << 20;

/// Whether there is a line of a node.
pub(super) fn is(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(MAX_PREAMBLE)];
    start.split(|&b| b == b'\n').any(|line| std::str::from_utf8(line).is_ok_and(|l| Node::of(l).is_some()))
}

/// A line that begins a node.
struct Node<'a> {
    name: &'a str,
    dtype: &'a str,
    operation: &'a str,
    /// Extents, the fastest last; those of 1 before two of them are left out.
    shape: Vec<usize>,
}

impl Node<'_> {
    fn of(line: &str) -> Option<Node<'_>> {
        let line = line.trim_end();
        let (left, right) = line.split_once(" = (")?;
        // Names have spaces; a log may have put something before the line.
        let (_, name) = left.rsplit_once(": ")?;
        let (dtype, rest) = right.split_once(')')?;
        let (operation, extents) = rest.rsplit_once(") = {")?;
        let extents = extents.strip_suffix('}')?.split(',').map(|n| n.trim().parse().ok());
        let mut shape: Vec<usize> = extents.collect::<Option<_>>()?;
        if shape.len() > 4 || shape.contains(&0) {
            return None;
        }
        while shape.len() > 2 && shape.last() == Some(&1) {
            shape.pop();
        }
        shape.reverse();
        Some(Node { name: name.trim(), dtype, operation: operation.split('(').next()?.trim(), shape })
    }

    /// A name that a program gave: not that of a view, and not a number.
    fn is_named(&self) -> bool {
        let number = ["node_", "leaf_"].iter().any(|start| self.name.starts_with(start));
        !number && !self.name.is_empty() && !self.name.contains(['(', ' '])
    }
}

/// Elements as they come, and which places they have.
#[derive(Default)]
struct Block {
    x: Vec<f64>,
    /// Open brackets.
    depth: usize,
    /// Of each extent, slowest first, how many were counted in the present run, and at which count the others are left
    /// out.
    now: [(usize, Option<usize>); 3],
    /// Of each extent the runs that were closed, which are all alike.
    closed: [Option<(usize, Option<usize>)>; 3],
    /// Digits after the point, the fewest.
    decimals: Option<usize>,
}

impl Block {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let mut rest = line.trim();
        while let Some(c) = rest.chars().next() {
            match c {
                '[' => self.open()?,
                ']' => self.close()?,
                ',' | ' ' => {}
                _ => {
                    let end = rest.find([',', ' ', ']', '[']).unwrap_or(rest.len());
                    self.token(&rest[..end])?;
                    rest = &rest[end..];
                    continue;
                }
            }
            rest = &rest[1..];
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), String> {
        self.depth += 1;
        match self.depth {
            1 if self.closed[0].is_some() => return Err("it has a fourth extent".into()),
            1..=3 => self.now[self.depth - 1] = (0, None),
            _ => return Err("brackets are nested more than three deep".into()),
        }
        if self.depth > 1 {
            self.now[self.depth - 2].0 += 1;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        let level = self.depth.checked_sub(1).ok_or("a bracket is closed that was not opened")?;
        let run = self.now[level];
        if *self.closed[level].get_or_insert(run) != run {
            return Err("its rows are not alike".into());
        }
        self.depth = level;
        Ok(())
    }

    fn token(&mut self, text: &str) -> Result<(), String> {
        let level = self.depth.checked_sub(1).ok_or("there is a number outside of brackets")?;
        let (count, gap) = &mut self.now[level];
        if text == "..." {
            return if gap.replace(*count).is_some() { Err("... stands twice".into()) } else { Ok(()) };
        }
        let x = text.parse().map_err(|_| format!("expected a number, found {}", Shown(text)))?;
        if level != 2 {
            return Err("there is a number outside of a row".into());
        }
        *count += 1;
        self.x.push(x);
        if let Some((_, digits)) = text.split_once('.') {
            self.decimals = Some(self.decimals.map_or(digits.len(), |d| d.min(digits.len())));
        }
        Ok(())
    }

    /// The places of an extent of `n` whose elements were counted with a gap or without one.
    fn places((count, gap): (usize, Option<usize>), n: usize) -> Result<Vec<usize>, String> {
        match gap {
            None if count == n => Ok((0..n).collect()),
            Some(first) if count < n => Ok((0..first).chain(n - (count - first)..n).collect()),
            _ => Err(format!("of an extent of {n} there are {count}")),
        }
    }

    fn finish(self, node: &Node<'_>, sum: Option<&str>) -> Result<(Tensor, Printed), String> {
        let missing = "its elements are cut short";
        let mut shown = Vec::new();
        let outer = 3usize.saturating_sub(node.shape.len());
        for (level, closed) in self.closed.iter().enumerate() {
            let closed = closed.ok_or(missing)?;
            // Extents that the shape leaves out are 1.
            let n = level.checked_sub(outer).map_or(1, |i| node.shape[i]);
            let places = Block::places(closed, n)?;
            if level >= outer {
                shown.push(places);
            }
        }
        if self.depth != 0 {
            return Err(missing.into());
        }
        let shape: Vec<usize> = shown.iter().map(Vec::len).collect();
        let half_unit = half_unit(self.decimals.unwrap_or(0));
        // A sum of what is shown says nothing more.
        let sum = match sum.map(|text| (text, text.parse::<f64>())) {
            None => None,
            Some((text, Ok(sum))) => {
                let half = half_unit_of(text);
                let apart = (self.x.iter().sum::<f64>() - sum).abs();
                (apart.is_nan() || apart > half + half_unit * self.x.len() as f64).then_some((sum, half))
            }
            Some((text, Err(_))) => return Err(format!("expected a sum, found {}", Shown(text))),
        };
        let data = match node.dtype.starts_with('i') {
            true => Elements::I64(self.x.iter().map(|&x| x as i64).collect()),
            false => Elements::F64(self.x),
        };
        Ok((Tensor { shape, data }, Printed { shape: node.shape.clone(), shown, half_unit, sum }))
    }
}

fn half_unit(decimals: usize) -> f64 {
    0.5 * 10f64.powi(-(decimals.min(300) as i32))
}

fn half_unit_of(text: &str) -> f64 {
    half_unit(text.split_once('.').map_or(0, |(_, digits)| digits.len()))
}

/// The nodes of a text that have names. Lines of a log between them are left out.
pub(super) fn read(bytes: &[u8], name: &str) -> Result<TraceFile, Error> {
    let mut file = TraceFile { name: name.to_string(), ..TraceFile::default() };
    let lines = bytes.split(|&b| b == b'\n').map(|line| std::str::from_utf8(line).unwrap_or_default());
    let mut lines = lines.enumerate().peekable();
    // The node that begins a pass, and how many there are.
    let mut first: Option<((String, String), usize)> = None;
    while let Some((at, line)) = lines.next() {
        let Some(node) = Node::of(line) else { continue };
        let mut block = Block::default();
        let (mut sum, mut lines_of, mut problem) = (None, 0, None);
        while let Some((at, line)) = lines.next_if(|(_, line)| Node::of(line).is_none()) {
            let text = line.trim();
            if let Some(text) = text.strip_prefix("sum = ") {
                sum = Some(text);
                // Of a fourth extent each part has a sum.
                if node.shape.len() < 4 {
                    break;
                }
            } else if text.starts_with(['[', ']', '.']) {
                lines_of += 1;
                problem = problem.or_else(|| block.line(text).err().map(|e| (at, e)));
            }
        }
        if !node.is_named() || lines_of == 0 {
            // Nodes of quantized types have no elements.
            continue;
        }
        if node.shape.len() > 3 {
            file.notes.push(format!("{} has four extents: not read", Shown(node.name)));
            continue;
        }
        let finished = match problem {
            Some((at, problem)) => Err((at, problem)),
            None => block.finish(&node, sum).map_err(|e| (at, e)),
        };
        let (tensor, printed) = finished
            .map_err(|(at, e)| file.wrong(format!("line {}: node {}: {e}", at + 1, Shown(node.name))))?;
        let node_key = (node.name.to_string(), node.operation.to_string());
        let (key, passes) = first.get_or_insert_with(|| (node_key.clone(), 0));
        *passes += usize::from(*key == node_key);
        let whole_ints =
            tensor.data.is_int() && printed.shown.iter().map(Vec::len).eq(printed.shape.iter().copied());
        file.tensors.insert(node.name.to_string(), tensor);
        file.given.remove(node.name);
        if !whole_ints {
            file.given.insert(node.name.to_string(), Given::Printed(printed));
        }
    }
    if let Some((_, passes)) = first.filter(|(_, passes)| *passes > 1) {
        file.notes.push(format!("it is of {passes} passes: the last node of each name counts"));
    }
    weights_of_experts(&mut file);
    match file.tensors.is_empty() {
        true => Err(file.wrong("it has no node with a name and elements".into())),
        false => Ok(file),
    }
}

/// Goldens name by `ffn_moe_weights` what the outputs of experts are multiplied with, which in llama.cpp have names of their
/// own where they are divided by their sum or scaled.
fn weights_of_experts(file: &mut TraceFile) {
    let names: Vec<String> = file.tensors.keys().cloned().collect();
    for last in ["ffn_moe_weights_norm", "ffn_moe_weights_scaled"] {
        for name in &names {
            let (pass, bare, Some(layer)) = split_layer(name) else { continue };
            let (tensor, given) = (file.tensors.get(name).cloned(), file.given.get(name).cloned());
            let weights = format!("{}-{layer}", in_pass(pass, "ffn_moe_weights"));
            if let (true, Some(tensor), Some(given)) = (bare == last, tensor, given) {
                file.tensors.insert(weights.clone(), tensor);
                file.given.insert(weights, given);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "
0.00.1 I build: something = (odd) and {more}
common_debug_cb_eval:              attn_norm-0 = (f32)        MUL(norm-0{7, 4, 1, 1}, blk.0.attn_norm.weight{7, 1, 1, 1}}) = {7, 2, 1, 1}
    [
        [
            [      1.0000,      2.0000,     -3.5000,    ...,      5.0000,      6.0000,      7.0000  ],
            [      0.0001,         nan,     -3.5000,    ...,      5.0000,      6.0000,        -inf  ],
        ],
    ]
0.00.2 W a line of a log
    sum = nan
common_debug_cb_eval:           Qcur-0 (view) = (f32)       VIEW(Qcur-0{7, 4, 1, 1}, }) = {1, 1, 1, 1}
    [
        [
            [      9.0000  ],
        ],
    ]
    sum = 9.000000
ggml_debug:                  cache_k_l0 = (q8_0)       SET(a{64, 4, 1, 1}, }) = {64, 4, 1, 1}
ggml_debug:               ffn_moe_topk-1 = (i32)       VIEW(a{2, 3, 1, 1}, }) = {2, 3, 1, 1}
                                     [
                                      [
                                       [      7.0000,       0.0000],
                                       [      6.0000,       1.0000],
                                       [      5.0000,       2.0000],
                                      ],
                                     ]
                                     sum = 21.000000
";

    #[test]
    fn nodes_are_read_with_their_places() {
        assert!(is(DUMP.as_bytes()) && !is(b"a: b = c\n") && !is(b""));
        let file = read(DUMP.as_bytes(), "t").unwrap();
        let names: Vec<_> = file.tensors.keys().map(String::as_str).collect();
        assert_eq!(names, ["attn_norm-0", "ffn_moe_topk-1"]);
        let norm = &file.tensors["attn_norm-0"];
        let x = norm.data.to_f64();
        assert_eq!(
            (norm.shape.as_slice(), x[2], x[6], x[11]),
            (&[2, 6][..], -3.5, 0.0001, f64::NEG_INFINITY)
        );
        assert!(x[7].is_nan());
        let Given::Printed(p) = &file.given["attn_norm-0"] else { panic!("it is printed") };
        assert_eq!((p.shape.as_slice(), p.half_unit), (&[2, 7][..], 5e-5));
        assert_eq!(p.shown, [vec![0, 1], vec![0, 1, 2, 4, 5, 6]]);
        assert!(
            p.sum.is_some_and(|(sum, half)| sum.is_nan() && half == 0.5),
            "a sum that is no number is kept"
        );
        let topk = &file.tensors["ffn_moe_topk-1"];
        assert_eq!(topk.data, Elements::I64(vec![7, 0, 6, 1, 5, 2]));
        assert_eq!((topk.shape.as_slice(), file.given.len()), (&[3, 2][..], 1), "all integers are there");
    }

    #[test]
    fn a_sum_of_more_than_is_shown_is_kept_and_the_last_of_a_name_counts() {
        let node = |x: &str, n: usize, sum: &str| {
            format!(
                "x: l_out-0 = (f32) ADD(a{{1}}, b{{1}}}}) = {{{n}, 1, 1, 1}}\n[\n[\n[ {x} ],\n],\n]\nsum = {sum}\n"
            )
        };
        let some = "1.00, 1.00, 1.00, ..., 1.00, 1.00, 1.00";
        let of = |text: &str| {
            let file = read(text.as_bytes(), "t").unwrap();
            let Given::Printed(p) = file.given["l_out-0"].clone() else { panic!("it is printed") };
            (p, file)
        };
        let (p, _) = of(&node(some, 9, "8.500000"));
        assert_eq!((p.sum, p.half_unit), (Some((8.5, 5e-7)), 0.005));
        assert_eq!(of(&node(some, 9, "6.020000")).0.sum, None, "older versions add what they show");
        assert_eq!(of(&node("1.0, 2.0", 2, "3.04")).0.sum, None);
        assert_eq!(of(&node("1.0, 2.0", 2, "3.2")).0.sum, Some((3.2, 0.05)));
        let (p, file) = of(&(node(some, 9, "6.0") + &node("1.0, 2.0", 2, "3.0")));
        assert_eq!(p.shape, [1, 2]);
        assert_eq!(file.notes, ["it is of 2 passes: the last node of each name counts"]);
        let weights = |name: &str, x: &str| node(x, 2, "9").replace("l_out-0", name);
        let text = weights("ffn_moe_weights_norm-1", "0.5, 0.5") + &weights("ffn_moe_weights-1", "0.1, 0.1");
        let file = read(text.as_bytes(), "t").unwrap();
        assert_eq!(file.tensors["ffn_moe_weights-1"].data, Elements::F64(vec![0.5, 0.5]));
    }

    #[test]
    fn damaged_texts_are_errors_that_name_the_line() {
        let text = |body: &str| format!("x: l_out-0 = (f32) ADD(a{{1}}, b{{1}}}}) = {{7, 1, 1, 1}}\n{body}");
        for (body, said) in [
            ("[\n[\n[ 1.0, 2.0 ],\n],\n]\nsum = 3.0", "line 1: node l_out-0: of an extent of 7 there are 2"),
            ("[\n[\n[ 1.0, ..., 2.0, ..., 3.0 ],\n],\n]\n", "line 4: node l_out-0: ... stands twice"),
            ("[\n[\n[ 1.0, x ],\n],\n]\n", "expected a number, found x"),
            ("[\n[\n[[[ 1.0 ],\n],\n]\n", "three deep"),
            ("]\n", "not opened"),
            ("[\n1.0\n[ 2.0 ]", "outside of a row"),
            ("[\n[\n[ 1.0, ..., 2.0 ],\n", "cut short"),
            ("[\n[\n[ 1.0, ..., 2.0 ],\n[ 1.0, ... ],\n],\n]\n", "not alike"),
            ("[\n[\n[ 1.0, ..., 2.0 ],\n],\n]\nsum = much", "expected a sum"),
        ] {
            let error = read(text(body).as_bytes(), "t").unwrap_err().to_string();
            assert!(error.contains(said), "{body}: {error}");
        }
        assert!(
            read(b"x: node_3 = (f32) ADD(a) = {1}\n[[[1.0]]]\n", "t")
                .unwrap_err()
                .to_string()
                .contains("no node")
        );
    }
}
