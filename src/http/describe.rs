//! What a path holds, as JSON.

use std::sync::Arc;

use ::http::header::{self, HeaderValue};
use ::http::{Method, Response, StatusCode};
use bytes::Bytes;
use serde_json::{Value, json};

use super::conditions::{Conditions, Verdict};
use super::error::Problem;
use super::gateway::Gateway;
use super::target::{self, Target};
use super::{Body, SliceRequest, etag, full, headers, wire_time};
use crate::coords::{self, Coordinates};
use crate::dataset::{Array, Group, GroupMember, Opened, OpenedFile, Snapshot, Source};
use crate::format::{ArrayMeta, Storage};
use crate::model::key::beneath;
use crate::model::{ChunkData, ErrorKind};
use crate::store::ListRequest;
use crate::tensor::Tensor;
use crate::wire::{self, Format};

/// Members a page, where the request names no limit.
const PAGE: usize = 100;

/// Objects that are counted for `stored_bytes`; an array of more says `null`.
const COUNTED: usize = 10_000;

/// Answers `describe`.
pub(super) async fn describe(
    gateway: &Gateway,
    asked: &SliceRequest,
    target: &Target,
    snapshot: &Snapshot,
) -> Result<Response<Body>, Problem> {
    if let Some(format) = target.request.format.as_deref().filter(|format| *format != "json") {
        let message = format!("a description is JSON, not `{format}`");
        return Err(Problem::new(ErrorKind::FormatNotPossible, message));
    }
    let limit = target.request.limit.unwrap_or(PAGE);
    let after = target.request.token.as_deref();
    let (body, sources) = match target::open(gateway, asked, target, snapshot).await? {
        Opened::Array(array) => (of_array(&array).await?, Arc::clone(&array.sources)),
        Opened::Group(group) => {
            let bucket = target.authorised.bucket();
            let page = gateway.datasets.members(bucket, &group, limit, after, snapshot).await?;
            (of_group(&group, &page.0, page.1), Arc::clone(&group.sources))
        }
        Opened::File(file) => (of_file(&file, limit, after), Arc::clone(&file.sources)),
    };
    // The members of a group and the bytes stored change without the sources: the body itself is the version.
    let etag = etag::of_description(&sources, &body.to_string());
    Ok(json_with_version(&body, &etag, &sources, asked))
}

fn json_with_version(body: &Value, etag: &str, sources: &[Source], asked: &SliceRequest) -> Response<Body> {
    let modified = sources.iter().filter_map(Source::last_modified).max().unwrap_or(std::time::UNIX_EPOCH);
    let mut response = match Conditions::of(&asked.headers).without_dates().judge(Some(etag), modified) {
        Verdict::Proceed => json(body, Some(etag), asked),
        Verdict::NotModified => {
            let mut response = Response::new(full(Bytes::new()));
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            headers::set(response.headers_mut(), "etag", &format!("\"{etag}\""));
            response
        }
        Verdict::Failed => {
            let problem = Problem::new(ErrorKind::PreconditionFailed, "the description has another version");
            let resource = format!("/{}/{}", asked.bucket, asked.key);
            let as_json = super::error::accepts_problem_json(&asked.headers);
            return super::error::render(&problem, as_json, &resource, &asked.request_id);
        }
    };
    headers::set(response.headers_mut(), "last-modified", &httpdate::fmt_http_date(wire_time(modified)));
    response
}

/// A JSON answer.
pub(super) fn json(body: &Value, etag: Option<&str>, asked: &SliceRequest) -> Response<Body> {
    let text = body.to_string();
    let len = text.len();
    let mut response = Response::new(full(if asked.method == Method::HEAD { String::new() } else { text }));
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    out.insert(header::VARY, HeaderValue::from_static("Accept, Origin"));
    headers::set(out, "content-length", &len.to_string());
    if let Some(etag) = etag {
        headers::set(out, "etag", &format!("\"{etag}\""));
    }
    response
}

async fn of_array(array: &Array) -> Result<Value, Problem> {
    let meta = &array.meta;
    let shard_shape = match &meta.storage {
        Storage::Grid(grid) if !grid.shards.is_empty() => json!(grid.object_shape),
        Storage::Grid(_) | Storage::Dense { .. } => Value::Null,
    };
    let chunk_shape = match &meta.storage {
        Storage::Grid(grid) => json!(grid.stored_chunk_shape()),
        Storage::Dense { .. } => Value::Null,
    };
    Ok(json!({
        "v": 1,
        "kind": "array",
        "name": array.name,
        "format": meta.format.name(),
        "shape": meta.shape,
        "dtype": meta.dtype.name(),
        "dims": meta.dims,
        "coordinates": declared_coordinates(meta),
        "chunk_shape": chunk_shape,
        "shard_shape": shard_shape,
        "codecs": meta.stored_codecs,
        "fill_value": fill_json(meta),
        "attributes": meta.attributes,
        "stored_bytes": stored_bytes(array).await?,
        "source_etag": array.version(),
    }))
}

