//! Error feedback, momentum correction, clipping and density warm-up for training with sparse gradients
