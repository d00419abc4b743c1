//! A bound on aws-chunked bodies before s3s decodes them.
//!
//! s3s buffers each chunk whole, and a chunk may declare any size; it also takes a body that ends without its final
//! chunk for a complete one. Here a chunk whose content is signed must be small enough to be held, an unsigned one is
//! cut into small ones (no signature covers its borders), and nothing may exceed the declared length. Payload bytes
//! are not copied.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes};
use futures::stream::{BoxStream, StreamExt as _};

/// The largest chunk that carries a signature, in bytes: s3s holds one per request. SDKs send 64 KiB to 1 MiB.
const MAX_SIGNED_CHUNK_BYTES: u64 = 16 * 1024 * 1024;

/// The longest chunk header, in bytes: a size, `;chunk-signature=` and 64 digits need under 100.
const MAX_HEADER_BYTES: usize = 1024;

/// Why a body was not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FramingError {
    #[error("a chunk of {size} bytes exceeds the {max} bytes that a signed chunk may hold")]
    ChunkTooLarge { size: u64, max: u64 },
    #[error("the chunks hold more than the {declared} bytes declared in x-amz-decoded-content-length")]
    TooLong { declared: u64 },
    #[error("the aws-chunked framing is malformed")]
    Malformed,
    #[error("the aws-chunked body ends without its final chunk")]
    Incomplete,
}

/// What the next byte of the body belongs to.
#[derive(Debug)]
enum At {
    /// A chunk's header line, as far as it has come.
    Header(Vec<u8>),
    /// A chunk's payload, with so many bytes to come.
    Payload(u64),
    /// The line end after a payload, with so many bytes to come.
    LineEnd(usize),
    /// After the final chunk: trailers, which s3s bounds itself.
    Trailers,
}

/// Reads the framing of one body.
#[derive(Debug)]
pub(super) struct Framing {
    signed: bool,
    declared: Option<u64>,
    total: u64,
    at: At,
}

impl Framing {
    /// For a body whose chunks are signed or not, and whose decoded length was declared or not.
    pub(super) fn new(signed: bool, declared: Option<u64>) -> Self {
        Self { signed, declared, total: 0, at: At::Header(Vec::new()) }
    }

    /// Takes the next piece of the body; what may pass is appended to `out`.
    fn feed(&mut self, mut piece: Bytes, out: &mut VecDeque<Bytes>) -> Result<(), FramingError> {
        while !piece.is_empty() {
            match &mut self.at {
                At::Header(line) => {
                    let end = piece.iter().position(|byte| *byte == b'\n');
                    let taken = piece.split_to(end.map_or(piece.len(), |end| end + 1));
                    if line.len() + taken.len() > MAX_HEADER_BYTES {
                        return Err(FramingError::Malformed);
                    }
                    line.extend_from_slice(&taken);
                    if end.is_some() {
                        let line = std::mem::take(line);
                        self.start_chunk(line, out)?;
                    }
                }
                At::Payload(left) => {
                    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(piece.len());
                    let taken = piece.split_to(len);
                    *left -= len as u64;
                    if *left == 0 {
                        self.at = At::LineEnd(2);
                    }
                    if self.signed {
                        out.push_back(taken);
                    } else {
                        out.push_back(Bytes::from(format!("{len:x}\r\n")));
                        out.push_back(taken);
                        out.push_back(Bytes::from_static(b"\r\n"));
                    }
                }
                At::LineEnd(left) => {
                    let want = if *left == 2 { b'\r' } else { b'\n' };
                    if piece.get_u8() != want {
                        return Err(FramingError::Malformed);
                    }
                    *left -= 1;
                    if *left == 0 {
                        if self.signed {
                            out.push_back(Bytes::from_static(b"\r\n"));
                        }
                        self.at = At::Header(Vec::new());
                    }
                }
                At::Trailers => out.push_back(std::mem::take(&mut piece)),
            }
        }
        Ok(())
    }

    fn start_chunk(&mut self, line: Vec<u8>, out: &mut VecDeque<Bytes>) -> Result<(), FramingError> {
        let text = line.strip_suffix(b"\r\n").ok_or(FramingError::Malformed)?;
        let digits = text.split(|byte| *byte == b';').next().unwrap_or_default();
        let size = std::str::from_utf8(digits)
            .ok()
            .filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or(FramingError::Malformed)?;
        if self.signed && size > MAX_SIGNED_CHUNK_BYTES {
            return Err(FramingError::ChunkTooLarge { size, max: MAX_SIGNED_CHUNK_BYTES });
        }
        self.total = self.total.checked_add(size).ok_or(FramingError::Malformed)?;
        if let Some(declared) = self.declared.filter(|declared| self.total > *declared) {
            return Err(FramingError::TooLong { declared });
        }
        self.at = if size == 0 { At::Trailers } else { At::Payload(size) };
        if size == 0 || self.signed {
            out.push_back(Bytes::from(line));
        }
        Ok(())
    }

