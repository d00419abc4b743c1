//! Recycled memory: buffers that stored bytes are read into and answers are assembled in.
//!
//! Fresh memory of some hundred KiB costs its page faults, which is more than the copy into it. A recycled buffer holds
//! what it held before: whoever takes one writes every byte of it before anything is read from it.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Buffers begin on a multiple of this: the kernel copies whole pages faster, and direct I/O needs it.
const ALIGNMENT: usize = 4096;

/// Smaller buffers are the allocator's: it recycles them itself, without asking the kernel.
const SMALLEST: usize = 64 << 10;

/// Larger buffers are given back to the kernel: they are rare, and their page faults cost little beside their filling.
const LARGEST: usize = 64 << 20;

/// Most bytes that lie idle.
const IDLE_BYTES: usize = 64 << 20;

/// A shelf of idle buffers, by powers of two. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Buffers(Arc<Mutex<Shelf>>);

#[derive(Debug, Default)]
struct Shelf {
    /// Per power of two, from [`SMALLEST`] on.
    idle: [Vec<Vec<u8>>; 11],
    bytes: usize,
}

/// Exclusive memory of a fixed length. It goes back to its shelf when it is dropped.
#[derive(Debug)]
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
    home: Option<Buffers>,
}

/// Which shelf holds buffers for `len` bytes; `None` where they are not kept.
fn class(len: usize) -> Option<usize> {
    if !(SMALLEST..=LARGEST).contains(&len) {
        return None;
    }
    Some((len.next_power_of_two() / SMALLEST).trailing_zeros() as usize)
}

impl Buffers {
    /// An empty shelf.
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer of `len` bytes, whatever they are.
    pub fn take(&self, len: usize) -> Buffer {
        let Some(class) = class(len) else { return Buffer { memory: vec![0; len], start: 0, len, home: None } };
        let idle = {
            let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = shelf.idle[class].pop();
            shelf.bytes -= idle.as_ref().map_or(0, Vec::len);
            idle
        };
        // Zeroed by the allocator, which gets such sizes from the kernel as zero pages.
        let memory = idle.unwrap_or_else(|| vec![0; (SMALLEST << class) + ALIGNMENT]);
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Buffer { memory, start, len, home: Some(self.clone()) }
    }

    fn put(&self, memory: Vec<u8>, class: usize) {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shelf.bytes + memory.len() <= IDLE_BYTES {
            shelf.bytes += memory.len();
            shelf.idle[class].push(memory);
        }
    }
}

impl Buffer {
    /// The first `len` bytes, shared. The memory goes back when the last handle is dropped.
    pub fn freeze(mut self, len: usize) -> Bytes {
        self.len = self.len.min(len);
        Bytes::from_owner(self)
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = &self.home
            && let Some(class) = class(self.memory.len() - ALIGNMENT)
        {
            home.put(std::mem::take(&mut self.memory), class);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_taken_again_and_begins_on_a_page() {
        let buffers = Buffers::new();
        for len in [SMALLEST, SMALLEST + 1, 300_000, LARGEST] {
            let buffer = buffers.take(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT), 0);
            let address = buffer.as_ptr();
            drop(buffer);
            let again = buffers.take(len);
            assert_eq!(again.as_ptr(), address, "{len}");
        }
    }

    #[test]
    fn shared_bytes_hold_their_memory_until_the_last_handle_ends() {
        let buffers = Buffers::new();
        let mut buffer = buffers.take(100_000);
        buffer.fill(7);
        let address = buffer.as_ptr();
        let bytes = buffer.freeze(99_999);
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_ne!(buffers.take(100_000).as_ptr(), address);
        assert_eq!(&part[..], &[7; 10]);
        drop(part);
        let mut taken: Vec<_> = (0..2).map(|_| buffers.take(100_000)).collect();
        taken.retain(|buffer| buffer.as_ptr() == address);
        assert_eq!(taken.len(), 1);
    }

    #[test]
    fn what_lies_idle_is_bounded() {
        let buffers = Buffers::new();
        drop((0..40).map(|_| buffers.take(4 << 20)).collect::<Vec<_>>());
        let shelf = buffers.0.lock().unwrap();
        assert!(shelf.bytes <= IDLE_BYTES && shelf.bytes > IDLE_BYTES / 2);
        assert_eq!(shelf.bytes, shelf.idle.iter().flatten().map(Vec::len).sum::<usize>());
    }

    #[test]
    fn small_buffers_have_their_length() {
        assert_eq!(Buffers::new().take(0).len(), 0);
        assert_eq!(Buffers::new().take(5).freeze(3).len(), 3);
    }
}
