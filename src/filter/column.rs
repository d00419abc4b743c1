//! Values of one property, one a row.

use std::cmp::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{FilterError, Truth};
use crate::coords::{Limit, Measured, Place, Regular, Values};
use crate::model::exact::{Exact, integer, shortest};
use crate::model::{ChunkData, DType};
use crate::query::Mark;
use crate::query::filter::{Comparison, Literal, Test};

/// Values of one property, one a row.
#[derive(Debug, Clone)]
pub enum Column {
    /// Numbers and times.
    Numbers(Numbers),
    /// Truth values.
    Flags(Vec<bool>),
    /// Texts, as UTF-8, in the order of their code points.
    Texts(Vec<Box<[u8]>>),
    /// Coordinates of equal steps, at these positions.
    Steps(Regular, Vec<u64>),
}

/// Numbers as they are stored, and what they mean.
#[derive(Debug, Clone)]
pub struct Numbers {
    /// As they are stored.
    pub values: Values,
    /// Their unit, which dates need.
    pub measured: Measured,
    /// How what is meant comes from what is stored.
    pub packing: Packing,
}

/// CF's packing: what is meant is `stored * scale + offset`, and some stored values mean that there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    scale: Exact,
    offset: Exact,
    missing: Vec<Exact>,
    /// Whether stored integers are to be read with or without a sign, whatever their type.
    unsigned: Option<bool>,
}

/// The attributes of packing.
const PACKING: &[&str] = &["scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"];

impl Packing {
    /// Stored values that mean themselves.
    pub fn none() -> Self {
        Self { scale: integer(1), offset: integer(0), missing: Vec::new(), unsigned: None }
    }

    /// The attribute by which values may mean something else than they are, if there is one. A missing value that is NaN
    /// is none: NaN is NULL however it is read.
    pub fn declared(attributes: &Map<String, Value>) -> Option<&'static str> {
        let tells = |name: &&str| match attributes.get(*name) {
            None | Some(Value::Null) => false,
            Some(value) => !matches!(*name, "_FillValue" | "missing_value") || !is_nan(value),
        };
        PACKING.iter().copied().find(tells)
    }

    /// What the attributes of a property say.
    ///
    /// # Errors
    /// [`FilterError::Broken`] for one that is no number.
    pub fn parse(property: &str, attributes: &Map<String, Value>) -> Result<Self, FilterError> {
        let mut packing = Self::none();
        for name in PACKING {
            let Some(value) = attributes.get(*name).filter(|value| !value.is_null()) else { continue };
            let broken = || FilterError::Broken { property: property.to_owned(), attribute: (*name).to_owned() };
            match *name {
                "scale_factor" => {
                    packing.scale = number(value).filter(|scale| *scale != integer(0)).ok_or_else(broken)?
                }
                "add_offset" => packing.offset = number(value).ok_or_else(broken)?,
                "_Unsigned" => match value.as_str().or(value.as_bool().map(|flag| if flag { "true" } else { "false" }))
                {
                    Some("true") => packing.unsigned = Some(true),
                    Some("false") => packing.unsigned = Some(false),
                    _ => return Err(broken()),
                },
                _ if is_nan(value) => {}
                _ => {
                    let each = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                    for value in each {
                        packing.missing.push(number(value).ok_or_else(broken)?);
                    }
                }
            }
        }
        Ok(packing)
    }

    /// The type by which stored elements are read.
    fn dtype(&self, stored: &DType) -> DType {
        match (stored, self.unsigned) {
            (DType::Int(bits), Some(true)) => DType::UInt(*bits),
            (DType::UInt(bits), Some(false)) => DType::Int(*bits),
            (other, _) => other.clone(),
        }
    }
}

/// Whether a missing value is NaN, in words or as xarray writes it: eight bytes in base64.
fn is_nan(value: &Value) -> bool {
    let Value::String(text) = value else { return false };
    let double = STANDARD.decode(text).ok().and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
    text == "NaN" || double.is_some_and(|bytes| f64::from_le_bytes(bytes).is_nan())
}

