//! The demonstration bucket: made once, by formula, as a plain folder that any Zarr tool opens.
//!
//! What it protects: a bucket is either whole or not there. It is written to a folder beside its place and renamed,
//! and nothing that someone else put into the bucket is ever removed.

mod arrays;
mod clip;
mod cloud;
mod files;
mod outline;
mod publish;
mod scene;
mod sound;

use std::io;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::model::{ErrorKind, Fault};

/// Name of the bucket, and of its folder within the data folder.
pub const BUCKET: &str = "demo";

/// Version of the content: raised with every change of it, so that an older bucket is replaced.
const VERSION: u64 = 1;
/// Attribute of the group `clips.zarr` that holds [`VERSION`] and marks the bucket as ours.
const VERSION_ATTRIBUTE: &str = "w4dx_demo_version";

/// How large a demonstration is. `height` and `width` are pixels and multiples of 64, `frames` of 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Number of clips.
    pub samples: u64,
    /// Frames of each clip, 25 a second.
    pub frames: u64,
    /// Rows of a frame.
    pub height: u64,
    /// Columns of a frame.
    pub width: u64,
}

impl Size {
    /// What `w4dx demo` writes: 24 MiB of video before compression.
    pub const FULL: Self = Self { samples: 16, frames: 32, height: 128, width: 128 };
}

/// Why a demonstration bucket could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// A file or a folder could not be read, written or moved.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried: a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// An array could not be encoded or stored.
    #[error("cannot write the array `{array}` of the demonstration")]
    Array {
        /// Name of the array within its group.
        array: &'static str,
        /// What the Zarr library said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The bucket's place is taken by something that this command did not make.
    #[error("{} exists and was not made by `w4dx demo`: name another folder with --data, or move it away", path.display())]
    Occupied {
        /// The folder in the way.
        path: PathBuf,
    },
}

impl DemoError {
    fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { action, path: path.to_path_buf(), source }
    }

    fn array(array: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Array { array, source: source.into() }
    }
}

impl Fault for DemoError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::File { .. } | Self::Array { .. } => ErrorKind::Internal,
            Self::Occupied { .. } => ErrorKind::InvalidParameter,
        }
    }
}

/// Makes sure that `data/demo` holds the demonstration bucket; true when it was written just now.
///
/// Writing takes a few seconds and shows a progress bar on standard error, unless `quiet` or when that is no
/// terminal. A bucket of this version is left as it is; of an older version, only the demonstration's own files are
/// replaced. Blocks: call it before the server starts.
///
/// # Errors
/// [`DemoError::Occupied`] when `data/demo` holds something else; otherwise what went wrong while writing, in which
/// case no half-made bucket is left.
pub fn ensure(data: &Path, quiet: bool) -> Result<bool, DemoError> {
    ensure_size(data, &Size::FULL, quiet)
}

/// As [`ensure`], with another size for tests.
///
/// # Errors
/// As [`ensure`].
pub fn ensure_size(data: &Path, size: &Size, quiet: bool) -> Result<bool, DemoError> {
    publish::once(data, |staging| {
        let bar = progress_bar(quiet);
        let written = write(staging, size, &|done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        written
    })
}

fn progress_bar(quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("writing the demonstration bucket [{bar:40}] {bytes} of {total_bytes}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    ProgressBar::with_draw_target(Some(0), target).with_style(style)
}

/// Writes the content of the bucket into the existing folder `bucket`; `progress` hears the bytes done and their
/// total, from several threads.
///
/// # Errors
/// [`DemoError::File`] or [`DemoError::Array`]; what was written until then stays.
pub fn write(bucket: &Path, size: &Size, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<(), DemoError> {
    files::write(bucket)?;
    arrays::write(&bucket.join("clips.zarr"), size, progress)
}

#[cfg(test)]
mod tests;
