//! Whether a device keeps to the operations of the contract: small kernels against the host, bit for bit.

use super::bytes_of;
use super::device::{Device, Dispatch, View};
use super::kernels::Kernel;
use crate::backend::Check;
use crate::{ComputeError, math};
use redraft_gguf::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

/// Cases of each check.
const CASES: usize = 1 << 16;

/// Three inputs as bits.
type Inputs = [Vec<u32>; 3];

/// One check: what it is called, the kind that the kernel knows it by, inputs, and what the contract says.
struct Question {
    name: &'static str,
    kind: u32,
    inputs: Inputs,
    expected: fn(u32, u32, u32) -> u32,
    /// It must be found wrong: the check that checks the checks.
    control: bool,
}

/// A fixed stream of bits (SplitMix64).
struct Stream(u64);

impl Stream {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number of either sign with an exponent of `-range ..= range`.
    fn number(&mut self, range: u64) -> u32 {
        let bits = self.next();
        let exponent = 127 - range + (bits >> 32) % (2 * range + 1);
        (bits as u32 & 0x807F_FFFF) | (exponent as u32) << 23
    }

    fn numbers(&mut self, range: u64) -> Vec<u32> {
        (0..CASES).map(|_| self.number(range)).collect()
    }

    fn any(&mut self) -> Vec<u32> {
        (0..CASES).map(|_| self.next() as u32).collect()
    }
}

fn of(x: u32) -> f32 {
    f32::from_bits(x)
}

fn questions() -> Vec<Question> {
    let mut s = Stream(1);
    let zeros = || vec![0; CASES];
    let near = [s.numbers(3), s.numbers(3), s.numbers(6)];
    // c is what a * b is about, with the other sign: all but the last bits cancel.
    let cancel = |x: &Inputs| -> Inputs {
        let c = x[0].iter().zip(&x[1]).map(|(&a, &b)| (-(of(a) * of(b))).to_bits()).collect();
        [x[0].clone(), x[1].clone(), c]
    };
    let cancelling = cancel(&near);
    let wide = [s.numbers(40), s.numbers(40), s.numbers(80)];
    let one = |x: Vec<u32>| [x, zeros(), zeros()];
    let positive = |x: Vec<u32>| one(x.into_iter().map(|x| x & 0x7FFF_FFFF).collect());
    let all_f16 = one((0..CASES as u32).collect());
    // Between any two f16 numbers, and in the middle.
    let ties = one((0..CASES as u32)
        .map(|i| of(f16_to_f32((i % 0x7BFF) as u16).to_bits() + 0x1000).to_bits())
        .collect());
    let ask = |name, kind, inputs, expected| Question { name, kind, inputs, expected, control: false };
    let unfused: fn(u32, u32, u32) -> u32 = |a, b, c| (of(a) * of(b) + of(c)).to_bits();
    let mut list = vec![
        ask("a product and a sum", 0, near.clone(), unfused),
        ask("a product and a sum that cancel", 0, cancelling.clone(), unfused),
        ask("a product and a sum of any size", 0, wide, unfused),
        ask("a sum less an addend", 1, near.clone(), |a, b, _| ((of(a) + of(b)) - of(b)).to_bits()),
        ask("what a sum loses", 2, near, |a, b, _| {
            let (a, b) = (of(a), of(b));
            let s = a + b;
            let part = s - a;
            ((a - (s - part)) + (b - part)).to_bits()
        }),
        ask("exp", 3, one(s.numbers(7)), |a, _, _| math::exp(of(a)).to_bits()),
        ask("log", 4, positive(s.numbers(100)), |a, _, _| math::log(of(a)).to_bits()),
        ask("recip", 5, positive(s.numbers(99)), |a, _, _| math::recip(of(a)).to_bits()),
        ask("rsqrt", 6, positive(s.numbers(120)), |a, _, _| math::rsqrt(of(a)).to_bits()),
        ask("tanh", 7, one(s.numbers(60)), |a, _, _| math::tanh(of(a)).to_bits()),
        ask("gelu", 8, one(s.numbers(60)), |a, _, _| math::gelu_tanh(of(a)).to_bits()),
        ask("integers to f32", 9, one(s.any()), |a, _, _| (a as i32 as f32).to_bits()),
        ask("f16 to f32", 10, all_f16, |a, _, _| f16_to_f32(a as u16).to_bits()),
        ask("f32 to f16", 11, ties, |a, _, _| u32::from(f32_to_f16(of(a)))),
        ask("f32 to bfloat16", 12, one(s.numbers(100)), |a, _, _| bf16_to_f32(f32_to_bf16(of(a))).to_bits()),
        ask("products of bytes", 13, [s.any(), s.any(), zeros()], |a, b, _| {
            let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
            (0..4).map(|i| i32::from(a[i] as i8) * i32::from(b[i] as i8)).sum::<i32>() as u32
        }),
        ask("integers", 14, [s.any(), s.any(), s.any()], |a, b, c| {
            (a as i32).wrapping_mul(b as i32).wrapping_add(c as i32 >> 3) as u32
        }),
        ask("codes of 8 bits", 15, [s.numbers(3), vec![8f32.to_bits(); CASES], zeros()], |a, b, _| {
            math::int8_code(of(a), of(b)) as u32
        }),
        ask("floor", 17, one(s.numbers(20)), |a, _, _| of(a).floor().to_bits()),
    ];
    list.push(Question {
        name: "control: a fused product and sum is found out",
        kind: 16,
        inputs: cancelling,
        expected: unfused,
        control: true,
    });
    list
}

