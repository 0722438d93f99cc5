//! What a job's `filename=` means: the name of an instance of an embedded device, or a path; and whether jobs may write to it.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use reap::{Backing, DeviceUri, KernelUri, Uri, UriError};
use workload::Job;
use workload::plan::Plan;

/// The device of jobs that name no path, and whose command line names no device.
pub const USUAL: &str = "mem:1G?profile=optane";
/// What stands for the device's name in a URI.
pub const PLACEHOLDER: &str = "{filename}";
/// Of files and block devices that the kernel drives.
const KERNEL: &str = "kernel:";

/// What `filename=` means in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filenames {
    /// A name. All devices are instances of this URI, in which `{filename}` stands for it.
    Name(String),
    /// A path: each is a device of its own. The URI has the parameters that all of them get; its path means nothing.
    Path(KernelUri),
}

/// A device that a target of the plan stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetDevice {
    /// What it is opened by.
    pub uri: String,
    /// In words: what it is, and what the job's `filename=` has to do with it.
    pub words: String,
    /// It is a new file, as long as the jobs use it.
    pub laid_out: bool,
}

/// What jobs may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Regular files of the user's own.
    Own,
    /// Whatever the system allows (`--allow-writes`).
    All,
}

/// Whether a URI is of a drive, on the bus or another process's, whose data are somebody's.
fn is_drive(uri: &str) -> bool {
    match uri.parse() {
        Ok(Uri::Pcie(_) | Uri::VfioUser(_)) => true,
        Ok(Uri::Multipath(uri)) => uri.is_served(),
        _ => false,
    }
}

/// Parses a `--device`: a URI, or `kernel:` without a path.
///
/// # Errors
/// What is wrong with it.
pub fn check(text: &str) -> Result<(), UriError> {
    if text.contains('/') && !text.contains(':') {
        let what = format!("a file or a block device is written `{KERNEL}{text}`, and `file:{text}` is one behind the embedded controller");
        return Err(UriError { uri: text.to_owned(), column: 1, what });
    }
    match bare(text)? {
        Some(_) => Ok(()),
        None => text.parse::<Uri>().map(drop),
    }
}

/// The parameters of `kernel:` without a path; `None`: it is something else.
fn bare(text: &str) -> Result<Option<KernelUri>, UriError> {
    let Some(rest) = text.strip_prefix(KERNEL).filter(|rest| rest.is_empty() || rest.starts_with('?')) else { return Ok(None) };
    // A path has to stand there while it is parsed.
    let parsed = format!("{KERNEL}_{rest}").parse::<KernelUri>();
    parsed.map(Some).map_err(|e| UriError { uri: text.to_owned(), column: e.column.saturating_sub(1).max(1), what: e.what })
}

impl TargetDevice {
    /// The files that it reads: the medium, and a profile of the user's own.
    pub fn files(&self) -> Vec<PathBuf> {
        if let Ok(KernelUri { path, .. }) = self.uri.parse() {
            return vec![path];
        }
        let Ok(DeviceUri { backing, profile, .. }) = DeviceUri::behind(&self.uri) else { return Vec::new() };
        let medium = if let Backing::File { path, .. } = backing { Some(path) } else { None };
        medium.into_iter().chain(profile.ends_with(".toml").then(|| profile.into())).collect()
    }
}