    fn end(&self) -> Result<(), FramingError> {
        match self.at {
            At::Trailers => Ok(()),
            At::Header(_) | At::Payload(_) | At::LineEnd(_) => Err(FramingError::Incomplete),
        }
    }

    /// The body with its framing checked. `on_error` is told what was wrong; the stream then ends with that error.
    pub(super) fn wrap<E>(
        self,
        body: BoxStream<'static, Result<Bytes, E>>,
        on_error: impl Fn(FramingError) + Send + 'static,
    ) -> BoxStream<'static, Result<Bytes, std::io::Error>>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        let state = Some((self, body, VecDeque::new(), on_error));
        futures::stream::unfold(state, |state| async move {
            let (mut framing, mut body, mut out, on_error) = state?;
            loop {
                if let Some(piece) = out.pop_front() {
                    return Some((Ok(piece), Some((framing, body, out, on_error))));
                }
                let checked = match body.next().await {
                    Some(Ok(piece)) => framing.feed(piece, &mut out),
                    Some(Err(error)) => return Some((Err(std::io::Error::other(error)), None)),
                    None => match framing.end() {
                        Ok(()) => return None,
                        Err(error) => Err(error),
                    },
                };
                if let Err(error) = checked {
                    on_error(error);
                    return Some((Err(std::io::Error::other(error)), None));
                }
            }
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::stream;
    use proptest::prelude::*;

    use super::*;

    /// Runs a body, cut into pieces of `step` bytes, through the framing.
    fn run(signed: bool, declared: Option<u64>, body: &[u8], step: usize) -> Result<Vec<u8>, FramingError> {
        let pieces: Vec<Result<Bytes, std::io::Error>> =
            body.chunks(step.max(1)).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let (told, heard) = std::sync::mpsc::channel();
        let framed = Framing::new(signed, declared).wrap(stream::iter(pieces).boxed(), move |error| {
            told.send(error).unwrap();
        });
        let parts: Vec<_> = block_on(framed.collect());
        match heard.try_recv() {
            Ok(error) => Err(error),
            Err(_) => Ok(parts.into_iter().flat_map(|part| part.unwrap().to_vec()).collect()),
        }
    }

    /// Decodes unsigned framing, as an independent reader would.
    fn decode(mut body: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut payload = Vec::new();
        loop {
            let end = body.windows(2).position(|pair| pair == b"\r\n").unwrap();
            let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
            body = &body[end + 2..];
            if size == 0 {
                return (payload, body.to_vec());
            }
            payload.extend_from_slice(&body[..size]);
            assert_eq!(&body[size..size + 2], b"\r\n");
            body = &body[size + 2..];
        }
    }

    #[test]
    fn signed_chunks_pass_unchanged() {
        let body = b"3;chunk-signature=aa\r\nabc\r\n0;chunk-signature=bb\r\n\r\n";
        for step in 1..body.len() {
            assert_eq!(run(true, Some(3), body, step).unwrap(), body);
        }
    }

    #[test]
    fn a_signed_chunk_that_would_have_to_be_held_is_refused_before_its_payload() {
        let size = MAX_SIGNED_CHUNK_BYTES + 1;
        let head = format!("{size:x};chunk-signature=aa\r\n");
        let error = FramingError::ChunkTooLarge { size, max: MAX_SIGNED_CHUNK_BYTES };
        assert_eq!(run(true, Some(size), head.as_bytes(), 7), Err(error));
    }

    #[test]
    fn more_than_declared_is_refused() {
        assert_eq!(run(false, Some(3), b"4\r\nabcd\r\n0\r\n\r\n", 3), Err(FramingError::TooLong { declared: 3 }));
        let huge = b"ffffffffffffffff\r\n";
        assert_eq!(run(false, Some(3), huge, 99), Err(FramingError::TooLong { declared: 3 }));
    }

    #[test]
    fn malformed_or_cut_framing_is_refused() {
        for body in [&b"x\r\n"[..], b"\r\n", b"-1\r\n", b"1\nab", b"1\r\nabb", b"1fffffffffffffffff\r\n"] {
            assert_eq!(run(false, None, body, 2), Err(FramingError::Malformed), "{body:?}");
        }
        assert_eq!(run(false, None, &[b'1'; 2000], 100), Err(FramingError::Malformed));
        for body in [&b""[..], b"3\r\nab", b"3\r\nabc", b"3\r\nabc\r\n", b"3\r\nabc\r\n0"] {
            assert_eq!(run(false, None, body, 2), Err(FramingError::Incomplete), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn cutting_unsigned_chunks_keeps_payload_and_trailers(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..5),
            step in 1_usize..64,
        ) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                body.extend_from_slice(chunk);
                body.extend_from_slice(b"\r\n");
            }
            let trailers = b"x-amz-checksum-crc32:AAAAAA==\r\n\r\n";
            body.extend_from_slice(b"0\r\n");
            body.extend_from_slice(trailers);
            let framed = run(false, Some(chunks.concat().len() as u64), &body, step).unwrap();
            prop_assert_eq!(decode(&framed), (chunks.concat(), trailers.to_vec()));
        }
    }
}
