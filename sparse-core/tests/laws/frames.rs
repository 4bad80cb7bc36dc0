use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sparse_core::wire::{self, BodyKind, Fingerprint, HEADER};
use sparse_core::{DType, Error, ErrorKind, SparseVec, Stream};

use crate::samples::{Sample, assert_same, assert_same_vec, check, dense, sparse, values};

crate::for_each_type!(
    decoding_inverts_encoding_sparse,
    decoding_inverts_encoding_dense,
    a_frame_says_how_many_pieces_it_is_marked_with,
    adding_a_frame_equals_adding_its_values,
    a_part_is_written_as_a_vector_of_its_own,
    a_body_is_checked_as_a_vector_is,
    appending_a_body_concatenates,
    other_types_are_refused,
    decoding_never_panics,
    mutated_frames_never_panic,
    cut_or_extended_frames_are_refused,
);

fn fingerprint() -> BoxedStrategy<Fingerprint> {
    let codes = (1_u8..=6, any::<u8>(), any::<u8>(), any::<u8>(), any::<u64>(), any::<u64>());
    let whole = codes.prop_map(|(dtype, operation, algorithm, mode, dim, parameter)| Fingerprint {
        dtype,
        operation,
        algorithm,
        mode,
        dim,
        parameter,
    });
    whole.boxed()
}

fn decoding_inverts_encoding_sparse<T: Sample>(runner: &mut TestRunner) {
    check(runner, (fingerprint(), sparse::<T>()), |(fingerprint, vec)| {
        let bytes = wire::encode(&fingerprint, &Stream::from(vec.clone()));
        prop_assert_eq!(&bytes, &wire::encode_sparse(&fingerprint, &vec));
        prop_assert_eq!(bytes.len(), wire::sparse_len(&vec.view()));
        prop_assert!(bytes.len() <= HEADER + 1 + vec.nnz() * (4 + size_of::<T>()));
        let frame = wire::open(bytes).unwrap();
        prop_assert_eq!(frame.fingerprint, Fingerprint { dtype: T::DTYPE.code(), ..fingerprint });
        prop_assert_eq!((frame.kind, frame.count), (BodyKind::Sparse, vec.nnz() as u64));
        assert_same_vec(&frame.sparse::<T>(vec.dim()).unwrap().view().to_vec(), &vec)?;
        match frame.into_stream::<T>(vec.dim()) {
            Ok(Stream::Sparse(found)) => {
                // NaN payloads travel too.
                prop_assert_eq!(
                    bytemuck::cast_slice::<T, u8>(found.values()),
                    bytemuck::cast_slice::<T, u8>(vec.values())
                );
                assert_same_vec(&found, &vec)
            }
            other => Err(TestCaseError::fail(format!("{other:?}"))),
        }
    });
}

fn decoding_inverts_encoding_dense<T: Sample>(runner: &mut TestRunner) {
    check(runner, (fingerprint(), dense::<T>()), |(fingerprint, values)| {
        let bytes = wire::encode(&fingerprint, &Stream::Dense(values.clone()));
        prop_assert_eq!(&bytes, &wire::encode_dense(&fingerprint, &values));
        prop_assert_eq!(bytes.len(), HEADER + size_of_val(&values[..]));
        let frame = wire::open(bytes).unwrap();
        prop_assert_eq!(frame.fingerprint, Fingerprint { dtype: T::DTYPE.code(), ..fingerprint });
        prop_assert_eq!((frame.kind, frame.count), (BodyKind::Dense, values.len() as u64));
        let mut copy = vec![T::ZERO; values.len()];
        frame.copy_dense_into(&mut copy).unwrap();
        assert_same(&copy, &values)?;
        prop_assert!(frame.clone().into_stream::<T>(values.len() as u64 + 1).is_err());
        match frame.into_stream::<T>(values.len() as u64) {
            Ok(Stream::Dense(found)) => assert_same(&found, &values),
            other => Err(TestCaseError::fail(format!("{other:?}"))),
        }
    });
}

