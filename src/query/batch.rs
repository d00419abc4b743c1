//! Many selections in one request: the body of a batch.
//!
//! `{"v":1,"items":[…]}` is about one array, `{"v":1,"fields":{"video":[…],"audio":[…]}}` about several of a group, item
//! by item; `{"v":1,"fields":["video","audio"],"items":[…]}` takes the same items of each, along the dimensions that it has.
//! An item is `{"slice":"0:4,:"}`, `{"isel":{"time":"0:16","y":[1,3],"x":7}}`, `{"subset":"time(12s;n=50)"}`, or
//! several of these for different dimensions; `bbox`, `datetime` and `sel` too.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use super::grammar::{parse_dim, parse_slice};
use super::interval::{parse_bbox, parse_datetime, parse_label, parse_subset};
use super::{Dim, QueryError, Selection};

/// The selections of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Per field, in the order of the request; one without a name for a batch about one array.
    pub fields: Vec<BatchField>,
    /// Whether the items are the same for every field, so that an item's parts are about the fields that have the
    /// dimension, and a number of cells is that of the first.
    pub aligned: bool,
}

/// The selections on one array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchField {
    /// The array's name relative to the request's path; `None` for the path itself.
    pub name: Option<String>,
    /// Per item its selection, or what is wrong with it. All fields have as many.
    pub items: Vec<Result<Selection, QueryError>>,
}

impl Batch {
    /// Parses a body. `like` gives what holds for every item: `oob` and `keepdims` of the query.
    ///
    /// # Errors
    /// [`QueryError::InvalidValue`] for a body that is no batch, or has more than `most` items over all fields. An
    /// item whose selection does not follow the grammar is an error of that item.
    pub fn parse(body: &[u8], like: &Selection, most: usize) -> Result<Self, QueryError> {
        let Object(document): Object<Document> =
            serde_json::from_slice(body).map_err(|error| invalid(error.to_string(), "see the OpenAPI document"))?;
        if document.v != 1 {
            return Err(invalid(format!("version {} is unknown", document.v), "\"v\":1"));
        }
        let field = |name: Option<String>, items: Vec<Object<Item>>| BatchField {
            name,
            items: items.into_iter().map(|Object(item)| item.selection(like)).collect(),
        };
        let counted = |total: usize| match total {
            total if total > most => {
                Err(invalid(format!("holds {total} selections"), &format!("at most {most} selections")))
            }
            _ => Ok(()),
        };
        let aligned = matches!(document.fields, Some(Fields::Names(_)));
        let fields: Vec<BatchField> = match (document.items, document.fields) {
            (Some(items), None) => {
                counted(items.len())?;
                vec![field(None, items)]
            }
            (None, Some(Fields::Each(fields))) => {
                counted(fields.iter().map(|(_, items)| items.len()).sum())?;
                fields.into_iter().map(|(name, items)| field(Some(name), items)).collect()
            }
            (Some(items), Some(Fields::Names(names))) => {
                counted(items.len().saturating_mul(names.len()))?;
                let BatchField { items, .. } = field(None, items);
                names.into_iter().map(|name| BatchField { name: Some(name), items: items.clone() }).collect()
            }
            (Some(_), Some(Fields::Each(_))) => {
                return Err(invalid(
                    "`items` beside `fields` are taken of each field: `fields` is a list of names".to_owned(),
                    "\"fields\":[\"video\",\"audio\"],\"items\":[…]",
                ));
            }
            (None, Some(Fields::Names(_))) => {
                return Err(invalid("a list of `fields` needs `items`".to_owned(), "items beside fields"));
            }
            (None, None) => {
                return Err(invalid("needs either `items` or `fields`".to_owned(), "items, fields, or both"));
            }
        };
        let Some(BatchField { items: first, .. }) = fields.first() else {
            return Err(invalid("`fields` names no array".to_owned(), "at least one field"));
        };
        let length = first.len();
        if let Some(BatchField { name, items }) = fields.iter().find(|field| field.items.len() != length) {
            let name = name.as_deref().unwrap_or_default();
            let reason = format!("field `{name}` has {} items, the first has {length}", items.len());
            return Err(invalid(reason, "as many items in each field"));
        }
        Ok(Self { fields, aligned })
    }

    /// Items a field.
    pub fn len(&self) -> usize {
        self.fields.first().map_or(0, |field| field.items.len())
    }