/// Asks a device all questions.
pub(crate) fn probe<D: Device>(device: &mut D) -> Result<Vec<Check>, ComputeError> {
    let bytes = 4 * CASES as u64;
    let status = device.alloc("the status of a probe", 256)?;
    let buffers = (0..4).map(|_| device.alloc("a probe", bytes)).collect::<Result<Vec<_>, _>>()?;
    let [a, b, c, out] = &buffers[..] else { unreachable!("four were made") };
    let view = |buffer| View { buffer, at: 0, bytes };
    let mut checks = Vec::new();
    for q in questions() {
        for (buffer, words) in [a, b, c].into_iter().zip(&q.inputs) {
            device.write(buffer, 0, bytes_of(words))?;
        }
        let work = Dispatch {
            kernel: Kernel::Probe,
            views: &[view(a), view(b), view(c), view(out)],
            parameters: &[0, 0, CASES as u32, q.kind],
            groups: [CASES.div_ceil(256) as u32, 1, 1],
            cost: 64 * CASES as u64,
        };
        device.dispatch(&status, &work)?;
        let found = device.read(&[view(out)])?;
        let found = found.as_chunks::<4>().0.iter().map(|&w| u32::from_le_bytes(w));
        let [x, y, z] = &q.inputs;
        let same = |e: u32, f: u32| e == f || (of(e).is_nan() && of(f).is_nan());
        let wrong: Vec<(usize, u32, u32)> = found
            .enumerate()
            .map(|(i, f)| (i, (q.expected)(x[i], y[i], z[i]), f))
            .filter(|&(_, e, f)| !same(e, f))
            .collect();
        let first = wrong.first().map(|&(i, e, f)| {
            format!(
                "{} of {CASES} differ, first of ({:08x}, {:08x}, {:08x}): expected {e:08x}, found {f:08x}",
                wrong.len(),
                x[i],
                y[i],
                z[i]
            )
        });
        let passed = wrong.is_empty() != q.control;
        let said = match (q.control, first) {
            (false, Some(first)) => first,
            (true, None) => "nothing was found wrong".into(),
            _ => String::new(),
        };
        checks.push(Check { name: q.name, passed, said });
    }
    Ok(checks)
}