fn number(value: &Value) -> Option<Exact> {
    match value {
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Some(integer(i128::from(whole))),
            (None, Some(whole)) => Some(integer(i128::from(whole))),
            (None, None) => shortest(number.as_f64()?),
        },
        // As xarray writes a missing value.
        Value::String(text) => {
            let bytes = STANDARD.decode(text).ok()?;
            shortest(f64::from_le_bytes(bytes.try_into().ok()?))
        }
        _ => None,
    }
}

impl Column {
    /// From elements of an array; `None` for types that nothing compares with.
    pub fn new(dtype: &DType, data: ChunkData, measured: Measured, packing: Packing) -> Option<Self> {
        let text = |bytes: &[u8]| bytes[..bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)].into();
        Some(match (dtype, data) {
            (DType::Bool, ChunkData::Fixed(bytes)) => Self::Flags(bytes.iter().map(|byte| *byte != 0).collect()),
            (DType::String | DType::Bytes, ChunkData::Variable(values)) => Self::Texts(values),
            (DType::FixedBytes(size), ChunkData::Fixed(bytes)) if *size > 0 => {
                Self::Texts(bytes.chunks_exact(*size as usize).map(text).collect())
            }
            (DType::FixedUtf32(size), ChunkData::Fixed(bytes)) if *size > 0 => {
                let texts = bytes.chunks_exact(*size as usize * 4).map(|element| {
                    let points = element.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap_or_default()));
                    let text: String = points.map(|point| char::from_u32(point).unwrap_or('\u{fffd}')).collect();
                    text.trim_end_matches('\0').as_bytes().into()
                });
                Self::Texts(texts.collect())
            }
            (_, ChunkData::Fixed(bytes)) => {
                let values = Values::parse(&packing.dtype(dtype), &bytes)?;
                Self::Numbers(Numbers { values, measured, packing })
            }
            (_, ChunkData::Variable(_)) => return None,
        })
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Numbers(numbers) => numbers.values.len(),
            Self::Flags(flags) => flags.len(),
            Self::Texts(texts) => texts.len(),
            Self::Steps(_, positions) => positions.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn in_words(&self) -> String {
        match self {
            Self::Numbers(_) | Self::Steps(..) => "numbers".to_owned(),
            Self::Flags(_) => "truth values".to_owned(),
            Self::Texts(_) => "texts".to_owned(),
        }
    }

    /// What a test of this property yields for each row.
    ///
    /// # Errors
    /// [`FilterError::Type`] for a value of another type.
    pub fn test(&self, property: &str, test: &Test) -> Result<Vec<Truth>, FilterError> {
        let compared = |comparison: Comparison, literal: &Literal| self.compared(property, comparison, literal);
        let both = |mut first: Vec<Truth>, second: Vec<Truth>| {
            first.iter_mut().zip(second).for_each(|(first, second)| *first = (*first).min(second));
            first
        };
        match test {
            Test::Compare(comparison, literal) => compared(*comparison, literal),
            Test::Between(lo, hi) => Ok(both(compared(Comparison::AtLeast, lo)?, compared(Comparison::AtMost, hi)?)),
            Test::In(literals) => {
                let mut any = vec![Truth::False; self.len()];
                for literal in literals {
                    let equal = compared(Comparison::Equal, literal)?;
                    any.iter_mut().zip(equal).for_each(|(any, equal)| *any = (*any).max(equal));
                }
                Ok(any)
            }
            Test::IsNull => Ok((0..self.len()).map(|row| Truth::of(self.is_null(row))).collect()),
            Test::During(lo, hi) => {
                let mut within: Vec<Truth> =
                    (0..self.len()).map(|row| if self.is_null(row) { Truth::Unknown } else { Truth::True }).collect();
                if let Some(lo) = lo {
                    within = both(within, compared(Comparison::Greater, lo)?);
                }
                if let Some(hi) = hi {
                    within = both(within, compared(Comparison::Less, hi)?);
                }
                Ok(within)
            }
            Test::Intersects(_) => Err(FilterError::Unsupported { what: format!("a box of `{property}`") }),
        }
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Numbers(numbers) => numbers.is_null(row),
            Self::Flags(_) | Self::Texts(_) | Self::Steps(..) => false,
        }
    }

    fn compared(&self, property: &str, comparison: Comparison, literal: &Literal) -> Result<Vec<Truth>, FilterError> {
        let refused = |hint: &str| FilterError::Type {
            property: property.to_owned(),
            held: self.in_words(),
            literal: literal.in_words().to_owned(),
            hint: hint.to_owned(),
        };
        let truth = |order: Ordering| Truth::of(comparison.holds(order));
        match (self, literal) {
            (Self::Flags(flags), Literal::Flag(flag)) => match comparison {
                Comparison::Equal | Comparison::NotEqual => Ok(flags.iter().map(|own| truth(own.cmp(flag))).collect()),
                _ => Err(refused(" but by = and <>")),
            },
            (Self::Texts(texts), Literal::Text(text)) => {
                Ok(texts.iter().map(|own| truth((**own).cmp(text.as_bytes()))).collect())
            }
            (Self::Numbers(numbers), Literal::Number(_) | Literal::Instant { .. }) => {
                let limit = limit(literal, &numbers.measured).map_err(|reason| refused(&format!(": {reason}")))?;
                Ok(numbers.compared(&limit, comparison))
            }
            (Self::Steps(regular, positions), Literal::Number(_) | Literal::Instant { .. }) => {
                let limit = limit(literal, &regular.measured).map_err(|reason| refused(&format!(": {reason}")))?;
                // Compared in positions, which are integers: one division, not one a row.
                let limit = Limit::new(&((limit - &regular.first) / &regular.step));
                let falls = regular.step < integer(0);
                let order = |position: &u64| limit.with_whole(i128::from(*position));
                Ok(positions.iter().map(|at| truth(if falls { order(at).reverse() } else { order(at) })).collect())
            }
            _ => Err(refused("")),
        }
    }
}

