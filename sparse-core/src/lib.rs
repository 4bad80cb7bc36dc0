//! Sparse vectors: exact top-k selection, merging, the sparse-or-dense stream, checked wire formats
