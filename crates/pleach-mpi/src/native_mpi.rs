//! The functions of the native MPI, looked up in the process at run time.
//!
//! Arguments are machine words: pointers, handles (32 bits in MPICH) and integers alike, as the calling conventions of Linux pass
//! them. Code that reads one truncates it to its type.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use nix::libc;

/// Calls a function of the native MPI with words as arguments.
macro_rules! invoke {
    ($function:expr; $($argument:expr),* $(,)?) => {{
        let function: unsafe extern "C" fn($($crate::native_mpi::word!($argument)),*) -> std::ffi::c_int =
            std::mem::transmute($function.address());
        function($($argument as usize),*)
    }};
}
/// A type for each argument.
macro_rules! word {
    ($argument:expr) => {
        usize
    };
}
pub(crate) use {invoke, word};

/// A function of the native MPI.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct MpiFunction(*const c_void);

// SAFETY: code does not change.
unsafe impl Send for MpiFunction {}
// SAFETY: as above.
unsafe impl Sync for MpiFunction {}

impl MpiFunction {
    pub(crate) fn at(address: usize) -> Self {
        Self(address as *const c_void)
    }

    pub(crate) fn address(self) -> *const c_void {
        self.0
    }
}

macro_rules! functions {
    ($($name:ident),* $(,)?) => {
        /// Every function of the native MPI that this library calls; none where this MPI lacks it.
        #[allow(non_snake_case)] // Named as in the standard.
        pub(crate) struct MpiFunctions {
            $(pub(crate) $name: Option<MpiFunction>,)*
        }

        impl MpiFunctions {
            fn load(library: &LoadedMpiLibrary) -> Self {
                Self { $($name: library.function(concat!("PMPI_", stringify!($name))),)* }
            }
        }
    };
}

functions! {
    Init, Init_thread, Finalize, Abort, Get_library_version,
    Barrier, Bcast, Reduce, Allreduce, Reduce_scatter_block, Scan, Exscan,
    Bcast_c, Reduce_c, Allreduce_c, Reduce_scatter_block_c, Scan_c, Exscan_c,
    Ibarrier, Ibcast, Ireduce, Iallreduce, Ireduce_scatter_block, Iscan, Iexscan,
    Ibcast_c, Ireduce_c, Iallreduce_c, Ireduce_scatter_block_c, Iscan_c, Iexscan_c,
    Reduce_scatter, Allgather, Allgatherv, Gather, Scatter, Alltoall,
    Reduce_scatter_c, Allgather_c, Allgatherv_c, Gather_c, Scatter_c, Alltoall_c,
    Ireduce_scatter, Iallgather, Iallgatherv, Igather, Iscatter, Ialltoall,
    Ireduce_scatter_c, Iallgather_c, Iallgatherv_c, Igather_c, Iscatter_c, Ialltoall_c,
    Comm_rank, Comm_size, Comm_remote_size, Comm_test_inter, Comm_group, Comm_create, Group_free, Group_translate_ranks,
    Comm_create_keyval, Comm_set_attr, Comm_free, Comm_disconnect,
    Win_create, Win_create_c, Win_allocate, Win_allocate_c, Win_allocate_shared, Win_allocate_shared_c,
    Win_create_dynamic,
    Type_size, Type_get_extent, Pack, Unpack, Test, Wait,
    Grequest_start, Grequest_complete, Status_set_elements, Status_set_cancelled,
}

/// The shared library of the native MPI in this process.
pub(crate) struct LoadedMpiLibrary {
    /// For symbols outside the global scope; null if the library was not found.
    handle: *mut c_void,
}

// SAFETY: a handle of the dynamic linker may be used by every thread.
unsafe impl Send for LoadedMpiLibrary {}
// SAFETY: as above.
unsafe impl Sync for LoadedMpiLibrary {}