    /// Whether nothing is selected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn invalid(reason: String, valid: &str) -> QueryError {
    QueryError::InvalidValue { parameter: "batch".to_owned(), reason, valid: Some(valid.to_owned()) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    v: u64,
    items: Option<Vec<Object<Item>>>,
    fields: Option<Fields>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    slice: Option<String>,
    isel: Option<Named>,
    subset: Option<Texts>,
    bbox: Option<String>,
    datetime: Option<String>,
    sel: Option<Texts>,
}

/// One text, or a list of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "text, or a list of texts")]
enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Texts {
    fn each<T>(texts: Option<&Self>, parse: fn(&str) -> Result<T, QueryError>) -> Result<Vec<T>, QueryError> {
        let texts = match texts {
            None => &[],
            Some(Self::One(text)) => std::slice::from_ref(text),
            Some(Self::Many(texts)) => texts.as_slice(),
        };
        texts.iter().map(|text| parse(text)).collect()
    }
}

/// A structure written as an object: serde would take a list of its values as well.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(serde::de::value::MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Entries(std::marker::PhantomData))
    }
}

/// Fields in the order of the document, each once: the order is that of the answer.
enum Fields {
    /// Each with items of its own.
    Each(Vec<(String, Vec<Object<Item>>)>),
    /// All with the same.
    Names(Vec<String>),
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of names, or an object of lists by field")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Fields, A::Error> {
                let map = serde::de::value::MapAccessDeserializer::new(map);
                in_order(map, "an object of lists, by field").map(Fields::Each)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Fields, A::Error> {
                let mut names: Vec<String> = Vec::new();
                while let Some(name) = list.next_element::<String>()? {
                    if names.contains(&name) {
                        return Err(serde::de::Error::custom(format!("`{name}` is given twice")));
                    }
                    if names.len() == NAMES {
                        return Err(serde::de::Error::custom(format!("more than {NAMES} names")));
                    }
                    names.push(name);
                }
                Ok(Fields::Names(names))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

struct Named(Vec<(String, Index)>);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        in_order(deserializer, "an object of selections, by dimension").map(Self)
    }
}

/// What is taken along one dimension.
enum Index {
    One(i64),
    List(Vec<i64>),
    Text(String),
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Index;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text such as `0:16`, an integer, or a list of integers")
            }

            fn visit_i64<E: serde::de::Error>(self, index: i64) -> Result<Index, E> {
                Ok(Index::One(index))
            }

            fn visit_u64<E: serde::de::Error>(self, index: u64) -> Result<Index, E> {
                i64::try_from(index).map(Index::One).map_err(|_| E::custom(format!("{index} is beyond 64 bits")))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Index, E> {
                Ok(Index::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Index, A::Error> {
                Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(list)).map(Index::List)
            }
        }

        deserializer.deserialize_any(Any)
    }
}

impl Item {
    fn selection(self, like: &Selection) -> Result<Selection, QueryError> {
        let Selection { oob, keepdims, closed, .. } = *like;
        let mut selection = Selection { oob, keepdims, closed, ..Selection::default() };
        selection.subsets = Texts::each(self.subset.as_ref(), parse_subset)?;
        selection.labels = Texts::each(self.sel.as_ref(), parse_label)?;
        if let Some(bbox) = &self.bbox {
            selection.subsets.extend(parse_bbox(bbox)?);
        }
        if let Some(datetime) = &self.datetime {
            selection.subsets.push(parse_datetime(datetime)?);
        }
        if let Some(slice) = &self.slice {
            selection.dims = parse_slice(slice)?;
        }
        for (name, index) in self.isel.map(|named| named.0).unwrap_or_default() {
            let dim = match index {
                Index::One(index) => Dim::Index(index),
                Index::List(list) => Dim::List(list),
                Index::Text(text) => parse_dim(&text)?,
            };
            selection.named.push((name, dim));
        }
        Ok(selection)
    }
}

/// The entries of an object in their order; a name given twice is an error.
fn in_order<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    expecting: &'static str,
) -> Result<Vec<(String, T)>, D::Error> {
    struct Entries<T> {
        expecting: &'static str,
        entry: std::marker::PhantomData<T>,
    }

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
        type Value = Vec<(String, T)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.expecting)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries: Vec<(String, T)> = Vec::new();
            while let Some(name) = map.next_key::<String>()? {
                let entry =
                    map.next_value::<T>().map_err(|error| serde::de::Error::custom(format!("`{name}`: {error}")))?;
                if entries.iter().any(|(known, _)| *known == name) {
                    return Err(serde::de::Error::custom(format!("`{name}` is given twice")));
                }
                // Names are compared one by one: a group has few arrays and an array few dimensions.
                if entries.len() == NAMES {
                    return Err(serde::de::Error::custom(format!("more than {NAMES} names")));
                }
                entries.push((name, entry));
            }
            Ok(entries)
        }
    }

    deserializer.deserialize_map(Entries { expecting, entry: std::marker::PhantomData })
}