fn a_frame_says_how_many_pieces_it_is_marked_with<T: Sample>(runner: &mut TestRunner) {
    let all = wire::MAX_PIECES.ilog2();
    check(runner, (fingerprint(), sparse::<T>(), 0..=all, 0..=all), |(fingerprint, vec, first, second)| {
        let mut bytes = wire::encode_sparse(&fingerprint, &vec).to_vec();
        let unmarked = wire::open(bytes.clone().into()).unwrap();
        prop_assert_eq!(unmarked.pieces, 1);
        for log in [first, second] {
            wire::mark_piece(&mut bytes, 1 << log);
            let frame = wire::open(bytes.clone().into()).unwrap();
            prop_assert_eq!(frame.pieces, 1 << log);
            prop_assert_eq!((frame.kind, frame.fingerprint), (unmarked.kind, unmarked.fingerprint));
            prop_assert_eq!((frame.count, &frame.body), (unmarked.count, &unmarked.body));
        }
        Ok(())
    });
}

fn adding_a_frame_equals_adding_its_values<T: Sample>(runner: &mut TestRunner) {
    check(runner, (fingerprint(), values::<T>(0..80)), |(fingerprint, both)| {
        let (left, right) = both.split_at(both.len() / 2);
        let (mut left, right) = (left.to_vec(), &right[..left.len()]);
        let mut expected = left.clone();
        let added = sparse_core::add_assign(&mut expected, right);
        let frame = wire::open(wire::encode_dense(&fingerprint, right)).unwrap();
        let mut sum = Vec::new();
        let written = wire::write_dense_sum(&mut sum, &fingerprint, &left, &frame);
        prop_assert_eq!(&written, &added);
        prop_assert!(written.is_err() || sum == wire::encode_dense(&fingerprint, &expected));
        prop_assert_eq!(frame.add_dense_into(&mut left), added);
        assert_same(&left, &expected)?;
        left.push(T::ZERO);
        prop_assert_eq!(
            frame.add_dense_into(&mut left).map_err(|error| error.kind()),
            Err(ErrorKind::DimensionMismatch)
        );
        Ok(())
    });
}

fn a_part_is_written_as_a_vector_of_its_own<T: Sample>(runner: &mut TestRunner) {
    check(
        runner,
        (fingerprint(), sparse::<T>(), 0.0..=1.0_f64, 0.0..=1.0_f64),
        |(fingerprint, vec, a, b)| {
            let bound = |part: f64| (vec.dim() as f64 * part) as u64;
            let range = bound(a.min(b))..bound(a.max(b));
            let mut written = Vec::new();
            wire::write_sparse(&mut written, &fingerprint, &vec.view_of(range.clone()));
            prop_assert_eq!(written.len(), wire::sparse_len(&vec.view_of(range.clone())));
            prop_assert_eq!(written, wire::encode_sparse(&fingerprint, &vec.slice(range)));
            Ok(())
        },
    );
}

fn a_body_is_checked_as_a_vector_is<T: Sample>(runner: &mut TestRunner) {
    let indices = proptest::collection::vec(0_u32..40, 0..6);
    check(runner, (fingerprint(), indices, 0_u64..50), |(fingerprint, indices, dim)| {
        let values = vec![T::ZERO; indices.len()];
        let mut written = wire::encode_dense(&fingerprint, &values).to_vec();
        // A sparse body, whose indices are not coded.
        written[3] = 2;
        written.push(0);
        written.extend(indices.iter().flat_map(|index| index.to_le_bytes()));
        let frame = wire::open(written.into()).unwrap();
        let is_vector = SparseVec::new(dim, indices, values).is_ok();
        prop_assert_eq!(frame.sparse::<T>(dim).is_ok(), is_vector);
        let mut whole = SparseVec::<T>::empty(7).unwrap();
        prop_assert_eq!(frame.append_sparse_to(dim, &mut whole).is_ok(), is_vector);
        prop_assert!(is_vector || whole == SparseVec::empty(7).unwrap());
        let malformed = frame.into_stream::<T>(dim).map(|_| ()).map_err(|error| error.kind());
        prop_assert_eq!(malformed, if is_vector { Ok(()) } else { Err(ErrorKind::Malformed) });
        Ok(())
    });
}

