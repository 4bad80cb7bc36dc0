//! The libsvm parser against arbitrary files, and against what it should read back.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use thinwire::data::libsvm::{Rows, parse};

/// A file as a person or a program with a mistake might write it.
fn almost_libsvm() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        "[+-]?[0-9]{0,11}",
        "[0-9]{1,11}:[+-]?[0-9.e]{0,6}",
        Just("inf".to_owned()),
        Just("1:nan".to_owned()),
        Just("#".to_owned()),
        "\\PC{0,4}",
    ];
    let separator = prop_oneof![4 => Just(" "), 2 => Just("\n"), 1 => Just("\r\n"), 1 => Just("\t")];
    let parts = prop::collection::vec((word, separator), 0..40);
    parts.prop_map(|parts| {
        parts.into_iter().map(|(word, separator)| word + separator).collect::<String>().into()
    })
}

fn rows() -> impl Strategy<Value = Vec<(f64, Vec<(u32, f32)>)>> {
    let value = any::<f32>().prop_filter("finite", |value| value.is_finite());
    let features = prop::collection::btree_map(1..=u32::MAX, value, 0..8);
    let label = any::<f64>().prop_filter("finite", |label| label.is_finite());
    prop::collection::vec((label, features.prop_map(|map| map.into_iter().collect())), 0..8)
}

fn is_well_formed(rows: &Rows) -> bool {
    let rising = |row| {
        let features: Vec<_> = rows.row(row).map(|(feature, _)| feature).collect();
        features.first() != Some(&0) && features.is_sorted_by(|a, b| a < b)
    };
    rows.starts.len() == rows.len() + 1
        && rows.starts.is_sorted()
        && rows.starts.last() == Some(&rows.features.len())
        && rows.features.len() == rows.values.len()
        && rows.values.iter().all(|value| value.is_finite())
        && rows.labels.iter().all(|label| label.is_finite())
        && (0..rows.len()).all(rising)
}

proptest! {
    #[test]
    fn parse_never_panics_on_bytes(file in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(rows) = parse(&file) {
            prop_assert!(is_well_formed(&rows));
        }
    }

    #[test]
    fn parse_never_panics_on_almost_a_file(file in almost_libsvm()) {
        let lines = file.split(|byte| *byte == b'\n').count();
        match parse(&file) {
            Ok(rows) => prop_assert!(is_well_formed(&rows)),
            Err(error) => prop_assert!((1..=lines).contains(&error.line)),
        }
    }

    #[test]
    fn parse_reads_what_was_written(rows in rows()) {
        let line = |(label, features): &(f64, Vec<(u32, f32)>)| {
            let words: Vec<_> = features.iter().map(|(feature, value)| format!(" {feature}:{value:e}")).collect();
            format!("{label:e}{}\n", words.concat())
        };
        let file: String = rows.iter().map(line).collect();
        let parsed = parse(file.as_bytes()).unwrap();
        let read: Vec<_> = (0..parsed.len()).map(|row| (parsed.labels[row], parsed.row(row).collect())).collect();
        prop_assert_eq!(read, rows);
    }
}