/// Most fields of a batch, and most dimensions of an item.
const NAMES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::OutOfBounds;

    fn parse(body: &str) -> Result<Batch, QueryError> {
        Batch::parse(body.as_bytes(), &Selection::default(), 10)
    }

    #[test]
    fn items_and_fields_keep_their_order() {
        let batch =
            parse(r#"{"v":1,"fields":{"video":[{"slice":"0:4,:"}],"audio":[{"isel":{"t":"0:9","c":[1,1],"x":-1}}]}}"#)
                .expect("valid");
        let names: Vec<_> = batch.fields.iter().map(|field| field.name.as_deref()).collect();
        assert_eq!(names, [Some("video"), Some("audio")]);
        let audio = batch.fields[1].items[0].as_ref().expect("valid");
        let named: Vec<_> = audio.named.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(named, ["t", "c", "x"]);
        assert_eq!(audio.named[1].1, Dim::List(vec![1, 1]));
        assert_eq!(audio.named[2].1, Dim::Index(-1));
    }

    #[test]
    fn a_list_of_fields_shares_its_items() {
        let batch = parse(r#"{"v":1,"items":[{"subset":"t(1s;n=2)"},{}],"fields":["video","audio"]}"#).expect("valid");
        assert!(batch.aligned && batch.len() == 2 && batch.fields.len() == 2);
        assert_eq!(batch.fields[0].items, batch.fields[1].items);
        assert!(!parse(r#"{"v":1,"items":[{}]}"#).expect("valid").aligned);
    }

    #[test]
    fn a_fault_of_an_item_stays_with_the_item() {
        let batch = parse(r#"{"v":1,"items":[{"slice":"0:4"},{"slice":"0:4:0"},{}]}"#).expect("valid");
        let good: Vec<bool> = batch.fields[0].items.iter().map(Result::is_ok).collect();
        assert_eq!(good, [true, false, true]);
    }

    #[test]
    fn what_holds_for_all_items_comes_from_the_query() {
        let like = Selection { oob: OutOfBounds::Fill, keepdims: true, ..Selection::default() };
        let batch = Batch::parse(br#"{"v":1,"items":[{"slice":"1"}]}"#, &like, 1).expect("valid");
        let item = batch.fields[0].items[0].as_ref().expect("valid");
        assert!(item.keepdims && item.oob == OutOfBounds::Fill);
    }

    #[test]
    fn malformed_bodies_are_told_what_is_wrong() {
        for (body, part) in [
            ("", "EOF"),
            ("[]", "an object"),
            (r#"{"v":1,"items":[["0:4",null]]}"#, "an object"),
            (r#"{"v":1,"items":[{"isel":{"time":1.5}}]}"#, "`time`"),
            (r#"{"v":1,"items":[{"isel":{"time":null}}]}"#, "`time`"),
            (r#"{"v":1,"items":[{"isel":{"time":[1,2.5]}}]}"#, "`time`"),
            (r#"{"items":[]}"#, "missing field `v`"),
            (r#"{"v":2,"items":[]}"#, "version 2"),
            (r#"{"v":1}"#, "either"),
            (r#"{"v":1,"items":[],"fields":{}}"#, "list of names"),
            (r#"{"v":1,"fields":["a"]}"#, "needs `items`"),
            (r#"{"v":1,"fields":["a","a"],"items":[]}"#, "twice"),
            (r#"{"v":1,"fields":[1],"items":[]}"#, "string"),
            (r#"{"v":1,"fields":[],"items":[{}]}"#, "no array"),
            (r#"{"v":1,"fields":["a","b"],"items":[{},{},{},{},{},{}]}"#, "12 selections"),
            (r#"{"v":1,"fields":{}}"#, "no array"),
            (r#"{"v":1,"items":[{"slise":"1"}]}"#, "unknown field `slise`"),
            (r#"{"v":1,"fields":{"a":[{}],"b":[]}}"#, "field `b` has 0 items"),
            (r#"{"v":1,"fields":{"a":[{}],"a":[{}]}}"#, "twice"),
            (r#"{"v":1,"items":[{"isel":{"t":1,"t":2}}]}"#, "twice"),
            (r#"{"v":1,"items":[{},{},{},{},{},{},{},{},{},{},{}]}"#, "11 selections"),
        ] {
            let error = parse(body).expect_err(body).to_string();
            assert!(error.contains(part), "{body}: {error}");
        }
    }
}