fn appending_a_body_concatenates<T: Sample>(runner: &mut TestRunner) {
    check(runner, (fingerprint(), sparse::<T>(), sparse::<T>()), |(fingerprint, mut whole, vec)| {
        let expected = SparseVec::concat(&[whole.clone(), vec.clone()]);
        let frame = wire::open(wire::encode_sparse(&fingerprint, &vec)).unwrap();
        let before = whole.clone();
        match (frame.append_sparse_to(vec.dim(), &mut whole), expected) {
            (Ok(()), Ok(expected)) => assert_same_vec(&whole, &expected),
            (Err(error), Err(expected)) => {
                prop_assert_eq!(error, expected);
                assert_same_vec(&whole, &before)
            }
            other => Err(TestCaseError::fail(format!("{other:?}"))),
        }
    });
}

#[test]
fn the_sum_of_long_vectors_is_written_in_order() {
    let fingerprint = Fingerprint::new::<i32>(1, 1, 0, 1000, 0);
    let (left, mut right): (Vec<i32>, Vec<i32>) = ((0..1000).collect(), (0..1000).map(|i| i * i).collect());
    let sum = |right: &[i32]| {
        let frame = wire::open(wire::encode_dense(&fingerprint, right)).unwrap();
        let mut written = Vec::new();
        wire::write_dense_sum(&mut written, &fingerprint, &left, &frame).map(|()| written)
    };
    let expected: Vec<i32> = (0..1000).map(|i| i + i * i).collect();
    assert_eq!(sum(&right).unwrap(), wire::encode_dense(&fingerprint, &expected));
    (right[700], right[800]) = (i32::MAX, i32::MAX);
    assert_eq!(sum(&right), Err(Error::Overflow { index: 700, dtype: DType::I32 }));
}

fn other_types_are_refused<T: Sample>(runner: &mut TestRunner) {
    check(runner, (fingerprint(), dense::<T>()), |(fingerprint, values)| {
        let frames = [
            wire::encode_dense(&fingerprint, &values),
            wire::encode_sparse(&fingerprint, &SparseVec::from_dense(&values).unwrap()),
        ];
        for bytes in frames {
            let frame = wire::open(bytes).unwrap();
            let dim = values.len() as u64;
            let accepted = [
                frame.clone().into_stream::<f32>(dim).is_ok(),
                frame.clone().into_stream::<f64>(dim).is_ok(),
                frame.clone().into_stream::<half::f16>(dim).is_ok(),
                frame.clone().into_stream::<half::bf16>(dim).is_ok(),
                frame.clone().into_stream::<i32>(dim).is_ok(),
                frame.into_stream::<i64>(dim).is_ok(),
            ];
            prop_assert_eq!(accepted, DType::ALL.map(|dtype| dtype == T::DTYPE));
        }
        Ok(())
    });
}

/// Takes the body of whatever opens in every way. What comes out as a vector must be one.
fn use_up<T: Sample>(bytes: Vec<u8>, dim: u64) -> Result<(), TestCaseError> {
    let received = bytes.len();
    let Ok(frame) = wire::open(Bytes::from(bytes)) else { return Ok(()) };
    let mut memory = vec![T::ZERO; (frame.count as usize).min(received)];
    let (_, _) = (frame.copy_dense_into(&mut memory), frame.add_dense_into(&mut memory));
    if let Ok(bytes) = frame.clone().into_opaque() {
        prop_assert_eq!(bytes.len(), received - HEADER);
    }
    match frame.into_stream::<T>(dim) {
        Ok(Stream::Sparse(vec)) => {
            prop_assert_eq!(vec.dim(), dim);
            prop_assert!(vec.nnz() * size_of::<T>() <= received);
            prop_assert!(SparseVec::new(dim, vec.indices().to_vec(), vec.values().to_vec()).is_ok());
        }
        Ok(Stream::Dense(values)) => prop_assert_eq!(values.len() as u64, dim),
        Err(_) => {}
    }
    Ok(())
}

