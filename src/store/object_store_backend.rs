//! object_store_backend
