//! Why coordinates select nothing.

use crate::model::{Details, ErrorKind, Fault};

/// Why a selection by coordinates cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoordsError {
    /// The axis has no coordinates.
    #[error("{parameter}: dimension `{dimension}` has no coordinates: {reason}")]
    None {
        /// `subset`, `bbox`, `datetime`, `sel` or `count`.
        parameter: &'static str,
        /// The dimension.
        dimension: String,
        /// Where they were looked for.
        reason: String,
    },
    /// A number that has no place on the axis.
    #[error("{parameter}: {reason}; dimension `{dimension}` takes {valid}")]
    Unit {
        /// The parameter.
        parameter: &'static str,
        /// The dimension.
        dimension: String,
        /// What does not fit.
        reason: String,
        /// What would.
        valid: String,
    },
    /// One end in frames, the other in units.
    #[error("{parameter}: one end of `{dimension}` counts frames and the other does not")]
    Mixed {
        /// The parameter.
        parameter: &'static str,
        /// The dimension.
        dimension: String,
    },
    /// The lower end lies above the upper one.
    #[error("{parameter}: the lower end of `{dimension}` lies above the upper one")]
    Backwards {
        /// The parameter.
        parameter: &'static str,
        /// The dimension.
        dimension: String,
    },
    /// The interval meets no data.
    #[error("{parameter}: nothing of dimension `{dimension}` lies there; it spans {valid}")]
    Outside {
        /// The parameter.
        parameter: &'static str,
        /// The dimension.
        dimension: String,
        /// The span.
        valid: String,
    },
    /// An exact label that no position has.
    #[error(
        "sel: no position of dimension `{dimension}` has that coordinate; nearest::, ffill:: and bfill:: find one near it"
    )]
    NoSuchLabel {
        /// The dimension.
        dimension: String,
    },
    /// Fewer cells than asked for.
    #[error(
        "{parameter}: {cells} cells of dimension `{dimension}` were asked for, {left} follow; oob=fill fills the rest"
    )]
    TooFew {
        /// The parameter.
        parameter: &'static str,
        /// The dimension.
        dimension: String,
        /// Cells asked for.
        cells: u64,
        /// Cells there are.
        left: u64,
    },
    /// A number of cells for several fields, of which one has no rate, or another measure.
    #[error(
        "{parameter}: how many cells of `{dimension}` `{field}` has for those of the first field cannot be told: {reason}"
    )]
    NoRate {
        /// The parameter.
        parameter: &'static str,
        /// The dimension.
        dimension: String,
        /// The field.
        field: String,
        /// What is missing.
        reason: String,
    },
    /// Metadata that say something else than a coordinate.
    #[error("{place}: {reason}")]
    Broken {
        /// The attribute or array.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A calendar, a unit or a transformation that is not served.
    #[error("{place}: {reason}")]
    Unsupported {
        /// The attribute or array.
        place: String,
        /// What it is.
        reason: String,
    },
}

impl Fault for CoordsError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::None { .. }
            | Self::Unit { .. }
            | Self::Mixed { .. }
            | Self::Backwards { .. }
            | Self::NoRate { .. } => ErrorKind::InvalidSelection,
            Self::Outside { .. } | Self::NoSuchLabel { .. } => ErrorKind::NoDataInRange,
            Self::TooFew { .. } => ErrorKind::IndexOutOfRange,
            Self::Broken { .. } => ErrorKind::CorruptData,
            Self::Unsupported { .. } => ErrorKind::NotImplemented,
        }
    }

    fn details(&self) -> Details {
        let at = |parameter: &str, dimension: &str| Details {
            parameter: Some(parameter.to_owned()),
            dimension: Some(dimension.to_owned()),
            ..Details::default()
        };
        match self {
            Self::None { parameter, dimension, .. }
            | Self::Mixed { parameter, dimension }
            | Self::NoRate { parameter, dimension, .. }
            | Self::Backwards { parameter, dimension } => at(parameter, dimension),
            Self::Unit { parameter, dimension, valid, .. } | Self::Outside { parameter, dimension, valid } => {
                Details { valid: Some(valid.clone()), ..at(parameter, dimension) }
            }
            Self::NoSuchLabel { dimension } => at("sel", dimension),
            Self::TooFew { parameter, dimension, left, .. } => {
                Details { valid: Some(format!("at most {left} cells")), ..at(parameter, dimension) }
            }
            Self::Broken { .. } | Self::Unsupported { .. } => Details::default(),
        }
    }
}
