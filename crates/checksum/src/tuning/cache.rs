//! The stored tuning, one file per kind of processor.
//!
//! A file is text, ends with a checksum over itself, and names the processor. A file that is unreadable, corrupt, from another processor
//! or version, or that chooses a weak algorithm, is ignored: tuning is never a reason to fail.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::choice::{ChecksumChoice, ChecksumTuning, CopyStrategy, SIZE_CLASSES};
use crate::algorithm::Algorithm;
use crate::crc::CrcKernel;
use crate::oneshot::value;

/// The first line of a file; changes with the format.
const FORMAT_LINE: &str = "pleach checksum tuning 1";
/// Valid files are a tenth of this; longer ones are not read.
const MAX_FILE_BYTES: u64 = 16 << 10;

/// The directory with the tunings of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TuningCache(PathBuf);

impl TuningCache {
    /// PLEACH_CACHE, or `pleach` in XDG_CACHE_HOME, or `.cache/pleach` in HOME; none if none of them is set.
    pub fn user_default() -> Option<Self> {
        Self::from_environment(|name| std::env::var_os(name).map(PathBuf::from))
    }

    fn from_environment(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<Self> {
        // The XDG base directory specification says to ignore relative paths.
        let absolute = |name| variable(name).filter(|path| path.is_absolute());
        let own = variable("PLEACH_CACHE").filter(|path| !path.as_os_str().is_empty());
        let xdg = || absolute("XDG_CACHE_HOME").map(|path| path.join("pleach"));
        let home = || absolute("HOME").map(|path| path.join(".cache/pleach"));
        own.or_else(xdg).or_else(home).map(Self)
    }

    /// The directory at this path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// The file for this processor.
    pub fn file(&self) -> PathBuf {
        self.file_of(&processor_identity())
    }

    fn file_of(&self, identity: &str) -> PathBuf {
        self.0.join(format!("checksum-{:016x}.tuning", value(Algorithm::Crc64Nvme, identity.as_bytes())))
    }

    /// The tuning for this processor, if there is a valid one.
    pub fn load(&self) -> Option<ChecksumTuning> {
        let identity = processor_identity();
        read(&self.file_of(&identity), &identity)
    }

    /// Stores a tuning for this processor. Concurrent readers see the old file or the new one.
    pub fn save(&self, tuning: &ChecksumTuning) -> io::Result<PathBuf> {
        let identity = processor_identity();
        let file = self.file_of(&identity);
        fs::create_dir_all(&self.0)?;
        let unfinished = file.with_extension(format!("{}.new", std::process::id()));
        let done = fs::write(&unfinished, write(tuning, &identity)).and_then(|()| fs::rename(&unfinished, &file));
        if done.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        done.map(|()| file)
    }
}

fn read(file: &Path, identity: &str) -> Option<ChecksumTuning> {
    // Opening a named pipe would block.
    if !fs::metadata(file).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    fs::File::open(file).ok()?.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
    parse(&text, identity)
}

fn write(tuning: &ChecksumTuning, identity: &str) -> String {
    let mut text = format!("{FORMAT_LINE}\n{identity}\n");
    for (bytes, choice) in tuning.classes() {
        text += &format!("{bytes} {} {}\n", choice.algorithm, choice.strategy);
    }
    let code = value(Algorithm::Crc64Nvme, text.as_bytes());
    text + &format!("code {code:016x}\n")
}

fn parse(text: &str, identity: &str) -> Option<ChecksumTuning> {
    let (body, code) = text.strip_suffix('\n')?.rsplit_once("\ncode ")?;
    let body = &text[..=body.len()];
    if u64::from_str_radix(code, 16).ok()? != value(Algorithm::Crc64Nvme, body.as_bytes()) {
        return None;
    }
    let lines = body.strip_prefix(FORMAT_LINE)?.strip_prefix('\n')?.strip_prefix(identity)?.strip_prefix('\n')?;
    let mut tuning = ChecksumTuning::default();
    let mut lines = lines.lines();
    for (choice, bytes) in tuning.choices.iter_mut().zip(SIZE_CLASSES) {
        *choice = parse_choice(lines.next()?, bytes)?;
    }
    lines.next().is_none().then_some(tuning)
}

fn parse_choice(line: &str, bytes: usize) -> Option<ChecksumChoice> {
    let mut words = line.split(' ');
    let [size, algorithm, strategy] = [words.next()?, words.next()?, words.next()?];
    let strategy = CopyStrategy::ALL.into_iter().find(|known| known.name() == strategy)?;
    let choice = ChecksumChoice { algorithm: algorithm.parse().ok()?, strategy };
    let fits = words.next().is_none() && size.parse() == Ok(bytes) && choice.is_sound();
    fits.then_some(choice)
}

/// What distinguishes processors for the tuner: model, kernel, and version of this crate. One line.
pub fn processor_identity() -> String {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let make = model_of(&processors).unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    format!("{make}; {}; {}", CrcKernel::best().name(), env!("CARGO_PKG_VERSION"))
}

/// The fields of the first processor that identify its model, on x86 and on ARM.
fn model_of(processors: &str) -> Option<String> {
    let first = processors.split("\n\n").next()?;
    let names =
        ["model name", "vendor_id", "cpu family", "model", "stepping", "CPU implementer", "CPU part", "CPU variant"];
    let field = |name: &&str| {
        let mut fields = first.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(key, _)| key.trim() == *name).map(|(_, value)| value.trim().to_owned())
    };
    let found: Vec<String> = names.iter().filter_map(field).collect();
    (!found.is_empty()).then(|| found.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "a processor";

    fn tuned() -> ChecksumTuning {
        let mut tuning = ChecksumTuning::default();
        tuning.choices[0] = ChecksumChoice { algorithm: Algorithm::Xxh3, strategy: CopyStrategy::CopyThen };
        tuning
    }

    /// A file with a correct checksum, whatever it contains.
    fn with_checksum(body: &str) -> String {
        format!("{body}code {:016x}\n", value(Algorithm::Crc64Nvme, body.as_bytes()))
    }

    #[test]
    fn a_stored_tuning_reads_back() {
        assert_eq!(parse(&write(&tuned(), HERE), HERE), Some(tuned()));
    }

    #[test]
    fn a_file_of_another_processor_is_ignored() {
        let text = write(&tuned(), HERE);
        assert_eq!(parse(&text, "another"), None);
        assert_eq!(parse(&text, "a"), None);
    }

    #[test]
    fn every_damaged_byte_is_detected_and_ignored() {
        let text = write(&tuned(), HERE);
        for place in 0..text.len() {
            for change in [1u8, 0x20, 0x7f] {
                let mut bytes = text.clone().into_bytes();
                bytes[place] ^= change;
                if let Ok(damaged) = String::from_utf8(bytes) {
                    // The case of a hexadecimal digit does not matter.
                    assert!(parse(&damaged, HERE).is_none_or(|tuning| tuning == tuned()), "byte {place}");
                }
            }
            assert_eq!(parse(&text[..place], HERE), None, "cut at {place}");
        }
    }

    #[test]
    fn an_invalid_file_with_a_correct_checksum_is_ignored() {
        let good = write(&tuned(), HERE);
        let body = good.rsplit_once("code ").expect("it ends with the checksum").0;
        assert_eq!(parse(&with_checksum(body), HERE), Some(tuned()));
        for (from, to) in [
            ("xxh3 copy-then", "sum32 fused"),
            ("xxh3 copy-then", "xxh3 alone"),
            ("xxh3 copy-then", "xxh3"),
            ("xxh3 copy-then", "xxh3 copy-then now"),
            ("256 xxh3", "255 xxh3"),
            ("tuning 1", "tuning 2"),
        ] {
            assert_eq!(parse(&with_checksum(&body.replacen(from, to, 1)), HERE), None, "{to}");
        }
        assert_eq!(parse(&with_checksum(&format!("{body}one more\n")), HERE), None);
        assert_eq!(parse("", HERE), None);
    }

    #[test]
    fn the_directory_is_the_first_that_is_set() {
        let with = |set: &'static [(&str, &str)]| {
            let find =
                move |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, path)| PathBuf::from(path));
            TuningCache::from_environment(find)
        };
        let all = with(&[("PLEACH_CACHE", "/mine"), ("XDG_CACHE_HOME", "/xdg"), ("HOME", "/home/me")]);
        assert_eq!(all, Some(TuningCache::at("/mine")));
        assert_eq!(with(&[("PLEACH_CACHE", ""), ("XDG_CACHE_HOME", "/xdg")]), Some(TuningCache::at("/xdg/pleach")));
        assert_eq!(
            with(&[("XDG_CACHE_HOME", "odd"), ("HOME", "/home/me")]),
            Some(TuningCache::at("/home/me/.cache/pleach"))
        );
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn a_tuning_is_stored_and_leaves_no_other_file() {
        let path = std::env::temp_dir().join(format!("pleach-tuning-{}", std::process::id()));
        let folder = TuningCache::at(path.join("below"));
        assert_eq!(folder.load(), None);
        let file = folder.save(&tuned()).expect("the file is writable");
        assert_eq!(file, folder.file());
        assert_eq!(folder.load(), Some(tuned()));
        assert_eq!(fs::read_dir(path.join("below")).expect("the directory exists").count(), 1);
        fs::write(&file, [0xff; 100]).expect("the file is writable");
        assert_eq!(folder.load(), None);
        fs::remove_file(&file).expect("the file exists");
        fs::create_dir(&file).expect("the path is free");
        assert_eq!(folder.load(), None);
        fs::remove_dir_all(path).expect("the directory is removable");
    }

    #[test]
    fn the_model_is_that_of_the_first_processor() {
        let text =
            "processor\t: 0\nvendor_id\t: X\nmodel\t\t: 173\nmodel name\t: Y Z\n\nprocessor\t: 1\nmodel name\t: W\n";
        assert_eq!(model_of(text), Some("Y Z, X, 173".to_owned()));
        assert_eq!(model_of(""), None);
        assert!(!processor_identity().contains('\n'));
    }
}
