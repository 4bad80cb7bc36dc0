//! The libsvm format: a label and `feature:value` pairs on each line.

use std::fmt;

/// Rows of a sparse matrix, each with a label.
///
/// Row r has the entries `starts[r]..starts[r + 1]` of `features` and `values`.
#[derive(Clone, PartialEq, Debug)]
pub struct Rows {
    /// One a row, as the file has it.
    pub labels: Vec<f64>,
    /// One more than there are rows, from 0 up.
    pub starts: Vec<usize>,
    /// Feature numbers from 1, strictly increasing within a row.
    pub features: Vec<u32>,
    /// Finite values, beside their features.
    pub values: Vec<f32>,
}

impl Rows {
    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The entries of a row; none for a row that does not exist.
    pub fn row(&self, row: usize) -> impl Iterator<Item = (u32, f32)> + '_ {
        let range = match self.starts.get(row..).unwrap_or_default() {
            [start, end, ..] => *start..*end,
            _ => 0..0,
        };
        let features = self.features.get(range.clone()).unwrap_or_default();
        features.iter().copied().zip(self.values.get(range).unwrap_or_default().iter().copied())
    }

    /// The largest feature number; 0 if there is none.
    #[must_use]
    pub fn max_feature(&self) -> u32 {
        self.features.iter().copied().max().unwrap_or(0)
    }
}

/// What is wrong with a file, and on which line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct Error {
    /// The line's number, from 1.
    pub line: usize,
    /// What is wrong with it, quoting it.
    pub problem: String,
}

/// Reads a file. What follows `#` on a line is left out, and so are empty lines.
///
/// One pass; allocates in proportion to the file.
///
/// ```
/// let rows = thinwire::data::libsvm::parse(b"+1 1:0.5 7:2 # a comment\n-1 3:1\n")?;
/// assert_eq!(rows.labels, [1.0, -1.0]);
/// assert_eq!(rows.row(0).collect::<Vec<_>>(), [(1, 0.5), (7, 2.0)]);
/// # Ok::<(), thinwire::data::libsvm::Error>(())
/// ```
///
/// # Errors
/// If a label or a value is not a finite number, or a feature not a number from 1 to 2^32 - 1 that is larger
/// than the one before it.
pub fn parse(file: &[u8]) -> Result<Rows, Error> {
    let mut rows = Rows { labels: Vec::new(), starts: vec![0], features: Vec::new(), values: Vec::new() };
    for (number, line) in file.split(|byte| *byte == b'\n').enumerate() {
        parse_line(line, &mut rows).map_err(|problem| Error { line: number + 1, problem })?;
    }
    Ok(rows)
}

fn parse_line(line: &[u8], rows: &mut Rows) -> Result<(), String> {
    let text = line.split(|byte| *byte == b'#').next().unwrap_or_default();
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let Some(label) = words.next() else { return Ok(()) };
    let label = finite(label).ok_or_else(|| format!("the label {} is not a number", Quote(label)))?;
    let mut last = 0;
    for word in words {
        let colon = word.iter().position(|byte| *byte == b':');
        let Some((feature, [_, value @ ..])) = colon.and_then(|at| word.split_at_checked(at)) else {
            return Err(format!("{} is not feature:value", Quote(word)));
        };
        let feature = parse_feature(feature)?;
        if feature <= last {
            return Err(format!("feature {feature} follows feature {last}; features have to rise"));
        }
        let value = finite(value).map(|value| value as f32).filter(|value| value.is_finite());
        let value = value.ok_or_else(|| format!("the value of {} is not a finite number", Quote(word)))?;
        rows.features.push(feature);
        rows.values.push(value);
        last = feature;
    }
    rows.labels.push(label);
    rows.starts.push(rows.features.len());
    Ok(())
}

fn parse_feature(word: &[u8]) -> Result<u32, String> {
    if word.is_empty() || !word.iter().all(u8::is_ascii_digit) {
        return Err(format!("the feature {} is not a whole number", Quote(word)));
    }
    match std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()) {
        Some(0) => Err("features are numbered from 1, but here is feature 0".into()),
        Some(feature) => Ok(feature),
        None => Err(format!("feature {} is too large; features go up to {}", Quote(word), u32::MAX)),
    }
}

fn finite(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// Part of a line as the message shows it: readable and not too long.
struct Quote<'a>(&'a [u8]);

impl fmt::Display for Quote<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 40;
        let shown = self.0.get(..SHOWN).unwrap_or(self.0);
        let more = if self.0.len() > SHOWN { ".." } else { "" };
        write!(f, "`{}{more}`", shown.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_is_named_with_its_line() {
        for (file, line, says) in [
            ("x 1:1", 1, "the label `x` is not a number"),
            ("1 1:1\nnan 1:1", 2, "the label `nan` is not a number"),
            ("1 1:1\n\n# nothing\n1 0:1", 4, "numbered from 1"),
            ("1 2:1 2:1", 1, "feature 2 follows feature 2"),
            ("1 3:1 2:1", 1, "feature 2 follows feature 3"),
            ("1 1:inf", 1, "the value of `1:inf` is not a finite"),
            ("1 1:1e39", 1, "the value of `1:1e39` is not a finite"),
            ("1 1:", 1, "the value of `1:` is not a finite"),
            ("1 1:1 4294967296:1", 1, "feature `4294967296` is too large"),
            ("1 99999999999999999999999:1", 1, "is too large"),
            ("1 -1:1", 1, "the feature `-1` is not a whole number"),
            ("1 :1", 1, "the feature `` is not a whole number"),
            ("1 word", 1, "`word` is not feature:value"),
            ("1 qid:3 1:1", 1, "the feature `qid` is not a whole number"),
        ] {
            let error = parse(file.as_bytes()).unwrap_err();
            assert_eq!(error.line, line, "{file}");
            assert!(error.to_string().contains(says), "{file}: {error}");
        }
    }

    #[test]
    fn a_mistake_in_bytes_that_are_no_text_is_shown_readably() {
        let error = parse(b"1 1:1\n\xff\x00\x1b[31m 1:1").unwrap_err();
        assert_eq!(error.to_string(), r"line 2: the label `\xff\x00\x1b[31m` is not a number");
        let error = parse("x".repeat(100_000).as_bytes()).unwrap_err();
        assert!(error.to_string().len() < 100);
    }

    #[test]
    fn lines_may_end_as_on_any_system_and_hold_no_features() {
        let rows = parse(b"1 1:1 \r\n\r\n0\n  -1.5e0\t4294967295:-2").unwrap();
        assert_eq!(rows.labels, [1.0, 0.0, -1.5]);
        assert_eq!(rows.starts, [0, 1, 1, 2]);
        assert_eq!(rows.max_feature(), u32::MAX);
        assert_eq!(rows.row(2).collect::<Vec<_>>(), [(u32::MAX, -2.0)]);
        assert_eq!(rows.row(3).count(), 0);
        assert!(parse(b"").unwrap().is_empty());
    }
}
