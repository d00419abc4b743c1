//! What can be wrong with a request before any data is looked at, or against an array's shape.

use crate::model::{Details, ErrorKind, Fault};

/// Why a request's parameters cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// A name that no parameter has.
    #[error("unknown parameter `{name}`{}", nearest.as_ref().map(|n| format!("; did you mean `{n}`?")).unwrap_or_default())]
    UnknownParameter {
        /// The name as sent.
        name: String,
        /// The nearest known name, if one is near.
        nearest: Option<String>,
    },
    /// A parameter that may stand once stands twice, or in two spellings.
    #[error("parameter `{name}` is given more than once")]
    Repeated {
        /// The plain name.
        name: String,
    },
    /// An S3 parameter that cannot be combined with a slice.
    #[error("`{name}` cannot be combined with slice parameters")]
    NotWithSlice {
        /// The name as sent.
        name: String,
    },
    /// A value outside a parameter's domain.
    #[error("{parameter}: {reason}")]
    InvalidValue {
        /// The plain name.
        parameter: String,
        /// What is wrong, with the value.
        reason: String,
        /// What would be valid.
        valid: Option<String>,
    },
    /// A parameter whose feature is not built.
    #[error("`{name}` is reserved and not implemented yet")]
    Reserved {
        /// The plain name.
        name: String,
    },
    /// Text that does not follow the selection grammar.
    #[error("{parameter}: {reason} at position {position}")]
    Grammar {
        /// `slice` or `isel`.
        parameter: &'static str,
        /// What was expected, or found.
        reason: String,
        /// Byte offset in the value.
        position: usize,
    },
    /// An operator that the language has and this gateway has not.
    #[error("{parameter}: {operator} at position {position} is not implemented")]
    Unsupported {
        /// `filter`.
        parameter: &'static str,
        /// The operator.
        operator: String,
        /// Byte offset in the value.
        position: usize,
    },
    /// Text with two readings.
    #[error("{parameter}: `{text}` can be read in two ways; write `{first}` or `{second}`")]
    Ambiguous {
        /// `slice`.
        parameter: &'static str,
        /// The text as sent.
        text: String,
        /// One reading: indices, one a dimension.
        first: String,
        /// The other: a list for one dimension.
        second: String,
    },
    /// More dimensions selected than the array has.
    #[error("slice selects {selected} dimensions of an array that has {rank}")]
    TooManyDimensions {
        /// Dimensions in the text.
        selected: usize,
        /// Dimensions of the array.
        rank: usize,
    },
    /// A parameter names a dimension that the array lacks, or has twice.
    #[error("{parameter}: {reason}")]
    UnknownDimension {
        /// `isel`, `subset` and such.
        parameter: &'static str,
        /// The name as sent.
        name: String,
        /// What is wrong, with the names there are.
        reason: String,
        /// The names there are.
        valid: String,
    },
    /// One dimension is selected by two parameters.
    #[error("dimension `{dimension}` is selected twice, by {first} and by {second}")]
    ConstrainedTwice {
        /// The dimension.
        dimension: String,
        /// The first parameter.
        first: String,
        /// The second.
        second: String,
    },
    /// An index, a list entry or a bound outside its axis.
    #[error("{parameter}: {index} is outside dimension `{dimension}` of length {len}")]
    OutOfRange {
        /// `slice` or `isel`.
        parameter: &'static str,
        /// The number as sent.
        index: i64,
        /// The dimension.
        dimension: String,
        /// Its length.
        len: u64,
    },
    /// The answer has another shape than the client expects.
    #[error("the answer's shape is {actual}, expected {expected}")]
    ShapeMismatch {
        /// The shape of the answer, as JSON.
        actual: String,
        /// `expect_shape` as sent.
        expected: String,
    },
    /// A selection whose size does not fit arithmetic.
    #[error("the selection has more than 2^63 positions")]
    TooManyPositions,
}

impl Fault for QueryError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownParameter { .. }
            | Self::Repeated { .. }
            | Self::NotWithSlice { .. }
            | Self::InvalidValue { .. } => ErrorKind::InvalidParameter,
            Self::Reserved { .. } | Self::Unsupported { .. } => ErrorKind::NotImplemented,
            Self::Grammar { .. }
            | Self::TooManyDimensions { .. }
            | Self::UnknownDimension { .. }
            | Self::ConstrainedTwice { .. } => ErrorKind::InvalidSelection,
            Self::Ambiguous { .. } => ErrorKind::AmbiguousSelection,
            Self::OutOfRange { .. } => ErrorKind::IndexOutOfRange,
            Self::ShapeMismatch { .. } => ErrorKind::ShapeMismatch,
            Self::TooManyPositions => ErrorKind::SliceTooLarge,
        }
    }

    fn details(&self) -> Details {
        let parameter = |name: &str| Details { parameter: Some(name.to_owned()), ..Details::default() };
        match self {
            Self::UnknownParameter { name, nearest } => Details { valid: nearest.clone(), ..parameter(name) },
            Self::Repeated { name } | Self::NotWithSlice { name } | Self::Reserved { name } => parameter(name),
            Self::InvalidValue { parameter: name, valid, .. } => Details { valid: valid.clone(), ..parameter(name) },
            Self::Grammar { parameter: name, position, .. } | Self::Unsupported { parameter: name, position, .. } => {
                Details { position: Some(*position), ..parameter(name) }
            }
            Self::Ambiguous { parameter: name, first, second, .. } => {
                Details { valid: Some(format!("{first} or {second}")), ..parameter(name) }
            }
            Self::TooManyDimensions { rank, .. } => {
                Details { valid: Some(format!("at most {rank} dimensions")), ..parameter("slice") }
            }
            Self::UnknownDimension { parameter: of, name, valid, .. } => {
                Details { dimension: Some(name.clone()), valid: Some(valid.clone()), ..parameter(of) }
            }
            Self::ConstrainedTwice { dimension, second, .. } => {
                Details { dimension: Some(dimension.clone()), ..parameter(second) }
            }
            Self::OutOfRange { parameter: name, dimension, len, .. } => {
                Details { dimension: Some(dimension.clone()), valid: Some(format!("-{len}..{len}")), ..parameter(name) }
            }
            Self::ShapeMismatch { actual, .. } => Details { valid: Some(actual.clone()), ..parameter("expect_shape") },
            Self::TooManyPositions => parameter("slice"),
        }
    }
}
