//! zarr
