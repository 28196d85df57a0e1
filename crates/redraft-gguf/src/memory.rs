//! Whether a file fits into the memory of this machine, asked before it is read.

use std::path::Path;

use sysinfo::System;

use crate::GgufError;

/// Smaller files are read without asking.
const SMALL_BYTES: u64 = 64 << 20;

/// Refuses to read `needed` bytes of `path` into memory that the machine does not have. `refused` is what the
/// system said to mapping the file, where that was tried.
pub(crate) fn check(path: &Path, needed: u64, refused: Option<&str>) -> Result<(), GgufError> {
    if needed <= SMALL_BYTES {
        return Ok(());
    }
    check_against(path, needed, refused, available_memory())
}

fn check_against(
    path: &Path,
    needed: u64,
    refused: Option<&str>,
    available: Option<u64>,
) -> Result<(), GgufError> {
    match available {
        Some(available) if available < needed => {
            let refused = refused.map(str::to_owned);
            Err(GgufError::Memory { path: path.to_owned(), needed, available, refused })
        }
        _ => Ok(()),
    }
}

/// Bytes that this process could still take without swapping: what the system has, within the limit of the
/// control group that it runs in. `None` on systems that do not say.
pub fn available_memory() -> Option<u64> {
    let mut system = System::new().ok()?;
    system.refresh_memory();
    let free = Some(system.available_memory()).filter(|_| system.total_memory() > 0);
    // Not the group's own count of free memory: it takes the page cache for used.
    let group = system.cgroup_limits().map(|g| g.total_memory.saturating_sub(g.rss));
    [free, group].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_larger_than_the_memory_is_refused_with_both_numbers() {
        let path = Path::new("large.gguf");
        let e = check_against(path, 17_000_000_000, None, Some(3_000_000_000)).unwrap_err();
        assert_eq!(
            e.to_string(),
            "large.gguf does not fit into memory: reading it takes 17000000000 bytes (17.0 GB), 3000000000 bytes \
             (3.0 GB) are available; leave out --no-mmap, or use a smaller quantization"
        );
        let e = check_against(path, 17_000_000_000, Some("No such device"), Some(0)).unwrap_err();
        assert!(
            e.to_string().ends_with("the file cannot be mapped instead (No such device): use a smaller quantization, or copy it to another file system"),
            "{e}"
        );
        check_against(path, 17, None, Some(17)).unwrap();
        check_against(path, u64::MAX, None, None).unwrap();
        check(path, SMALL_BYTES, None).unwrap();
        assert!(matches!(check(path, 1 << 60, None), Err(GgufError::Memory { .. })));
    }
}
