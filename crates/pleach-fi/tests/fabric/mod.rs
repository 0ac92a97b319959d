//! libfabric as an application uses it: loaded at run time, with the provider from this build.

#![allow(dead_code, reason = "each test program uses a part")]

#[path = "../../src/abi.rs"]
pub(crate) mod abi;

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use abi::*;

/// What hangs fails.
const LIMIT: Duration = Duration::from_secs(60);
const ADDRESS_BYTES: usize = 64;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlvsym(library: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

type GetInfo = unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const FiInfo, *mut *mut FiInfo) -> c_int;
type DupInfo = unsafe extern "C" fn(*const FiInfo) -> *mut FiInfo;
type OpenFabric = unsafe extern "C" fn(*mut FiFabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int;

/// libfabric's own functions.
pub(crate) struct Library {
    getinfo: GetInfo,
    dupinfo: DupInfo,
    fabric: OpenFabric,
}

/// libfabric, with this build's provider as the only one.
pub(crate) fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let directory = provider_directory();
        // SAFETY: no other thread reads the environment: all of them wait for this initialization.
        unsafe {
            std::env::set_var("FI_PROVIDER_PATH", &directory);
            std::env::set_var("FI_PROVIDER", "pleach");
            if env!("CARGO_CRATE_NAME").ends_with("_udp") {
                std::env::set_var("PLEACH_SHARED_MEMORY", "off");
            }
            if std::env::var_os("PLEACH_ADDRESSES").is_none() {
                std::env::set_var("PLEACH_ADDRESSES", "127.0.0.1");
            }
        }
        // SAFETY: these are the functions of libfabric with their documented types.
        unsafe {
            let library = dlopen(c"libfabric.so.1".as_ptr(), 2);
            assert!(!library.is_null(), "libfabric.so.1 is missing: install libfabric1");
            let find = |name: &CStr, version: &CStr| {
                let found = dlvsym(library, name.as_ptr(), version.as_ptr());
                assert!(!found.is_null(), "{name:?} {version:?}");
                found
            };
            Library {
                getinfo: std::mem::transmute::<*mut c_void, GetInfo>(find(c"fi_getinfo", c"FABRIC_1.3")),
                dupinfo: std::mem::transmute::<*mut c_void, DupInfo>(find(c"fi_dupinfo", c"FABRIC_1.3")),
                fabric: std::mem::transmute::<*mut c_void, OpenFabric>(find(c"fi_fabric", c"FABRIC_1.1")),
            }
        }
    })
}

/// A directory in which the provider has the name that libfabric looks for.
pub(crate) fn provider_directory() -> PathBuf {
    let folder = std::env::current_exe().expect("this program").parent().expect("a folder").to_owned();
    let built = folder.join("libpleach_fi.so");
    assert!(built.exists(), "{} is missing", built.display());
    let directory = folder.join(format!("provider-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let link = directory.join("libpleach-fi.so");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&built, &link).expect("a link");
    directory
}

/// What the provider wrote to this folder about changes of paths.
pub(crate) fn path_events(folder: &std::path::Path) -> String {
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    files.map(|file| std::fs::read_to_string(file).expect("a text")).collect()
}

impl Library {
    /// What libfabric offers for these hints; none if nothing.
    pub(crate) fn info(&self, change: impl FnOnce(&mut FiInfo)) -> Option<*mut FiInfo> {
        // SAFETY: libfabric allocates complete hints, which are changed within their types.
        unsafe {
            let hints = (self.dupinfo)(null());
            (*hints).caps = FI_TAGGED | FI_MSG;
            (*(*hints).ep_attr).kind = FI_EP_RDM;
            change(&mut *hints);
            let mut found = null_mut();
            let outcome = (self.getinfo)(version(1, 17), null(), null(), 0, hints, &raw mut found);
            if outcome == 0 { Some(found) } else { None }
        }
    }
}

/// A completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
}

/// An endpoint with its own domain, queue and counters.
#[derive(Debug)]
pub(crate) struct Node {
    fabric: *mut FidFabric,
    domain: *mut FidDomain,
    ep: *mut FidEp,
    cq: *mut Fid,
    av: *mut Fid,
    sent: *mut Fid,
    received: *mut Fid,
    /// Its place among the nodes.
    pub(crate) index: usize,
    addresses: Vec<FiAddr>,
}

// SAFETY: the provider is asked for FI_THREAD_SAFE.
unsafe impl Send for Node {}

/// A node for several threads.
pub(crate) struct Shared(pub(crate) Node);

// SAFETY: the provider is asked for FI_THREAD_SAFE, and the methods change nothing in the node itself.
unsafe impl Sync for Shared {}

impl Shared {
    #[allow(clippy::mut_from_ref, reason = "the methods take &mut self only to keep the other tests honest")]
    pub(crate) fn get(&self) -> &mut Node {
        // SAFETY: as for `Sync` above.
        unsafe { &mut *UnsafeCell::raw_get((&raw const self.0).cast::<UnsafeCell<Node>>()) }
    }
}

pub(crate) fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(97)) as u8).collect()
}

