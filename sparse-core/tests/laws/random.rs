use proptest::prelude::*;
use sparse_core::{Draw, random_k};

fn draw(seed: u64, step: u64, bucket: u64, rank: u32) -> Draw {
    Draw { seed, step, bucket, rank }
}

fn positions(len: u32, k: usize, draw: Draw) -> Vec<u32> {
    let values: Vec<i32> = (0..len as i32).collect();
    let chosen = random_k(&values, k, draw).unwrap();
    assert_eq!(chosen.dim(), u64::from(len));
    assert!(chosen.iter().all(|(index, value)| index as i32 == value));
    chosen.indices().to_vec()
}

proptest! {
    #[test]
    fn as_many_as_wanted_are_chosen_in_order(
        len in 0..200_u32, k in 0..250_usize, (seed, step, bucket, rank) in any::<(u64, u64, u64, u32)>()
    ) {
        let chosen = positions(len, k, draw(seed, step, bucket, rank));
        prop_assert_eq!(chosen.len(), k.min(len as usize));
        prop_assert!(chosen.is_sorted_by(|a, b| a < b) && chosen.last().is_none_or(|&last| last < len));
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri too long")]
fn every_position_and_every_pair_is_as_likely() {
    const LEN: usize = 12;
    const K: usize = 5;
    const TIMES: u64 = 20_000;
    let (mut singles, mut pairs) = ([0_u32; LEN], [[0_u32; LEN]; LEN]);
    for step in 0..TIMES {
        let chosen = positions(LEN as u32, K, draw(7, step, 0, 1));
        for (at, &a) in chosen.iter().enumerate() {
            singles[a as usize] += 1;
            chosen[at + 1..].iter().for_each(|&b| pairs[a as usize][b as usize] += 1);
        }
    }
    let chi_square = |counts: &[u32], expected: f64| -> f64 {
        counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum()
    };
    let pairs: Vec<u32> = (0..LEN).flat_map(|a| pairs[a][a + 1..].to_vec()).collect();
    // Beyond the 99.9th percentile of chi-square with 11 and 65 degrees of freedom, which is an upper bound here.
    assert!(chi_square(&singles, TIMES as f64 * 5.0 / 12.0) < 31.3);
    assert!(chi_square(&pairs, TIMES as f64 * 20.0 / 132.0) < 105.0);
}

#[test]
fn every_part_of_a_draw_counts() {
    let one = positions(1000, 20, draw(1, 2, 3, 4));
    for other in [draw(0, 2, 3, 4), draw(1, 0, 3, 4), draw(1, 2, 0, 4), draw(1, 2, 3, 0), draw(2, 1, 3, 4)] {
        assert_ne!(positions(1000, 20, other), one, "{other:?}");
    }
}

/// From the formulas, computed by another program.
#[test]
fn the_choice_is_the_same_on_every_machine() {
    assert_eq!(positions(1000, 8, draw(1, 2, 3, 4)), [8, 124, 403, 426, 599, 768, 849, 864]);
    assert_eq!(
        positions(20, 12, draw(u64::MAX, u64::MAX, u64::MAX, u32::MAX)),
        [0, 2, 3, 5, 8, 9, 11, 12, 14, 15, 17, 19]
    );
}
