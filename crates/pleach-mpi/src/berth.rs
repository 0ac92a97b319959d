//! Where the library lies in memory: a second copy of it, at the address that all ranks of a job have drawn by one lot.
//!
//! The kernel puts a library elsewhere in each process, and a processor foretells branches by their addresses. Ranks that share one
//! drive out each other's predictions, and run everything as if for the first time. So whoever starts the job draws an address
//! (`PLEACH_MPI_BERTH`), and in `MPI_Init` each rank loads this library there once more, from the same file, and works
//! with that copy. The first one only hands calls on. It stays where it is, since the dynamic linker knows it there, and lets nobody choose
//! another place. docs/decisions/0013-one-berth-for-a-job.md has the figures, and what it means for safety.
//!
//! In: a program's headers and relocations, as the file and the linker have them. Out: how far away the copy is. Whatever is not as it
//! is known here leaves everything as it was.

use std::ffi::{CStr, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::libc;

use crate::job::say;
use crate::{real, wish};

/// From this copy to the one that works; 0 if this one does.
static TO_WORKING: AtomicUsize = AtomicUsize::new(0);
/// From this copy to the one that the linker knows; 0 if this is it.
static TO_KNOWN: AtomicUsize = AtomicUsize::new(0);

/// The same function in the copy that works.
#[inline(always)] // Every call comes this way.
pub(crate) fn working<F: Copy>(function: F) -> F {
    shifted(function, TO_WORKING.load(Ordering::Relaxed))
}

/// The same function in the copy that the linker knows: for what it grants by who asks.
pub(crate) fn known<F: Copy>(function: F) -> F {
    shifted(function, TO_KNOWN.load(Ordering::Relaxed))
}

#[inline(always)]
fn shifted<F: Copy>(function: F, by: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<usize>(), "only the address of a function") };
    // SAFETY: a function pointer is an address, and so far away lies the same function: copies differ in nothing but their place.
    unsafe {
        let address: usize = std::mem::transmute_copy(&function);
        std::mem::transmute_copy(&address.wrapping_add(by))
    }
}

/// Makes the copy, if one is wanted. Comes before everything else that this library does in a process: it starts anew there. Variables
/// of threads are the same in both copies, so the first one must not have given its threads numbers or the like.
pub(crate) fn take() {
    static IS_ASKED: AtomicBool = AtomicBool::new(false);
    let Some(wanted) = wish::berth() else { return };
    if IS_ASKED.swap(true, Ordering::AcqRel) {
        return;
    }
    // With sessions of MPI 4 a program may come here late.
    let wanted = wanted.and_then(|place| check(!real::is_in_use(), "it has done something already").map(|()| place));
    match wanted.and_then(|place| Original::find()?.copy_to(place)) {
        Ok(shift) => TO_WORKING.store(shift, Ordering::Release),
        Err(why) => say(&format!("the library stays where it is, which is only slower: {why}")),
    }
}

/// A header of a program, as in a file: `Elf64_Phdr`.
type Header = libc::Elf64_Phdr;

/// An entry of the table for the dynamic linker: what it is, and a number or an address.
type Entry = [u64; 2];

/// An address that depends on where the program lies.
#[derive(Clone, Copy)]
#[repr(C)]
struct Relocation {
    offset: u64,
    kind: u32,
    symbol: u32,
    addend: u64,
}

/// Below this an address is a mistake: pointers to nothing must not find anything.
const LOWEST: usize = 1 << 20;

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const FRAMES: u32 = 0x6474_e550;
const CONSTANT_LATER: u32 = 0x6474_e552;
const WRITABLE: u32 = 2;

/// Keys of entries for the dynamic linker: two tables of relocations with their lengths in bytes, and what is not known here.
const TABLES: [[u64; 2]; 2] = [[7, 8], [23, 2]];
const UNKNOWN: [(u64, &str); 3] =
    [(17, "short relocations"), (22, "relocations of code"), (36, "packed relocations")];

