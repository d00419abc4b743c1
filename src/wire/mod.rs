//! Tensors to response bodies. Pure.
