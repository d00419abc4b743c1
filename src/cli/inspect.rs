//! `w4dx inspect`: what a path holds.

use clap::Args;
use indicatif::HumanBytes;
use serde_json::Value;

use super::say;
use super::source::Source;

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub(super) struct InspectArguments {
    /// A local path, s3://bucket/key, or http://gateway/bucket/key of an array, group or file
    uri: String,
    /// An array within a group or a .safetensors file
    #[arg(long)]
    array: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: InspectArguments) -> anyhow::Result<()> {
    let source = Source::open(&arguments.uri).await?;
    let mut parameters = vec![("describe", "1".to_owned())];
    if let Some(array) = &arguments.array {
        parameters.push(("array", array.clone()));
    }
    let mut description = source.ask_json(&parameters).await?;
    // A long listing comes in pages.
    while let Some(next) = description["next"].as_str().map(str::to_owned) {
        let mut parameters = parameters.clone();
        parameters.extend([("limit", "1000".to_owned()), ("token", next)]);
        let mut page = source.ask_json(&parameters).await?;
        description["next"] = page["next"].take();
        if let (Some(all), Value::Array(more)) = (description["arrays"].as_array_mut(), page["arrays"].take()) {
            all.extend(more);
        }
    }
    if arguments.json {
        return say(&serde_json::to_string_pretty(&description)?);
    }
    say(&human(&description))
}

/// A description as lines for people.
fn human(description: &Value) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| {
        if !value.is_empty() && value != "null" {
            lines.push(format!("{name:<14}{value}"));
        }
    };
    line("kind", text(&description["kind"]));
    line("format", text(&description["format"]));
    for name in ["shape", "dtype", "dims", "chunk_shape", "shard_shape", "fill_value"] {
        line(&name.replace('_', " "), text(&description[name]));
    }
    line("codecs", codecs(&description["codecs"]).join(" → "));
    if let Some(stored) = description["stored_bytes"].as_u64() {
        let elements =
            description["shape"].as_array().map(|shape| shape.iter().filter_map(Value::as_u64).product::<u64>());
        let per_element =
            elements.filter(|n| *n > 0).map(|n| format!(", {:.3} bytes an element", stored as f64 / n as f64));
        line("stored bytes", format!("{stored} ({}{})", HumanBytes(stored), per_element.unwrap_or_default()));
    }
    for (name, value) in description["attributes"].as_object().into_iter().flatten() {
        line(&format!("@{name}"), text(value));
    }
    for member in description["arrays"].as_array().into_iter().flatten() {
        let what = match member["error"].as_str() {
            Some(error) => format!("cannot be read: {error}"),
            None if member["kind"] == "group" => "group".to_owned(),
            None => format!("{} {}", text(&member["dtype"]), text(&member["shape"])),
        };
        line(&format!("- {}", text(&member["name"])), what);
    }
    lines.join("\n")
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// The names of a chain of codecs, inner chains in brackets.
fn codecs(value: &Value) -> Vec<String> {
    match value {
        Value::Array(chain) => chain.iter().flat_map(codecs).collect(),
        Value::Object(codec) if codec.contains_key("name") => {
            let inner = codecs(&codec.get("configuration").map_or(Value::Null, |c| c["codecs"].clone()));
            let name = text(&codec["name"]);
            vec![if inner.is_empty() { name } else { format!("{name}({})", inner.join(" → ")) }]
        }
        Value::Object(codec) if codec.contains_key("id") => vec![text(&codec["id"])],
        // Zarr v2: filters, then the compressor.
        Value::Object(stored) => stored.values().flat_map(codecs).collect(),
        Value::String(name) => vec![name.clone()],
        _ => Vec::new(),
    }
}
