//! What can go wrong, as the field's clients are told it: one name per kind.

/// The kind of a failure. `http::error` holds the only table from a kind to a status; the name is the S3 error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The selection does not follow the grammar.
    InvalidSelection,
    /// The selection can be read in two ways.
    AmbiguousSelection,
    /// Values are stored otherwise than they are meant, and the request does not say which it is about.
    AmbiguousValues,
    /// A parameter is unknown, repeated, misplaced or malformed.
    InvalidParameter,
    /// An integer, a list entry or (with `oob=error`) a bound lies outside its axis.
    IndexOutOfRange,
    /// The answer, or the number of chunks it touches, exceeds a limit.
    SliceTooLarge,
    /// The path holds a group, or a file with several arrays, where one array was needed.
    NotAnArray,
    /// The request's headers or URL are malformed.
    InvalidRequest,
    /// No right to do this.
    AccessDenied,
    /// No such bucket.
    NoSuchBucket,
    /// Nothing is stored there.
    NoSuchKey,
    /// Coordinates lie wholly outside the data.
    NoDataInRange,
    /// The format cannot hold this tensor.
    FormatNotPossible,
    /// A source object changed between planning and reading, twice.
    ArrayChanged,
    /// `If-Match` or `If-Unmodified-Since` does not hold.
    PreconditionFailed,
    /// `expect_shape` does not hold.
    ShapeMismatch,
    /// The byte range lies outside the answer.
    InvalidRange,
    /// Stored bytes contradict their checksum, their index or their metadata.
    CorruptData,
    /// A fault of the gateway itself.
    Internal,
    /// A feature that is reserved, or that the data's format has and the gateway has not.
    NotImplemented,
    /// A codec that the gateway does not know.
    UnsupportedCodec,
    /// An element type that the gateway does not know.
    UnsupportedDtype,
    /// The store refused the gateway's own credential.
    UpstreamDenied,
    /// The store failed or answered nonsense.
    UpstreamError,
    /// Overload here or at the store: try again later.
    SlowDown,
    /// The store did not answer in time.
    UpstreamTimeout,
    /// The client took too long to send its request.
    RequestTimeout,
    /// The method is not allowed on this resource.
    MethodNotAllowed,
    /// An object key that this bucket cannot hold.
    InvalidKey,
    /// An upload's bytes contradict its declared length or checksum.
    BadDigest,
}

impl ErrorKind {
    /// Every kind, in the order of the table in the OpenAPI document.
    pub const ALL: &'static [ErrorKind] = &[
        Self::InvalidSelection,
        Self::AmbiguousSelection,
        Self::AmbiguousValues,
        Self::InvalidParameter,
        Self::IndexOutOfRange,
        Self::SliceTooLarge,
        Self::NotAnArray,
        Self::InvalidRequest,
        Self::AccessDenied,
        Self::NoSuchBucket,
        Self::NoSuchKey,
        Self::NoDataInRange,
        Self::FormatNotPossible,
        Self::ArrayChanged,
        Self::PreconditionFailed,
        Self::ShapeMismatch,
        Self::InvalidRange,
        Self::CorruptData,
        Self::Internal,
        Self::NotImplemented,
        Self::UnsupportedCodec,
        Self::UnsupportedDtype,
        Self::UpstreamDenied,
        Self::UpstreamError,
        Self::SlowDown,
        Self::UpstreamTimeout,
        Self::RequestTimeout,
        Self::MethodNotAllowed,
        Self::InvalidKey,
        Self::BadDigest,
    ];

    /// The code that clients see, in XML and in problem+json alike.
    pub fn code(self) -> &'static str {
        match self {
            Self::InvalidSelection => "InvalidSelection",
            Self::AmbiguousSelection => "AmbiguousSelection",
            Self::AmbiguousValues => "AmbiguousValues",
            Self::InvalidParameter => "InvalidParameter",
            Self::IndexOutOfRange => "IndexOutOfRange",
            Self::SliceTooLarge => "SliceTooLarge",
            Self::NotAnArray => "NotAnArray",
            Self::InvalidRequest => "InvalidRequest",
            Self::AccessDenied => "AccessDenied",
            Self::NoSuchBucket => "NoSuchBucket",
            Self::NoSuchKey => "NoSuchKey",
            Self::NoDataInRange => "NoDataInRange",
            Self::FormatNotPossible => "FormatNotPossible",
            Self::ArrayChanged => "ArrayChanged",
            Self::PreconditionFailed => "PreconditionFailed",
            Self::ShapeMismatch => "ShapeMismatch",
            Self::InvalidRange => "InvalidRange",
            Self::CorruptData => "CorruptData",
            Self::Internal => "InternalError",
            Self::NotImplemented => "NotImplemented",
            Self::UnsupportedCodec => "UnsupportedCodec",
            Self::UnsupportedDtype => "UnsupportedDtype",
            Self::UpstreamDenied => "UpstreamDenied",
            Self::UpstreamError => "UpstreamError",
            Self::SlowDown => "SlowDown",
            Self::UpstreamTimeout => "UpstreamTimeout",
            Self::RequestTimeout => "RequestTimeout",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::InvalidKey => "InvalidArgument",
            Self::BadDigest => "BadDigest",
        }
    }
}

/// Where in the request a failure lies, as far as it is known. Rendered beside the message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// The parameter at fault, by its plain name.
    pub parameter: Option<String>,
    /// Byte offset in the parameter's value.
    pub position: Option<usize>,
    /// The dimension at fault: its name, or its position.
    pub dimension: Option<String>,
    /// What would have been valid, in words or as a range such as `-16..16`.
    pub valid: Option<String>,
    /// The array at fault, as a key within its bucket.
    pub array: Option<String>,
    /// The chunk at fault, by its grid coordinates.
    pub chunk: Option<String>,
    /// The item of a batch at fault.
    pub item: Option<usize>,
    /// The field of a batch at fault.
    pub field: Option<String>,
}

/// A failure that knows its kind. Each module owns one error enum and implements this.
pub trait Fault: std::error::Error {
    /// The kind, from which status and code follow.
    fn kind(&self) -> ErrorKind;

    /// Where in the request or the data the failure lies.
    fn details(&self) -> Details {
        Details::default()
    }
}
