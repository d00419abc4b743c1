//! The body of an upload, read in parts and checked against what was announced.

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use md5::{Digest, Md5};

use super::{PutOptions, StoreError, UploadStream};

/// Reads a body part by part; counts and hashes it on the way.
pub(super) struct UploadBody {
    key: String,
    body: UploadStream,
    left: Bytes,
    finished: bool,
    received: u64,
    expected: Option<u64>,
    expected_md5: Option<[u8; 16]>,
    digest: Md5,
}

impl UploadBody {
    pub(super) fn new(key: &str, body: UploadStream, options: &PutOptions) -> Self {
        Self {
            key: key.into(),
            body,
            left: Bytes::new(),
            finished: false,
            received: 0,
            expected: options.content_length,
            expected_md5: options.content_md5,
            digest: Md5::new(),
        }
    }

    /// The next `part_bytes`; fewer only at the end of the body.
    pub(super) async fn read(&mut self, part_bytes: u64) -> Result<Bytes, StoreError> {
        let part_bytes = usize::try_from(part_bytes).unwrap_or(usize::MAX);
        let mut part = BytesMut::new();
        loop {
            let wanted = part_bytes - part.len();
            part.extend_from_slice(&self.left.split_to(wanted.min(self.left.len())));
            // Looks one piece beyond a full part, to know whether the body has ended.
            if self.finished || !self.left.is_empty() {
                return Ok(part.freeze());
            }
            match self.body.next().await {
                Some(piece) => self.take(piece?)?,
                None => self.finished = true,
            }
        }
    }

    /// Whether everything was read.
    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Checks a body that was read to its end, and returns its length.
    ///
    /// # Errors
    /// [`StoreError::BadDigest`] when its length or MD5 is not the announced one.
    pub(super) fn check(&self) -> Result<u64, StoreError> {
        if let Some(expected) = self.expected.filter(|expected| *expected != self.received) {
            return Err(self.bad(format!("{} bytes arrived, {expected} were announced", self.received)));
        }
        match self.expected_md5 {
            Some(expected) if self.digest.clone().finalize()[..] != expected => {
                Err(self.bad("the bytes do not have the announced Content-MD5".into()))
            }
            Some(_) | None => Ok(self.received),
        }
    }

    fn take(&mut self, piece: Bytes) -> Result<(), StoreError> {
        self.received = self.received.saturating_add(piece.len() as u64);
        if let Some(expected) = self.expected.filter(|expected| self.received > *expected) {
            return Err(self.bad(format!("more than the announced {expected} bytes arrived")));
        }
        self.digest.update(&piece);
        self.left = piece;
        Ok(())
    }

    fn bad(&self, reason: String) -> StoreError {
        StoreError::BadDigest { key: self.key.clone(), reason }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    #[tokio::test]
    async fn parts_are_full_until_the_last() {
        let pieces = ["abc", "defg", "", "hij"].map(|piece| Ok(Bytes::from_static(piece.as_bytes())));
        let options = PutOptions { content_length: Some(10), ..PutOptions::default() };
        let mut body = UploadBody::new("k", stream::iter(pieces).boxed(), &options);
        let mut parts = Vec::new();
        while !body.is_finished() {
            parts.push(body.read(4).await.unwrap());
        }
        assert_eq!(parts, ["abcd", "efgh", "ij"]);
        assert_eq!(body.check().unwrap(), 10);
    }

    #[tokio::test]
    async fn a_body_of_exactly_one_part_is_finished_with_it() {
        let mut body = UploadBody::new("k", stream::iter([Ok("abcd".into())]).boxed(), &PutOptions::default());
        assert_eq!(body.read(4).await.unwrap(), "abcd");
        assert!(body.is_finished());
    }

    #[tokio::test]
    async fn a_length_that_was_not_announced_is_refused() {
        for announced in [3, 5] {
            let options = PutOptions { content_length: Some(announced), ..PutOptions::default() };
            let mut body = UploadBody::new("k", stream::iter([Ok("abcd".into())]).boxed(), &options);
            let result = body.read(100).await.and_then(|_| body.check());
            assert!(matches!(result, Err(StoreError::BadDigest { .. })), "{announced}");
        }
    }
}
