//! Number types of the KV cache.
//!
//! Keys and values of a layer with a cache are rounded to the type before anything uses them, also those of the pass's
//! own rows: otherwise the bits of a prompt pass would depend on where the prompt is cut into chunks.

use std::borrow::Cow;

use redraft_gguf::{f16_to_f32, f32_to_f16};

use crate::host::HostReal;
use crate::{ComputeError, Precision, math};

/// Channels of a row that share one scale in [`KvType::I8`].
pub const KV_RUN: usize = 32;

/// Larger magnitudes are taken for this one before they become 8-bit codes, so that every scale is finite.
pub(crate) const I8_LIMIT: f32 = f32::from_bits((127 + 100) << 23);

/// The largest finite f16: larger magnitudes are taken for this one.
const F16_LIMIT: f32 = 65504.0;

/// Number type of keys and values in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KvType {
    /// As they are computed.
    #[default]
    F32,
    /// Rounded to f16.
    F16,
    /// 8-bit codes with one f32 scale for each run of [`KV_RUN`] channels.
    I8,
}

impl KvType {
    /// All types.
    pub const ALL: &[KvType] = &[KvType::F32, KvType::F16, KvType::I8];

    /// The name in options and reports.
    ///
    /// ```
    /// use redraft_compute::KvType;
    ///
    /// assert_eq!(KvType::default().name(), "f32");
    /// assert_eq!(KvType::from_name("i8"), Some(KvType::I8));
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::I8 => "i8",
        }
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<KvType> {
        KvType::ALL.iter().copied().find(|t| t.name() == name)
    }

    /// Bytes of one row of `width` channels, of keys or of values.
    ///
    /// ```
    /// use redraft_compute::KvType;
    ///
    /// assert_eq!(KvType::ALL.iter().map(|t| t.row_bytes(2048)).collect::<Vec<_>>(), [8192, 4096, 2304]);
    /// ```
    pub fn row_bytes(self, width: usize) -> usize {
        match self {
            KvType::F32 => width.saturating_mul(4),
            KvType::F16 => width.saturating_mul(2),
            KvType::I8 => width.saturating_add(4 * width.div_ceil(KV_RUN)),
        }
    }

    /// Checks that a number type can be computed with: the truth in f64 and the imitation of bfloat16 keep what they
    /// compute.
    ///
    /// # Errors
    /// [`ComputeError::Unavailable`] with the type that would do.
    pub fn check(self, precision: Precision) -> Result<(), ComputeError> {
        if self == KvType::F32 || precision == Precision::F32 {
            return Ok(());
        }
        Err(ComputeError::Unavailable {
            what: "KV type",
            name: self.name().into(),
            available: format!("{} with precision {}", KvType::F32.name(), precision.name()),
        })
    }

    /// Rows of `width` channels, rounded to the type.
    pub(crate) fn rounded<R: HostReal>(self, x: &[R], width: usize) -> Cow<'_, [R]> {
        if self == KvType::F32 {
            return Cow::Borrowed(x);
        }
        let mut out = Vec::with_capacity(x.len());
        for run in x.chunks(width.max(1)).flat_map(|row| row.chunks(KV_RUN)) {
            // The types with rounding exist in f32 only.
            let mut run: Vec<f32> = run.iter().map(|x| x.to_f64() as f32).collect();
            self.round_run(&mut run);
            out.extend(run.into_iter().map(R::from_f32));
        }
        Cow::Owned(out)
    }

    /// Rounds a run of channels of one row.
    fn round_run(self, x: &mut [f32]) {
        match self {
            KvType::F32 => {}
            KvType::F16 => {
                for x in x {
                    *x = math::flush(f16_to_f32(f32_to_f16(x.clamp(-F16_LIMIT, F16_LIMIT))));
                }
            }
            KvType::I8 => {
                x.iter_mut().for_each(|x| *x = x.clamp(-I8_LIMIT, I8_LIMIT));
                let (scale, inverse) = math::int8_scale(x.iter().fold(0.0, |m, x| x.abs().max(m)));
                x.iter_mut().for_each(|x| *x = math::int8_code(*x, inverse) as f32 * scale);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_their_own_scales() {
        // 40 channels: a run of 32 and one of 8, which is far smaller.
        let row: Vec<f32> = (0..40).map(|i| if i < 32 { i as f32 } else { 1e-3 * i as f32 }).collect();
        let x = [row.clone(), row.iter().map(|x| -x).collect()].concat();
        let y = KvType::I8.rounded(&x, 40);
        for (i, (x, y)) in x.iter().zip(y.iter()).enumerate() {
            let peak = if i % 40 < 32 { 31.0 } else { 39e-3 };
            assert!((x - y).abs() <= peak / 254.0 * 1.001, "{i}: {x} became {y}");
        }
        assert_eq!(y[31].to_bits(), (127.0 * math::int8_scale(31.0).0).to_bits());
        assert_eq!(KvType::F32.rounded(&x, 40), &x[..]);
    }

    #[test]
    fn limits() {
        let x = [1e6, -3e38, 1.0 + 2f32.powi(-11), -1e-30, 2f32.powi(-24)];
        assert_eq!(*KvType::F16.rounded(&x, 5), [65504.0, -65504.0, 1.0, 0.0, 2f32.powi(-24)]);
        assert!(KvType::F16.rounded(&x, 5)[3].is_sign_positive());
        assert!(KvType::I8.rounded(&x, 5).iter().all(|x| x.is_finite()));
        assert!(
            KvType::F16.check(Precision::F64).unwrap_err().to_string().contains("f32 with precision f64")
        );
        KvType::F32.check(Precision::Bf16).unwrap();
        KvType::I8.check(Precision::F32).unwrap();
    }
}