impl Filenames {
    /// What the names of `jobs` mean where the command line says `--device given`, or nothing: then they are paths, as in fio.
    ///
    /// # Errors
    /// Jobs without a name where those of others are paths, or a URI that does not parse.
    pub fn of(given: Option<&str>, jobs: &[Job]) -> Result<Filenames> {
        // fio opens no file for its engine `null`, so what such a job names is not to be written over.
        let opens_nothing = |job: &Job| given.is_none() && job.engine.name.as_deref() == Some("null");
        let names_file = |job: &&Job| (!job.filenames.is_empty() || job.file_format.is_some()) && !opens_nothing(job);
        let some = jobs.iter().any(|job| names_file(&job));
        let nameless = jobs.iter().find(|job| !names_file(job));
        if given.is_none()
            && let Some(job) = nameless.filter(|job| job.name.starts_with("/dev/"))
        {
            bail!(
                "job '{0}' has a device for its name, which fio would use: say filename={0}, or --device mem:SIZE for an embedded one",
                job.name
            );
        }
        let given = given.unwrap_or(if some { KERNEL } else { USUAL });
        let Some(shared) = bare(given)? else { return Ok(Filenames::Name(given.to_owned())) };
        if let Some(job) = nameless {
            let others = if some { ", and others do" } else { "" };
            bail!(
                "job '{}' names no file{others}; give it filename= or directory=, or say for all jobs --device {KERNEL}PATH, or --device mem:SIZE \
                 (an embedded device, for which filename= is only a name)",
                job.name
            );
        }
        Ok(Filenames::Path(shared))
    }

    /// A job that names no batch of submissions (`iodepth_batch` at 1, the default) gathers what it issues where a doorbell is a system
    /// call, in batches that grow with what is out.
    pub fn gather(&self, jobs: &mut [Job]) {
        if self.is_kernel() {
            jobs.iter_mut().filter(|job| job.batch_submit == 1).for_each(|job| (job.batch_submit, job.batch_grows) = (0, true));
        }
    }

    /// Whether the devices are files and block devices that the kernel drives.
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

    /// The profile of embedded devices; of others, what takes its place in results.
    ///
    /// # Errors
    /// The URI does not parse.
    pub fn profile(&self) -> Result<String> {
        match self {
            Filenames::Name(uri) if self.is_embedded() => Ok(DeviceUri::behind(uri)?.profile),
            Filenames::Name(uri) if is_drive(uri) => Ok(uri.split(':').next().unwrap_or_default().to_owned()),
            _ => Ok(KERNEL.trim_end_matches(':').to_owned()),
        }
    }

    /// The devices of the plan's targets, in their order.
    ///
    /// # Errors
    /// Two would be one, or a job would write to what it may not (`allowed`).
    pub fn devices(&self, jobs: &[Job], plan: &Plan, allowed: Allowed) -> Result<Vec<TargetDevice>> {
        let uris: Vec<String> = match self {
            Filenames::Name(uri) => uris(&plan.targets, uri)?,
            Filenames::Path(shared) => {
                let path = |name: &Option<String>| KernelUri { path: name.clone().unwrap_or_default().into(), ..shared.clone() };
                plan.targets.iter().map(|name| path(name).to_string()).collect()
            }
        };
        let named = |(target, uri): (usize, String)| {
            let users = plan.threads.iter().filter(|thread| thread.targets.contains(&target));
            let writes = |job: &&Job| job.pattern.modifies() && job.verify.as_ref().is_none_or(|verify| !verify.only);
            let writer = users.map(|thread| &jobs[thread.job]).find(writes);
            if uri.starts_with(KERNEL) {
                return kernel(uri.parse()?, writer, allowed, plan.lengths[target]);
            }
            // The data of a drive are somebody's.
            if is_drive(&uri) {
                if let Some(job) = writer.filter(|_| allowed != Allowed::All) {
                    bail!(
                        "job '{}': it would write over the drive {uri}, and what that holds would be lost. \
                         --allow-writes lets it; rw=read or rw=randread needs no leave",
                        job.name
                    );
                }
                let words = format!("{uri} (the drive itself, {})", if writer.is_some() { "read and written" } else { "only read" });
                return Ok(TargetDevice { uri, words, laid_out: false });
            }
            // A controller in this process. To a file that is its medium jobs write as to any other.
            if let (Some(job), Ok(DeviceUri { backing: Backing::File { path, .. }, .. })) = (writer, DeviceUri::behind(&uri))
                && let Ok(meta) = fs::metadata(&path)
            {
                may_write(&path, &meta, job, allowed)?;
            }
            let words = match plan.targets[target].as_deref() {
                Some(name) => format!("{uri} (embedded; filename={name} is its name, and no path)"),
                None => format!("{uri} (embedded)"),
            };
            Ok(TargetDevice { uri, words, laid_out: false })
        };
        uris.into_iter().enumerate().map(named).collect()
    }
}