/// Where it says that the linker shall find all functions at once, and the bit that says it. Otherwise it would look for some later, in the
/// first copy only. Where somebody watches calls (`LD_AUDIT`), it does so all the same: then a slot for a function leads back into the library.
const BOUND_EARLY: [(u64, u64); 2] = [(30, 8), (0x6fff_fffb, 1)];
const BOUND_LATE: &str = "the linker has not found all its functions yet";

/// What may have to be adjusted: an address of its own, or something that the linker found out for the first copy.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod kind {
    pub(super) const OWN: u32 = 8;
    /// Addresses of objects and functions, and which part of a thread's storage is this library's.
    pub(super) const FOUND: [u32; 6] = [1, 6, SLOT, 16, 17, 18];
    /// That of a function that is not the library's own.
    pub(super) const SLOT: u32 = 7;
}
/// Not tried with other processors and linkers: there each relocation is one too many.
#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
mod kind {
    pub(super) const OWN: u32 = u32::MAX;
    pub(super) const FOUND: [u32; 0] = [];
    pub(super) const SLOT: u32 = u32::MAX;
}

/// The library as the dynamic linker has loaded it.
struct Original {
    base: usize,
    headers: &'static [Header],
    file: File,
    page: usize,
}

impl Original {
    fn find() -> Result<Self, String> {
        // SAFETY: plain numbers, which the linker fills in.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: any address may be asked for.
        let is_found = unsafe { libc::dladdr(take as *const c_void, &raw mut info) } != 0;
        if !is_found || info.dli_fname.is_null() {
            return Err("the dynamic linker does not know it".to_owned());
        }
        // SAFETY: the linker's own text.
        let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned();
        let file = File::open(&path).map_err(|error| format!("{path}: {error}"))?;
        // SAFETY: what was loaded begins with the header of its file.
        let header = unsafe { &*info.dli_fbase.cast::<libc::Elf64_Ehdr>() };
        let base = info.dli_fbase as usize;
        // SAFETY: and with the headers of its parts, where the former says.
        let headers = unsafe {
            std::slice::from_raw_parts((base + header.e_phoff as usize) as *const Header, header.e_phnum.into())
        };
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        Ok(Self { base, headers, file, page })
    }