fn decoding_never_panics<T: Sample>(runner: &mut TestRunner) {
    // Half of the time the beginning is right, and the count at least plausible.
    let header = (fingerprint(), 0_u8..5, prop_oneof![0_u64..20, any::<u64>()]);
    let bytes = (header, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..200));
    check(runner, (bytes, 0_u64..20), |(((fingerprint, kind, count), plausible, body), dim)| {
        let mut bytes = Vec::new();
        if plausible {
            let code = if count % 2 == 0 { T::DTYPE.code() } else { fingerprint.dtype };
            bytes = wire::encode_empty(&Fingerprint { dtype: code, ..fingerprint }).to_vec();
            bytes[3] = kind;
            bytes[24..].copy_from_slice(&count.to_le_bytes());
        }
        bytes.extend(body);
        use_up::<T>(bytes, dim)
    });
}

fn mutated_frames_never_panic<T: Sample>(runner: &mut TestRunner) {
    let mutations = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    check(runner, (fingerprint(), sparse::<T>(), mutations), |(fingerprint, vec, mutations)| {
        let mut bytes = wire::encode_sparse(&fingerprint, &vec).to_vec();
        for (at, byte) in mutations {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        // A mutated frame may say that it is dense; only dimensions as small as the frame are safe to try.
        use_up::<T>(bytes, vec.dim())
    });
}

fn cut_or_extended_frames_are_refused<T: Sample>(runner: &mut TestRunner) {
    check(runner, (fingerprint(), sparse::<T>(), any::<prop::sample::Index>()), |(fingerprint, vec, at)| {
        for bytes in [
            wire::encode_dense(&fingerprint, vec.values()),
            wire::encode_opaque(&fingerprint, bytemuck::cast_slice(vec.values())),
            wire::encode_empty(&fingerprint),
        ] {
            let cut = bytes.slice(..at.index(bytes.len()));
            prop_assert_eq!(wire::open(cut).map_err(|error| error.kind()).err(), Some(ErrorKind::Malformed));
            let extended = Bytes::from([&bytes[..], &[0]].concat());
            prop_assert!(wire::open(extended).is_err());
        }
        // How long coded indices are is seen when they are decoded.
        let bytes = wire::encode_sparse(&fingerprint, &vec);
        let extended = Bytes::from([&bytes[..], &[0]].concat());
        for changed in [bytes.slice(..at.index(bytes.len())), extended] {
            let decoded = wire::open(changed).and_then(|frame| frame.into_stream::<T>(vec.dim()));
            prop_assert_eq!(decoded.map_err(|error| error.kind()).err(), Some(ErrorKind::Malformed));
        }
        Ok(())
    });
}

proptest! {
    #[test]
    fn decoding_inverts_encoding_opaque(
        fingerprint in fingerprint(),
        dtype in any::<u8>(),
        body in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        // Only bodies of values need a type that exists.
        let fingerprint = Fingerprint { dtype, ..fingerprint };
        let frame = wire::open(wire::encode_opaque(&fingerprint, &body)).unwrap();
        prop_assert_eq!((frame.fingerprint, frame.kind), (fingerprint, BodyKind::Opaque));
        prop_assert!(frame.clone().into_stream::<f32>(0).is_err());
        prop_assert_eq!(frame.into_opaque().unwrap(), body);
    }

    #[test]
    fn decoding_inverts_encoding_empty(fingerprint in fingerprint(), dim in 0_u64..=1 << 32) {
        let frame = wire::open(wire::encode_empty(&fingerprint)).unwrap();
        prop_assert_eq!((frame.fingerprint, frame.kind, frame.count), (fingerprint, BodyKind::Empty, 0));
        prop_assert!(frame.clone().into_opaque().is_err());
        prop_assert!(frame.add_dense_into::<i32>(&mut []).is_err());
        let stream = frame.into_stream::<i32>(dim).unwrap();
        prop_assert_eq!((stream.dim(), stream.nnz(), stream.is_dense()), (dim, 0, false));
    }
}

#[test]
fn the_bytes_are_those_of_the_specification() {
    let fingerprint = Fingerprint::new::<f32>(7, 8, 9, 0x0a0b, 0x0c0d);
    let vec = SparseVec::new(0x0a0b, vec![1, 0x0102], vec![1.0_f32, -2.0]).unwrap();
    let expected = [
        b'T', b'W', 3, 2, 1, 7, 8, 9, // magic, version, sparse, f32, operation, algorithm, mode
        0x0b, 0x0a, 0, 0, 0, 0, 0, 0, // dimension
        0x0d, 0x0c, 0, 0, 0, 0, 0, 0, // parameter
        2, 0, 0, 0, 0, 0, 0, 0, // count
        0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, // values
        3, 0b11, 0x01, 0x04,
        0x04, // Elias-Fano: two high parts of 0; 10 low bits each, 1 - 0 and 258 - 1
    ];
    assert_eq!(wire::encode_sparse(&fingerprint, &vec), &expected[..]);
    let dense = wire::encode_dense(&fingerprint, &[0x0102_0304_0506_0708_i64]);
    assert_eq!(&dense[..5], [b'T', b'W', 3, 1, 6]);
    assert_eq!(&dense[24..], [1, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
}

#[test]
fn bodies_that_are_no_vectors_are_refused() {
    let fingerprint = Fingerprint::new::<i32>(0, 0, 0, 10, 0);
    // Two values, and the indices 3 and 5 as they are.
    let mut good = wire::encode_dense(&fingerprint, &[1, 2]).to_vec();
    good[3] = 2;
    good.extend([0, 3, 0, 0, 0, 5, 0, 0, 0]);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        wire::open(bytes.into()).and_then(|frame| frame.into_stream::<i32>(10)).map_err(|error| error.kind())
    };
    let coded = HEADER + 8;
    assert!(with(coded + 1, 4).is_ok());
    // Magic, version, kind, type, count; the codec; indices equal, reversed, beyond the dimension.
    let header = [(0, 0), (1, 0), (2, 1), (3, 4), (4, 0), (4, 7), (24, 1), (24, 3), (31, 1)];
    let body = [(coded, 3), (coded, 5), (coded + 1, 5), (coded + 1, 6), (coded + 5, 10)];
    for (at, byte) in header.into_iter().chain(body) {
        assert_eq!(with(at, byte), Err(ErrorKind::Malformed), "byte {at}");
    }
    // Another type of the same size is a frame, but not the one expected.
    assert_eq!(with(4, DType::F32.code()), Err(ErrorKind::Unexpected));
}

#[test]
fn a_huge_count_is_refused_whatever_it_overflows_to() {
    let fingerprint = Fingerprint::new::<f32>(0, 0, 0, 0, 0);
    for (kind, count) in [(1, 1_u64 << 62), (2, 1 << 61), (1, u64::MAX), (2, u64::MAX), (3, u64::MAX), (0, 1)]
    {
        let mut bytes = wire::encode_empty(&fingerprint).to_vec();
        bytes[3] = kind;
        bytes[24..].copy_from_slice(&count.to_le_bytes());
        assert_eq!(wire::open(bytes.into()).map_err(|error| error.kind()).err(), Some(ErrorKind::Malformed));
    }
}

#[test]
fn a_body_larger_than_any_vector_is_refused() {
    let frame = wire::open(wire::encode_empty(&Fingerprint::new::<f32>(0, 0, 0, 0, 0))).unwrap();
    let dim = (1 << 32) + 1;
    assert_eq!(frame.into_stream::<f32>(dim), Err(Error::DimensionTooLarge { dim }));
}
