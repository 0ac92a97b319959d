//! Unpacks the kernel image before the boot.
//!
//! Debian's kernel image is a small program and a compressed kernel; under emulation that program takes four of the nine
//! seconds of a boot. Unpacking it once here avoids that: the emulator also starts a bare kernel (by its PVH entry). Layout
//! of the image: the kernel's Documentation/arch/x86/boot.rst.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::error::GuestError;
use super::process::run_bounded;

const SECTOR_BYTES: usize = 512;
/// Offsets of fields in the image's header.
const SETUP_SECTORS: usize = 0x1f1;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

/// Magic numbers of an xz stream and of a bare kernel.
const XZ: &[u8] = b"\xfd7zXZ\0";
const ELF: &[u8] = b"\x7fELF";

/// The payload ends with the uncompressed length, which is not part of the stream.
const LENGTH_BYTES: usize = 4;

const UNPACKING_LIMIT: Duration = Duration::from_secs(60);

/// The bare kernel, or the unchanged image if unpacking fails: it boots as well, only slower.
pub(super) fn unwrap_image(image: Vec<u8>, scratch: &Path) -> Result<Vec<u8>, GuestError> {
    let Some(payload) = xz_payload(&image) else { return Ok(image) };
    let file = scratch.join("kernel.xz");
    std::fs::write(&file, payload).map_err(|source| GuestError::io("writing the compressed kernel", source))?;
    let unpacked = run_bounded(Command::new("xz").args(["--decompress", "--stdout"]).arg(&file), UNPACKING_LIMIT);
    Ok(match unpacked {
        Ok(output) if output.status.success() && output.stdout.starts_with(ELF) => output.stdout,
        _ => image,
    })
}

fn xz_payload(image: &[u8]) -> Option<&[u8]> {
    let word = |offset: usize| {
        let bytes = image.get(offset..offset + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    // The boot sector and its setup sectors come first; zero means four.
    let setup_sectors = match *image.get(SETUP_SECTORS)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (1 + setup_sectors) * SECTOR_BYTES + word(PAYLOAD_OFFSET)?;
    let end = start.checked_add(word(PAYLOAD_LENGTH)?)?.checked_sub(LENGTH_BYTES)?;
    image.get(start..end).filter(|payload| payload.starts_with(XZ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One setup sector; the payload starts 16 bytes after it.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 2 * SECTOR_BYTES + 16];
        image[SETUP_SECTORS] = 1;
        image[PAYLOAD_OFFSET] = 16;
        image[PAYLOAD_LENGTH] = u8::try_from(payload.len()).unwrap();
        image.extend_from_slice(payload);
        image
    }

    #[test]
    fn the_payload_excludes_its_trailing_length() {
        assert_eq!(xz_payload(&image(b"\xfd7zXZ\0stream\x01\x02\x03\x04")), Some(&b"\xfd7zXZ\0stream"[..]));
    }

    #[test]
    fn an_unknown_image_stays_unchanged() {
        for odd in [image(b"\x28\xb5\x2f\xfdzstd...."), image(b""), b"short".to_vec(), Vec::new()] {
            assert_eq!(unwrap_image(odd.clone(), Path::new("/nowhere")).unwrap(), odd);
        }
    }
}