    fn parts(&self, kind: u32) -> impl Iterator<Item = &'static Header> + use<> {
        self.headers.iter().filter(move |header| header.p_type == kind)
    }

    /// Bytes from its first to its last.
    fn span(&self) -> usize {
        let ends = self.parts(LOAD).map(|part| (part.p_vaddr + part.p_memsz) as usize);
        ends.max().unwrap_or(0).next_multiple_of(self.page)
    }

    /// Copies it to another place, and returns how far away that is.
    fn copy_to(&self, place: usize) -> Result<usize, String> {
        if !place.is_multiple_of(self.page) || place < LOWEST {
            return Err(format!("{place:#x} is no address for a library"));
        }
        let is_linked_at_zero = self.parts(LOAD).next().is_some_and(|part| part.p_vaddr == 0 && part.p_offset == 0);
        check(is_linked_at_zero, "it is made for an address of its own")?;
        let bytes = self.file.metadata().map_err(|error| error.to_string())?.size();
        if self.parts(LOAD).any(|part| part.p_offset + part.p_filesz > bytes) {
            return Err("its file has become shorter".to_owned());
        }
        let berth = Berth::reserve(place, self.span())?;
        for part in self.parts(LOAD) {
            self.map(part, &berth)?;
        }
        if !self.parts(LOAD).filter(|part| part.p_flags & WRITABLE == 0).all(|part| self.is_same(part, &berth)) {
            return Err("its file has changed".to_owned());
        }
        self.relocate(&berth)?;
        for part in self.parts(CONSTANT_LATER) {
            let [start, end] = [part.p_vaddr, part.p_vaddr + part.p_memsz].map(|at| self.page_of(at as usize));
            // SAFETY: within the copy, where nobody writes any more.
            let status = unsafe { libc::mprotect(berth.at(start as u64), end - start, libc::PROT_READ) };
            check(status == 0, "its constants cannot be protected")?;
        }
        let shift = place.wrapping_sub(self.base);
        let to_known = (&raw const TO_KNOWN as usize).wrapping_add(shift) as *const AtomicUsize;
        // SAFETY: the copy's own number, of which nobody else knows yet.
        unsafe { (*to_known).store(shift.wrapping_neg(), Ordering::Release) };
        self.announce_frames(&berth, shift)?;
        std::mem::forget(berth);
        Ok(shift)
    }

    const fn page_of(&self, address: usize) -> usize {
        address & !(self.page - 1)
    }

    /// Maps a part as the linker would.
    fn map(&self, part: &Header, berth: &Berth) -> Result<(), String> {
        let [start, from] = [part.p_vaddr, part.p_offset].map(|at| self.page_of(at as usize));
        let [file_end, end] = [part.p_filesz, part.p_memsz].map(|bytes| (part.p_vaddr + bytes) as usize);
        // The same three bits, which stand the other way round in a file.
        let bits = [(4, libc::PROT_READ), (WRITABLE, libc::PROT_WRITE), (1, libc::PROT_EXEC)];
        let protection = bits.iter().filter(|(flag, _)| part.p_flags & flag != 0).fold(0, |sum, (_, bit)| sum | bit);
        let fixed = libc::MAP_PRIVATE | libc::MAP_FIXED;
        // SAFETY: within what was reserved, of a file that is long enough.
        let mapped = unsafe {
            libc::mmap(
                berth.at(start as u64),
                file_end - start,
                protection,
                fixed,
                self.file.as_raw_fd(),
                from as libc::off_t,
            )
        };
        check(mapped == berth.at(start as u64), "its file cannot be mapped")?;
        if part.p_flags & WRITABLE == 0 || end == file_end {
            return Ok(());
        }
        let zeros = file_end.next_multiple_of(self.page);
        // SAFETY: up to the end of the last page that was mapped, which is the copy's own.
        unsafe { std::ptr::write_bytes(berth.at(file_end as u64).cast::<u8>(), 0, zeros.min(end) - file_end) };
        if end > zeros {
            let fresh = fixed | libc::MAP_ANONYMOUS;
            // SAFETY: within what was reserved.
            let mapped = unsafe { libc::mmap(berth.at(zeros as u64), end - zeros, protection, fresh, -1, 0) };
            check(mapped == berth.at(zeros as u64), "there is no memory for its variables")?;
        }
        Ok(())
    }

    /// True if what was mapped is what runs: a file of the same name may have taken the place of the one that was loaded.
    fn is_same(&self, part: &Header, berth: &Berth) -> bool {
        // SAFETY: both are mapped, readable, and nobody writes there.
        let [here, there] = [self.base + part.p_vaddr as usize, berth.at(part.p_vaddr) as usize]
            .map(|start| unsafe { std::slice::from_raw_parts(start as *const u8, part.p_filesz as usize) });
        here == there
    }

    /// Adjusts every address in the copy.
    fn relocate(&self, berth: &Berth) -> Result<(), String> {
        let part = self.parts(DYNAMIC).next().ok_or("it has no table for the linker")?;
        let count = part.p_memsz as usize / size_of::<Entry>();
        // SAFETY: mapped above. As it is in the file: the linker may have changed the first one.
        let entries = unsafe { std::slice::from_raw_parts(berth.at(part.p_vaddr).cast::<Entry>(), count) };
        let entry = |key: u64| entries.iter().take_while(|[key, _]| *key != 0).find(|[its, _]| *its == key);
        if let Some((_, what)) = UNKNOWN.iter().find(|(key, _)| entry(*key).is_some()) {
            return Err(format!("it has {what}"));
        }
        let has_bit = |(key, bit): &(u64, u64)| entry(*key).is_some_and(|[_, bits]| bits & bit != 0);
        check(BOUND_EARLY.iter().any(has_bit), BOUND_LATE)?;
        for [table, bytes] in TABLES.map(|keys| keys.map(|key| entry(key).map_or(0, |[_, value]| *value))) {
            let count = bytes as usize / size_of::<Relocation>();
            if count == 0 {
                continue;
            }
            // SAFETY: mapped above.
            let relocations = unsafe { std::slice::from_raw_parts(berth.at(table).cast::<Relocation>(), count) };
            for relocation in relocations {
                let value = self.value_of(relocation, berth)?;
                // SAFETY: `value_of` saw that it is in a part that may be written.
                unsafe { berth.at(relocation.offset).cast::<usize>().write_unaligned(value) };
            }
        }
        Ok(())
    }

    fn value_of(&self, relocation: &Relocation, berth: &Berth) -> Result<usize, String> {
        let Relocation { offset, kind, addend, .. } = *relocation;
        let holds = |part: &Header| (part.p_vaddr..part.p_vaddr + part.p_filesz).contains(&offset);
        check(
            self.parts(LOAD).any(|part| part.p_flags & WRITABLE != 0 && holds(part)),
            "an address is where it cannot be adjusted",
        )?;
        if kind == kind::OWN {
            return Ok(berth.start.wrapping_add(addend as usize));
        }
        if !kind::FOUND.contains(&kind) {
            return Err(format!("relocation {kind} is not known here"));
        }
        // SAFETY: at the same place in the first copy the linker has put what it found.
        let found = unsafe { ((self.base + offset as usize) as *const usize).read_unaligned() };
        let is_own = (self.base..self.base + berth.bytes).contains(&found);
        check(kind != kind::SLOT || !is_own, BOUND_LATE)?;
        Ok(if is_own { found - self.base + berth.start } else { found })
    }

    /// Tells the unwinder of the copy, which asks the linker otherwise: so that a panic there ends as it would here.
    fn announce_frames(&self, berth: &Berth, shift: usize) -> Result<(), String> {
        unsafe extern "C" {
            // Of libgcc.
            fn __register_frame(frames: *const c_void);
            fn __deregister_frame(frames: *const c_void);
            fn _Unwind_Find_FDE(code: *const c_void, bases: *mut [usize; 3]) -> *const c_void;
        }
        /// The format of the first field: so many bytes from itself, in 32 bits.
        const FROM_HERE: u8 = 0x1b;
        const UNKNOWN: &str = "the unwinder does not know its frames";
        let part = self.parts(FRAMES).next().ok_or(UNKNOWN)?;
        let table = berth.at(part.p_vaddr).cast::<u8>();
        // SAFETY: four bytes and that field, in a part that is mapped.
        let (format, field) = unsafe { (table.add(1).read(), table.add(4)) };
        check(format == FROM_HERE, UNKNOWN)?;
        let code = shifted(take as fn(), shift) as *const c_void;
        // SAFETY: the frames are where the field says, and end with a zero. What the unwinder needs to find one it prepares now, and not when
        // the program is in trouble.
        unsafe {
            let frames = field.offset(field.cast::<i32>().read_unaligned() as isize).cast();
            __register_frame(frames);
            if _Unwind_Find_FDE(code, &mut [0; 3]).is_null() {
                __deregister_frame(frames);
                return Err(UNKNOWN.to_owned());
            }
        }
        Ok(())
    }
}

