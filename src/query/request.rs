//! A whole request about an array: what is wanted of it, and which part.

use percent_encoding::percent_decode_str;

use super::filter::Filter;
use super::grammar::{parse_dim, parse_slice};
use super::interval::{self, Closed, OnAxis, Subset};
use super::parameters::{self, Parameters};
use super::{OutOfBounds, QueryError, Selection};

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The elements.
    Slice,
    /// The description of the array or group.
    Describe,
    /// The plan for the elements, without reading them.
    Explain,
    /// The elements' chunks in the cache, and nothing of them in the answer.
    Prefetch,
}

/// What a filter's answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Select {
    /// What the filter takes.
    #[default]
    Values,
    /// The smallest slice that holds all that it takes.
    Box,
    /// A truth value for each place.
    Mask,
    /// The positions that it takes.
    Indices,
}

/// What values are compared where they are packed or may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// What is stored.
    Raw,
    /// What CF's attributes make of it.
    Cf,
}

/// A predicate of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predicate {
    /// What it says.
    pub filter: Filter,
    /// What the answer holds.
    pub select: Select,
    /// What is compared, if the request says so.
    pub meaning: Option<Meaning>,
}

/// How a batch is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchOptions {
    /// `stack`: one contiguous tensor a field instead of a frame an item.
    pub stack: bool,
    /// `on_error=skip`: an item that fails is told as such and the others go on.
    pub skip_errors: bool,
}

/// The parameters of one request, parsed. Formats and fill values stay text: their meaning needs the array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The key that the parameters are about, without an in-key segment.
    pub path: String,
    /// `array`: a relative name below `path`, checked to stay below.
    pub array: Option<String>,
    /// `fields`: several arrays below `path`, each checked like `array`. Empty means one array.
    pub fields: Vec<String>,
    /// What is wanted.
    pub what: What,
    /// Which part.
    pub selection: Selection,
    /// `filter`, with what its answer is made of.
    pub filter: Option<Predicate>,
    /// `pad`: the length of every sample of a ragged array, and the value behind the shorter ones, as sent.
    pub pad: Option<(u64, Option<String>)>,
    /// `fill`, as sent.
    pub fill: Option<String>,
    /// `expect_shape`: `None` entries match anything.
    pub expect_shape: Option<Vec<Option<u64>>>,
    /// `format`, or the in-key suffix, as sent.
    pub format: Option<String>,
    /// `limit`: arrays a page of `describe`.
    pub limit: Option<usize>,
    /// `token`: where a page of `describe` begins.
    pub token: Option<String>,
    /// `batch`: the selections stand in the body.
    pub batch: Option<BatchOptions>,
}