impl LoadedMpiLibrary {
    fn find() -> Self {
        let mut paths: Vec<CString> = Vec::new();
        // SAFETY: the callback handles what the linker passes, and the list outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(collect_path), (&raw mut paths).cast()) };
        let rank = |path: &CString| {
            MPI_LIBRARIES.iter().position(|name| file_name(path.to_str().unwrap_or_default()).starts_with(name))
        };
        paths.sort_by_key(|path| rank(path));
        let handle = paths.iter().filter(|path| rank(path).is_some()).find_map(|path| {
            // SAFETY: a path from the linker; `RTLD_NOLOAD` loads nothing new.
            let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            (!handle.is_null()).then_some(handle)
        });
        Self { handle: handle.unwrap_or(std::ptr::null_mut()) }
    }

    /// A function of the native MPI, not the wrapper of the same name here.
    pub(crate) fn function(&self, name: &str) -> Option<MpiFunction> {
        next_function(name).or_else(|| {
            let found = self.symbol(&CString::new(name).ok()?);
            (!found.is_null()).then_some(MpiFunction(found))
        })
    }

    /// The address of an object of the native MPI.
    pub(crate) fn object(&self, name: &str) -> Option<usize> {
        let name = CString::new(name).ok()?;
        // The program first: it may hold a copy relocation, and then all code uses that copy.
        // SAFETY: a name that ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        let found = if found.is_null() { self.symbol(&name) } else { found };
        (!found.is_null()).then_some(found as usize)
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        if self.handle.is_null() {
            return std::ptr::null_mut();
        }
        // SAFETY: an open handle, and a name that ends with a zero.
        unsafe { libc::dlsym(self.handle, name.as_ptr()) }
    }

    /// The file of a function.
    pub(crate) fn file_of(&self, function: MpiFunction) -> String {
        // SAFETY: the structure is plain numbers, which the linker fills in.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: as above; any address may be passed.
        if unsafe { libc::dladdr(function.address(), &raw mut info) } == 0 || info.dli_fname.is_null() {
            return String::new();
        }
        // SAFETY: text of the linker.
        unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned()
    }
}

/// The next symbol after this library in the lookup order, which depends on the library that calls `dlsym`.
unsafe extern "C" fn next(name: *const c_char) -> *mut c_void {
    // SAFETY: as the caller says.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
    std::hint::black_box(found) // Prevents a tail call, after which the linker would see another caller.
}

/// Libraries of MPIs, for the case that the MPI is outside the global scope: a Python module that is loaded late brings its own.
const MPI_LIBRARIES: [&str; 3] = ["libmpi_abi.so", "libmpi.so", "libmpich.so"];

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// True if a file has the name of an MPI's library.
pub(crate) fn is_mpi_library(path: &str) -> bool {
    MPI_LIBRARIES.iter().any(|library| file_name(path).starts_with(library))
}

/// The next function of this name after this library in the lookup order.
pub(crate) fn next_function(name: &str) -> Option<MpiFunction> {
    let name = CString::new(name).ok()?;
    // SAFETY: a name that ends with a zero.
    let found = unsafe { next(name.as_ptr()) };
    (!found.is_null()).then_some(MpiFunction(found))
}

unsafe extern "C" fn collect_path(info: *mut libc::dl_phdr_info, _: usize, paths: *mut c_void) -> c_int {
    // SAFETY: the linker passes a valid description, and our own list.
    let (name, paths): (*const c_char, _) = unsafe { ((*info).dlpi_name, &mut *paths.cast::<Vec<CString>>()) };
    if !name.is_null() {
        // SAFETY: text of the linker.
        paths.push(unsafe { CStr::from_ptr(name) }.to_owned());
    }
    0
}

/// The native MPI and its functions.
pub(crate) struct NativeMpi {
    pub(crate) library: LoadedMpiLibrary,
    pub(crate) real: MpiFunctions,
}

static MPI: OnceLock<NativeMpi> = OnceLock::new();

/// The native MPI of this process.
pub(crate) fn mpi() -> &'static NativeMpi {
    MPI.get_or_init(|| {
        let library = LoadedMpiLibrary::find();
        let real = MpiFunctions::load(&library);
        NativeMpi { library, real }
    })
}
