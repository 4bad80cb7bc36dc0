//! Sparse and dense allreduce, global top-k, broadcast and barrier over any Transport