impl Request {
    /// Parses a request about `key` from its decoded query pairs.
    ///
    /// # Errors
    /// [`QueryError`] for the first parameter at fault.
    pub fn parse(key: &str, query: &[(String, String)], in_key_form: bool) -> Result<Self, QueryError> {
        let Parameters { path, pairs, suffix } = parameters::collect(key, query, in_key_form)?;
        let mut request = Self {
            path,
            array: None,
            fields: Vec::new(),
            what: What::Slice,
            selection: Selection::default(),
            filter: None,
            pad: None,
            fill: None,
            expect_shape: None,
            format: suffix.map(str::to_owned),
            limit: None,
            token: None,
            batch: None,
        };
        let mut chosen: Vec<(&'static str, What)> = Vec::new();
        let mut single: Option<&'static str> = None;
        let mut counts: Vec<(String, u64)> = Vec::new();
        let (mut batch, mut options, mut option) = (false, BatchOptions::default(), None);
        let (mut filter, mut select, mut meaning) = (None, None, None);
        for (name, value) in pairs {
            if matches!(name, "slice" | "isel" | "format" | "subset" | "bbox" | "datetime" | "sel" | "count") {
                single = Some(name);
            }
            let invalid = |reason: String, valid: &str| QueryError::InvalidValue {
                parameter: name.to_owned(),
                reason,
                valid: Some(valid.to_owned()),
            };
            match name {
                "slice" => request.selection.dims = parse_slice(&value)?,
                "isel" => {
                    let (dimension, dim) = value
                        .split_once('=')
                        .ok_or_else(|| invalid(format!("`{value}` has no `=`"), "NAME=DIM, such as time=0:16"))?;
                    let dimension = percent_decode_str(dimension)
                        .decode_utf8()
                        .map_err(|_| invalid(format!("`{dimension}` is not UTF-8 once decoded"), "a UTF-8 name"))?;
                    request.selection.named.push((dimension.into_owned(), parse_dim(dim)?));
                }
                "subset" => request.selection.subsets.push(interval::parse_subset(&value)?),
                "bbox" => request.selection.subsets.extend(interval::parse_bbox(&value)?),
                "datetime" => request.selection.subsets.push(interval::parse_datetime(&value)?),
                "sel" => request.selection.labels.push(interval::parse_label(&value)?),
                "count" => counts.push(interval::parse_count(&value)?),
                "closed" => {
                    request.selection.closed = match value.as_str() {
                        "both" => Closed::Both,
                        "left" => Closed::Left,
                        _ => return Err(invalid(format!("`{value}` is neither"), "both, left")),
                    }
                }
                "array" => {
                    check_name(name, &value)?;
                    request.array = Some(value);
                }
                "fields" => request.fields = names(&value)?,
                "filter" => filter = Some(Filter::parse(&value)?),
                "select" => {
                    select = Some(match value.as_str() {
                        "values" => Select::Values,
                        "box" => Select::Box,
                        "mask" => Select::Mask,
                        "indices" => Select::Indices,
                        _ => return Err(invalid(format!("`{value}` is none of them"), "values, box, mask, indices")),
                    });
                }
                "values" => {
                    meaning = Some(match value.as_str() {
                        "raw" => Meaning::Raw,
                        "cf" => Meaning::Cf,
                        _ => return Err(invalid(format!("`{value}` is neither"), "raw, cf")),
                    });
                }
                "oob" => {
                    request.selection.oob = match value.as_str() {
                        "clip" => OutOfBounds::Clip,
                        "error" => OutOfBounds::Error,
                        "fill" => OutOfBounds::Fill,
                        _ => return Err(invalid(format!("`{value}` is none of them"), "clip, error, fill")),
                    }
                }
                "fill" => request.fill = Some(value),
                "pad" => {
                    let (to, with) =
                        value.split_once(':').map_or((value.as_str(), None), |(to, with)| (to, Some(with)));
                    let to = to.trim().parse().ok().filter(|to| *to <= MOST_PADDED);
                    let to = to.ok_or_else(|| invalid(format!("`{value}` has no length"), "LENGTH or LENGTH:VALUE"))?;
                    request.pad = Some((to, with.map(str::to_owned)));
                }
                "keepdims" => request.selection.keepdims = flag(&value).ok_or_else(|| not_a_flag(name, &value))?,
                "describe" | "explain" | "prefetch" => {
                    let what = match name {
                        "describe" => What::Describe,
                        "explain" => What::Explain,
                        _ => What::Prefetch,
                    };
                    if flag(&value).ok_or_else(|| not_a_flag(name, &value))? {
                        chosen.push((name, what));
                    }
                }
                "batch" => batch = flag(&value).ok_or_else(|| not_a_flag(name, &value))?,
                "stack" => {
                    option = Some(name);
                    options.stack = flag(&value).ok_or_else(|| not_a_flag(name, &value))?;
                }
                "on_error" => {
                    option = Some(name);
                    options.skip_errors = match value.as_str() {
                        "fail" => false,
                        "skip" => true,
                        _ => return Err(invalid(format!("`{value}` is neither"), "fail, skip")),
                    };
                }
                "expect_shape" => {
                    request.expect_shape = Some(expected_shape(&value).ok_or_else(|| {
                        invalid(format!("`{value}` is not a shape"), "lengths or * joined by commas; [] for 0-d")
                    })?);
                }
                "format" => request.format = Some(value),
                "limit" => {
                    let limit = value.parse().ok().filter(|n| (1..=1000).contains(n));
                    request.limit = Some(limit.ok_or_else(|| invalid(format!("`{value}` is outside"), "1..=1000"))?);
                }
                "token" => request.token = Some(value),
                other => return Err(QueryError::Reserved { name: other.to_owned() }),
            }
        }
        count_cells(&mut request.selection.subsets, counts)?;
        let refused = |parameter: &str, reason: String| QueryError::InvalidValue {
            parameter: parameter.to_owned(),
            reason,
            valid: None,
        };
        request.what = match chosen[..] {
            [] => What::Slice,
            [(_, what)] => what,
            [(first, _), (second, _), ..] => {
                return Err(refused(second, format!("cannot be combined with `{first}`")));
            }
        };
        match (batch, option, single) {
            (false, Some(option), _) => return Err(refused(option, "needs `batch`".to_owned())),
            (true, _, Some(single)) => {
                return Err(refused(single, "cannot be combined with `batch`: it stands in the body".to_owned()));
            }
            (true, _, None) if request.what == What::Describe => {
                return Err(refused("describe", "cannot be combined with `batch`".to_owned()));
            }
            (true, _, None) => request.batch = Some(options),
            (false, None, _) => {}
        }
        request.filter = match (filter, select.map(|_| "select").or(meaning.map(|_| "values"))) {
            (Some(filter), _) => Some(Predicate { filter, select: select.unwrap_or_default(), meaning }),
            // A box may be one of points, whose places are values.
            (None, Some("select")) if request.selection.has_bbox() => {
                let filter = Filter::And(Vec::new());
                Some(Predicate { filter, select: select.unwrap_or_default(), meaning })
            }
            (None, Some(alone)) => return Err(refused(alone, "needs `filter`".to_owned())),
            (None, None) => None,
        };
        if request.filter.is_some() {
            let beside = [
                ("oob", request.selection.oob == OutOfBounds::Fill),
                ("pad", request.pad.is_some()),
                ("describe", request.what == What::Describe),
                ("batch", request.batch.is_some()),
            ];
            if let Some((beside, _)) = beside.into_iter().find(|(_, given)| *given) {
                return Err(refused(beside, "cannot be combined with `filter`".to_owned()));
            }
        }
        if !request.fields.is_empty() {
            let beside = [
                ("array", request.array.is_some()),
                ("slice", !request.selection.dims.is_empty()),
                ("expect_shape", request.expect_shape.is_some()),
                ("describe", request.what == What::Describe),
                ("batch", request.batch.is_some()),
            ];
            if let Some((beside, _)) = beside.into_iter().find(|(_, given)| *given) {
                let reason = match beside {
                    "slice" => "cannot be combined with `fields`, whose dimensions differ: use `isel` and `subset`",
                    "batch" => "takes its `fields` in the body",
                    _ => "cannot be combined with `fields`",
                };
                return Err(refused(beside, reason.to_owned()));
            }
        }
        if request.fill.is_some() && request.selection.oob != OutOfBounds::Fill {
            return Err(QueryError::InvalidValue {
                parameter: "fill".to_owned(),
                reason: "needs `oob=fill`".to_owned(),
                valid: None,
            });
        }
        if request.pad.is_some() && request.selection.oob == OutOfBounds::Fill {
            return Err(refused("pad", "cannot be combined with `oob=fill`: both say what lies outside".to_owned()));
        }
        if request.what != What::Describe && (request.limit.is_some() || request.token.is_some()) {
            return Err(QueryError::InvalidValue {
                parameter: if request.limit.is_some() { "limit" } else { "token" }.to_owned(),
                reason: "needs `describe`".to_owned(),
                valid: None,
            });
        }
        Ok(request)
    }

    /// The same request about one field: an array below the path, as `array` names one.
    ///
    /// # Errors
    /// [`QueryError::InvalidValue`] for a name that leaves the path, or beside `array`.
    pub fn for_field(&self, name: &str) -> Result<Self, QueryError> {
        if self.array.is_some() {
            return Err(QueryError::InvalidValue {
                parameter: "array".to_owned(),
                reason: "cannot be combined with `fields`: these name the arrays".to_owned(),
                valid: None,
            });
        }
        check_name("batch", name)?;
        Ok(Self { array: Some(name.to_owned()), fields: Vec::new(), ..self.clone() })
    }

    /// Checks `expect_shape` against the answer's shape.
    ///
    /// # Errors
    /// [`QueryError::ShapeMismatch`].
    pub fn check_shape(&self, answer: &[u64]) -> Result<(), QueryError> {
        let Some(expected) = &self.expect_shape else { return Ok(()) };
        let meets = expected.len() == answer.len()
            && expected.iter().zip(answer).all(|(want, got)| want.is_none_or(|want| want == *got));
        if meets {
            return Ok(());
        }
        let expected: Vec<String> =
            expected.iter().map(|want| want.map_or_else(|| "*".to_owned(), |n| n.to_string())).collect();
        Err(QueryError::ShapeMismatch {
            actual: format!("{answer:?}").replace(' ', ""),
            expected: format!("[{}]", expected.join(",")),
        })
    }
}

/// Longest sample after padding: positions are listed.
const MOST_PADDED: u64 = 1 << 24;

/// `count=NAME:CELLS` is `;n=CELLS` in the subset of that name.
fn count_cells(subsets: &mut [Subset], counts: Vec<(String, u64)>) -> Result<(), QueryError> {
    for (name, cells) in counts {
        let of_name = |subset: &&mut Subset| subset.axis == OnAxis::Named(name.clone());
        let refused = |reason: String| QueryError::InvalidValue {
            parameter: "count".to_owned(),
            reason,
            valid: Some("the name of a `subset` with a lower end and without `;n=`".to_owned()),
        };
        let subset =
            subsets.iter_mut().find(of_name).ok_or_else(|| refused(format!("no `subset` is about `{name}`")))?;
        if subset.interval.cells.is_some() {
            return Err(refused(format!("the cells of `{name}` are counted twice")));
        }
        if subset.interval.lo == interval::Mark::Open {
            return Err(refused(format!("the `subset` of `{name}` has no lower end to count from")));
        }
        subset.interval.cells = Some(cells);
    }
    Ok(())
}

/// Names joined by commas, each once; percent-decoded once more, for those that hold one.
fn names(text: &str) -> Result<Vec<String>, QueryError> {
    const MOST: usize = 256;
    let refused = |reason: String| QueryError::InvalidValue {
        parameter: "fields".to_owned(),
        reason,
        valid: Some(format!("1 to {MOST} different names of arrays below the path, joined by commas")),
    };
    let mut names: Vec<String> = Vec::new();
    for name in text.split(',') {
        let decoded = percent_decode_str(name.trim()).decode_utf8();
        let name = decoded.map_err(|_| refused(format!("`{name}` is not UTF-8 once decoded")))?.into_owned();
        check_name("fields", &name)?;
        if names.contains(&name) {
            return Err(refused(format!("`{name}` is given twice")));
        }
        if names.len() == MOST {
            return Err(refused("there are too many".to_owned()));
        }
        names.push(name);
    }
    Ok(names)
}

/// Checks that a name of an array stays below its path.
fn check_name(parameter: &str, name: &str) -> Result<(), QueryError> {
    if name.split('/').any(|segment| matches!(segment, "" | "." | "..")) || name.contains(['\0', '\\']) {
        return Err(QueryError::InvalidValue {
            parameter: parameter.to_owned(),
            reason: format!("`{name}` is not a relative name"),
            valid: Some("a name below the path, without empty, `.` or `..` segments".to_owned()),
        });
    }
    Ok(())
}

/// A switch: on when given without a value.
fn flag(value: &str) -> Option<bool> {
    match value {
        "" | "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

fn not_a_flag(name: &str, value: &str) -> QueryError {
    QueryError::InvalidValue {
        parameter: name.to_owned(),
        reason: format!("`{value}` is not a switch"),
        valid: Some("1 or 0, or no value".to_owned()),
    }
}

fn expected_shape(text: &str) -> Option<Vec<Option<u64>>> {
    let text = text.trim();
    let inner = text.strip_prefix('[').map_or(Some(text), |rest| rest.strip_suffix(']'))?;
    if inner.trim().is_empty() {
        // `[]` is the shape of a single element; an empty value is a mistake.
        return text.starts_with('[').then(Vec::new);
    }
    inner
        .split(',')
        .map(|part| match part.trim() {
            "*" => Some(None),
            number => number.parse().ok().map(Some),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(query: &[(&str, &str)]) -> Result<Request, QueryError> {
        let query: Vec<_> = query.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Request::parse("a/b", &query, true)
    }

    #[test]
    fn array_names_cannot_leave_the_path() {
        for name in ["", ".", "..", "/x", "x/../y", "../../other/secret", "x//y", "x/"] {
            assert!(matches!(ask(&[("array", name)]), Err(QueryError::InvalidValue { .. })), "{name}");
        }
        assert_eq!(ask(&[("array", "a/b..c")]).map(|r| r.array), Ok(Some("a/b..c".to_owned())));
    }

    #[test]
    fn fields_are_names_below_the_path() {
        assert_eq!(
            ask(&[("fields", "video, a%2Cb")]).map(|r| r.fields),
            Ok(vec!["video".to_owned(), "a,b".to_owned()])
        );
        for fields in ["", ",", "a,,b", "a,a", "a,../b", "/a"] {
            assert!(matches!(ask(&[("fields", fields)]), Err(QueryError::InvalidValue { .. })), "{fields}");
        }
        for beside in [("array", "x"), ("slice", "0"), ("expect_shape", "1"), ("describe", ""), ("batch", "")] {
            assert!(matches!(ask(&[("fields", "a"), beside]), Err(QueryError::InvalidValue { .. })), "{beside:?}");
        }
    }

    #[test]
    fn expected_shapes_match_by_length_and_star() {
        let request = ask(&[("expect_shape", "16,256,*")]).expect("valid");
        assert!(request.check_shape(&[16, 256, 9]).is_ok());
        assert!(request.check_shape(&[16, 255, 9]).is_err());
        assert!(request.check_shape(&[16, 256]).is_err());
        assert!(ask(&[("expect_shape", "[]")]).expect("valid").check_shape(&[]).is_ok());
        assert!(ask(&[("expect_shape", "")]).is_err());
    }

    #[test]
    fn isel_splits_at_the_first_equals_sign() {
        let request = ask(&[("isel", "a%3Db=0:2"), ("isel", "t=(1,2)")]).expect("valid");
        let names: Vec<&str> = request.selection.named.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["a=b", "t"]);
    }

    #[test]
    fn a_fill_value_without_oob_fill_is_a_mistake() {
        assert!(ask(&[("fill", "1")]).is_err());
        assert!(ask(&[("fill", "1"), ("oob", "fill")]).is_ok());
    }
}