/// Per axis what the array's own attributes declare of its coordinates. Arrays beside it tell of others, and are seen
/// there.
fn declared_coordinates(meta: &ArrayMeta) -> Vec<Value> {
    let of_axis = |axis| match coords::declared(&meta.attributes, axis, &meta.dims) {
        Ok(found) => found.map_or(Value::Null, |found| Coordinates::from(found).describe()),
        Err(error) => json!({ "kind": "broken", "error": error.to_string() }),
    };
    (0..meta.shape.len()).map(of_axis).collect()
}

/// The fill value as the JSON format writes an element.
fn fill_json(meta: &ArrayMeta) -> Value {
    let data = match meta.dtype.size_bytes() {
        Some(_) => ChunkData::Fixed(Bytes::copy_from_slice(&meta.fill)),
        None => ChunkData::Variable(vec![meta.fill.clone().into_boxed_slice()]),
    };
    let tensor = Tensor { shape: vec![], dtype: meta.dtype.clone(), data };
    let encoded = wire::encode(Format::Json, "fill", &tensor, &[]);
    encoded.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or(Value::Null)
}

/// Bytes of the array's chunks or shards; `None` when there are too many to count here.
async fn stored_bytes(array: &Array) -> Result<Option<u64>, Problem> {
    if let Storage::Dense { .. } = array.meta.storage {
        return Ok(crate::model::shape::bytes(&array.meta.shape, array.meta.dtype.size_bytes().unwrap_or(0)));
    }
    let prefix = beneath(&array.path);
    let (mut total, mut counted, mut after) = (0_u64, 0, None);
    loop {
        let request = ListRequest { prefix: prefix.clone(), delimiter: None, start_after: after, max_keys: 1000 };
        let page = array.bucket.store.list(&request).await?;
        counted += page.objects.len();
        if counted > COUNTED {
            return Ok(None);
        }
        let chunks = page.objects.iter().filter(|(key, _)| !is_metadata(key));
        total = chunks.fold(total, |sum, (_, info)| sum.saturating_add(info.size));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(Some(total)),
        }
    }
}

fn is_metadata(key: &str) -> bool {
    let name = key.rsplit('/').next().unwrap_or(key);
    matches!(name, "zarr.json" | ".zarray" | ".zattrs" | ".zgroup" | ".zmetadata")
}

fn of_group(group: &Group, members: &[GroupMember], more: bool) -> Value {
    let next = members.last().filter(|_| more).map(|member| member.name.as_str());
    json!({
        "v": 1,
        "kind": "group",
        "format": group.format,
        "attributes": group.attributes,
        "arrays": members.iter().map(of_member).collect::<Vec<_>>(),
        "consolidated": group.consolidated.is_some(),
        "next": next,
    })
}

fn of_member(member: &GroupMember) -> Value {
    match &member.node {
        Ok(Some(meta)) => summary(&member.name, meta),
        Ok(None) => json!({ "name": member.name, "kind": "group" }),
        Err(reason) => json!({ "name": member.name, "kind": "array", "error": reason }),
    }
}

fn of_file(file: &OpenedFile, limit: usize, after: Option<&str>) -> Value {
    let begin = after.map_or(0, |after| {
        file.arrays.iter().position(|(name, _)| name == after).map_or(file.arrays.len(), |found| found + 1)
    });
    let page: Vec<Value> = file.arrays[begin..]
        .iter()
        .take(limit)
        .map(|(name, meta)| match meta {
            Ok(meta) => summary(name, meta),
            Err(error) => json!({ "name": name, "kind": "array", "error": error.to_string() }),
        })
        .collect();
    let next = (file.arrays.len() > begin + limit).then(|| file.arrays[begin + limit - 1].0.clone());
    json!({
        "v": 1,
        "kind": "file",
        "format": file.format,
        "attributes": {},
        "arrays": page,
        "consolidated": true,
        "next": next,
    })
}

fn summary(name: &str, meta: &ArrayMeta) -> Value {
    json!({ "name": name, "kind": "array", "shape": meta.shape, "dtype": meta.dtype.name(), "dims": meta.dims })
}
