//! The elements only, little-endian, row-major; types of fewer than 8 bits take one byte an element.

use super::Description;

/// Why raw bytes cannot hold the answer, if they cannot.
pub(super) fn obstacle(description: &Description<'_>) -> Option<String> {
    let varies = description.dtype.size_bytes().is_none();
    varies.then(|| format!("elements of {} vary in length", description.dtype))
}
