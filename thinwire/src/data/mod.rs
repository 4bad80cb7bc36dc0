//! Data files: reading them and splitting them.

pub mod idx;
pub mod libsvm;
pub(crate) mod split;

use std::io::{self, Read as _};

use flate2::read::MultiGzDecoder;

/// The file's contents, decompressed if they are gzip.
pub(crate) fn inflate(file: &[u8]) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    if file.starts_with(&[0x1f, 0x8b]) {
        MultiGzDecoder::new(file).read_to_end(&mut contents)?;
    } else {
        contents.extend_from_slice(file);
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use std::io::Write as _;

    #[test]
    fn gzip_is_recognised_and_plain_text_left_alone() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(b"1 1:1\n").unwrap();
        let gzip = gzip.finish().unwrap();
        assert_eq!(inflate(&gzip).unwrap(), b"1 1:1\n");
        assert_eq!(inflate(b"1 1:1\n").unwrap(), b"1 1:1\n");
        assert!(inflate(&gzip[..gzip.len() - 9]).is_err());
    }
}
