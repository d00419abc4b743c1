//! Buckets of an S3 store, through the AWS SDK.
//!
//! One read is one GetObject with Range and If-Match. Every call has a deadline, the SDK's own retries included. An
//! answer is checked before it is believed: version present, range as asked, body as long as announced.

mod answer;
mod connect;
mod direct;
mod error;
mod listing;
mod upload;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};

pub use self::connect::S3Settings;

use self::direct::{Direct, DirectReads};
use self::error::{PutFault, sdk_error};
use self::listing::KeyOrder;
use super::range::resolve;
use super::{
    Buffer, Buffers, Fetched, ListPage, ListRequest, ObjectInfo, ObjectStream, PutOptions, Store, StoreError,
    UploadStream,
};
use crate::model::{ByteRange, Version};

/// Most bytes reserved for a body because a header announced them; a longer one grows as it arrives. Also the largest
/// recycled buffer.
const RESERVE_BYTES: u64 = 64 << 20;

/// Longest wait before a failed read is left to the SDK, a part of it at random: what the SDK waits before its second attempt.
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);

/// For how long a sign that the bucket exists is trusted. A 404 to HEAD does not say what is missing.
const BUCKET_SEEN_FOR: Duration = Duration::from_secs(60);

/// A bucket of an S3 store.
#[derive(Debug)]
pub struct S3Store {
    client: Client,
    /// The same without retries. A client of its own: to override a setting for one call costs more than the call.
    once: Client,
    /// Reads past the SDK's orchestration, where that is possible.
    direct: Option<DirectReads>,
    buffers: Buffers,
    bucket: String,
    timeout: Duration,
    read_timeout: Duration,
    attempts: u32,
    bucket_seen: Mutex<Option<Instant>>,
    order: KeyOrder,
}

/// An answer to a GetObject before its body is read.
type Opened = (answer::Announced, GetObjectOutput);

/// Who sends a failed read again. Never both: three attempts of three attempts would be nine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tries {
    /// The SDK, as often as the settings say.
    OfSdk,
    /// The caller; this is one attempt.
    Once,
}

impl S3Store {
    /// Prepares the client. Makes no request to the bucket; credentials are looked up when first needed.
    pub async fn connect(settings: S3Settings) -> Self {
        let order = KeyOrder::default();
        let connect::Clients { client, once, direct } = connect::clients(&settings, &order).await;
        Self {
            client,
            once,
            direct,
            buffers: Buffers::new(),
            bucket: settings.bucket,
            timeout: settings.timeout,
            read_timeout: settings.read_timeout,
            attempts: settings.attempts.max(1),
            bucket_seen: Mutex::new(None),
            order,
        }
    }

