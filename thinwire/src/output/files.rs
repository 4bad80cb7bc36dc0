use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use tempfile::Builder;

/// Where the results go.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) json: Option<PathBuf>,
    pub(crate) plot: PathBuf,
}

impl Files {
    /// Finds out before the work begins whether the files can be written. Leaves nothing behind.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        for (option, path) in [("--json", self.json.as_deref()), ("--plot", Some(self.plot.as_path()))] {
            path.map_or(Ok(()), |path| check(option, path))?;
        }
        ensure!(self.json.as_deref() != Some(&self.plot), "--json and --plot name the same file");
        Ok(())
    }
}

/// Finds out whether the file that an option names can be written. Leaves nothing behind.
pub(crate) fn check(option: &str, path: &Path) -> anyhow::Result<()> {
    let context = || format!("cannot write {option} {}", path.display());
    ensure!(!path.is_dir(), "{}: it is a directory", context());
    ensure!(path.file_name().is_some(), "{}: it names no file", context());
    tempfile::tempfile_in(folder(path)).with_context(context)?;
    Ok(())
}

/// Writes a file as a whole or not at all: into another one beside it, which then takes its name.
pub(crate) fn write(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    let context = || format!("cannot write {}", path.display());
    // As any new file: the process's umask takes away what it should not have.
    let mut file = Builder::new()
        .prefix(".thinwire-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder(path))
        .with_context(context)?;
    file.write_all(contents).with_context(context)?;
    file.persist(path).map_err(|error| error.error).with_context(context)?;
    Ok(())
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_check_leaves_nothing_and_a_write_only_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let list = || fs::read_dir(folder.path()).unwrap().count();
        let files = Files { json: Some(folder.path().join("a.json")), plot: folder.path().join("a.svg") };
        files.check().unwrap();
        assert_eq!(list(), 0);
        write(&files.plot, b"one").unwrap();
        write(&files.plot, b"two").unwrap();
        assert_eq!((list(), fs::read(&files.plot).unwrap()), (1, b"two".to_vec()));
        let mode = fs::metadata(&files.plot).unwrap().permissions().mode();
        assert_eq!(mode & 0o600, 0o600);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named_with_its_option() {
        let folder = tempfile::tempdir().unwrap();
        let check = |json: &Path, plot: &Path| {
            let files = Files { json: Some(json.to_owned()), plot: plot.to_owned() };
            files.check().unwrap_err().to_string()
        };
        let (good, missing) = (folder.path().join("good"), folder.path().join("missing/file"));
        assert!(check(&missing, &good).starts_with("cannot write --json "));
        assert!(check(&good, folder.path()).contains("it is a directory"));
        assert!(check(&good, &good).contains("the same file"));
        assert!(check(&good, Path::new("..")).starts_with("cannot write --plot "));
        assert_eq!(super::folder(Path::new("name")), Path::new("."));
    }
}
