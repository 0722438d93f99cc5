//! What a job's `filename=` stands for (a path, or the name of an embedded device), and whether
//! jobs may write to it. All checks that protect user data from a wrong job file are here: without
//! `--allow-writes` jobs write only to embedded devices in memory, to new files, and to regular
//! files of the user.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use reap::{Backing, DeviceUri, KernelUri, Uri, UriError};
use workload::Job;
use workload::plan::Plan;

/// The default device.
pub const DEFAULT_DEVICE: &str = "mem:1G?profile=optane";
/// Replaced by the job's `filename=` in a URI.
pub const PLACEHOLDER: &str = "{filename}";
/// Scheme of files and block devices.
const KERNEL: &str = "kernel:";

/// The meaning of `filename=` in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filenames {
    /// A name. All devices are instances of this URI, in which `{filename}` is replaced by the
    /// name.
    Name(String),
    /// The path of a `kernel:` device; each path is a separate device. The URI has the parameters
    /// that all of them share; its own path is not used.
    Path(KernelUri),
}

/// The device of one target of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetDevice {
    /// Its URI.
    pub uri: String,
    /// Description for the results: the URI, the kind of device, and how `filename=` is used.
    pub words: String,
    /// The run creates the device as a file with the size that the jobs need, as fio lays out
    /// files.
    pub laid_out: bool,
}

/// What jobs may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Only regular files of the user.
    Own,
    /// Everything that the system permits (`--allow-writes`).
    All,
}

/// Whether a URI is that of a physical drive, or of a controller in another process.
fn is_drive(uri: &str) -> bool {
    match uri.parse() {
        Ok(Uri::Pcie(_) | Uri::VfioUser(_) | Uri::Tcp(_)) => true,
        Ok(Uri::Multipath(uri)) => uri.is_served(),
        _ => false,
    }
}

/// Checks the value of `--device`: a URI, or `kernel:` without a path.
///
/// # Errors
/// The first error, with its column.
pub fn check(text: &str) -> Result<(), UriError> {
    // A path without a scheme would be reported as an unknown scheme.
    if text.contains('/') && !text.contains(':') {
        let what = format!(
            "use `{KERNEL}{text}` for a file or block device, or `file:{text}` for a file behind the embedded controller"
        );
        return Err(UriError { uri: text.to_owned(), column: 1, what });
    }
    match bare(text)? {
        Some(_) => Ok(()),
        None => text.parse::<Uri>().map(drop),
    }
}

/// The parameters of `kernel:` without a path; `None` for other URIs.
fn bare(text: &str) -> Result<Option<KernelUri>, UriError> {
    let Some(rest) =
        text.strip_prefix(KERNEL).filter(|rest| rest.is_empty() || rest.starts_with('?'))
    else {
        return Ok(None);
    };
    // The parser requires a path.
    let parsed = format!("{KERNEL}_{rest}").parse::<KernelUri>();
    parsed.map(Some).map_err(|e| UriError {
        uri: text.to_owned(),
        column: e.column.saturating_sub(1).max(1),
        what: e.what,
    })
}

impl TargetDevice {
    /// The files that opening the device reads: its medium, and the file of its profile.
    pub fn files(&self) -> Vec<PathBuf> {
        if let Ok(KernelUri { path, .. }) = self.uri.parse() {
            return vec![path];
        }
        let Ok(DeviceUri { backing, profile, .. }) = DeviceUri::behind(&self.uri) else {
            return Vec::new();
        };
        let medium = if let Backing::File { path, .. } = backing { Some(path) } else { None };
        medium.into_iter().chain(profile.ends_with(".toml").then(|| profile.into())).collect()
    }
}