pub(crate) fn connect(count: usize) -> Vec<Node> {
    connect_with(count, 0, FI_WAIT_NONE)
}

/// Nodes that know each other's addresses.
pub(crate) fn connect_with(count: usize, bind_flags: u64, wait: c_int) -> Vec<Node> {
    let mut nodes: Vec<Node> = (0..count).map(|index| Node::open(index, bind_flags, wait)).collect();
    connect_nodes(&mut nodes);
    nodes
}

/// Tells nodes each other's addresses.
pub(crate) fn connect_nodes(nodes: &mut [Node]) {
    let names: Vec<[u8; ADDRESS_BYTES]> = nodes.iter().map(Node::name).collect();
    for node in nodes {
        node.addresses = names.iter().map(|name| node.insert(name).expect("an address")).collect();
    }
}

fn ok(outcome: c_int) {
    assert_eq!(outcome, 0);
}

impl Node {
    // SAFETY, for all blocks of this type: the calls follow the documented interface of libfabric; the objects live until the node is
    // dropped, and the memory of operations lives until they complete or the process ends.

    pub(crate) fn open(index: usize, bind_flags: u64, wait: c_int) -> Self {
        let library = library();
        let info = library.info(|hints| hints.caps = FI_TAGGED | FI_MSG | FI_MULTI_RECV | FI_DIRECTED_RECV);
        let info = info.expect("the provider answers");
        let (mut fabric, mut domain, mut ep) = (null_mut(), null_mut(), null_mut());
        let (mut cq, mut av): (*mut Fid, *mut Fid) = (null_mut(), null_mut());
        let (mut sent, mut received): (*mut Fid, *mut Fid) = (null_mut(), null_mut());
        // SAFETY: see above.
        unsafe {
            ok((library.fabric)((*info).fabric_attr, &raw mut fabric, null_mut()));
            ok(((*(*fabric).ops).domain)(fabric, info, &raw mut domain, null_mut()));
            ok(((*(*domain).ops).endpoint)(domain, info, &raw mut ep, null_mut()));
            let mut attributes = FiCqAttr {
                size: 0,
                flags: 0,
                format: FI_CQ_FORMAT_TAGGED,
                wait_obj: wait,
                signaling_vector: 0,
                wait_cond: 0,
                wait_set: null_mut(),
            };
            ok(((*(*domain).ops).cq_open)(domain, &raw mut attributes, &raw mut cq, null_mut()));
            ok(((*(*domain).ops).av_open)(domain, null_mut(), &raw mut av, null_mut()));
            ok(((*(*domain).ops).cntr_open)(domain, null_mut(), &raw mut sent, null_mut()));
            ok(((*(*domain).ops).cntr_open)(domain, null_mut(), &raw mut received, null_mut()));
            let fid = &raw mut (*ep).fid;
            let ops = &*(*fid).ops;
            ok((ops.bind)(fid, cq, FI_SEND | FI_RECV | bind_flags));
            ok((ops.bind)(fid, av, 0));
            ok((ops.bind)(fid, sent, FI_SEND));
            ok((ops.bind)(fid, received, FI_RECV));
            ok((ops.control)(fid, FI_ENABLE, null_mut()));
        }
        Self { fabric, domain, ep, cq, av, sent, received, index, addresses: Vec::new() }
    }