    /// Runs a call within the deadline.
    async fn within<T>(
        &self,
        key: &str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(result) => result,
            Err(_elapsed) => Err(StoreError::Timeout { key: key.into() }),
        }
    }

    fn note_bucket(&self) {
        *self.bucket_seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// A 404 to a HEAD has no body, so it may mean the key or the whole bucket. An absent bucket must not read as an
    /// absent chunk.
    async fn absent(&self, operation: &'static str, key: &str) -> StoreError {
        let seen = *self.bucket_seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_none_or(|seen| seen.elapsed() > BUCKET_SEEN_FOR) {
            match self.client.head_bucket().bucket(&self.bucket).send().await {
                Err(error) if error.raw_response().is_some_and(|response| response.status().as_u16() == 404) => {
                    let reason = format!("the bucket `{}` does not exist at the store", self.bucket);
                    return StoreError::Failed { operation, key: key.into(), reason };
                }
                // Without the right to look at the bucket S3 answers an absent key with 403, not 404.
                Ok(_) | Err(_) => self.note_bucket(),
            }
        }
        StoreError::NotFound { key: key.into() }
    }

    async fn head_now(&self, key: &str) -> Result<ObjectInfo, StoreError> {
        match self.client.head_object().bucket(&self.bucket).key(key).send().await {
            Ok(output) => {
                self.note_bucket();
                answer::head_info(key, &output)
            }
            Err(error) => match sdk_error("describe", key, &error) {
                StoreError::NotFound { key } => Err(self.absent("describe", &key).await),
                other => Err(other),
            },
        }
    }

    /// Sends a GetObject and checks what it announces. `None` where no request can ask for it: the range is empty.
    async fn open(
        &self,
        key: &str,
        range: &ByteRange,
        if_match: Option<&Version>,
        tries: Tries,
    ) -> Result<Option<Opened>, StoreError> {
        let Some(header) = range_header(range) else { return Ok(None) };
        let if_match_header = if_match.map(|version| format!("\"{version}\""));
        let mut left = self.attempts;
        if let Some(direct) = &self.direct {
            match direct.get(&self.client, key, header.as_deref(), if_match_header.as_deref()).await {
                Direct::Found(output) => return self.checked(key, range, if_match, *output).map(Some),
                Direct::Unsure => {}
                Direct::Failed(error) => {
                    left = left.saturating_sub(1);
                    let passing = matches!(
                        error,
                        StoreError::Throttled | StoreError::Timeout { .. } | StoreError::Interrupted { .. }
                    );
                    if !passing || left == 0 || tries == Tries::Once {
                        return self.refused(range, error).await;
                    }
                    tokio::time::sleep(FIRST_BACK_OFF.mul_f64(rand::random())).await;
                }
            }
        }
        let client = match tries {
            Tries::OfSdk => &self.client,
            Tries::Once => &self.once,
        };
        let mut request = client
            .get_object()
            .bucket(&self.bucket)
            .key(key)
            .set_range(header)
            .set_if_match(if_match_header)
            .customize();
        if tries == Tries::OfSdk && left < self.attempts {
            let retries = RetryConfig::standard().with_max_attempts(left);
            request = request.config_override(aws_sdk_s3::config::Builder::default().retry_config(retries));
        }
        match request.send().await {
            Ok(output) => self.checked(key, range, if_match, output).map(Some),
            Err(error) => self.refused(range, sdk_error("read", key, &error)).await,
        }
    }

    /// An answer to a GetObject, if it is one to what was asked.
    fn checked(
        &self,
        key: &str,
        range: &ByteRange,
        if_match: Option<&Version>,
        output: GetObjectOutput,
    ) -> Result<Opened, StoreError> {
        self.note_bucket();
        let announced = answer::announced(key, range, &output)?;
        if if_match.is_some_and(|expected| *expected != announced.info.version) {
            return Err(StoreError::Changed { key: key.into() });
        }
        Ok((announced, output))
    }

    /// What a refused GetObject means for a range.
    async fn refused(&self, range: &ByteRange, error: StoreError) -> Result<Option<Opened>, StoreError> {
        match error {
            StoreError::RangeNotSatisfiable { .. } if matches!(range, ByteRange::Suffix(_)) => Ok(None),
            // Some stores do not tell the size with the refusal.
            StoreError::RangeNotSatisfiable { key, size: 0 } => {
                let size = self.head_now(&key).await?.size;
                Err(StoreError::RangeNotSatisfiable { key, size })
            }
            other => Err(other),
        }
    }

    async fn get_with(
        &self,
        key: &str,
        range: ByteRange,
        if_match: Option<&Version>,
        tries: Tries,
    ) -> Result<Fetched, StoreError> {
        let call = async {
            let Some((announced, output)) = self.open(key, &range, if_match, tries).await? else {
                let (info, start) = self.empty(key, &range, if_match).await?;
                return Ok(Fetched { info, start, bytes: Bytes::new() });
            };
            let bytes = read_body(key, announced.len, output, &self.buffers).await?;
            Ok(Fetched { info: announced.info, start: announced.start, bytes })
        };
        self.within(key, call).await
    }

    /// An empty part of an object: nothing to ask for but the object's description.
    async fn empty(
        &self,
        key: &str,
        range: &ByteRange,
        if_match: Option<&Version>,
    ) -> Result<(ObjectInfo, u64), StoreError> {
        let info = self.head_now(key).await?;
        if if_match.is_some_and(|expected| *expected != info.version) {
            return Err(StoreError::Changed { key: key.into() });
        }
        match resolve(range, info.size) {
            Some(range) if range.is_empty() => Ok((info, range.start)),
            // The object had no bytes when it was asked for them, and has some now.
            Some(_) => Err(StoreError::Changed { key: key.into() }),
            None => Err(StoreError::RangeNotSatisfiable { key: key.into(), size: info.size }),
        }
    }
}

#[async_trait::async_trait]
impl Store for S3Store {
    async fn head(&self, key: &str) -> Result<ObjectInfo, StoreError> {
        self.within(key, self.head_now(key)).await
    }

    async fn get(&self, key: &str, range: ByteRange, if_match: Option<&Version>) -> Result<Fetched, StoreError> {
        self.get_with(key, range, if_match, Tries::OfSdk).await
    }

    async fn get_once(&self, key: &str, range: ByteRange, if_match: Option<&Version>) -> Result<Fetched, StoreError> {
        self.get_with(key, range, if_match, Tries::Once).await
    }