/// A literal in the numbers of a property.
fn limit(literal: &Literal, measured: &Measured) -> Result<Exact, String> {
    match literal {
        Literal::Number(value) => Ok(value.clone()),
        Literal::Instant { seconds, .. } => match measured.place(&Mark::Instant(seconds.clone()))? {
            Some(Place::At(value)) => Ok(value),
            Some(Place::Position(_)) | None => Err("a date is no number of these".to_owned()),
        },
        Literal::Text(_) | Literal::Flag(_) => Err("it is no number".to_owned()),
    }
}

impl Numbers {
    fn is_null(&self, row: usize) -> bool {
        self.values.is_nan(row)
            || self.missing().iter().any(|missing| self.values.compare(row, missing) == Some(Ordering::Equal))
    }

    fn missing(&self) -> Vec<Limit> {
        self.packing.missing.iter().map(Limit::new).collect()
    }

    fn compared(&self, limit: &Exact, comparison: Comparison) -> Vec<Truth> {
        // What is meant is not computed: the limit is turned into what would be stored.
        let Packing { scale, offset, .. } = &self.packing;
        let limit = Limit::new(&((limit - offset) / scale));
        let (falls, missing) = (*scale < integer(0), self.missing());
        let rows = 0..self.values.len();
        rows.map(|row| {
            if missing.iter().any(|missing| self.values.compare(row, missing) == Some(Ordering::Equal)) {
                return Truth::Unknown;
            }
            match self.values.compare(row, &limit) {
                None => Truth::Unknown,
                Some(order) => Truth::of(comparison.holds(if falls { order.reverse() } else { order })),
            }
        })
        .collect()
    }
}
