//! Encoding and decoding of uniform supports, in indices per second: `cargo bench -p sparse-core --bench codec`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sparse_core::codec::{self, Codec};

const DIM: u64 = 25_600_000;

fn codecs(criterion: &mut Criterion) {
    for (name, count) in [("0.1%", DIM / 1000), ("1%", DIM / 100), ("10%", DIM / 10)] {
        let indices = uniform(DIM, count);
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(count));
        let mut bytes = Vec::new();
        group.bench_function("encode/chosen", |bencher| {
            bencher.iter(|| {
                bytes.clear();
                codec::encode(DIM, black_box(&indices), 0, &mut bytes)
            });
        });
        group.bench_function("encoded_len", |bencher| {
            bencher.iter(|| codec::encoded_len(DIM, black_box(&indices), 0));
        });
        for codec in [Codec::EliasFano, Codec::Blocks, Codec::Bitmap] {
            let mut bytes = Vec::new();
            group.bench_function(BenchmarkId::new("encode", format!("{codec:?}")), |bencher| {
                bencher.iter(|| {
                    bytes.clear();
                    codec::encode_as(codec, DIM, black_box(&indices), 0, &mut bytes)
                });
            });
            bytes.clear();
            codec::encode_as(codec, DIM, &indices, 0, &mut bytes);
            let mut found = Vec::new();
            group.bench_function(BenchmarkId::new("decode", format!("{codec:?}")), |bencher| {
                bencher.iter(|| {
                    found.clear();
                    codec::decode(black_box(&bytes), DIM, indices.len(), &mut found)
                });
            });
        }
        group.finish();
    }
}

/// Each support of this size alike: takes a position with the probability that it still must.
fn uniform(dim: u64, count: u64) -> Vec<u32> {
    let mut state = 1_u64;
    let mut wanted = count;
    let mut takes = |position: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let taken = (state >> 33) * (dim - position) < wanted << 31;
        wanted -= u64::from(taken);
        taken
    };
    (0..dim).filter(|&position| takes(position)).map(|position| position as u32).collect()
}

criterion_group!(benches, codecs);
criterion_main!(benches);
