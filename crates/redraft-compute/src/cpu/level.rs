//! Instruction sets that the CPU backend has kernels for, and which of them this machine can run.

use crate::ComputeError;

/// Environment variable that names the level, when no option does.
pub const LEVEL_VARIABLE: &str = "REDRAFT_CPU";

/// An instruction set with kernels of its own. All levels compute the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CpuLevel {
    /// Portable Rust, for every target.
    Scalar,
    /// x86-64 with AVX2: two 256-bit registers for the 16 lanes.
    Avx2,
    /// AVX2 with products of bytes in one instruction (AVX-VNNI).
    AvxVnni,
    /// x86-64 with AVX-512F: one 512-bit register.
    Avx512,
    /// AVX-512 with products of bytes in one instruction (AVX-512 VNNI).
    Avx512Vnni,
    /// The same with products of bfloat16 numbers (AVX-512 BF16).
    Avx512Bf16,
    /// AArch64: four 128-bit registers.
    Neon,
    /// NEON with products of bytes in one instruction (the dot product extension).
    NeonDot,
    /// NEON with products of matrices of bytes in one instruction (the int8 matrix multiply extension).
    NeonI8mm,
}

impl CpuLevel {
    /// Every level of every architecture, slowest first.
    pub const ALL: &[CpuLevel] = &[
        CpuLevel::Scalar,
        CpuLevel::Neon,
        CpuLevel::NeonDot,
        CpuLevel::NeonI8mm,
        CpuLevel::Avx2,
        CpuLevel::AvxVnni,
        CpuLevel::Avx512,
        CpuLevel::Avx512Vnni,
        CpuLevel::Avx512Bf16,
    ];

    /// The name in options, reports and messages.
    ///
    /// ```
    /// use redraft_compute::cpu::CpuLevel;
    ///
    /// assert_eq!(CpuLevel::Avx2.name(), "avx2");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            CpuLevel::Scalar => "scalar",
            CpuLevel::Avx2 => "avx2",
            CpuLevel::AvxVnni => "avxvnni",
            CpuLevel::Avx512 => "avx512",
            CpuLevel::Avx512Vnni => "avx512vnni",
            CpuLevel::Avx512Bf16 => "avx512bf16",
            CpuLevel::Neon => "neon",
            CpuLevel::NeonDot => "neondot",
            CpuLevel::NeonI8mm => "neoni8mm",
        }
    }

    /// Whether this machine can run the level.
    pub fn is_available(self) -> bool {
        super::table::table(self).is_some()
    }

    /// The levels that this machine can run, slowest first; never empty.
    pub fn available() -> Vec<CpuLevel> {
        CpuLevel::ALL.iter().copied().filter(|l| l.is_available()).collect()
    }

    /// The fastest level of this machine.
    pub fn best() -> CpuLevel {
        CpuLevel::available().last().copied().unwrap_or(CpuLevel::Scalar)
    }

    /// The level of that name.
    ///
    /// # Errors
    /// [`ComputeError::Unavailable`] for a name that does not exist or that this machine cannot run; it
    /// lists the names that would do.
    pub fn from_name(name: &str) -> Result<CpuLevel, ComputeError> {
        let available = CpuLevel::available();
        let found = available.iter().copied().find(|l| l.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| ComputeError::Unavailable {
            what: "CPU level",
            name: name.into(),
            available: available.iter().map(|l| l.name()).collect::<Vec<_>>().join(", "),
        })
    }

    /// The level to use: the option, else the environment variable [`LEVEL_VARIABLE`], else the best.
    ///
    /// # Errors
    /// Those of [`from_name`](Self::from_name).
    pub fn choose(option: Option<&str>) -> Result<CpuLevel, ComputeError> {
        let variable = std::env::var(LEVEL_VARIABLE).ok().filter(|v| !v.is_empty());
        match option.or(variable.as_deref()) {
            Some(name) => CpuLevel::from_name(name).map_err(|e| match e {
                // By the name that the user knows.
                ComputeError::Unavailable { what, name, available } if option.is_none() => {
                    ComputeError::Unavailable { what, name: format!("{name} ({LEVEL_VARIABLE})"), available }
                }
                other => other,
            }),
            None => Ok(CpuLevel::best()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalar_is_everywhere_and_names_round_trip() {
        let available = CpuLevel::available();
        assert_eq!(available.first(), Some(&CpuLevel::Scalar));
        for &level in &available {
            assert_eq!(CpuLevel::from_name(level.name()).unwrap(), level);
            assert_eq!(CpuLevel::choose(Some(&level.name().to_uppercase())).unwrap(), level);
        }
        assert_eq!(CpuLevel::best(), *available.last().unwrap());
    }

    #[test]
    fn unknown_and_foreign_levels_are_errors_that_list_the_choice() {
        let missing = CpuLevel::ALL.iter().find(|l| !l.is_available()).map_or("foreign", |l| l.name());
        for name in ["avx1024", "", missing] {
            let text = CpuLevel::from_name(name).unwrap_err().to_string();
            assert!(text.contains("CPU level") && text.contains("scalar"), "{text}");
        }
    }
}
