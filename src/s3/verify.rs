//! The bytes of an upload against what was announced of them: length, Content-MD5, checksum in header or trailer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream::{StreamExt as _, unfold};
use http::HeaderMap;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::dto::StreamingBlob;
use s3s::{S3ErrorCode, StdError, TrailingHeaders};

use super::failure::Failure;
use crate::model::ErrorKind;
use crate::store::{StoreError, UploadStream};

/// A checksum that S3 knows for whole objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    const ALL: [Self; 5] = [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// Its header and trailer, in lower case.
    fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// Bytes of its value.
    fn len(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    fn named(header: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.header() == header)
    }

    fn hasher(self) -> ChecksumHasher {
        let mut hasher = ChecksumHasher::default();
        match self {
            Self::Crc32 => hasher.crc32 = Some(Crc32::new()),
            Self::Crc32c => hasher.crc32c = Some(Crc32c::new()),
            Self::Crc64Nvme => hasher.crc64nvme = Some(Crc64Nvme::new()),
            Self::Sha1 => hasher.sha1 = Some(Sha1::new()),
            Self::Sha256 => hasher.sha256 = Some(Sha256::new()),
        }
        hasher
    }

    /// The value in base64, as headers carry it.
    fn value(self, hasher: ChecksumHasher) -> Option<String> {
        let sums = hasher.finalize();
        match self {
            Self::Crc32 => sums.checksum_crc32,
            Self::Crc32c => sums.checksum_crc32c,
            Self::Crc64Nvme => sums.checksum_crc64nvme,
            Self::Sha1 => sums.checksum_sha1,
            Self::Sha256 => sums.checksum_sha256,
        }
    }
}

/// Where the expected checksum stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Expected {
    Header(String),
    Trailer,
}

/// What an upload announced of itself.
#[derive(Debug)]
pub(super) struct Checks {
    length: u64,
    content_md5: Option<[u8; 16]>,
    checksum: Option<(Algorithm, Expected)>,
    trailers: Option<TrailingHeaders>,
}

impl Checks {
    /// Reads the announcements. `trailers` is where s3s will leave the trailers of the body.
    pub(super) fn of(headers: &HeaderMap, length: u64, trailers: Option<TrailingHeaders>) -> Result<Self, Failure> {
        let content_md5 = match headers.get("content-md5") {
            None => None,
            Some(value) => Some(digest(value.as_bytes()).ok_or_else(|| {
                Failure::code(S3ErrorCode::InvalidDigest, "Content-MD5 is not the base64 of 16 bytes")
            })?),
        };
        let mut found: Vec<(Algorithm, Expected)> = Vec::new();
        for (name, value) in headers {
            let name = name.as_str();
            if !name.starts_with("x-amz-checksum-")
                || name == "x-amz-checksum-type"
                || name == "x-amz-checksum-algorithm"
            {
                continue;
            }
            let algorithm = Algorithm::named(name).ok_or_else(|| unknown(name))?;
            let value = value.to_str().unwrap_or_default().trim();
            check_form(algorithm, value)?;
            found.push((algorithm, Expected::Header(value.to_owned())));
        }
        for value in headers.get_all("x-amz-trailer") {
            for name in value.to_str().unwrap_or_default().split(',').map(|name| name.trim().to_ascii_lowercase()) {
                match Algorithm::named(&name) {
                    Some(algorithm) => found.push((algorithm, Expected::Trailer)),
                    None if name.starts_with("x-amz-checksum-") => return Err(unknown(&name)),
                    None => {}
                }
            }
        }
        if found.len() > 1 {
            return Err(invalid("only one x-amz-checksum-… header or trailer is allowed"));
        }
        if found.is_empty() && headers.contains_key("x-amz-sdk-checksum-algorithm") {
            return Err(invalid("x-amz-sdk-checksum-algorithm is given without a checksum"));
        }
        Ok(Self { length, content_md5, checksum: found.pop(), trailers })
    }

    /// Content-MD5, decoded.
    pub(super) fn content_md5(&self) -> Option<[u8; 16]> {
        self.content_md5
    }

    /// A body for a store that fails instead of ending when anything does not agree, and where the reason is found.
    ///
    /// An empty body is verified here and now: a store need not look at it.
    pub(super) async fn wrap(self, body: Option<StreamingBlob>, key: &str) -> Result<(UploadStream, Verdict), Failure> {
        let verdict = Verdict::default();
        let empty = self.length == 0;
        let body = body.unwrap_or_else(|| StreamingBlob::from(s3s::Body::empty()));
        let mut verified = Verifying::new(self, body, key, verdict.clone()).into_stream();
        if !empty {
            return Ok((verified, verdict));
        }
        while let Some(piece) = verified.next().await {
            if let Err(error) = piece {
                return Err(verdict.failure().unwrap_or_else(|| error.into()));
            }
        }
        Ok((futures::stream::empty().boxed(), verdict))
    }
}

/// What came of the verification, known once the body has ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Verdict(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    failure: Option<Failure>,
    checksum: Option<(Algorithm, String)>,
}

