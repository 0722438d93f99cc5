//! Reads files that the user names on the command line, with a size limit.

use std::fs::{self, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, statfs};

/// File system type of a shell's pipe (`PIPEFS_MAGIC`, linux/magic.h).
const PIPEFS: u64 = 0x5049_5045;

/// Reads a regular file, or a shell's pipe (`<(…)`) to its end, at most `limit` bytes.
///
/// # Errors
/// The file is a directory; a device, which may have no end; or a FIFO or socket, where open or
/// read could wait for a writer. It is longer than `limit`. Otherwise the error of the system.
pub fn read_file(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Check before opening, because opening has effects: a FIFO waits, a tape rewinds, a watchdog
    // starts.
    let kind = fs::metadata(path)?.file_type();
    let piped = kind.is_fifo() && statfs(path).is_ok_and(|at| at.f_type as u64 == PIPEFS);
    if !piped {
        check(kind)?;
    }
    // O_NONBLOCK: if a FIFO has replaced the file since the check, this does not wait for a writer.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed())
        .open(path)?;
    if piped {
        // Reads of a pipe should wait for its writer.
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        return read_at_most(file, limit);
    }
    // Check again what was opened: the path may name another file by now.
    check(file.metadata()?.file_type())?;
    read_at_most(file, limit)
}

/// [`read_file`] as text.
///
/// # Errors
/// As [`read_file`], or the contents are not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let text = String::from_utf8(read_file(path, limit)?);
    text.map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
            .split(|&byte| byte == b'\n')
            .count();
        io::Error::new(ErrorKind::InvalidData, format!("line {line} is not UTF-8 text"))
    })
}

/// Reads to the end, at most `limit` bytes.
///
/// # Errors
/// There are more than `limit` bytes, or the source fails.
pub fn read_at_most(source: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed, to tell "at the limit" from "too long".
    source.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!("it is longer than {} MiB, the limit for this kind of file", limit >> 20),
        ));
    }
    Ok(bytes)
}

fn check(kind: FileType) -> io::Result<()> {
    let what = match kind {
        _ if kind.is_file() => return Ok(()),
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a FIFO",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::new(ErrorKind::InvalidInput, format!("it is {what}; name a regular file")))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    #[test]
    fn endless_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("text"), [7; 100]).unwrap();
        File::create(path("long")).unwrap().set_len(1 << 40).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("endless")).unwrap();
        assert!(Command::new("mkfifo").arg(path("fifo")).status().unwrap().success());
        assert_eq!(read_file(&path("text"), 100).unwrap(), [7; 100]);
        for (path, limit, words) in [
            (path("text"), 99, "longer than"),
            (path("long"), 2 << 20, "longer than 2 MiB, the limit"),
            (path("endless"), 100, "a device"),
            (path("fifo"), 100, "a FIFO"),
            (path("."), 100, "a directory"),
            (path("none"), 100, "No such file"),
        ] {
            let error = read_file(&path, limit).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn shell_pipes_are_read() {
        let (reader, mut writer) = io::pipe().unwrap();
        let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        let read = std::thread::spawn(move || read_file(&path, 1 << 20));
        io::Write::write_all(&mut writer, &[5; 1000]).unwrap();
        drop(writer);
        assert_eq!(read.join().unwrap().unwrap(), [5; 1000]);
        drop(reader);
    }

    #[test]
    fn invalid_utf8_names_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        fs::write(&path, b"a\nb\n\xff\n").unwrap();
        assert_eq!(read_text(&path, 100).unwrap_err().to_string(), "line 3 is not UTF-8 text");
    }
}