    pub(crate) fn name(&self) -> [u8; ADDRESS_BYTES] {
        let (mut name, mut length) = ([0; ADDRESS_BYTES], ADDRESS_BYTES);
        // SAFETY: see above.
        unsafe {
            let mut none = 0;
            let short = ((*(*self.ep).cm).getname)(self.ep.cast(), null_mut(), &raw mut none);
            assert_eq!((short, none), (-FI_ETOOSMALL, ADDRESS_BYTES), "a call without space asks for the length");
            ok(((*(*self.ep).cm).getname)(self.ep.cast(), name.as_mut_ptr().cast(), &raw mut length));
        }
        name
    }

    fn av_ops(&self) -> &FiOpsAv {
        // SAFETY: see above.
        unsafe { &*(*self.av.cast::<FidWith<FiOpsAv>>()).ops }
    }

    fn cq_ops(&self) -> &FiOpsCq {
        // SAFETY: see above.
        unsafe { &*(*self.cq.cast::<FidWith<FiOpsCq>>()).ops }
    }

    fn tagged(&self) -> &FiOpsTagged {
        // SAFETY: see above.
        unsafe { &*(*self.ep).tagged }
    }

    fn msg(&self) -> &FiOpsMsg {
        // SAFETY: see above.
        unsafe { &*(*self.ep).msg }
    }

    pub(crate) fn insert(&self, name: &[u8; ADDRESS_BYTES]) -> Option<FiAddr> {
        let mut handle = 0;
        // SAFETY: see above.
        let count =
            unsafe { (self.av_ops().insert)(self.av, name.as_ptr().cast(), 1, &raw mut handle, 0, null_mut()) };
        (count == 1).then_some(handle)
    }

    pub(crate) fn remove(&self, mut handle: FiAddr) -> c_int {
        // SAFETY: see above.
        unsafe { (self.av_ops().remove)(self.av, &raw mut handle, 1, 0) }
    }

    pub(crate) fn lookup(&self, handle: FiAddr) -> Option<[u8; ADDRESS_BYTES]> {
        let (mut name, mut length) = ([0; ADDRESS_BYTES], ADDRESS_BYTES);
        // SAFETY: see above.
        let outcome = unsafe { (self.av_ops().lookup)(self.av, handle, name.as_mut_ptr().cast(), &raw mut length) };
        (outcome == 0).then_some(name)
    }

    pub(crate) fn address_text(&self, name: &[u8; ADDRESS_BYTES]) -> String {
        let (mut text, mut length) = ([0_u8; 200], 200);
        // SAFETY: see above.
        unsafe {
            (self.av_ops().straddr)(self.av, name.as_ptr().cast(), text.as_mut_ptr().cast(), &raw mut length);
        }
        CStr::from_bytes_until_nul(&text).expect("a text").to_string_lossy().into_owned()
    }

    /// Inserts the address of a node of another process; returns its place.
    pub(crate) fn know(&mut self, name: &[u8; ADDRESS_BYTES]) -> usize {
        let handle = self.insert(name).expect("an address");
        self.addresses.push(handle);
        self.addresses.len() - 1
    }

    pub(crate) fn address_of(&self, node: usize) -> FiAddr {
        self.addresses[node]
    }

