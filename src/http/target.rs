//! What a request is about, once it is known that it may ask.

use super::SliceRequest;
use super::error::Problem;
use super::gateway::Gateway;
use crate::auth::{Action, AuthError, Authorised};
use crate::dataset::{Array, DatasetError, Opened, Snapshot};
use crate::model::Details;
use crate::model::key::{beneath, join};
use crate::query::Request;

/// A parsed request with the proof that its principal may read the array.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) request: Request,
    pub(super) authorised: Authorised,
}

/// What a request is about: one path, or each of its `fields`.
#[derive(Debug)]
pub(super) enum Targets {
    One(Box<Target>),
    /// By their names, which are also those that their requests have in `array`.
    Fields(Vec<(String, Target)>),
}

impl Targets {
    /// The request; of several fields that about the first, which differs from the others in `array` alone.
    pub(super) fn request(&self) -> Option<&Request> {
        match self {
            Self::One(target) => Some(&target.request),
            Self::Fields(fields) => fields.first().map(|(_, target)| &target.request),
        }
    }
}

/// Checks rights, then parameters.
pub(super) fn authorise(gateway: &Gateway, asked: &SliceRequest) -> Result<Targets, Problem> {
    let in_key_form = gateway.buckets.resolve(&asked.bucket).is_none_or(|bucket| bucket.in_key_form);
    let parsed = Request::parse(&asked.key, &asked.pairs, in_key_form).map_err(Problem::from);
    let request = match parsed {
        Ok(request) if !request.fields.is_empty() => request,
        one => return authorised(gateway, asked, one).map(|target| Targets::One(Box::new(target))),
    };
    let fields = request.fields.iter().map(|name| {
        let target = authorised(gateway, asked, request.for_field(name).map_err(Problem::from));
        target.map(|target| (name.clone(), target)).map_err(|problem| problem.in_field(Some(name)))
    });
    fields.collect::<Result<_, _>>().map(Targets::Fields)
}

/// Checks rights on what a parsed request is about, then whether it could be parsed.
///
/// The rights are those on the resolved array: `{path}/` as a prefix, for its metadata and chunks, or `path` itself
/// where that is a file. They are checked before anything is looked up, and before a fault in the parameters is told.
pub(super) fn authorised(
    gateway: &Gateway,
    asked: &SliceRequest,
    parsed: Result<Request, Problem>,
) -> Result<Target, Problem> {
    let path = match &parsed {
        Ok(request) => match &request.array {
            Some(array) => join(&request.path, array),
            None => request.path.clone(),
        },
        Err(_) => asked.key.clone(),
    };
    let allow =
        |key: &str| gateway.policy.authorise(&asked.principal, Action::Read, &gateway.buckets, &asked.bucket, key);
    let mut places = vec![beneath(&path), path.clone()];
    if let Ok(Request { path: container, array: Some(_), .. }) = &parsed {
        // The array may be one of a file's: then the file is what is read.
        places.push(container.clone());
    }
    let mut denied = AuthError::Denied;
    for place in &places {
        match allow(place) {
            Ok(authorised) => return Ok(Target { request: parsed?, authorised }),
            Err(error @ AuthError::NoSuchBucket { .. }) => denied = error,
            Err(_) => {}
        }
    }
    Err(denied.into())
}

/// Finds what the target's path holds, looking only at what the principal may read.
pub(super) async fn open(
    gateway: &Gateway,
    asked: &SliceRequest,
    target: &Target,
    snapshot: &Snapshot,
) -> Result<Opened, Problem> {
    let bucket = target.authorised.bucket();
    let permitted = |key: &str| {
        gateway.policy.authorise(&asked.principal, Action::Read, &gateway.buckets, &asked.bucket, key).is_ok()
    };
    let path = &target.request.path;
    let absence = |error: DatasetError| absence(gateway, asked, path, error);
    let Some(name) = &target.request.array else {
        return gateway.datasets.open(bucket, path, &permitted, snapshot).await.map_err(absence);
    };
    let inner = join(path, name);
    if permitted(path) {
        // A file's array, else an array beneath the path.
        match gateway.datasets.open(bucket, path, &permitted, snapshot).await {
            Ok(opened @ (Opened::File(_) | Opened::Array(_))) => {
                return opened.array(bucket, Some(name)).map(Opened::Array).map_err(absence);
            }
            Ok(Opened::Group(_)) | Err(DatasetError::Nothing { .. }) => {}
            // An object that is no file of arrays may still share its name with a folder of them.
            Err(error @ DatasetError::UnknownFormat { .. }) => {
                return match gateway.datasets.open(bucket, &inner, &permitted, snapshot).await {
                    Err(DatasetError::Nothing { .. }) => Err(error.into()),
                    other => other.map_err(absence),
                };
            }
            Err(error) => return Err(error.into()),
        }
    }
    gateway.datasets.open(bucket, &inner, &permitted, snapshot).await.map_err(absence)
}

/// The one array that the target means.
pub(super) async fn array(
    gateway: &Gateway,
    asked: &SliceRequest,
    target: &Target,
    snapshot: &Snapshot,
) -> Result<Array, Problem> {
    const LISTED: usize = 20;
    let bucket = target.authorised.bucket();
    match open(gateway, asked, target, snapshot).await? {
        Opened::Group(group) => {
            // Best effort: the list is a hint in an error that stands without it.
            let members = gateway.datasets.members(bucket, &group, LISTED, None, snapshot).await;
            let arrays: Vec<String> = members
                .map(|(members, _)| {
                    members.into_iter().filter(|m| matches!(m.node, Ok(Some(_)))).map(|m| m.name).collect()
                })
                .unwrap_or_default();
            Err(DatasetError::NotAnArray { path: group.path, what: "a group", arrays }.into())
        }
        opened => opened.array(bucket, None).map_err(Problem::from),
    }
}

/// "Nothing there" is told only to those who may list; to others it is "denied", as for what exists.
fn absence(gateway: &Gateway, asked: &SliceRequest, path: &str, error: DatasetError) -> Problem {
    if matches!(error, DatasetError::Nothing { .. })
        && !gateway.policy.may_list(&asked.principal, &gateway.buckets, &asked.bucket, path)
    {
        let denied = Problem::from(AuthError::Denied);
        return denied.at(Details::default());
    }
    error.into()
}
