//! Any bytes as the program's files of data: nothing panics, and what comes out is as the formats say.

#![no_main]

#[path = "../../thinwire/src/data/idx.rs"]
mod idx;
#[path = "../../thinwire/src/data/libsvm.rs"]
mod libsvm;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    if let Ok(idx) = idx::parse(file) {
        let product = idx.dims.iter().fold(1_u64, |all, dim| all.saturating_mul(u64::from(*dim)));
        assert_eq!(idx.bytes.len() as u64, product);
    }
    match libsvm::parse(file) {
        Ok(rows) => {
            assert_eq!(rows.is_empty(), rows.len() == 0);
            let mut entries = 0;
            for row in 0..rows.len() {
                let features: Vec<u32> = rows.row(row).map(|(feature, _)| feature).collect();
                assert!(features.is_sorted_by(|a, b| a < b) && features.first() != Some(&0));
                assert!(features.iter().all(|&feature| feature <= rows.max_feature()));
                assert!(rows.row(row).all(|(_, value)| value.is_finite()));
                entries += features.len();
            }
            assert_eq!((entries, entries), (rows.features.len(), rows.values.len()));
            assert!(rows.labels.iter().all(|label| label.is_finite()));
        }
        Err(error) => assert!((1..=file.len() + 1).contains(&error.line) && error.to_string().len() < 1000),
    }
});