    /// Registers memory for peers; the outcome, and what closes it again.
    pub(crate) fn register(&mut self, memory: &mut [u8], access: u64, key: u64) -> Result<*mut Fid, c_int> {
        let mut region: *mut FidMr = null_mut();
        let (domain, start) = (self.domain.cast::<Fid>(), memory.as_ptr().cast());
        // SAFETY: see above.
        let outcome = unsafe {
            ((*(*self.domain).mr).reg)(domain, start, memory.len(), access, 0, key, 0, &raw mut region, null_mut())
        };
        if outcome == 0 && access & FI_REMOTE_READ != 0 {
            // SAFETY: see above.
            assert_eq!(unsafe { (*region).key }, key);
        }
        if outcome == 0 { Ok(region.cast()) } else { Err(outcome) }
    }

    /// Reads a peer's memory.
    pub(crate) fn read(
        &mut self,
        target: &mut [u8],
        node: usize,
        (offset, key): (u64, u64),
        context: usize,
    ) -> isize {
        let (start, from, context) = (target.as_mut_ptr().cast(), self.addresses[node], context as *mut c_void);
        // SAFETY: see above.
        unsafe { ((*(*self.ep).rma).read)(self.ep, start, target.len(), null_mut(), from, offset, key, context) }
    }

    pub(crate) fn trecv(&mut self, target: &mut [u8], from: FiAddr, tag: u64, ignore: u64, context: usize) {
        let (start, length) = (target.as_mut_ptr().cast(), target.len());
        // SAFETY: see above.
        let outcome = unsafe {
            (self.tagged().recv)(self.ep, start, length, null_mut(), from, tag, ignore, context as *mut c_void)
        };
        assert_eq!(outcome, 0);
    }

    pub(crate) fn trecvmsg(
        &mut self,
        target: &mut [u8],
        addr: FiAddr,
        tag: u64,
        ignore: u64,
        context: usize,
        flags: u64,
    ) {
        assert_eq!(self.try_trecvmsg(target, addr, (tag, ignore), context, flags), 0);
    }

    pub(crate) fn try_trecvmsg(
        &mut self,
        target: &mut [u8],
        addr: FiAddr,
        (tag, ignore): (u64, u64),
        context: usize,
        flags: u64,
    ) -> isize {
        let iov = Iovec { base: target.as_mut_ptr().cast(), len: target.len() };
        let context = context as *mut c_void;
        let message =
            FiMsgTagged { iov: &raw const iov, desc: null_mut(), iov_count: 1, addr, tag, ignore, context, data: 0 };
        // SAFETY: see above.
        unsafe { (self.tagged().recvmsg)(self.ep, &raw const message, flags) }
    }

    pub(crate) fn trecvv(&mut self, targets: &mut [&mut [u8]], tag: u64, context: usize) {
        let parts: Vec<Iovec> =
            targets.iter_mut().map(|part| Iovec { base: part.as_mut_ptr().cast(), len: part.len() }).collect();
        let context = context as *mut c_void;
        // SAFETY: see above.
        let outcome = unsafe {
            let (list, count) = (parts.as_ptr(), parts.len());
            (self.tagged().recvv)(self.ep, list, null_mut(), count, FI_ADDR_UNSPEC, tag, 0, context)
        };
        assert_eq!(outcome, 0);
    }

    pub(crate) fn recvmsg(&mut self, target: &mut [u8], addr: FiAddr, context: usize, flags: u64) {
        assert_eq!(self.try_recvmsg(target, addr, context, flags), 0);
    }

    pub(crate) fn try_recvmsg(&mut self, target: &mut [u8], addr: FiAddr, context: usize, flags: u64) -> isize {
        let iov = Iovec { base: target.as_mut_ptr().cast(), len: target.len() };
        let context = context as *mut c_void;
        let message = FiMsg { iov: &raw const iov, desc: null_mut(), iov_count: 1, addr, context, data: 0 };
        // SAFETY: see above.
        unsafe { (self.msg().recvmsg)(self.ep, &raw const message, flags | FI_COMPLETION) }
    }