/// Addresses that are the copy's; dropped, they are free again.
struct Berth {
    start: usize,
    bytes: usize,
}

impl Berth {
    fn reserve(start: usize, bytes: usize) -> Result<Self, String> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: takes nobody's memory: it fails where something is.
        let mapped = unsafe { libc::mmap(start as *mut c_void, bytes, libc::PROT_NONE, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            return Err(format!("{bytes} bytes at {start:#x} cannot be had: {error}"));
        }
        let berth = Self { start: mapped as usize, bytes };
        // An old kernel takes the address for a wish.
        check(berth.start == start, "the kernel has put it elsewhere")?;
        Ok(berth)
    }

    /// Where something is that is at this address if the library lies at 0.
    fn at(&self, address: u64) -> *mut c_void {
        (self.start + address as usize) as *mut c_void
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        // SAFETY: it was reserved here, and nobody knows of it.
        unsafe { libc::munmap(self.start as *mut c_void, self.bytes) };
    }
}

fn check(holds: bool, or_else: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(or_else.to_owned()) }
}

#[cfg(all(test, target_arch = "x86_64", target_env = "gnu"))]
mod tests {
    use std::cell::Cell;
    use std::sync::Mutex;

    use super::*;

    static RUNS: Mutex<Vec<String>> = Mutex::new(Vec::new());

