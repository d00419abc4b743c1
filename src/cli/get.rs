//! `w4dx get`: a slice into a file.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use futures::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};

use super::say;
use super::source::Source;

/// Arguments of `get`.
#[derive(Debug, Args)]
pub(super) struct GetArguments {
    /// A local path, s3://bucket/key, or http://gateway/bucket/key of an array
    uri: String,
    /// What to read, as in numpy: `0:4,...,0:3`; everything when left out
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    slice: String,
    /// What to read by dimension name, such as `time=0:16`, or `sample=7` of a ragged array; may be repeated
    #[arg(long, value_name = "NAME=DIM")]
    isel: Vec<String>,
    /// An interval of a dimension in its coordinates, such as `time(12s:14s)` or `time(12s;n=50)`; may be repeated
    #[arg(long, value_name = "NAME(LOW:HIGH)")]
    subset: Vec<String>,
    /// A box by the dimensions named x, y and z: `x0,y0,x1,y1` or six numbers
    #[arg(long, allow_hyphen_values = true)]
    bbox: Option<String>,
    /// An interval of time: `START/END`, with `..` for an open end
    #[arg(long)]
    datetime: Option<String>,
    /// One position by its coordinate, such as `time=nearest::12.4`; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    sel: Vec<String>,
    /// Exactly so many cells from the lower end of a `--subset`, such as `time:50`; may be repeated
    #[arg(long, value_name = "NAME:CELLS")]
    count: Vec<String>,
    /// What the ends of intervals take; with left, windows that meet share nothing
    #[arg(long, value_parser = ["both", "left"])]
    closed: Option<String>,
    /// An array within a group or a .safetensors file
    #[arg(long)]
    array: Option<String>,
    /// Several arrays of a group by one selection, into a .safetensors file: names joined by commas
    #[arg(long)]
    fields: Option<String>,
    /// The length of every sample of a ragged array, and the value behind shorter ones, such as `64:0`
    #[arg(long, value_name = "LENGTH[:VALUE]")]
    pad: Option<String>,
    /// What holds for what is read, in CQL2 text, such as `label = 3 AND quality > 0.5`
    #[arg(long)]
    filter: Option<String>,
    /// What the answer to a filter holds
    #[arg(long, value_parser = ["values", "box", "mask", "indices"])]
    select: Option<String>,
    /// What a filter compares of packed values: what is stored, or what CF makes of it
    #[arg(long, value_parser = ["raw", "cf"])]
    values: Option<String>,
    /// What happens to range bounds outside the array
    #[arg(long, value_parser = ["clip", "error", "fill"])]
    oob: Option<String>,
    /// The value of positions outside the array, with --oob fill
    #[arg(long, allow_hyphen_values = true)]
    fill: Option<String>,
    /// Keep dimensions that an integer selects
    #[arg(long)]
    keepdims: bool,
    /// The form of the file: npy, raw, safetensors, json or png; by default as the file's ending says
    #[arg(long)]
    format: Option<String>,
    /// The file to write; `-` is standard output
    #[arg(short, long, default_value = "-")]
    output: PathBuf,
    /// Print the plan instead of reading
    #[arg(long)]
    explain: bool,
    /// No progress bar
    #[arg(long)]
    quiet: bool,
}

impl GetArguments {
    fn parameters(&self) -> Vec<(&'static str, String)> {
        // Without any, a request would be for the object itself.
        let whole = self.fields.is_none() || !self.slice.is_empty();
        let mut parameters = if whole { vec![("slice", self.slice.clone())] } else { Vec::new() };
        let repeated = [("isel", &self.isel), ("subset", &self.subset), ("sel", &self.sel), ("count", &self.count)];
        for (name, values) in repeated {
            parameters.extend(values.iter().map(|value| (name, value.clone())));
        }
        let ending = self.output.extension().and_then(|ending| ending.to_str()).map(|ending| match ending {
            "bin" => "raw",
            other => other,
        });
        let known = ["npy", "raw", "safetensors", "json", "png"];
        let format = self.format.clone().or_else(|| ending.filter(|e| known.contains(e)).map(str::to_owned));
        let single = [
            ("bbox", &self.bbox),
            ("datetime", &self.datetime),
            ("closed", &self.closed),
            ("array", &self.array),
            ("fields", &self.fields),
            ("pad", &self.pad),
            ("filter", &self.filter),
            ("select", &self.select),
            ("values", &self.values),
            ("oob", &self.oob),
            ("fill", &self.fill),
            ("format", &format),
        ];
        for (name, value) in single {
            if let Some(value) = value {
                parameters.push((name, value.clone()));
            }
        }
        if self.keepdims {
            parameters.push(("keepdims", "1".to_owned()));
        }
        if self.explain {
            parameters.push(("explain", "1".to_owned()));
        }
        parameters
    }
}

pub(super) async fn run(arguments: GetArguments) -> anyhow::Result<()> {
    let source = Source::open(&arguments.uri).await?;
    if arguments.explain {
        let plan = source.ask_json(&arguments.parameters()).await?;
        return say(&serde_json::to_string_pretty(&plan)?);
    }
    let answer = source.ask(&arguments.parameters()).await?;
    let (shape, dtype) = (answer.shape.clone(), answer.dtype.clone());
    let bar = progress(answer.len, arguments.quiet);
    let written = if arguments.output.as_os_str() == "-" {
        copy(answer.body, &mut std::io::stdout().lock(), &bar).await?
    } else {
        write_file(&arguments.output, answer.body, &bar).await?
    };
    bar.finish_and_clear();
    if !arguments.quiet && arguments.output.as_os_str() != "-" {
        let what = [dtype, shape].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let size = if what.is_empty() { format!("{written} bytes") } else { format!("{what} ({written} bytes)") };
        say(&format!("{}: {size}", arguments.output.display()))?;
    }
    Ok(())
}

fn progress(len: Option<u64>, quiet: bool) -> ProgressBar {
    let Some(len) = len.filter(|_| !quiet) else { return ProgressBar::hidden() };
    let bar = ProgressBar::new(len);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}") {
        bar.set_style(style);
    }
    bar
}

type Body = futures::stream::BoxStream<'static, anyhow::Result<bytes::Bytes>>;

async fn copy(mut body: Body, out: &mut dyn std::io::Write, bar: &ProgressBar) -> anyhow::Result<u64> {
    let mut written = 0;
    while let Some(part) = body.next().await {
        let part = part?;
        out.write_all(&part).context("the output cannot be written")?;
        written += part.len() as u64;
        bar.inc(part.len() as u64);
    }
    out.flush().context("the output cannot be written")?;
    Ok(written)
}

/// A read that fails leaves no half file: it is written beside and renamed.
async fn write_file(path: &Path, body: Body, bar: &ProgressBar) -> anyhow::Result<u64> {
    let name = path.file_name().with_context(|| format!("{} names no file", path.display()))?;
    let partial = path.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
    let mut file = std::io::BufWriter::with_capacity(
        1 << 20,
        std::fs::File::create(&partial).with_context(|| format!("{} cannot be written", path.display()))?,
    );
    let result = async {
        let written = copy(body, &mut file, bar).await?;
        file.flush()?;
        std::fs::rename(&partial, path).with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(written)
    }
    .await;
    if result.is_err() {
        // The error of the read is the one to tell.
        let _ = std::fs::remove_file(&partial);
    }
    result
}