impl Filenames {
    /// The meaning of `filename=`, given the value of `--device`. Without `--device` filenames are
    /// paths, as in fio.
    ///
    /// # Errors
    /// Only some jobs have a path, or the URI is invalid.
    pub fn of(given: Option<&str>, jobs: &[Job]) -> Result<Filenames> {
        // fio opens no files for its engine `null`, so a job with that engine must not overwrite
        // them here.
        let opens_nothing =
            |job: &Job| given.is_none() && job.engine.name.as_deref() == Some("null");
        let names_file = |job: &&Job| {
            (!job.filenames.is_empty() || job.file_format.is_some()) && !opens_nothing(job)
        };
        let any_file = jobs.iter().any(|job| names_file(&job));
        let nameless = jobs.iter().find(|job| !names_file(job));
        // fio uses a job's name as the file name if it has no filename=. Creating an embedded
        // device for a job named /dev/… would be a surprise.
        if given.is_none()
            && let Some(job) = nameless.filter(|job| job.name.starts_with("/dev/"))
        {
            bail!(
                "job '{0}' is named like a device; give filename={0} to use that device, or --device mem:SIZE for an embedded one",
                job.name
            );
        }
        let given = given.unwrap_or(if any_file { KERNEL } else { DEFAULT_DEVICE });
        let Some(shared) = bare(given)? else { return Ok(Filenames::Name(given.to_owned())) };
        // With `kernel:` a job without a filename has no path to open.
        if let Some(job) = nameless {
            let others = if any_file { ", but other jobs have one" } else { "" };
            bail!(
                "job '{}' has no filename={others}; give it filename= or directory=, or give --device {KERNEL}PATH or --device mem:SIZE for all jobs \
                 (an embedded device, for which filename= is only a name)",
                job.name
            );
        }
        Ok(Filenames::Path(shared))
    }

    /// Lets jobs with the default `iodepth_batch=1` submit in growing batches on `kernel:` and
    /// `tcp:` devices, where each submission is a system call.
    pub fn gather(&self, jobs: &mut [Job]) {
        let over_tcp = matches!(self, Filenames::Name(uri) if uri.contains("tcp://"));
        if self.is_kernel() || over_tcp {
            jobs.iter_mut()
                .filter(|job| job.batch_submit == 1)
                .for_each(|job| (job.batch_submit, job.batch_grows) = (0, true));
        }
    }

    /// Whether the devices are `kernel:` devices.
    pub fn is_kernel(&self) -> bool {
        match self {
            Filenames::Name(uri) => uri.starts_with(KERNEL),
            Filenames::Path(_) => true,
        }
    }

    /// Whether the devices are controllers in this process.
    pub fn is_embedded(&self) -> bool {
        matches!(self, Filenames::Name(uri) if !uri.starts_with(KERNEL) && !is_drive(uri))
    }

    /// The name of the embedded devices' profile, or the scheme of other devices, for results.
    ///
    /// # Errors
    /// The URI is invalid.
    pub fn profile(&self) -> Result<String> {
        match self {
            Filenames::Name(uri) if self.is_embedded() => Ok(DeviceUri::behind(uri)?.profile),
            Filenames::Name(uri) if is_drive(uri) => {
                Ok(uri.split(':').next().unwrap_or_default().to_owned())
            }
            _ => Ok(KERNEL.trim_end_matches(':').to_owned()),
        }
    }

    /// The devices of the plan's targets, in order.
    ///
    /// # Errors
    /// Two targets would be one file, or a job would write to what is not `allowed`.
    pub fn devices(
        &self,
        jobs: &[Job],
        plan: &Plan,
        allowed: Allowed,
    ) -> Result<Vec<TargetDevice>> {
        let uris: Vec<String> = match self {
            Filenames::Name(uri) => uris(&plan.targets, uri)?,
            Filenames::Path(shared) => {
                let path = |name: &Option<String>| KernelUri {
                    path: name.clone().unwrap_or_default().into(),
                    ..shared.clone()
                };
                plan.targets.iter().map(|name| path(name).to_string()).collect()
            }
        };
        let named = |(target, uri): (usize, String)| {
            let users = plan.threads.iter().filter(|thread| thread.targets.contains(&target));
            let writes = |job: &&Job| {
                job.pattern.modifies() && job.verify.as_ref().is_none_or(|verify| !verify.only)
            };
            let writer = users.map(|thread| &jobs[thread.job]).find(writes);
            if uri.starts_with(KERNEL) {
                return kernel(uri.parse()?, writer, allowed, plan.lengths[target]);
            }
            // A drive may have valuable data, regardless of who owns its device file.
            if is_drive(&uri) {
                if let Some(job) = writer.filter(|_| allowed != Allowed::All) {
                    bail!(
                        "job '{}': this would overwrite the drive {uri}; its data would be lost. \
                         Use --allow-writes to allow it; rw=read and rw=randread need no option",
                        job.name
                    );
                }
                let words = format!(
                    "{uri} (drive, {})",
                    if writer.is_some() { "read-write" } else { "read-only" }
                );
                return Ok(TargetDevice { uri, words, laid_out: false });
            }
            // The medium of an embedded device may be a file, to which the same rule applies.
            if let (Some(job), Ok(DeviceUri { backing: Backing::File { path, .. }, .. })) =
                (writer, DeviceUri::behind(&uri))
                && let Ok(meta) = fs::metadata(&path)
            {
                may_write(&path, &meta, job, allowed)?;
            }
            let words = match plan.targets[target].as_deref() {
                Some(name) => format!("{uri} (embedded; filename={name} is a name, not a path)"),
                None => format!("{uri} (embedded)"),
            };
            Ok(TargetDevice { uri, words, laid_out: false })
        };
        uris.into_iter().enumerate().map(named).collect()
    }
}

