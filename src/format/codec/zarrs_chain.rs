//! Array → bytes codecs that only zarrs has (`packbits` and such). It sees bytes that our own stages have
//! already decompressed within their bounds, and chains that hold no compressor, so no header can make it allocate.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use zarrs::array::codec::CodecChain;
use zarrs::array::codec::api::{ArrayToBytesCodecTraits, CodecOptions};
use zarrs::array::{ArrayBytes, DataType, FillValue};
use zarrs::metadata::v3::MetadataV3;

use super::array_stage::Repr;
use super::error::CodecError;
use crate::model::{ChunkData, DType, FloatKind};

const CODEC: &str = "zarrs";

/// A chain of zarrs with the data type that it decodes to.
#[derive(Clone)]
pub(crate) struct ZarrsChain {
    chain: Arc<CodecChain>,
    dtype: DataType,
    /// The codec's metadata as JSON: names the chain in fingerprints.
    metadata: String,
}

impl std::fmt::Debug for ZarrsChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ZarrsChain({})", self.metadata)
    }
}

impl ZarrsChain {
    /// A chain of the one array → bytes codec that `metadata` describes.
    ///
    /// # Errors
    /// What zarrs says, in words.
    pub(crate) fn new(metadata: &serde_json::Value, dtype: &DType) -> Result<Self, String> {
        let codec: MetadataV3 = serde_json::from_value(metadata.clone()).map_err(|e| e.to_string())?;
        let chain = CodecChain::from_metadata(&[codec]).map_err(|e| e.to_string())?;
        // zarrs has the layout under another name; only its eight bits matter here.
        let name = match dtype {
            DType::Float(FloatKind::Small("float8_e4m3fn")) => "float8_e4m3".to_owned(),
            other => other.name(),
        };
        let dtype = DataType::from_metadata(&MetadataV3::new(name)).map_err(|e| e.to_string())?;
        Ok(Self { chain: Arc::new(chain), dtype, metadata: metadata.to_string() })
    }

    /// Decodes a chunk of `repr`.
    pub(super) fn decode(&self, stored: &[u8], repr: &Repr) -> Result<ChunkData, CodecError> {
        let fail = |reason: String| CodecError::invalid(CODEC, stored.len(), reason);
        let shape: Option<Vec<NonZeroU64>> = repr.shape.iter().map(|&n| NonZeroU64::new(n)).collect();
        let shape = shape.ok_or_else(|| CodecError::Shape { codec: CODEC, shape: repr.shape.clone() })?;
        let fill = FillValue::new(vec![0; repr.dtype.size_bytes().unwrap_or(0)]);
        let options = CodecOptions::default().with_concurrent_target(1);
        // zarrs indexes and unwraps on input that it did not expect; that must stay an error about one chunk.
        let run = || self.chain.decode(Cow::Borrowed(stored), &shape, &self.dtype, &fill, &options);
        let decoded = catch_unwind(AssertUnwindSafe(run))
            .map_err(|_| fail("zarrs panicked".into()))?
            .map_err(|e| fail(e.to_string()))?;
        match decoded {
            ArrayBytes::Fixed(bytes) => Ok(ChunkData::Fixed(bytes.into_owned().into())),
            ArrayBytes::Variable(values) => {
                let (bytes, offsets) = values.into_parts();
                let values: Option<Vec<Box<[u8]>>> =
                    offsets.windows(2).map(|w| bytes.get(w[0]..w[1]).map(Box::from)).collect();
                let values = values.ok_or_else(|| fail("offsets outside the bytes".into()))?;
                if repr.dtype == DType::String && values.iter().any(|value| std::str::from_utf8(value).is_err()) {
                    return Err(fail("text that is not UTF-8".into()));
                }
                Ok(ChunkData::Variable(values))
            }
            ArrayBytes::Optional(_) => Err(fail("optional elements".into())),
        }
    }
}
