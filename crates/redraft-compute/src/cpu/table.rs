//! One table of kernels per level.
//!
//! The kernels in [`kernels`](super::kernels) are generic over [`Isa`](super::vector::Isa) and always
//! inlined. `level_table!` instantiates each inside a function compiled for one instruction set and puts the
//! functions into a [`Table`]; which table is used is decided once per backend. A kernel is added by a line in
//! `kernel_list!`.

use super::level::CpuLevel;
use super::ops::int_panel::{IntPanel, IntTokens};
use super::vector::{Row16, RowBytes};
use crate::numerics::{Half, Units};
use crate::op::{Activation, RopeStyle};
use redraft_gguf::{BlockCodec, Unpacked};

/// The table of a level; none where the machine or the target lacks it.
pub(crate) fn table(level: CpuLevel) -> Option<&'static Table> {
    match level {
        CpuLevel::Scalar => Some(&TABLE),
        #[cfg(target_arch = "x86_64")]
        CpuLevel::Avx2
            if std::arch::is_x86_feature_detected!("avx2")
                && std::arch::is_x86_feature_detected!("f16c")
                && std::arch::is_x86_feature_detected!("fma") =>
        {
            Some(&super::x86::avx2::TABLE)
        }
        #[cfg(target_arch = "x86_64")]
        CpuLevel::AvxVnni
            if std::arch::is_x86_feature_detected!("avx2")
                && std::arch::is_x86_feature_detected!("f16c")
                && std::arch::is_x86_feature_detected!("fma")
                && std::arch::is_x86_feature_detected!("avxvnni") =>
        {
            Some(&super::x86::vnni::narrow::TABLE)
        }
        #[cfg(target_arch = "x86_64")]
        CpuLevel::Avx512Bf16
            if CpuLevel::Avx512Vnni.is_available() && std::arch::is_x86_feature_detected!("avx512bf16") =>
        {
            Some(&super::x86::vnni::wide_bf16::TABLE)
        }
        #[cfg(target_arch = "x86_64")]
        CpuLevel::Avx512Vnni
            if std::arch::is_x86_feature_detected!("avx512f")
                && std::arch::is_x86_feature_detected!("avx512bw")
                && std::arch::is_x86_feature_detected!("avx512vnni") =>
        {
            Some(&super::x86::vnni::wide::TABLE)
        }
        #[cfg(target_arch = "x86_64")]
        CpuLevel::Avx512 if std::arch::is_x86_feature_detected!("avx512f") => {
            Some(&super::x86::avx512::TABLE)
        }
        #[cfg(target_arch = "aarch64")]
        CpuLevel::NeonI8mm
            if CpuLevel::NeonDot.is_available() && std::arch::is_aarch64_feature_detected!("i8mm") =>
        {
            Some(&super::aarch64::i8mm::TABLE)
        }
        #[cfg(target_arch = "aarch64")]
        CpuLevel::NeonDot
            if std::arch::is_aarch64_feature_detected!("neon")
                && std::arch::is_aarch64_feature_detected!("dotprod") =>
        {
            Some(&super::aarch64::dotprod::TABLE)
        }
        #[cfg(target_arch = "aarch64")]
        CpuLevel::Neon if std::arch::is_aarch64_feature_detected!("neon") => {
            Some(&super::aarch64::neon::TABLE)
        }
        _ => None,
    }
}

