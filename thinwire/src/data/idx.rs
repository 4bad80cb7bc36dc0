//! The IDX format of the MNIST database, for bytes.

/// An array of bytes with its dimensions, the slowest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Idx {
    /// The length of each dimension.
    pub dims: Vec<u32>,
    /// The bytes, as many as the product of the dimensions.
    pub bytes: Vec<u8>,
}

/// What is wrong with a file that is not IDX.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not an IDX file of bytes: {0}")]
pub struct Error(String);

/// Reads a file: two zero bytes, type 8, the number of dimensions, their lengths big-endian, the bytes.
///
/// ```
/// let labels = thinwire::data::idx::parse(&[0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9])?;
/// assert_eq!((labels.dims, labels.bytes), (vec![3], vec![7, 8, 9]));
/// # Ok::<(), thinwire::data::idx::Error>(())
/// ```
///
/// # Errors
/// If the type is not bytes, or the length is not what the dimensions say.
pub fn parse(file: &[u8]) -> Result<Idx, Error> {
    let (rank, mut rest) = match file {
        [0, 0, 8, rank, rest @ ..] => (*rank, rest),
        _ => return Err(Error("it does not begin with 0, 0, 8".into())),
    };
    let (mut dims, mut expected) = (Vec::new(), 1_u64);
    for _ in 0..rank {
        let Some((dim, tail)) = rest.split_first_chunk::<4>() else {
            return Err(Error("it ends within the dimensions".into()));
        };
        let dim = u32::from_be_bytes(*dim);
        dims.push(dim);
        expected = expected.saturating_mul(u64::from(dim));
        rest = tail;
    }
    if rest.len() as u64 != expected {
        return Err(Error(format!("{} bytes follow, not {expected} for dimensions {dims:?}", rest.len())));
    }
    Ok(Idx { dims, bytes: rest.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_never_panics(file in prop::collection::vec(any::<u8>(), 0..64), magic in any::<bool>()) {
            let file = if magic { [&[0, 0, 8][..], &file].concat() } else { file };
            if let Ok(idx) = parse(&file) {
                let product = idx.dims.iter().fold(1_u64, |all, dim| all.saturating_mul(u64::from(*dim)));
                prop_assert_eq!(idx.bytes.len() as u64, product);
            }
        }
    }

    #[test]
    fn lengths_are_checked() {
        let error = |file: &[u8]| parse(file).unwrap_err().to_string();
        assert!(error(&[]).contains("0, 0, 8"));
        assert!(error(&[0, 0, 8, 1, 0, 0]).contains("within the dimensions"));
        assert!(error(&[0, 0, 8, 1, 0, 0, 0, 2, 9]).contains("1 bytes follow, not 2"));
        assert!(parse(&[0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 0]).is_ok());
    }
}