    async fn stream(
        &self,
        key: &str,
        range: ByteRange,
        if_match: Option<&Version>,
    ) -> Result<ObjectStream, StoreError> {
        let opened = self.within(key, self.open(key, &range, if_match, Tries::OfSdk)).await?;
        let Some((announced, output)) = opened else {
            let (info, start) = self.within(key, self.empty(key, &range, if_match)).await?;
            return Ok(ObjectStream { info, start, len: 0, body: stream::empty().boxed() });
        };
        let body = pieces(key.to_owned(), announced.len, output, self.read_timeout).boxed();
        Ok(ObjectStream { info: announced.info, start: announced.start, len: announced.len, body })
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, StoreError> {
        self.within(&request.prefix, listing::list(self, request)).await
    }

    async fn put(&self, key: &str, body: UploadStream, options: PutOptions) -> Result<ObjectInfo, StoreError> {
        upload::put(self, key, body, options).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let call = async {
            match self.client.delete_object().bucket(&self.bucket).key(key).send().await {
                Ok(_) => Ok(()),
                Err(error) => match sdk_error("delete", key, &error) {
                    StoreError::NotFound { .. } => Ok(()),
                    other => Err(other),
                },
            }
        };
        self.within(key, call).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        let call = async {
            match self.client.head_bucket().bucket(&self.bucket).send().await {
                Ok(_) => {
                    self.note_bucket();
                    Ok(())
                }
                Err(error) => Err(match sdk_error("find", &self.bucket, &error) {
                    StoreError::NotFound { key } => StoreError::Failed {
                        operation: "find",
                        key,
                        reason: "the bucket does not exist at the store".into(),
                    },
                    other => other,
                }),
            }
        };
        self.within(&self.bucket, call).await
    }
}

/// The `Range` header of a read: `Some(None)` for the whole object, `None` when no header can ask for it.
fn range_header(range: &ByteRange) -> Option<Option<String>> {
    match range {
        ByteRange::Whole => Some(None),
        ByteRange::From(start) => Some(Some(format!("bytes={start}-"))),
        ByteRange::Suffix(0) => None,
        ByteRange::Suffix(length) => Some(Some(format!("bytes=-{length}"))),
        ByteRange::Bounded(range) if range.is_empty() => None,
        ByteRange::Bounded(range) => Some(Some(format!("bytes={}-{}", range.start, range.end - 1))),
    }
}

/// Reads a body of a known length, no byte more and none less.
async fn read_body(key: &str, len: u64, mut output: GetObjectOutput, buffers: &Buffers) -> Result<Bytes, StoreError> {
    let mut body = match usize::try_from(len) {
        // Not reserved on the word of a header alone.
        Ok(len) if len as u64 <= RESERVE_BYTES => Gathering::Known { buffer: buffers.take(len), got: 0 },
        Ok(_) | Err(_) => Gathering::Growing(BytesMut::new()),
    };
    loop {
        match output.body.try_next().await {
            Ok(Some(piece)) if body.len().saturating_add(piece.len() as u64) > len => return Err(too_long(key, len)),
            Ok(Some(piece)) => body.push(&piece),
            Ok(None) if body.len() == len => return Ok(body.freeze()),
            Ok(None) => return Err(StoreError::Truncated { key: key.into(), got: body.len(), expected: len }),
            Err(error) => return Err(error::body_error(key, body.len(), len, &error)),
        }
    }
}

/// A body as far as it has come.
enum Gathering {
    Known { buffer: Buffer, got: usize },
    Growing(BytesMut),
}

impl Gathering {
    fn len(&self) -> u64 {
        match self {
            Self::Known { got, .. } => *got as u64,
            Self::Growing(bytes) => bytes.len() as u64,
        }
    }

    fn push(&mut self, piece: &[u8]) {
        match self {
            Self::Known { buffer, got } => {
                buffer[*got..*got + piece.len()].copy_from_slice(piece);
                *got += piece.len();
            }
            Self::Growing(bytes) => bytes.extend_from_slice(piece),
        }
    }

    fn freeze(self) -> Bytes {
        match self {
            Self::Known { buffer, got } => buffer.freeze(got),
            Self::Growing(bytes) => bytes.freeze(),
        }
    }
}

struct Reading {
    key: String,
    output: GetObjectOutput,
    read_timeout: Duration,
    got: u64,
    len: u64,
    failed: bool,
}

/// A body of a known length in pieces, as they arrive: the first is on its way to the client before the second is here.
/// Ends with an error unless every byte came.
fn pieces(
    key: String,
    len: u64,
    output: GetObjectOutput,
    read_timeout: Duration,
) -> impl stream::Stream<Item = Result<Bytes, StoreError>> + Send {
    let reading = Reading { key, output, read_timeout, got: 0, len, failed: false };
    stream::unfold(reading, |mut reading| async move {
        if reading.failed || reading.got == reading.len {
            return None;
        }
        let piece = reading.next().await;
        reading.failed = piece.is_err();
        Some((piece, reading))
    })
}

impl Reading {
    async fn next(&mut self) -> Result<Bytes, StoreError> {
        match tokio::time::timeout(self.read_timeout, self.output.body.try_next()).await {
            Ok(Ok(Some(bytes))) => {
                self.got = self.got.saturating_add(bytes.len() as u64);
                if self.got > self.len { Err(too_long(&self.key, self.len)) } else { Ok(bytes) }
            }
            Ok(Ok(None)) => Err(StoreError::Truncated { key: self.key.clone(), got: self.got, expected: self.len }),
            Ok(Err(error)) => Err(error::body_error(&self.key, self.got, self.len, &error)),
            Err(_elapsed) => Err(StoreError::Timeout { key: self.key.clone() }),
        }
    }
}

fn too_long(key: &str, len: u64) -> StoreError {
    StoreError::Failed { operation: "read", key: key.into(), reason: format!("the body is longer than {len} bytes") }
}
