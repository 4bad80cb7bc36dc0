use std::fmt;

use crate::Error;

/// One named group of weights: what a framework calls a tensor, seen flat.
///
/// The gradient is only read. Its length must be that of the values.
pub struct Parameter<'a> {
    /// What the parameter is called in errors and in hashes; the same on all ranks.
    pub name: &'a str,
    /// The weights, updated in place.
    pub values: &'a mut [f32],
    /// This rank's gradient.
    pub gradient: &'a [f32],
}

impl fmt::Debug for Parameter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parameter")
            .field("name", &self.name)
            .field("len", &self.values.len())
            .finish_non_exhaustive()
    }
}

/// Name and values, which is what replicas have in common.
impl<'a> From<&'a Parameter<'_>> for (&'a str, &'a [f32]) {
    fn from(parameter: &'a Parameter<'_>) -> Self {
        (parameter.name, parameter.values)
    }
}

/// Names, lengths and order of the parameters: what the first step fixes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Layout {
    shapes: Vec<(String, usize)>,
    len: usize,
}

impl Layout {
    /// Refuses parameters that together are longer than a `usize`.
    pub(crate) fn new(shapes: Vec<(String, usize)>) -> Result<Self, Error> {
        let len = shapes.iter().try_fold(0_usize, |sum, (_, len)| sum.checked_add(*len));
        match len {
            Some(len) => Ok(Self { shapes, len }),
            None => Err(Error::state("the parameters' lengths overflow")),
        }
    }

    pub(crate) fn of(shapes: &[(&str, usize)]) -> Result<Self, Error> {
        Self::new(shapes.iter().map(|(name, len)| ((*name).to_owned(), *len)).collect())
    }

    /// Entries of all parameters together.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn shapes(&self) -> &[(String, usize)] {
        &self.shapes
    }

    pub(crate) fn lens(&self) -> Vec<usize> {
        self.shapes.iter().map(|(_, len)| *len).collect()
    }

    /// Refuses values that are not as many and as long as these parameters.
    pub(crate) fn check_values(&self, values: &[&mut [f32]]) -> Result<(), Error> {
        for ((name, len), values) in self.shapes.iter().zip(values) {
            check_gradient(name, values.len(), *len)?;
        }
        // The lengths are right as far as there are any, so this is about how many there are.
        let names = self.shapes.iter().map(|(name, _)| &name[..]).chain(std::iter::repeat(""));
        let shapes: Vec<_> = names.zip(values.iter().map(|values| values.len())).collect();
        self.check(&shapes)
    }

    /// Refuses names and lengths that are not these.
    pub(crate) fn check(&self, shapes: &[(&str, usize)]) -> Result<(), Error> {
        for (position, ((found_name, found_len), (name, len))) in shapes.iter().zip(&self.shapes).enumerate()
        {
            if found_name != name || found_len != len {
                return Err(Error::ParameterChanged {
                    position,
                    name: name.clone(),
                    len: *len,
                    found_name: (*found_name).to_owned(),
                    found_len: *found_len,
                });
            }
        }
        if shapes.len() == self.shapes.len() {
            return Ok(());
        }
        // One list is the beginning of the other: the first of the rest is missing, or new.
        let common = shapes.len().min(self.shapes.len());
        let (name, len, missing) = match (self.shapes.get(common), shapes.get(common)) {
            (Some((name, len)), _) => (name.clone(), *len, true),
            (None, Some((name, len))) => ((*name).to_owned(), *len, false),
            (None, None) => return Ok(()),
        };
        Err(Error::ParameterCount { expected: self.shapes.len(), found: shapes.len(), name, len, missing })
    }
}

/// Names and lengths of parameters, once each gradient is as long as its values.
pub(crate) fn shapes<'p>(parameters: &'p [Parameter<'_>]) -> Result<Vec<(&'p str, usize)>, Error> {
    let shape = |p: &'p Parameter<'_>| {
        check_gradient(p.name, p.values.len(), p.gradient.len())?;
        Ok((p.name, p.values.len()))
    };
    parameters.iter().map(shape).collect()
}

/// Refuses a gradient of another length than its values.
pub(crate) fn check_gradient(name: &str, values: usize, gradient: usize) -> Result<(), Error> {
    if values == gradient {
        return Ok(());
    }
    Err(Error::GradientLength { name: name.to_owned(), values: values as u64, gradient: gradient as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn refusal(fixed: &[(&str, usize)], later: &[(&str, usize)]) -> Option<(ErrorKind, String)> {
        let layout = Layout::of(fixed).unwrap();
        layout.check(later).err().map(|e| (e.kind(), e.to_string()))
    }

    #[test]
    fn a_layout_accepts_itself_and_nothing_else() {
        let fixed = [("w", 6), ("b", 2)];
        let others: [&[(&str, usize)]; 7] = [
            &[],
            &[("w", 6)],
            &[("b", 2), ("w", 6)],
            &[("w", 6), ("b", 3)],
            &[("w", 5), ("b", 2)],
            &[("w", 6), ("c", 2)],
            &[("w", 6), ("b", 2), ("c", 1)],
        ];
        assert_eq!(refusal(&fixed, &fixed), None);
        assert_eq!(refusal(&[], &[]), None);
        for other in others {
            assert!(refusal(&fixed, other).is_some(), "{other:?}");
        }
        assert_eq!(Layout::of(&fixed).unwrap().len(), 8);
    }

    #[test]
    fn a_refusal_names_the_parameter_and_both_lengths() {
        let fixed = [("w", 6), ("b", 2)];
        assert_eq!(
            refusal(&fixed, &[("w", 6), ("b", 3)]),
            Some((
                ErrorKind::ParameterChanged,
                "parameter 1 is `b` with 3 entries, but was `b` with 2 entries at the first step".into()
            ))
        );
        assert_eq!(
            refusal(&fixed, &[("w", 6)]),
            Some((
                ErrorKind::ParameterCount,
                "1 parameters instead of the first step's 2: `b` with 2 entries is missing".into()
            ))
        );
        assert_eq!(
            refusal(&fixed, &[("w", 6), ("b", 2), ("c", 1)]),
            Some((
                ErrorKind::ParameterCount,
                "3 parameters instead of the first step's 2: `c` with 1 entries is new".into()
            ))
        );
    }

    #[test]
    fn a_gradient_of_another_length_is_refused() {
        let (mut values, gradient) = ([0.0; 3], [0.0; 4]);
        let parameter = Parameter { name: "w", values: &mut values, gradient: &gradient };
        let error = shapes(&[parameter]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::GradientLength);
        assert_eq!(error.to_string(), "the gradient of `w` has 4 entries for 3 values");
    }

    #[test]
    fn lengths_that_overflow_are_refused() {
        let shapes = vec![("a".to_owned(), usize::MAX), ("b".to_owned(), 1)];
        assert_eq!(Layout::new(shapes).unwrap_err().kind(), ErrorKind::State);
    }
}