    pub(crate) fn tsend(&mut self, bytes: &[u8], to: usize, tag: u64, context: usize) -> isize {
        let (start, length, to) = (bytes.as_ptr().cast(), bytes.len(), self.addresses[to]);
        // SAFETY: see above.
        unsafe { (self.tagged().send)(self.ep, start, length, null_mut(), to, tag, context as *mut c_void) }
    }

    pub(crate) fn send(&mut self, bytes: &[u8], to: usize, context: usize) -> isize {
        let (start, length, to) = (bytes.as_ptr().cast(), bytes.len(), self.addresses[to]);
        // SAFETY: see above.
        unsafe { (self.msg().send)(self.ep, start, length, null_mut(), to, context as *mut c_void) }
    }

    pub(crate) fn tsenddata(&mut self, bytes: &[u8], data: u64, to: usize, tag: u64, context: usize) -> isize {
        let (start, length, to) = (bytes.as_ptr().cast(), bytes.len(), self.addresses[to]);
        let context = context as *mut c_void;
        // SAFETY: see above.
        unsafe { (self.tagged().senddata)(self.ep, start, length, null_mut(), data, to, tag, context) }
    }

    pub(crate) fn tsendmsg(&mut self, bytes: &[u8], to: usize, tag: u64, context: usize, flags: u64) -> isize {
        let iov = Iovec { base: bytes.as_ptr().cast_mut().cast(), len: bytes.len() };
        let (addr, context) = (self.addresses[to], context as *mut c_void);
        let message = FiMsgTagged {
            iov: &raw const iov,
            desc: null_mut(),
            iov_count: 1,
            addr,
            tag,
            ignore: 0,
            context,
            data: 0,
        };
        // SAFETY: see above.
        unsafe { (self.tagged().sendmsg)(self.ep, &raw const message, flags) }
    }

    pub(crate) fn tsendv(&mut self, parts: &[&[u8]], to: usize, tag: u64, context: usize) -> isize {
        let list: Vec<Iovec> =
            parts.iter().map(|part| Iovec { base: part.as_ptr().cast_mut().cast(), len: part.len() }).collect();
        let (to, context) = (self.addresses[to], context as *mut c_void);
        // SAFETY: see above.
        unsafe { (self.tagged().sendv)(self.ep, list.as_ptr(), null_mut(), list.len(), to, tag, context) }
    }

    pub(crate) fn tinject(&mut self, bytes: &[u8], to: usize, tag: u64) -> isize {
        let (start, length, to) = (bytes.as_ptr().cast(), bytes.len(), self.addresses[to]);
        // SAFETY: see above.
        unsafe { (self.tagged().inject)(self.ep, start, length, to, tag) }
    }

    pub(crate) fn cancel(&mut self, context: usize) -> isize {
        // SAFETY: see above.
        unsafe { ((*(*self.ep).ops).cancel)(self.ep.cast(), context as *mut c_void) }
    }

    pub(crate) fn set_min_multi_recv(&mut self, bytes: usize) {
        let value = (&raw const bytes).cast();
        // SAFETY: see above.
        ok(unsafe {
            ((*(*self.ep).ops).setopt)(self.ep.cast(), 0, FI_OPT_MIN_MULTI_RECV, value, size_of::<usize>())
        });
    }

    /// The next completion, if there is one; makes progress.
    pub(crate) fn poll(&mut self) -> Option<Done> {
        let mut entry = blank();
        // SAFETY: see above.
        let count = unsafe { (self.cq_ops().read)(self.cq, (&raw mut entry).cast(), 1) };
        done(count, &entry)
    }

    /// Waits for at most so many milliseconds.
    pub(crate) fn sread(&mut self, millis: c_int) -> Option<Done> {
        let mut entry = blank();
        // SAFETY: see above.
        let count = unsafe { (self.cq_ops().sread)(self.cq, (&raw mut entry).cast(), 1, null(), millis) };
        done(count, &entry)
    }

