//! What job files are read from: bytes, and the world that they refer to.

/// A job file, in memory.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Its name, for messages and for relative includes.
    pub name: &'a str,
    /// Its bytes.
    pub text: &'a [u8],
}

/// What reading a job file needs of the world.
pub trait Outside {
    /// The file that `from` includes as `path`: its name (one per file, however it was spelled, so that circles are
    /// seen) and its bytes; or why there is none. fio looks in the working directory, then beside `from`.
    fn include(&self, from: &str, path: &str) -> Result<(String, Vec<u8>), String>;

    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<String>;
}

/// A world without files and variables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Outside for Nothing {
    fn include(&self, _from: &str, _path: &str) -> Result<(String, Vec<u8>), String> {
        Err("there are no files here".into())
    }

    fn variable(&self, _name: &str) -> Option<String> {
        None
    }
}
