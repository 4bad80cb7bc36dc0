//! Quantizers for gradients: unbiased, bucketed, deterministic stochastic rounding
