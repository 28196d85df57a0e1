//! Whether a file is in the system's page cache, so that nothing need be read ahead.

use std::path::Path;

/// Places of a file that are looked at, spread evenly: of a 17 GB file one in 4 MB.
#[cfg(target_os = "linux")]
const PROBES: u64 = 4096;

/// Whether all of a file seems to be in memory, by probes at evenly spread places; none where the system does not
/// tell. Reads nothing from the disk. Takes some milliseconds.
pub fn is_cached(path: &Path) -> Option<bool> {
    #[cfg(target_os = "linux")]
    return probe(path);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        None
    }
}

/// Asks for single bytes that must not be waited for.
#[cfg(target_os = "linux")]
fn probe(path: &Path) -> Option<bool> {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    let file = std::fs::File::open(path).ok()?;
    let len = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    let step = (len / PROBES).max(1);
    for at in (0..len).step_by(usize::try_from(step).ok()?) {
        let mut byte = [0];
        match preadv2(&file, &mut [std::io::IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Some(false),
            // A file system, or a system call filter, that does not know the flag.
            Err(_) => return None,
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_just_written_is_cached() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        assert_ne!(is_cached(&path), Some(false));
        assert_eq!(is_cached(&dir.path().join("none")), None);
        assert_eq!(is_cached(dir.path()), None);
    }
}
