//! Predicates evaluated: in three truth values, and exactly.
//!
//! Pure: columns of values and a [`Filter`] become a [`Truth`] a row. What is not a number, or missing, is NULL: a
//! comparison with it is neither true nor false, and a row is taken only where the whole is true. Numbers are compared as
//! the decimals that are written, whatever their type holds.

mod column;
mod error;
#[cfg(test)]
mod tests;

pub use column::{Column, Numbers, Packing};
pub use error::FilterError;

use crate::query::Filter;
use crate::query::filter::Test;

/// What a predicate says of a row, in an order in which AND is the least and OR the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    /// It does not hold.
    False,
    /// It is not known: NULL.
    Unknown,
    /// It holds.
    True,
}

impl Truth {
    /// Of a condition that is known.
    pub fn of(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }

    fn not(self) -> Self {
        match self {
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
            Self::True => Self::False,
        }
    }
}

/// Evaluates a predicate over `rows` rows. `test` says what one test of a property yields for each of them.
///
/// # Errors
/// Those of `test`.
pub fn evaluate<E>(
    filter: &Filter,
    rows: usize,
    test: &mut impl FnMut(&str, &Test) -> Result<Vec<Truth>, E>,
) -> Result<Vec<Truth>, E> {
    let mut folded = |parts: &[Filter], start: Truth, join: fn(Truth, Truth) -> Truth| {
        let mut all = vec![start; rows];
        for part in parts {
            let part = evaluate(part, rows, test)?;
            all.iter_mut().zip(part).for_each(|(all, part)| *all = join(*all, part));
        }
        Ok(all)
    };
    match filter {
        Filter::And(parts) => folded(parts, Truth::True, Ord::min),
        Filter::Or(parts) => folded(parts, Truth::False, Ord::max),
        Filter::Not(part) => Ok(evaluate(part, rows, test)?.into_iter().map(Truth::not).collect()),
        Filter::Constant(value) => Ok(vec![Truth::of(*value); rows]),
        Filter::Test { property, test: of } => test(property, of),
    }
}