    thread_local! {
        static LAST: Cell<usize> = const { Cell::new(0) };
    }

    /// Something of everything: variables, constants, memory, text, tables of functions, a thread's own, a panic, what the linker
    /// grants only to those whom it knows.
    extern "C" fn probe(number: usize) -> usize {
        let caught = std::panic::catch_unwind(|| {
            let items: Vec<Box<dyn std::fmt::Debug>> = vec![Box::new(number), Box::new("text")];
            RUNS.lock().expect("nobody panics with it").push(format!("{items:?}"));
            LAST.set(number);
            assert!(crate::real::mpi().library.function("malloc").is_some());
            assert_ne!(number % 2, 1, "odd numbers end so");
        });
        let runs = RUNS.lock().expect("nobody panics with it");
        assert_eq!(runs.last().map(String::as_str), Some(format!("[{number}, \"text\"]").as_str()));
        let caught = caught.err().is_some_and(|words| words.is::<String>());
        runs.len() * 10 + usize::from(caught)
    }

    /// This very test program, as if it were the library.
    #[test]
    fn a_copy_works_with_variables_of_its_own() {
        let place = 0x2c5e_0000_0000;
        let shift = Original::find().and_then(|original| original.copy_to(place)).expect("a copy");
        let there = shifted(probe as extern "C" fn(usize) -> usize, shift);
        assert!((place..place + (1 << 30)).contains(&(there as usize)));
        assert_eq!([there(2), there(3), there(4)], [10, 21, 30]);
        assert_eq!(LAST.get(), 4, "a thread has its own once");
        assert_eq!(probe(5), 11, "here it is the first");
        assert_eq!(std::thread::spawn(move || there(7)).join().expect("no panic"), 41);
        let known_there = shifted(known::<extern "C" fn(usize) -> usize> as fn(_) -> _, shift);
        assert_eq!(known_there(there) as usize, probe as *const () as usize);
        let again = Original::find().and_then(|original| original.copy_to(place));
        assert!(again.expect_err("it is taken").contains("cannot be had"));
    }

    #[test]
    fn what_cannot_be_had_leaves_nothing_behind() {
        for place in [0, 0x1234, 1 << 62, usize::MAX & !0xfff] {
            Original::find().and_then(|original| original.copy_to(place)).expect_err("no such place");
        }
        let place = 0x2d5e_0000_0000;
        let original = Original::find().expect("this program");
        let path = std::env::temp_dir().join(format!("pleach-berth-{}", std::process::id()));
        let zeroes = File::create_new(&path).and_then(|file| file.set_len(1 << 30)).and_then(|()| File::open(&path));
        std::fs::remove_file(&path).expect("our own file");
        let spoilt = Original { file: zeroes.expect("a long file"), ..original };
        assert!(spoilt.copy_to(place).expect_err("another file").contains("changed"));
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux has it");
        assert!(!maps.lines().any(|line| line.starts_with("2d5e00000000-")), "{maps}");
    }
}
