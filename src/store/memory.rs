//! Objects in memory, gone with the process.

use std::sync::Arc;

use object_store::memory::InMemory;

use super::Store;
use super::object_store_backend::ObjectStoreBackend;

/// An empty store in memory, for tests and trials.
pub fn memory_store() -> Arc<dyn Store> {
    Arc::new(ObjectStoreBackend::in_memory(Arc::new(InMemory::new())))
}