impl Verdict {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the body was refused.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.lock().failure.clone()
    }

    /// The checksum that was verified, in base64.
    pub(super) fn checksum(&self) -> Option<(Algorithm, String)> {
        self.lock().checksum.clone()
    }
}

/// A body on its way to a store.
struct Verifying {
    body: StreamingBlob,
    key: String,
    length: u64,
    seen: u64,
    md5: Option<(Md5, [u8; 16])>,
    checksum: Option<(Algorithm, ChecksumHasher, Expected)>,
    trailers: Option<TrailingHeaders>,
    held: Option<Bytes>,
    verdict: Verdict,
}

impl Verifying {
    fn new(checks: Checks, body: StreamingBlob, key: &str, verdict: Verdict) -> Self {
        Self {
            body,
            key: key.to_owned(),
            length: checks.length,
            seen: 0,
            md5: checks.content_md5.map(|expected| (Md5::new(), expected)),
            checksum: checks.checksum.map(|(algorithm, expected)| (algorithm, algorithm.hasher(), expected)),
            trailers: checks.trailers,
            held: None,
            verdict,
        }
    }

    fn into_stream(self) -> UploadStream {
        unfold(Some(self), |state| async move {
            let mut this = state?;
            loop {
                let checked = match this.body.next().await {
                    Some(Ok(piece)) => this.take(&piece).map(|()| Some(piece)),
                    Some(Err(error)) => Err(body_failure(&error)),
                    None => this.finish().map(|()| None),
                };
                match checked {
                    Ok(Some(piece)) if piece.is_empty() => {}
                    Ok(Some(piece)) => {
                        if let Some(before) = this.held.replace(piece) {
                            return Some((Ok(before), Some(this)));
                        }
                    }
                    Ok(None) => return this.held.take().map(|last| (Ok(last), None)),
                    Err(failure) => {
                        let error =
                            StoreError::RequestBody { reason: format!("the upload of `{}` was refused", this.key) };
                        this.verdict.lock().failure = Some(failure);
                        return Some((Err(error), None));
                    }
                }
            }
        })
        .boxed()
    }

    fn take(&mut self, piece: &Bytes) -> Result<(), Failure> {
        self.seen += piece.len() as u64;
        if self.seen > self.length {
            return Err(invalid(format!("the body holds more than the {} bytes announced", self.length)));
        }
        if let Some((md5, _)) = &mut self.md5 {
            md5.update(piece);
        }
        if let Some((_, hasher, _)) = &mut self.checksum {
            hasher.update(piece);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        if self.seen < self.length {
            let message = format!("the body ended after {} of {} bytes", self.seen, self.length);
            return Err(Failure::code(S3ErrorCode::IncompleteBody, message));
        }
        if let Some((md5, expected)) = self.md5.take()
            && AsRef::<[u8]>::as_ref(&md5.finalize()) != expected.as_slice()
        {
            return Err(Failure::kind(ErrorKind::BadDigest, "Content-MD5 does not match the body"));
        }
        let Some((algorithm, hasher, expected)) = self.checksum.take() else { return Ok(()) };
        let expected = match expected {
            Expected::Header(value) => value,
            Expected::Trailer => self.trailer(algorithm)?,
        };
        let value = algorithm.value(hasher).unwrap_or_default();
        if STANDARD.decode(&value).ok() != STANDARD.decode(&expected).ok() {
            let message = format!("{} does not match the body", algorithm.header());
            return Err(Failure::kind(ErrorKind::BadDigest, message));
        }
        self.verdict.lock().checksum = Some((algorithm, value));
        Ok(())
    }

    /// The value of a trailer that was announced.
    fn trailer(&self, algorithm: Algorithm) -> Result<String, Failure> {
        let name = algorithm.header();
        let read = |trailers: &HeaderMap| {
            let mut values = trailers.get_all(name).iter();
            let value = values.next().and_then(|value| value.to_str().ok()).map(|value| value.trim().to_owned());
            value.filter(|_| values.next().is_none())
        };
        let value = self.trailers.as_ref().and_then(|trailers| trailers.read(read)).flatten();
        let value = value.ok_or_else(|| invalid(format!("the announced trailer {name} is missing")))?;
        check_form(algorithm, &value)?;
        Ok(value)
    }
}

/// s3s tells what is wrong with a body only in words; tests hold it to these.
fn body_failure(error: &StdError) -> Failure {
    let words = error.to_string();
    let says = |word: &str| words.contains(word);
    if says("Sha256Mismatch") {
        Failure::code(
            S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into()),
            "x-amz-content-sha256 does not match the body",
        )
    } else if says("SignatureMismatch") {
        Failure::code(S3ErrorCode::SignatureDoesNotMatch, "the signature of a chunk or trailer does not match")
    } else if says("FormatError") || says("TooLarge") || says("TooMany") {
        invalid("the aws-chunked framing is malformed")
    } else if says("LengthMismatch") {
        invalid("the body is longer than announced")
    } else {
        Failure::code(S3ErrorCode::IncompleteBody, "the body ended early")
    }
}

