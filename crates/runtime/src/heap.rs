//! The heap of a process that shares its processor with many, in huge pages.
//!
//! What an operation touches lies all over the heap: on some 25 pages in an MPI program. Whoever shares a processor with many finds none
//! of its pages in the processor's table when it is its turn, and each costs as much as a hundred instructions or more. One huge
//! page takes the place of 512.

use std::ffi::c_void;

use nix::libc;
use tracing::debug;

const HUGE: usize = 2 << 20;
/// So much is gathered at most: of a larger heap most is not ours.
const MOST: usize = 16 << 20;

/// Has the kernel put what is in the heap now into huge pages, as far as it fills them; that copies it once. Nothing happens where the
/// kernel has no huge pages, or is older than 6.1.
pub fn gather() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let bytes = heap_of(&maps).map_or(0, gather_within);
    debug!(bytes, "the heap in huge pages");
}

/// The same between two addresses of this process's memory; the bytes of those pages.
fn gather_within((start, end): (usize, usize)) -> usize {
    let pages = (start.next_multiple_of(HUGE)..end / HUGE * HUGE).step_by(HUGE).take(MOST / HUGE);
    // SAFETY: what is there stays as it is; where nothing of ours is, the kernel does nothing.
    let is_gathered = |at: &usize| unsafe { libc::madvise(*at as *mut c_void, HUGE, libc::MADV_COLLAPSE) } == 0;
    pages.filter(is_gathered).count() * HUGE
}

/// Where the heap is, as the kernel says.
fn heap_of(maps: &str) -> Option<(usize, usize)> {
    let range = maps.lines().find(|line| line.ends_with("[heap]"))?.split(' ').next()?;
    let (start, end) = range.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_where_the_kernel_says() {
        let maps = "00400000-0044b000 r-xp 00000000 fd:00 77    /bin/some\n01f0b000-0271c000 rw-p 00000000 00:00 0    [heap]\n";
        assert_eq!(heap_of(maps), Some((0x01f0_b000, 0x0271_c000)));
        for strange in ["", "[heap]", "12 [heap]", "12-xy rw-p [heap]"] {
            assert_eq!(heap_of(strange), None, "{strange}");
        }
    }

    #[test]
    fn what_is_in_the_heap_stays_as_it_is() {
        gather();
        let numbers: Vec<u64> = (0..1 << 20).collect();
        let start = numbers.as_ptr() as usize;
        let gathered = gather_within((start, start + size_of_val(&*numbers)));
        assert!(
            gathered <= size_of_val(&*numbers) && numbers.iter().zip(0..).all(|(found, number)| *found == number)
        );
        assert_eq!(gather_within((start, start + HUGE - 1)), 0, "it fills no huge page");
    }
}
