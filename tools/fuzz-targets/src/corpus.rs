//! The committed corpus: one text file for each target, an input a line, written as in a Rust byte string.
//!
//! Some thousand files of thirty bytes with a hash for a name say nothing to a reader; these lines do, and a change of
//! the corpus is a change of lines.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::seeds::repository_root;

/// The file of the target called `target`.
#[must_use]
pub fn path(target: &str) -> PathBuf {
    repository_root().join("fuzz/corpus").join(format!("{target}.txt"))
}

/// The inputs of a target; none if it has no file yet.
///
/// # Errors
/// When the file cannot be read, or a line is none that [`write()`] wrote.
pub fn read(target: &str) -> Result<Vec<Vec<u8>>> {
    let path = path(target);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let input = |(number, line)| unescape(line).with_context(|| format!("{}:{}", path.display(), number + 1));
    text.lines().enumerate().map(input).collect()
}

/// Makes the files in `folder` the inputs of a target; returns how many there are.
///
/// # Errors
/// When the folder cannot be read or the file cannot be written.
pub fn write(target: &str, folder: &Path) -> Result<usize> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        lines.push(format!("{}\n", fs::read(entry?.path())?.escape_ascii()));
    }
    // In an order that does not depend on the names, so that what stays is no change.
    lines.sort_unstable();
    lines.dedup();
    let path = path(target);
    fs::create_dir_all(path.parent().unwrap_or(&path))?;
    fs::write(&path, lines.concat())?;
    Ok(lines.len())
}

/// The bytes that `escape_ascii` has written so; `None` for what it never writes.
fn unescape(line: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), line.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&kind, behind) = rest.split_first()?;
        rest = behind;
        bytes.push(match kind {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'\\' | b'"' | b'\'' => kind,
            b'x' => {
                let (digits, behind) = rest.split_at_checked(2)?;
                rest = behind;
                u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?
            }
            _ => return None,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_written_and_read() {
        let all: Vec<u8> = (0..=255).chain(*b"\\x41\\n\"").collect();
        assert_eq!(unescape(&all.escape_ascii().to_string()), Some(all));
        for line in ["\\", "\\q", "\\x4", "\\xgg"] {
            assert_eq!(unescape(line), None, "{line}");
        }
    }
}
