//! Just enough of zip (PKWARE's APPNOTE 6.3) to read what NumPy writes: stored and deflated members, zip64. The
//! directory at the end of the file counts; sizes are bounded before anything is unpacked.

use miniz_oxide::inflate::decompress_to_vec_with_limit;

/// A member of an archive.
pub(super) struct Member<'a> {
    /// Its name.
    pub(super) name: String,
    method: u16,
    crc: u32,
    /// As it is stored.
    packed: &'a [u8],
    /// Length when unpacked, as the directory states it.
    pub(super) len: u64,
}

/// What all members together may have when unpacked, whatever the size of the archive.
const FREE_BYTES: u64 = 64 << 20;
/// How many times larger than the archive they may be beyond that.
const MAX_RATIO: u64 = 16;

/// A little-endian number of `N` bytes at an offset.
fn number<const N: usize>(bytes: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let field = bytes.get(at..at.checked_add(N)?)?;
    Some(field.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
}

/// The members in the order of the directory.
pub(super) fn members(bytes: &[u8]) -> Result<Vec<Member<'_>>, String> {
    let cut = || "it is cut short or no zip archive: its directory is missing".to_string();
    // The end record is followed by a comment of 65535 bytes at most.
    let last = bytes.len().checked_sub(22).ok_or_else(cut)?;
    let is_end = |at: &usize| bytes[*at..].starts_with(b"PK\x05\x06");
    let end = (last.saturating_sub(0xFFFF)..=last).rev().find(is_end).ok_or_else(cut)? as u64;
    let (mut n, mut at) = (number::<2>(bytes, end + 10), number::<4>(bytes, end + 16));
    if n == Some(0xFFFF) || at == Some(0xFFFF_FFFF) {
        // The 64-bit record, whose place stands before this one.
        let place = end.checked_sub(20).filter(|&p| bytes[p as usize..].starts_with(b"PK\x06\x07"));
        let place = place.and_then(|p| number::<8>(bytes, p + 8)).ok_or_else(cut)?;
        (n, at) =
            (number::<8>(bytes, place.saturating_add(32)), number::<8>(bytes, place.saturating_add(48)));
    }
    let (n, mut at) = n.zip(at).ok_or_else(cut)?;
    let mut found = Vec::new();
    for i in 0..n {
        let (member, next) = entry(bytes, at).ok_or(format!("member {i} of {n} is damaged"))?;
        found.push(member);
        at = next;
    }
    let all = found.iter().fold(0u64, |all, member| all.saturating_add(member.len));
    if all > most(bytes) {
        return Err(format!(
            "its members would have {all} bytes, more than {MAX_RATIO} times the {} bytes of the archive",
            bytes.len()
        ));
    }
    Ok(found)
}

/// Bytes that what comes out of an archive may have.
pub(super) fn most(archive: &[u8]) -> u64 {
    FREE_BYTES.max(MAX_RATIO.saturating_mul(archive.len() as u64))
}

/// A member from its entry in the directory, and where the next one is.
fn entry(bytes: &[u8], at: u64) -> Option<(Member<'_>, u64)> {
    let field = |offset: u64, n: usize| match n {
        2 => number::<2>(bytes, at.checked_add(offset)?),
        _ => number::<4>(bytes, at.checked_add(offset)?),
    };
    if field(0, 4)? != 0x0201_4B50 {
        return None;
    }
    let (mut packed, mut len, mut local) = (field(20, 4)?, field(24, 4)?, field(42, 4)?);
    let (name_len, extra_len, comment_len) = (field(28, 2)?, field(30, 2)?, field(32, 2)?);
    let start = usize::try_from(at.checked_add(46)?).ok()?;
    let name = bytes.get(start..start.checked_add(name_len as usize)?)?;
    let mut extra = bytes.get(start + name.len()..)?.get(..extra_len as usize)?;
    while let (Some(id), Some(n)) = (number::<2>(extra, 0), number::<2>(extra, 2)) {
        let mut wide = extra.get(4..4 + n as usize)?;
        extra = &extra[4 + n as usize..];
        if id == 1 {
            // In this order, those that do not fit 32 bits.
            for x in [&mut len, &mut packed, &mut local].into_iter().filter(|x| **x == 0xFFFF_FFFF) {
                *x = number::<8>(wide, 0)?;
                wide = &wide[8..];
            }
        }
    }
    // Bit 0: encrypted, which no reader of arrays can undo.
    if number::<4>(bytes, local)? != 0x0403_4B50 || field(8, 2)? & 1 != 0 {
        return None;
    }
    let skip = 30 + number::<2>(bytes, local + 26)? + number::<2>(bytes, local + 28)?;
    let data = usize::try_from(local.checked_add(skip)?).ok()?;
    let packed = bytes.get(data..data.checked_add(usize::try_from(packed).ok()?)?)?;
    let member = Member {
        name: String::from_utf8_lossy(name).into_owned(),
        method: field(10, 2)? as u16,
        crc: field(16, 4)? as u32,
        packed,
        len,
    };
    Some((member, at + 46 + name_len + extra_len + comment_len))
}

impl Member<'_> {
    /// Its content, checked against length and checksum.
    pub(super) fn unpack(&self) -> Result<Vec<u8>, String> {
        let limit = usize::try_from(self.len).map_err(|_| "it is too large".to_string())?;
        let data = match self.method {
            0 => self.packed.to_vec(),
            8 => decompress_to_vec_with_limit(self.packed, limit)
                .map_err(|_| "its compressed data are damaged".to_string())?,
            other => return Err(format!("compression method {other} is not supported: use np.savez")),
        };
        if data.len() != limit || crc32(&data) != self.crc {
            return Err("it is damaged: length or checksum differ from what is stated".into());
        }
        Ok(data)
    }
}

/// The checksum of zip: the polynomial of IEEE 802.3, bits reversed.
pub(super) fn crc32(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let (mut x, mut bit) = (i as u32, 0);
            while bit < 8 {
                x = x >> 1 ^ if x & 1 == 1 { 0xEDB8_8320 } else { 0 };
                bit += 1;
            }
            table[i] = x;
            i += 1;
        }
        table
    };
    !data.iter().fold(!0, |crc, &b| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ b)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_zip() {
        // The check value of the catalogue of CRCs.
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }
}
