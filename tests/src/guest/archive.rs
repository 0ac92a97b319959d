//! The guest's file system as one archive, in the format that the kernel unpacks at boot.
//!
//! In: directories, files, links and devices; every parent must come before its children.
//! Out: the bytes of a `cpio` archive in the `newc` format (kernel: Documentation/driver-api/early-userspace).

/// The type of an entry: the high bits of its mode.
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// The name of the last entry of an archive.
const TRAILER: &str = "TRAILER!!!";

/// Headers, names and contents each begin at a multiple of this.
const ALIGNMENT: usize = 4;

/// An archive under construction.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

/// Major and minor number of a device node.
#[derive(Clone, Copy, Default)]
pub(super) struct DeviceNumber {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl Archive {
    pub(super) fn add_directory(&mut self, path: &str) {
        self.add(path, DIRECTORY | 0o755, DeviceNumber::default(), &[]);
    }

    pub(super) fn add_program(&mut self, path: &str, contents: &[u8]) {
        self.add(path, FILE | 0o755, DeviceNumber::default(), contents);
    }

    pub(super) fn add_link(&mut self, path: &str, target: &str) {
        self.add(path, LINK | 0o777, DeviceNumber::default(), target.as_bytes());
    }

    pub(super) fn add_character_device(&mut self, path: &str, number: DeviceNumber) {
        self.add(path, CHARACTER_DEVICE | 0o600, number, &[]);
    }

    /// Completes the archive and returns its bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.add(TRAILER, 0, DeviceNumber::default(), &[]);
        self.bytes
    }

    fn add(&mut self, path: &str, mode: u32, device: DeviceNumber, contents: &[u8]) {
        assert!(!path.starts_with('/'), "{path}: archive paths must be relative");
        let length = u32::try_from(contents.len()).expect("an entry is below 4 GiB");
        let name_length = u32::try_from(path.len() + 1).expect("a path is short");
        self.entries += 1;
        // Number, mode, owner, group, links, time, length, device of the file system (2), device (2), name, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, length, 0, 0, device.major, device.minor, name_length, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(contents);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_layout_of_the_newc_format() {
        let mut archive = Archive::default();
        archive.add_program("init", b"#!/bin/sh");
        let bytes = archive.finish();
        let header = "070701\
            00000001000081ED0000000000000000000000010000000000000009\
            00000000000000000000000000000000\
            0000000500000000";
        assert_eq!(&bytes[..110], header.as_bytes());
        assert_eq!(&bytes[110..128], b"init\0\0#!/bin/sh\0\0\0");
        assert_eq!(&bytes[128..134], b"070701");
        assert!(bytes.ends_with(b"TRAILER!!!\0\0\0\0"));
        assert_eq!(bytes.len() % ALIGNMENT, 0);
    }

    #[test]
    #[should_panic(expected = "must be relative")]
    fn an_absolute_path_is_rejected() {
        Archive::default().add_directory("/bin");
    }
}