fn check_form(algorithm: Algorithm, value: &str) -> Result<(), Failure> {
    match STANDARD.decode(value) {
        Ok(bytes) if bytes.len() == algorithm.len() => Ok(()),
        Ok(_) | Err(_) => {
            Err(invalid(format!("{} is not the base64 of {} bytes", algorithm.header(), algorithm.len())))
        }
    }
}

fn digest<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    STANDARD.decode(value.trim_ascii()).ok()?.try_into().ok()
}

fn unknown(name: &str) -> Failure {
    Failure::not_implemented(format!("the checksum {name} is not implemented by this gateway"))
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
    Failure::kind(ErrorKind::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    use s3s::S3Error;

    use super::*;

    /// `pieces` come as the body of an upload with these headers. The answer: the bytes that a store would get, or
    /// the code of the refusal and how many bytes the store got before.
    async fn run(headers: &[(&'static str, &str)], length: u64, pieces: &[&'static str]) -> Result<String, String> {
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let code = |failure: Failure| S3Error::from(failure).code().as_str().to_owned();
        let checks = Checks::of(&headers, length, None).map_err(code)?;
        let pieces: Vec<Result<Bytes, std::io::Error>> = pieces.iter().map(|piece| Ok(Bytes::from(*piece))).collect();
        let body = StreamingBlob::wrap(futures::stream::iter(pieces));
        let (body, verdict) = checks.wrap(Some(body), "k").await.map_err(code)?;
        let got: Vec<_> = body.collect().await;
        let text: String = got.iter().flatten().map(|piece| std::str::from_utf8(piece).unwrap().to_owned()).collect();
        if got.iter().any(Result::is_err) {
            return Err(format!("{} after `{text}`", code(verdict.failure().unwrap())));
        }
        Ok(text)
    }

    #[tokio::test]
    async fn a_body_that_agrees_passes_unchanged() {
        let sums: [(&str, &str); 6] = [
            ("content-md5", "XUFAKrxLKna5cZ2REBfFkg=="),
            ("x-amz-checksum-crc32", "NhCmhg=="),
            ("x-amz-checksum-crc32c", "mnG7TA=="),
            ("x-amz-checksum-crc64nvme", "M3eFcAZSQlc="),
            ("x-amz-checksum-sha1", "qvTGHdzF6KLavt4PO0gs2a6pQ00="),
            ("x-amz-checksum-sha256", "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="),
        ];
        for (name, value) in sums {
            assert_eq!(run(&[(name, value)], 5, &["he", "", "llo"]).await.unwrap(), "hello", "{name}");
        }
        assert_eq!(run(&[], 5, &["hello"]).await.unwrap(), "hello");
        assert_eq!(run(&[], 0, &[]).await.unwrap(), "");
    }

    #[tokio::test]
    async fn the_last_piece_is_kept_back_until_everything_agrees() {
        let wrong = ("x-amz-checksum-crc32", "AAAAAA==");
        assert_eq!(run(&[wrong], 5, &["he", "llo"]).await.unwrap_err(), "BadDigest after `he`");
        let md5 = ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==");
        assert_eq!(run(&[md5], 5, &["hello"]).await.unwrap_err(), "BadDigest after ``");
        assert_eq!(run(&[], 6, &["he", "llo"]).await.unwrap_err(), "IncompleteBody after `he`");
        assert_eq!(run(&[], 4, &["he", "llo"]).await.unwrap_err(), "InvalidRequest after ``");
    }

    #[tokio::test]
    async fn an_empty_body_is_verified_before_the_store_is_asked() {
        let wrong = ("x-amz-checksum-crc32", "AAAAAQ==");
        assert_eq!(run(&[wrong], 0, &[]).await.unwrap_err(), "BadDigest");
        assert_eq!(run(&[("x-amz-checksum-crc32", "AAAAAA==")], 0, &[]).await.unwrap(), "");
    }

    #[tokio::test]
    async fn announcements_that_cannot_be_verified_are_refused() {
        let refused = async |headers: &[(&'static str, &str)]| run(headers, 5, &["hello"]).await.unwrap_err();
        assert_eq!(refused(&[("content-md5", "short")]).await, "InvalidDigest");
        assert_eq!(refused(&[("x-amz-checksum-crc32", "NhCm")]).await, "InvalidRequest");
        assert_eq!(refused(&[("x-amz-checksum-xxhash3", "NhCmhg==")]).await, "NotImplemented");
        assert_eq!(refused(&[("x-amz-trailer", "x-amz-checksum-md5")]).await, "NotImplemented");
        assert_eq!(refused(&[("x-amz-sdk-checksum-algorithm", "CRC32")]).await, "InvalidRequest");
        let two = [("x-amz-checksum-crc32", "NhCmhg=="), ("x-amz-trailer", "x-amz-checksum-sha1")];
        assert_eq!(refused(&two).await, "InvalidRequest");
        // Announced, but the body came without trailers.
        assert_eq!(refused(&[("x-amz-trailer", "x-amz-checksum-crc32")]).await, "InvalidRequest after ``");
    }
}