/// A file or block device: read-only unless a job writes, and created with `length` bytes if it
/// does not exist.
fn kernel(
    mut uri: KernelUri,
    writer: Option<&Job>,
    allowed: Allowed,
    length: Option<u64>,
) -> Result<TargetDevice> {
    let meta = fs::metadata(&uri.path);
    let mut laid_out = false;
    match (&meta, writer) {
        (Ok(meta), None) => {
            // The parameters `size=` and `readonly=` exclude each other. `size=` is redundant if
            // the file has that size already.
            uri.bytes = uri.bytes.filter(|bytes| meta.len() != *bytes);
            uri.read_only |= uri.bytes.is_none();
        }
        (Ok(meta), Some(job)) => {
            let path = uri.path.display();
            ensure!(
                !uri.read_only,
                "job '{}' writes to {path}, which `readonly=yes` forbids; remove one of them",
                job.name
            );
            may_write(&uri.path, meta, job, allowed)?;
        }
        (Err(_), _) if uri.bytes.is_none() && !uri.read_only => {
            (uri.bytes, laid_out) = (length, true);
        }
        (Err(_), _) => {}
    }
    let words = match &meta {
        Ok(meta) if meta.is_file() => "a file",
        Ok(_) => "a block device",
        Err(_) => "a new file",
    };
    let access = if uri.read_only { "read-only" } else { "read-write" };
    let words = format!("{KERNEL}{} ({words}, {access})", uri.path.display());
    Ok(TargetDevice { uri: uri.to_string(), words, laid_out })
}

/// The URI of each target, if `filename=` is a name.
fn uris(targets: &[Option<String>], uri: &str) -> Result<Vec<String>> {
    let is_file = uri.starts_with(KERNEL)
        || is_drive(uri)
        || matches!(DeviceUri::behind(uri)?.backing, Backing::File { .. });
    if targets.len() > 1 && is_file && !uri.contains(PLACEHOLDER) {
        let names: Vec<&str> = targets.iter().flatten().map(String::as_str).collect();
        let paths = if uri.starts_with(KERNEL) {
            ", or give --device kernel: if the names are paths"
        } else {
            ""
        };
        bail!(
            "--device {uri} is one {}, but the jobs use {} devices ({}); put {PLACEHOLDER} into the path, to be replaced by each name{paths}",
            if is_drive(uri) { "drive" } else { "file" },
            targets.len(),
            names.join(", ")
        );
    }
    let given = |target: &'_ Option<String>| target.clone().unwrap_or_else(|| "default".to_owned());
    let name = |target: &Option<String>| {
        given(target).trim_start_matches('/').replace(['/', '?', '&', '%'], "_")
    };
    let uris: Vec<String> =
        targets.iter().map(|target| uri.replace(PLACEHOLDER, &name(target))).collect();
    let twice = (0..uris.len())
        .find_map(|at| Some((uris[..at].iter().position(|uri| *uri == uris[at])?, at)));
    // Checked after characters were replaced: two jobs on one file would overwrite each other's
    // data.
    if let Some((first, second)) = twice.filter(|_| is_file) {
        bail!(
            "the jobs' devices '{}' and '{}' would both be {}, because / ? & and % in a name become _ there: rename one of them",
            given(&targets[first]),
            given(&targets[second]),
            uris[second]
        );
    }
    Ok(uris)
}

/// Returns an error if `job` may not write to `path`.
fn may_write(path: &Path, meta: &Metadata, job: &Job, allowed: Allowed) -> Result<()> {
    let what = match meta.file_type() {
        kind if kind.is_file() => format!("a regular file of user {}", meta.uid()),
        kind if kind.is_block_device() => "a block device".to_owned(),
        // Opening it fails later, with an error about its type.
        _ => return Ok(()),
    };
    let own = meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw();
    ensure!(
        own || allowed == Allowed::All,
        "job '{}': this would write to {}, {what}; its data would be lost. \
         Use --allow-writes to allow it; rw=read and rw=randread need no option",
        job.name,
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests;
