//! A second copy of the library, at the address of the job: it is there, it does the work, and where it cannot be had nothing is lost.

use std::path::PathBuf;

use crate::jobs::{self, End, Job, MPICH, Mpi, OPEN_MPI};

const BERTH: usize = 0x2b5e_1234_0000;
const RANKS: u32 = 2;

fn job(mpi: Mpi) -> Job {
    Job::new(mpi, &mpi.compile("where.c"), RANKS).set("PLEACH_MPI_BERTH", &format!("{BERTH:#x}"))
}

/// Where each rank has the library's code.
fn places(end: &End, ranks: u32) -> Vec<Vec<usize>> {
    let address = |word: &str| usize::from_str_radix(word, 16).expect("an address");
    let said = end.said.lines().filter_map(|line| line.strip_prefix("where:"));
    let places: Vec<Vec<usize>> = said.map(|words| words.split_whitespace().map(address).collect()).collect();
    assert_eq!(places.len(), ranks as usize, "{}", end.said);
    places
}

fn is_at_berth(place: &usize) -> bool {
    (BERTH..BERTH + (1 << 28)).contains(place)
}

/// Where the code lies that did the work.
fn place_of_work(end: &End) -> usize {
    let text = end.report["code"].as_str().and_then(|text| text.strip_prefix("0x")).unwrap_or_default();
    usize::from_str_radix(text, 16).unwrap_or_else(|_| panic!("{}", end.report))
}

fn check_that_pleach_summed(end: &End) {
    assert_eq!(end.calls("taken", |row| row["operation"] == "allreduce"), 100 * u64::from(RANKS), "{}", end.report);
}

/// It works where the linker put it, and said why.
fn check_that_it_stayed(end: &End, why: &str) {
    assert!(places(end, RANKS).iter().all(|places| places.len() == 1 && !is_at_berth(&places[0])), "{}", end.said);
    let complaints = end.complained.lines().filter(|line| line.contains(why)).count();
    assert_eq!(complaints, RANKS as usize, "{}", end.complained);
    check_that_pleach_summed(end);
    assert!(!is_at_berth(&place_of_work(end)), "{}", end.report);
}

/// The library in a folder of its own, to be spoilt.
fn library_apart() -> PathBuf {
    let folder = jobs::scratch_file("apart", "").with_extension("folder");
    std::fs::create_dir(&folder).expect("a folder");
    let library = folder.join("libpleach_mpi.so");
    std::fs::copy(jobs::library(), &library).expect("a copy");
    library
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn all_ranks_have_it_at_the_berth() {
    for mpi in [OPEN_MPI, MPICH] {
        let end = job(mpi).run();
        for places in places(&end, RANKS) {
            assert_eq!(places.iter().filter(|place| is_at_berth(place)).count(), 1, "{places:x?}");
            assert_eq!(places.len(), 2, "{places:x?}");
        }
        assert_eq!(end.complained, "");
        check_that_pleach_summed(&end);
        assert!(is_at_berth(&place_of_work(&end)), "{}", end.report);
    }
}

#[test]
fn without_a_berth_there_is_one_copy() {
    let end = job(OPEN_MPI).set("PLEACH_MPI_BERTH", "off").run();
    assert!(places(&end, RANKS).iter().all(|places| places.len() == 1 && !is_at_berth(&places[0])), "{}", end.said);
    assert_eq!(end.complained, "");
    check_that_pleach_summed(&end);
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn where_something_lies_already_it_stays() {
    let end = job(OPEN_MPI).argument("occupy").argument(&format!("{:#x}", BERTH + 0x4000)).run();
    check_that_it_stayed(&end, "cannot be had");
}

#[test]
fn a_berth_that_is_no_address_is_told() {
    for (value, why) in [("here", "should be an address"), ("0x12345678", "no address for"), ("0", "no address for")]
    {
        let end = job(OPEN_MPI).set("PLEACH_MPI_BERTH", value).run();
        check_that_it_stayed(&end, why);
    }
}

/// A file of its name is another one by now: an update of the library while jobs start.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn from_another_file_it_is_not_copied() {
    let original = std::fs::read(jobs::library()).expect("the library");
    let mut changed = original.clone();
    // In a text for people: among the constants, which are compared.
    let words = b"the library stays where it is";
    let place = original.windows(words.len()).position(|window| window == words).expect("such words");
    changed[place] = b'T';
    for (bytes, why) in [(&changed[..], "has changed"), (&original[..1 << 16], "has become shorter")] {
        let library = library_apart();
        let other = library.with_extension("other");
        std::fs::write(&other, bytes).expect("a file");
        // One rank, so that none loads what another has replaced already.
        let end = Job::new(OPEN_MPI, &OPEN_MPI.compile("where.c"), 1)
            .set("PLEACH_MPI_BERTH", &format!("{BERTH:#x}"))
            .with_library(&library)
            .argument("replace")
            .argument(library.to_str().expect("a plain path"))
            .argument(other.to_str().expect("a plain path"))
            .run();
        let places = places(&end, 1);
        assert!(places[0].len() == 1 && !is_at_berth(&places[0][0]), "{}", end.said);
        assert!(end.complained.contains(why), "{}", end.complained);
    }
}
