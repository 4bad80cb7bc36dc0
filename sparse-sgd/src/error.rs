use transport::Rank;

/// Why a step, a check or a configuration was refused.
///
/// Whatever the error, values, residual, velocity and step counter are bit for bit as before the call.
/// Afterwards everything is usable, except after [`Error::Collective`]: then the communicator is in the
/// state that [`collectives::Error`] describes, usually the end of the run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A density that no selection can have.
    #[error("density {given} is not in (0, 1]")]
    Density {
        /// What was asked for.
        given: f64,
    },
    /// Another number of the configuration, or a learning rate, that makes no sense.
    #[error("{name} {given} is not {allowed}")]
    Setting {
        /// Which one.
        name: &'static str,
        /// Its value.
        given: f32,
        /// What it may be.
        allowed: &'static str,
    },
    /// A gradient that is not as long as its values.
    #[error("the gradient of `{name}` has {gradient} entries for {values} values")]
    GradientLength {
        /// The parameter.
        name: String,
        /// Entries of the values.
        values: u64,
        /// Entries of the gradient.
        gradient: u64,
    },
    /// A parameter that is not the one that the first step had at this position.
    #[error(
        "parameter {position} is `{found_name}` with {found_len} entries, but was `{name}` with {len} entries \
         at the first step"
    )]
    ParameterChanged {
        /// The position among the parameters, from 0.
        position: usize,
        /// The name at the first step.
        name: String,
        /// The length at the first step.
        len: usize,
        /// The name now.
        found_name: String,
        /// The length now.
        found_len: usize,
    },
    /// More or fewer parameters than at the first step.
    #[error(
        "{found} parameters instead of the first step's {expected}: `{name}` with {len} entries is {}",
        if *missing { "missing" } else { "new" }
    )]
    ParameterCount {
        /// Parameters at the first step.
        expected: usize,
        /// Parameters now.
        found: usize,
        /// The first one missing or new.
        name: String,
        /// Its length.
        len: usize,
        /// Whether it is missing.
        missing: bool,
    },
    /// A layer that cannot be handed over, or was not, in a step that gets its gradients layer by layer.
    #[error("layer {layer} {detail}")]
    Layer {
        /// Its place among the parameters, from 0.
        layer: usize,
        /// What is wrong.
        detail: String,
    },
    /// The configured method cannot do this.
    #[error("not possible with this method: {detail}")]
    Unsupported {
        /// Why, and what to do instead.
        detail: &'static str,
    },
    /// A saved state that does not fit itself or the configuration.
    #[error("this state cannot be loaded: {detail}")]
    State {
        /// What does not fit.
        detail: String,
    },
    /// Replicas whose parameters are not the same bits.
    #[error("replicas differ: the parameters of {} are not those of the other ranks", list(ranks))]
    ReplicasDiffer {
        /// The ranks that differ from the majority, or from rank 0 where there is no majority.
        ranks: Vec<Rank>,
    },
    /// The collective failed; its message names the ranks.
    #[error(transparent)]
    Collective(#[from] collectives::Error),
    /// A vector that cannot be made: more than 2^32 entries.
    #[error(transparent)]
    Vector(#[from] sparse_core::Error),
}

/// The variants of [`Error`], for matching without their contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// See [`Error::Density`].
    Density,
    /// See [`Error::Setting`].
    Setting,
    /// See [`Error::GradientLength`].
    GradientLength,
    /// See [`Error::ParameterChanged`].
    ParameterChanged,
    /// See [`Error::ParameterCount`].
    ParameterCount,
    /// See [`Error::Layer`].
    Layer,
    /// See [`Error::Unsupported`].
    Unsupported,
    /// See [`Error::State`].
    State,
    /// See [`Error::ReplicasDiffer`].
    ReplicasDiffer,
    /// See [`Error::Collective`].
    Collective,
    /// See [`Error::Vector`].
    Vector,
}

impl Error {
    /// Which kind of error this is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Density { .. } => ErrorKind::Density,
            Self::Setting { .. } => ErrorKind::Setting,
            Self::GradientLength { .. } => ErrorKind::GradientLength,
            Self::ParameterChanged { .. } => ErrorKind::ParameterChanged,
            Self::ParameterCount { .. } => ErrorKind::ParameterCount,
            Self::Layer { .. } => ErrorKind::Layer,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::State { .. } => ErrorKind::State,
            Self::ReplicasDiffer { .. } => ErrorKind::ReplicasDiffer,
            Self::Collective(_) => ErrorKind::Collective,
            Self::Vector(_) => ErrorKind::Vector,
        }
    }

    /// The other rank concerned, where there is one.
    #[must_use]
    pub fn peer(&self) -> Option<Rank> {
        match self {
            Self::Collective(source) => source.peer(),
            Self::ReplicasDiffer { ranks } => ranks.first().copied(),
            _ => None,
        }
    }

    pub(crate) fn state(detail: impl Into<String>) -> Self {
        Self::State { detail: detail.into() }
    }
}

/// `rank 3`, or `ranks 1, 2 and 5`.
fn list(ranks: &[Rank]) -> String {
    match ranks {
        [] => "no rank".into(),
        [one] => format!("rank {one}"),
        [most @ .., last] => {
            let most: Vec<_> = most.iter().map(ToString::to_string).collect();
            format!("ranks {} and {last}", most.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_between_replicas_names_every_rank() {
        let message = |ranks: &[u32]| {
            Error::ReplicasDiffer { ranks: ranks.iter().copied().map(Rank).collect() }.to_string()
        };
        assert_eq!(
            message(&[3]),
            "replicas differ: the parameters of rank 3 are not those of the other ranks"
        );
        assert!(message(&[1, 2, 5]).contains("of ranks 1, 2 and 5 are"));
        assert_eq!(Error::ReplicasDiffer { ranks: vec![Rank(3), Rank(4)] }.peer(), Some(Rank(3)));
    }
}
