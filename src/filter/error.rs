//! Why a predicate cannot be evaluated.

use crate::model::{Details, ErrorKind, Fault};

/// Why a predicate cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// A value of another type than the property has.
    #[error("filter: `{property}` holds {held}, which {literal} cannot be compared with{hint}")]
    Type {
        /// The property.
        property: String,
        /// What it holds.
        held: String,
        /// What it was compared with.
        literal: String,
        /// What would do, with a separator; may be empty.
        hint: String,
    },
    /// A name that nothing here has.
    #[error("filter: nothing here is called `{property}`; there are {valid}")]
    UnknownProperty {
        /// The name.
        property: String,
        /// Names that there are.
        valid: String,
    },
    /// Values that are stored otherwise than they are meant.
    #[error(
        "filter: the values of `{property}` are packed or may be missing (`{attribute}`); say values=raw for what is stored, values=cf for what is meant"
    )]
    Ambiguous {
        /// The property.
        property: String,
        /// The attribute that says so.
        attribute: String,
    },
    /// Attributes of packing that say nothing.
    #[error("filter: attribute `{attribute}` of `{property}` is no number")]
    Broken {
        /// The property.
        property: String,
        /// The attribute.
        attribute: String,
    },
    /// What is not served.
    #[error("filter: {what} is not implemented")]
    Unsupported {
        /// What it is.
        what: String,
    },
}

impl Fault for FilterError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Type { .. } | Self::UnknownProperty { .. } => ErrorKind::InvalidSelection,
            Self::Ambiguous { .. } => ErrorKind::AmbiguousValues,
            Self::Broken { .. } => ErrorKind::CorruptData,
            Self::Unsupported { .. } => ErrorKind::NotImplemented,
        }
    }

    fn details(&self) -> Details {
        let valid = match self {
            Self::UnknownProperty { valid, .. } => Some(valid.clone()),
            Self::Ambiguous { .. } => Some("values=raw, values=cf".to_owned()),
            Self::Type { .. } | Self::Broken { .. } | Self::Unsupported { .. } => None,
        };
        Details { parameter: Some("filter".to_owned()), valid, ..Details::default() }
    }
}
