//! metered