/// The list of kernels: signature, and the generic function behind it.
macro_rules! kernel_list {
    ($then:ident! $($args:tt)*) => {
        $then! { [$($args)*]
            /// Adds the products of a panel of weights and packed activations to a tile of sums.
            gemm = kernels::gemm::gemm, (panel: &[Row16], x: &[f32], sums: &mut [Row16]);
            /// The same for factors of 16 bits, whose products are exact in f32: below 2^128.
            gemm_half = kernels::gemm::gemm_half, (panel: &[Row16], x: &[f32], sums: &mut [Row16]);
            /// Adds the products of two panels of integer weights and int8 activations to two tiles of sums.
            int_gemm = kernels::int8::gemm,
                (panels: &[IntPanel; 2], x: IntTokens<'_>, fresh: bool, ahead: &[u8], sums: [&mut [Row16]; 2]);
            /// Adds the products of two panels to a square of sums.
            square = kernels::gemm::square, (panel: &[Row16], x: &[Row16], sums: &mut [Row16]);
            /// Quantizes one chunk of a row of activations.
            quantize = kernels::int8::quantize, (x: &[f32], units: Units, record: &mut [i32]);
            /// Unpacks the blocks of sixteen rows into an integer panel.
            int_unpack = kernels::int_unpack::unpack,
                (codec: &dyn BlockCodec, rows: RowBytes<'_>, panel: &mut IntPanel);
            /// Transposes up to 16 rows into a panel, small numbers flushed.
            pack = kernels::pack::pack, (rows: &[&[f32]], panel: &mut [Row16]);
            /// Unpacks one block of each of up to 16 rows into a panel, small numbers flushed.
            unpack = kernels::pack::unpack, (blocks: &[Unpacked], panel: &mut [Row16]);
            /// Unpacks one block, small numbers flushed.
            unpack_row = kernels::pack::unpack_row, (block: &Unpacked, out: &mut [f32]);
            /// Unpacks sixteen rows of numbers of 16 bits into a panel, small numbers flushed; the largest magnitude.
            unpack_half = kernels::half::unpack_half,
                (half: Half, rows: RowBytes<'_>, panel: &mut [Row16]) -> f32;
            /// Rounds activations to 16 bits; the largest magnitude.
            round_half = kernels::half::round_half, (half: Half, x: &[f32], out: &mut [f32]) -> f32;
            /// Whether there is no NaN and no infinity.
            finite = kernels::elementwise::finite, (x: &[f32]) -> bool;
            /// `x = flush(x)`.
            flush = kernels::elementwise::flush, (x: &mut [f32]);
            /// `sums = flush(sums + bias)`.
            finish = kernels::elementwise::finish, (sums: &mut [Row16], bias: Option<&Row16>);
            /// `out = flush(x * by)`.
            scale = kernels::elementwise::scale, (x: &[f32], by: f32, out: &mut [f32]);
            /// `out = flush(a + b)`.
            add = kernels::elementwise::add, (a: &[f32], b: &[f32], out: &mut [f32]);
            /// `sum = sum + x * by`.
            add_scaled = kernels::elementwise::add_scaled, (x: &[f32], by: f32, sum: &mut [f32]);
            /// `out = flush(act(gate) * up)`.
            glu = kernels::elementwise::glu, (gate: &[f32], up: &[f32], act: Activation, out: &mut [f32]);
            /// `out = flush(1 / (1 + exp(-x)))`.
            sigmoid = kernels::elementwise::sigmoid, (x: &[f32], out: &mut [f32]);
            /// `out = cap * tanh(x * inverse)`.
            softcap = kernels::elementwise::softcap, (x: &[f32], cap: f32, inverse: f32, out: &mut [f32]);
            /// Norm of one group.
            rms_norm = kernels::norm::rms_norm,
                (x: &[f32], weight: Option<&[f32]>, eps: f32, inverse_n: f32, out: &mut [f32]);
            /// Rotation of the heads of one row.
            rope = kernels::rope::rope,
                (x: &[f32], table: &[f32], head_dim: usize, style: RopeStyle, out: &mut [f32]);
            /// Soft-max of one row.
            softmax = kernels::softmax::softmax, (x: &[f32], out: &mut [f32]);
            /// Scale, mask and maxima of the scores of 16 queries with 16 keys.
            peaks = kernels::softmax::peaks,
                (scores: &mut [Row16], first: usize, seen: &kernels::softmax::Visible, scale: Option<f32>,
                 max: &mut Row16);
            /// Exponentials of the scores of 16 queries, and their sums.
            exponentials = kernels::softmax::exponentials,
                (scores: &[Row16], max: &Row16, sums: &mut [Row16; 16], out: &mut [Row16]);
            /// Reciprocals of those sums.
            inverses = kernels::softmax::inverses, (sums: &[Row16; 16], out: &mut Row16);
            /// Rows of numbers to f16 and back.
            to_f16 = kernels::kv::to_f16, (x: &[Row16], out: &mut [[u16; 16]]);
            from_f16 = kernels::kv::from_f16, (x: &[[u16; 16]], out: &mut [Row16]);
            /// Channels of 16 keys to 8-bit codes and back.
            to_i8_columns = kernels::kv::to_i8_columns,
                (x: &[Row16], codes: &mut [[i8; 16]], scales: &mut Row16);
            from_i8_columns = kernels::kv::from_i8_columns,
                (codes: &[[i8; 16]], scales: &[Row16], first: usize, out: &mut [Row16]);
            /// Channels of values to 8-bit codes and back.
            to_i8_rows = kernels::kv::to_i8_rows,
                (x: [&[Row16]; 2], codes: [&mut [[i8; 16]]; 2], scales: &mut [f32]);
            from_i8_rows = kernels::kv::from_i8_rows,
                (codes: &[[i8; 16]], scales: &[f32], out: &mut [Row16]);
            /// Products with the head to processed logits.
            logits = kernels::stats::logits, (sums: &mut [Row16], cap: Option<[f32; 2]>, by: f32);
            /// Statistics of one tile of a row of logits.
            tile_stats = kernels::stats::tile_stats, (x: &[f32]) -> kernels::stats::Tile;
            /// Logits of one tile of a row to probabilities, with flags for those that count.
            probabilities = kernels::soft::probabilities,
                (x: &[f32], of: &kernels::soft::Probability, stride: usize, out: &mut [kernels::soft::Probs])
                -> [u32; kernels::soft::BLOCKS];
            /// Puts two rows of the embedding table into a block.
            soft_rows = kernels::soft::soft_rows,
                (rows: &[kernels::soft::Columns; 2], half: bool, at: usize, block: &mut kernels::soft::Block);
            /// Adds the table rows of a block of ids, weighed by the probabilities that are flagged.
            soft_embed = kernels::soft::soft_embed,
                (rows: &kernels::soft::Rows<'_>, of: &kernels::soft::Weighed<'_>, sums: &mut [kernels::soft::Columns]);
        }
    };
}
pub(crate) use kernel_list;

macro_rules! table_type {
    ([] $($(#[$doc:meta])* $name:ident = $path:path, ($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        use super::kernels;

        /// The kernels of one level.
        pub(crate) struct Table {
            /// Numbers of tokens for which `gemm` is made, descending to 1.
            pub(crate) groups: &'static [usize],
            /// Words in which four int8 activations are stored.
            pub(crate) quad_words: usize,
            $($(#[$doc])* pub(crate) $name: fn($($arg: $ty),*) $(-> $ret)?,)*
        }
    };
}
kernel_list!(table_type!);

/// The kernels without any `target_feature`.
macro_rules! scalar_table {
    ([] $($(#[$doc:meta])* $name:ident = $path:path, ($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        $(fn $name($($arg: $ty),*) $(-> $ret)? {
            $path(super::vector::Scalar, $($arg),*)
        })*

        /// The kernels of [`CpuLevel::Scalar`].
        static TABLE: Table = Table {
            groups: <super::vector::Scalar as super::vector::Isa>::GROUPS,
            quad_words: <super::vector::Scalar as super::vector::Isa>::QUAD_WORDS,
            $($name,)*
        };
    };
}
kernel_list!(scalar_table!);

/// The table of an instruction set: `isa` is a type with `unsafe fn assume()`.
macro_rules! level_table {
    ($isa:ident, $feature:literal) => {
        use redraft_gguf::{BlockCodec, Unpacked};

        use crate::cpu::kernels;
        use crate::cpu::ops::int_panel::{IntPanel, IntTokens};
        use crate::cpu::table::{Table, level_functions};
        use crate::numerics::{Half, Units};
        use crate::op::{Activation, RopeStyle};

        crate::cpu::table::kernel_list!(level_functions! $isa, $feature);
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use level_table;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! level_functions {
    ([$isa:ident, $feature:literal]
     $($(#[$doc:meta])* $name:ident = $path:path, ($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        $(fn $name($($arg: $ty),*) $(-> $ret)? {
            #[target_feature(enable = $feature)]
            fn compiled($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: this function runs only where its own target feature exists.
                let isa = unsafe { $isa::assume() };
                $path(isa, $($arg),*)
            }
            // SAFETY: the function is reached through `TABLE` only, which `table()` hands out after it found
            // the feature.
            unsafe { compiled($($arg),*) }
        })*

        /// The kernels of this level; only for machines that have it.
        pub(in crate::cpu) static TABLE: Table = Table {
            groups: <$isa as Isa>::GROUPS,
            quad_words: <$isa as Isa>::QUAD_WORDS,
            $($name,)*
        };
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use level_functions;
