//! Reads of a peer's registered memory, as Intel MPI does them although no such capability is offered.

mod fabric;

use fabric::abi::*;
use fabric::{connect, pattern, wait_for, wait_for_error};

#[test]
fn registered_memory_is_read_from_any_place_in_it() {
    let mut nodes = connect(2);
    let [asking, asked] = &mut nodes[..] else { panic!("two nodes") };
    let mut memory = pattern(3, 3 << 20);
    let region = asked.register(&mut memory, FI_REMOTE_READ, 77).expect("a region");
    for (context, (offset, length)) in
        [(0, 1), (5, 0), (1, 20_000), (0, 3 << 20), ((3 << 20) - 8, 8)].into_iter().enumerate()
    {
        let mut target = vec![0; length];
        assert_eq!(asking.read(&mut target, 1, (offset as u64, 77), context), 0);
        let done = wait_for(&mut [&mut *asking, &mut *asked], 0);
        assert_eq!((done.context, done.flags), (context, FI_RMA | FI_READ));
        assert!(target == memory[offset..offset + length], "{length} bytes at {offset}");
    }
    // SAFETY: the region is live, and nobody reads it any more.
    assert_eq!(unsafe { ((*(*region).ops).close)(region) }, 0);
}

#[test]
fn what_is_not_registered_or_not_within_it_is_refused() {
    let mut nodes = connect(2);
    let [asking, asked] = &mut nodes[..] else { panic!("two nodes") };
    let (mut memory, mut target) = (pattern(3, 1000), vec![0; 100]);
    asked.register(&mut memory, FI_REMOTE_READ, 1).expect("a region");
    asked.register(&mut memory, FI_REMOTE_WRITE, 2).expect("a region");
    assert_eq!(asked.register(&mut memory, FI_REMOTE_READ, 1), Err(-126), "the key is used");
    asked.register(&mut memory, 0, 1).expect("memory that no peer uses needs no key of its own");
    for (context, place) in [(901, 1), (0, 2), (0, 3), (u64::MAX, 1)].into_iter().enumerate() {
        assert_eq!(asking.read(&mut target, 1, place, context), 0);
        let error = wait_for_error(&mut [&mut *asking, &mut *asked], 0);
        assert_eq!((error.err, error.op_context as usize), (5, context), "{place:?}");
        assert!(asking.error_text(&error).contains("not registered"));
    }
    assert!(target.iter().all(|byte| *byte == 0));
}

#[test]
fn own_memory_is_read_too() {
    let mut nodes = connect(1);
    let node = &mut nodes[0];
    let (mut memory, mut target) = (pattern(9, 5000), vec![0; 4000]);
    node.register(&mut memory, FI_REMOTE_READ, 4).expect("a region");
    assert_eq!(node.read(&mut target, 0, (1000, 4), 6), 0);
    assert_eq!(wait_for(&mut [&mut *node], 0).context, 6);
    assert!(target == memory[1000..]);
}
