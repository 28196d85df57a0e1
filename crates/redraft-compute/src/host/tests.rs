//! What a failed run leaves, sequences of a pass, memory.

use super::*;
use crate::op::Mask;
use crate::reference::{F32, Reference};
use crate::segment::Segment;
use crate::{AttentionSpec, Blind, ProgramBuilder, TapKey};

const WIDTH: usize = 4;

fn backend() -> (HostBackend<Reference<F32>>, SeqId) {
    let mut b = HostBackend::new(Reference::<F32>::default(), Arc::new(WeightTable::default()));
    let seq = b.seq_create(&KvLayout { widths: vec![WIDTH; 2] }, KvType::F32).unwrap();
    (b, seq)
}

/// Two layers of attention that append to the cache; the second input of the program is kept.
fn program(n_past: usize, rows: usize) -> Program {
    let mut b = ProgramBuilder::new(&Arc::new(WeightTable::default()), n_past, rows);
    let mut x = b.input("x", WIDTH, Kind::Real).unwrap();
    for layer in 0..2 {
        b.set_layer(Some(layer));
        let mask = Mask::Causal { window: None };
        let spec = AttentionSpec {
            cache_layer: Some(layer),
            n_heads: 1,
            n_kv_heads: 1,
            head_dim: WIDTH,
            scale: 1.0,
            mask,
        };
        let o = b.attention([x, x, x], spec).unwrap();
        b.kv_append(layer, x, x).unwrap();
        x = b.add(x, o).unwrap();
        b.tap("l_out", x);
    }
    b.output(x);
    b.keep(0, x, KeptId(0));
    b.finish()
}

#[derive(Default)]
struct Out {
    bits: Vec<u32>,
    /// Set by the first tap.
    stop: Option<Arc<AtomicBool>>,
}

impl Observer for Out {
    fn wants(&self, _: TapKey) -> bool {
        true
    }
    fn tap(&mut self, _: TapKey, _: Val, _: TapData<'_>) {
        self.stop.as_ref().inspect(|stop| stop.store(true, Ordering::Relaxed));
    }
    fn output(&mut self, _: usize, _: Val, data: TapData<'_>) {
        let TapData::F32(x) = data else { panic!("f32") };
        self.bits = x.iter().map(|x| x.to_bits()).collect();
    }
    fn interrupt(&self) -> Option<Arc<AtomicBool>> {
        self.stop.clone()
    }
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.37).fract() - 0.5).collect()
}

#[test]
fn a_failed_run_leaves_the_sequence_as_it_was() {
    let run = |fail: bool| {
        let (mut b, seq) = backend();
        let x = numbers(3 * WIDTH);
        b.run(&program(0, 3), &[seq], &[InputData::F32(&x)], &mut Blind).unwrap();
        let kept = b.seqs[&seq.0].kept[&KeptId(0)].clone();
        let y = numbers(2 * WIDTH);
        if fail {
            // After the first layer has appended to its cache.
            let mut stop = Out { stop: Some(Arc::default()), ..Out::default() };
            let e = b.run(&program(3, 2), &[seq], &[InputData::F32(&y)], &mut stop).unwrap_err();
            assert!(matches!(e, ComputeError::Interrupted));
            let mut nan = y.clone();
            nan[WIDTH] = f32::NAN;
            let e = b.run(&program(3, 2), &[seq], &[InputData::F32(&nan)], &mut Blind).unwrap_err();
            assert!(matches!(e, ComputeError::NotFinite { row: 1, .. }), "{e}");
            assert_eq!(b.seq_len(seq).unwrap(), 3);
            assert_eq!(b.seqs[&seq.0].kept[&KeptId(0)], kept);
            assert!(b.seqs[&seq.0].cache.iter().all(|l| l.k.len() == 3 * WIDTH && l.v.len() == 3 * WIDTH));
        }
        let mut out = Out::default();
        b.run(&program(3, 2), &[seq], &[InputData::F32(&y)], &mut out).unwrap();
        assert_eq!(b.seq_len(seq).unwrap(), 5);
        out.bits
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_pass_wants_as_many_different_sequences_as_it_has() {
    let (mut b, seq) = backend();
    let other = b.seq_create(&KvLayout { widths: vec![WIDTH] }, KvType::F32).unwrap();
    let parts = [Segment { n_past: 0, rows: 1 }, Segment { n_past: 0, rows: 2 }];
    let mut p = ProgramBuilder::batch(&Arc::new(WeightTable::default()), &parts);
    let x = p.input("x", WIDTH, Kind::Real).unwrap();
    p.kv_append(0, x, x).unwrap();
    let (p, x) = (p.finish(), numbers(3 * WIDTH));
    for wrong in [&[seq][..], &[seq, seq], &[seq, other, seq]] {
        let e = b.run(&p, wrong, &[InputData::F32(&x)], &mut Blind).unwrap_err();
        assert!(matches!(&e, ComputeError::Input { name, .. } if name == "sequences"), "{e}");
    }
    let e = b.run(&p, &[seq, SeqId(99)], &[InputData::F32(&x)], &mut Blind).unwrap_err();
    assert!(matches!(e, ComputeError::UnknownHandle { id: 99, .. }), "{e}");
    b.run(&p, &[other, seq], &[InputData::F32(&x)], &mut Blind).unwrap();
    assert_eq!((b.seq_len(other).unwrap(), b.seq_len(seq).unwrap()), (1, 2));
    // The second of them is not as long as the program says: none is changed.
    let e = b.run(&p, &[seq, other], &[InputData::F32(&x)], &mut Blind).unwrap_err();
    assert!(matches!(e, ComputeError::CacheLength { expected: 0, found: 2 }), "{e}");
    assert_eq!((b.seq_len(other).unwrap(), b.seq_len(seq).unwrap()), (1, 2));
}

#[test]
fn a_pass_appends_all_its_rows() {
    let mut p = ProgramBuilder::new(&Arc::new(WeightTable::default()), 0, 3);
    let x = p.input("x", WIDTH, Kind::Real).unwrap();
    let some = p.take_rows(x, vec![0, 2]).unwrap();
    let e = p.kv_append(0, some, some).unwrap_err();
    assert!(matches!(e, ComputeError::Shape { op: "KvAppend", .. }), "{e}");
}

#[test]
fn memory_does_not_grow_with_the_number_of_passes() {
    let (mut b, seq) = backend();
    let x = numbers(WIDTH);
    for n in 0..200 {
        b.run(&program(n, 1), &[seq], &[InputData::F32(&x)], &mut Blind).unwrap();
        assert!(b.pool.len() <= POOLED);
    }
    let bytes = b.seq_bytes(seq).unwrap();
    let needed = 2 * 2 * 200 * WIDTH * size_of::<f32>();
    assert!((needed..=needed + needed / 4).contains(&bytes), "{bytes} for {needed}");
}