    pub(crate) fn poll_error(&mut self) -> Option<FiCqErrEntry> {
        // SAFETY: all bytes zero are a valid entry; see above for the call.
        unsafe {
            let mut entry: FiCqErrEntry = std::mem::zeroed();
            let count = (self.cq_ops().readerr)(self.cq, &raw mut entry, 0);
            (count == 1).then_some(entry)
        }
    }

    /// The text of an error.
    pub(crate) fn error_text(&self, error: &FiCqErrEntry) -> String {
        let mut text = [0_u8; 300];
        // SAFETY: see above.
        unsafe {
            (self.cq_ops().strerror)(self.cq, error.prov_errno, null(), text.as_mut_ptr().cast(), text.len());
        }
        CStr::from_bytes_until_nul(&text).expect("a text").to_string_lossy().into_owned()
    }

    pub(crate) fn wait_descriptor(&self) -> c_int {
        let mut descriptor: c_int = -1;
        // SAFETY: see above.
        unsafe { ok(((*(*self.cq).ops).control)(self.cq, FI_GETWAIT, (&raw mut descriptor).cast())) };
        descriptor
    }

    pub(crate) fn sent_count(&self) -> u64 {
        // SAFETY: see above.
        unsafe { ((*(*self.sent.cast::<FidWith<FiOpsCntr>>()).ops).read)(self.sent) }
    }

    pub(crate) fn received_count(&self) -> u64 {
        // SAFETY: see above.
        unsafe { ((*(*self.received.cast::<FidWith<FiOpsCntr>>()).ops).read)(self.received) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let all =
            [self.ep.cast(), self.cq, self.av, self.sent, self.received, self.domain.cast(), self.fabric.cast()];
        for fid in all {
            let fid: *mut Fid = fid;
            // SAFETY: each object is closed once, after those that use it.
            unsafe { ((*(*fid).ops).close)(fid) };
        }
    }
}

fn blank() -> FiCqTaggedEntry {
    FiCqTaggedEntry { op_context: null_mut(), flags: 0, len: 0, buf: null_mut(), data: 0, tag: 0 }
}

fn done(count: isize, entry: &FiCqTaggedEntry) -> Option<Done> {
    let FiCqTaggedEntry { op_context, flags, len, buf, data, tag } = *entry;
    (count == 1).then_some(Done { context: op_context as usize, flags, len, buf, data, tag })
}

/// Makes progress on all nodes until one of them has a completion.
pub(crate) fn wait_for(nodes: &mut [&mut Node], at: usize) -> Done {
    let began = Instant::now();
    loop {
        if let Some(done) = nodes[at].poll() {
            return done;
        }
        if let Some(error) = nodes[at].poll_error() {
            panic!("error {}: {}", error.err, nodes[at].error_text(&error));
        }
        assert!(began.elapsed() < LIMIT, "no completion at node {at}");
        progress_others(nodes, at);
    }
}

pub(crate) fn wait_for_error(nodes: &mut [&mut Node], at: usize) -> FiCqErrEntry {
    let began = Instant::now();
    loop {
        assert!(nodes[at].poll().is_none(), "a completion instead of an error");
        if let Some(error) = nodes[at].poll_error() {
            return error;
        }
        assert!(began.elapsed() < LIMIT, "no error at node {at}");
        progress_others(nodes, at);
    }
}

fn progress_others(nodes: &mut [&mut Node], except: usize) {
    for (index, node) in nodes.iter_mut().enumerate() {
        if index != except {
            node.sent_count(); // Makes progress without reading a completion.
        }
    }
}

/// Makes progress on all nodes for a while, and reads no completion.
pub(crate) fn run_for(nodes: &mut [&mut Node], time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        nodes.iter_mut().for_each(|node| {
            node.sent_count();
        });
    }
}

/// A text as C wants it.
pub(crate) fn text(value: &str) -> CString {
    CString::new(value).expect("no zero in it")
}