/// A file or a block device: read-only unless a job writes, laid out with `length` bytes if it is not there.
fn kernel(mut uri: KernelUri, writer: Option<&Job>, allowed: Allowed, length: Option<u64>) -> Result<TargetDevice> {
    let meta = fs::metadata(&uri.path);
    let mut laid_out = false;
    match (&meta, writer) {
        (Ok(meta), None) => {
            // `size=` of a file that has that size says nothing more, and `readonly=` does not go with it.
            uri.bytes = uri.bytes.filter(|bytes| meta.len() != *bytes);
            uri.read_only |= uri.bytes.is_none();
        }
        (Ok(meta), Some(job)) => {
            let path = uri.path.display();
            ensure!(!uri.read_only, "job '{}' writes to {path}, and `readonly=yes` forbids it; leave one of them out", job.name);
            may_write(&uri.path, meta, job, allowed)?;
        }
        (Err(_), _) if uri.bytes.is_none() && !uri.read_only => {
            (uri.bytes, laid_out) = (length, true);
        }
        (Err(_), _) => {}
    }
    let words = match &meta {
        Ok(meta) if meta.is_file() => "the file itself",
        Ok(_) => "the block device itself",
        Err(_) => "a new file",
    };
    let access = if uri.read_only { "only read" } else { "read and written" };
    let words = format!("{KERNEL}{} ({words}, {access})", uri.path.display());
    Ok(TargetDevice { uri: uri.to_string(), words, laid_out })
}

/// The URI of each target, where its name is no more than a name.
fn uris(targets: &[Option<String>], uri: &str) -> Result<Vec<String>> {
    let is_file = uri.starts_with(KERNEL) || is_drive(uri) || matches!(DeviceUri::behind(uri)?.backing, Backing::File { .. });
    if targets.len() > 1 && is_file && !uri.contains(PLACEHOLDER) {
        let names: Vec<&str> = targets.iter().flatten().map(String::as_str).collect();
        let paths = if uri.starts_with(KERNEL) { ", or say --device kernel: if the names are paths" } else { "" };
        bail!(
            "--device {uri} is one {}, and the jobs use {} devices ({}); put {PLACEHOLDER} into the path, where each one's name will stand{paths}",
            if is_drive(uri) { "drive" } else { "file" },
            targets.len(),
            names.join(", ")
        );
    }
    let given = |target: &'_ Option<String>| target.clone().unwrap_or_else(|| "default".to_owned());
    let name = |target: &Option<String>| given(target).trim_start_matches('/').replace(['/', '?', '&', '%'], "_");
    let uris: Vec<String> = targets.iter().map(|target| uri.replace(PLACEHOLDER, &name(target))).collect();
    let twice = (0..uris.len()).find_map(|at| Some((uris[..at].iter().position(|uri| *uri == uris[at])?, at)));
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

/// Refuses that `job` writes to `path`, unless that is a regular file of the user's own or all is `allowed`.
fn may_write(path: &Path, meta: &Metadata, job: &Job, allowed: Allowed) -> Result<()> {
    let what = match meta.file_type() {
        kind if kind.is_file() => format!("a regular file of user {}", meta.uid()),
        kind if kind.is_block_device() => "a block device".to_owned(),
        // It is refused for what it is.
        _ => return Ok(()),
    };
    let own = meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw();
    ensure!(
        own || allowed == Allowed::All,
        "job '{}': it would write to {}, {what}, and what that holds would be lost. \
         --allow-writes lets it; rw=read or rw=randread needs no leave",
        job.name,
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests;
