//! Predicates against a definition written out: every row by itself, in exact arithmetic.

use proptest::prelude::*;

use super::*;
use crate::coords::{Measured, Values};
use crate::model::exact::{Exact, decimal, integer, shortest};
use crate::model::{ChunkData, DType, FloatKind};
use crate::query::filter::{Comparison, Literal};

/// A value of a row as a person sees it; infinities are beyond every number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Below,
    Number(Exact),
    Beyond,
}

fn seen(value: f64) -> Option<Seen> {
    match value {
        f64::INFINITY => Some(Seen::Beyond),
        f64::NEG_INFINITY => Some(Seen::Below),
        value => shortest(value).map(Seen::Number),
    }
}

fn number(literal: &Literal) -> Seen {
    match literal {
        Literal::Number(value) => Seen::Number(value.clone()),
        other => panic!("{other:?}"),
    }
}

/// Three-valued logic as SQL's tables have it.
fn oracle(filter: &Filter, value: Option<&Seen>) -> Option<bool> {
    match filter {
        Filter::Constant(value) => Some(*value),
        Filter::Not(part) => oracle(part, value).map(|held| !held),
        Filter::And(parts) => {
            let parts: Vec<_> = parts.iter().map(|part| oracle(part, value)).collect();
            if parts.contains(&Some(false)) {
                Some(false)
            } else {
                parts.into_iter().collect::<Option<Vec<_>>>().map(|_| true)
            }
        }
        Filter::Or(parts) => {
            let parts: Vec<_> = parts.iter().map(|part| oracle(part, value)).collect();
            if parts.contains(&Some(true)) {
                Some(true)
            } else {
                parts.into_iter().collect::<Option<Vec<_>>>().map(|_| false)
            }
        }
        Filter::Test { test, .. } => match test {
            Test::IsNull => Some(value.is_none()),
            Test::Compare(comparison, literal) => value.map(|value| comparison.holds(value.cmp(&number(literal)))),
            Test::Between(lo, hi) => value.map(|value| *value >= number(lo) && *value <= number(hi)),
            Test::In(literals) => value.map(|value| literals.iter().any(|literal| number(literal) == *value)),
            Test::Intersects(_) | Test::During(..) => panic!("not of numbers"),
        },
    }
}

fn literal() -> impl Strategy<Value = Literal> {
    prop_oneof![
        4 => (-20_i64..20).prop_map(|n| Literal::Number(Exact::new(n.into(), 4.into()))),
        1 => any::<i64>().prop_map(|n| Literal::Number(integer(n.into()))),
        1 => any::<f64>().prop_filter_map("finite", shortest).prop_map(Literal::Number),
        1 => Just(Literal::Number(decimal("9007199254740993.5").expect("a decimal"))),
    ]
}

fn test() -> impl Strategy<Value = Filter> {
    let comparison = prop::sample::select(vec![
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::Greater,
        Comparison::AtMost,
        Comparison::AtLeast,
    ]);
    let tests = prop_oneof![
        4 => (comparison, literal()).prop_map(|(comparison, literal)| Test::Compare(comparison, literal)),
        2 => (literal(), literal()).prop_map(|(lo, hi)| Test::Between(lo, hi)),
        2 => prop::collection::vec(literal(), 1..4).prop_map(Test::In),
        1 => Just(Test::IsNull),
    ];
    tests.prop_map(|test| Filter::Test { property: "p".to_owned(), test })
}

fn filter() -> impl Strategy<Value = Filter> {
    let leaf = prop_oneof![9 => test(), 1 => any::<bool>().prop_map(Filter::Constant)];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(Filter::And),
            prop::collection::vec(inner.clone(), 2..4).prop_map(Filter::Or),
            inner.prop_map(|part| Filter::Not(Box::new(part))),
        ]
    })
}

fn real() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => (-20_i32..20).prop_map(|n| f64::from(n) / 4.0),
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.1, f64::MIN_POSITIVE]),
        1 => any::<f64>(),
    ]
}

fn told(filter: &Filter, column: &Column) -> Vec<Option<bool>> {
    let told = evaluate(filter, column.len(), &mut |property, test| column.test(property, test)).expect("of numbers");
    let known = |truth| match truth {
        Truth::True => Some(true),
        Truth::False => Some(false),
        Truth::Unknown => None,
    };
    told.into_iter().map(known).collect()
}

fn plain(values: Values) -> Column {
    Column::Numbers(Numbers { values, measured: Measured::Bare, packing: Packing::none() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn reals_are_filtered_as_the_oracle_says(filter in filter(), values in prop::collection::vec(real(), 1..12)) {
        let expected: Vec<_> = values.iter().map(|value| oracle(&filter, seen(*value).as_ref())).collect();
        prop_assert_eq!(told(&filter, &plain(Values::Double(values.clone()))), expected);
        let text = filter.to_json().to_string();
        prop_assert!(!text.is_empty());
    }

    #[test]
    fn integers_are_compared_beyond_the_precision_of_doubles(filter in filter(), values in prop::collection::vec(any::<i64>(), 1..9)) {
        let exact = |value: i128| Some(Seen::Number(integer(value)));
        let expected: Vec<_> = values.iter().map(|value| oracle(&filter, exact((*value).into()).as_ref())).collect();
        prop_assert_eq!(told(&filter, &plain(Values::Whole(values.clone()))), expected);
        let naturals: Vec<u64> = values.iter().map(|value| *value as u64).collect();
        let expected: Vec<_> = naturals.iter().map(|value| oracle(&filter, exact((*value).into()).as_ref())).collect();
        prop_assert_eq!(told(&filter, &plain(Values::Natural(naturals))), expected);
    }

    #[test]
    fn packed_values_are_compared_as_what_they_mean(
        filter in filter(), values in prop::collection::vec(-30_i16..30, 1..12), scale in prop::sample::select(vec![1_i64, -1, 3, -7]), offset in -9_i64..9, missing in -30_i64..30,
    ) {
        let attributes = serde_json::json!({"scale_factor": scale as f64 / 4.0, "add_offset": offset, "_FillValue": missing});
        let packing = Packing::parse("p", attributes.as_object().expect("an object")).expect("numbers");
        let meant = |value: i16| {
            let meant = Exact::new(scale.into(), 4.into()) * integer(value.into()) + integer(offset.into());
            (i64::from(value) != missing).then_some(Seen::Number(meant))
        };
        let expected: Vec<_> = values.iter().map(|value| oracle(&filter, meant(*value).as_ref())).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let column = Column::new(&DType::Int(16), ChunkData::Fixed(bytes.into()), Measured::Bare, packing).expect("numbers");
        prop_assert_eq!(told(&filter, &column), expected);
    }

    #[test]
    fn steps_are_compared_as_their_coordinates(filter in filter(), first in -9_i64..9, step in prop::sample::select(vec![1_i64, -1, 3, -5]), len in 1_u64..20) {
        let at = |k: u64| Exact::new(first.into(), 2.into()) + Exact::new(step.into(), 3.into()) * integer(k.into());
        let regular = crate::coords::Regular {
            first: at(0), step: Exact::new(step.into(), 3.into()), anchor: crate::coords::Anchor::Centre, measured: Measured::Bare, source: "test",
        };
        let expected: Vec<_> = (0..len).map(|k| oracle(&filter, Some(&Seen::Number(at(k))))).collect();
        prop_assert_eq!(told(&filter, &Column::Steps(regular, (0..len).collect())), expected);
    }
}

fn single(text: &str, column: &Column) -> Result<Vec<Truth>, FilterError> {
    let filter = Filter::parse(text).expect(text);
    evaluate(&filter, column.len(), &mut |property, test| column.test(property, test))
}

#[test]
fn texts_flags_and_dates_have_their_own_literals() {
    use Truth::{False, True, Unknown};
    let data = |text: &str| text.as_bytes().to_vec().into_boxed_slice();
    let names = ChunkData::Variable(vec![data("cat"), data("dog"), data("été")]);
    let names = Column::new(&DType::String, names, Measured::Bare, Packing::none()).expect("texts");
    assert_eq!(single("p IN ('dog','été')", &names), Ok(vec![False, True, True]));
    assert_eq!(single("p < 'dog'", &names), Ok(vec![True, False, False]));
    assert!(matches!(single("p = 1", &names), Err(FilterError::Type { .. })));
    let utf32: Vec<u8> = "ab\0x\0\0".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
    let fixed = Column::new(&DType::FixedUtf32(3), ChunkData::Fixed(utf32.into()), Measured::Bare, Packing::none());
    assert_eq!(single("p = 'ab'", &fixed.expect("texts")), Ok(vec![True, False]));
    let flags = ChunkData::Fixed(vec![0, 1].into());
    let flags = Column::new(&DType::Bool, flags, Measured::Bare, Packing::none()).expect("flags");
    assert_eq!(single("p = TRUE", &flags), Ok(vec![False, True]));
    assert!(matches!(single("p < TRUE", &flags), Err(FilterError::Type { .. })));
    assert!(matches!(single("p = 1", &flags), Err(FilterError::Type { .. })));
    let days = Measured::parse(Some("days since 2020-01-01"), Some("proleptic_gregorian")).expect("served");
    let times = Values::Ticks(vec![0, 1, 2, i64::MIN]);
    let times = Column::Numbers(Numbers { values: times, measured: days, packing: Packing::none() });
    assert_eq!(single("p >= DATE('2020-01-02')", &times), Ok(vec![False, True, True, Unknown]));
    let during = "T_DURING(p, INTERVAL('2020-01-01', '2020-01-03'))";
    assert_eq!(single(during, &times), Ok(vec![False, True, False, Unknown]));
    assert_eq!(single("p IS NULL", &times), Ok(vec![False, False, False, True]));
    let bare = plain(Values::Whole(vec![1]));
    assert!(matches!(single("p > DATE('2020-01-01')", &bare), Err(FilterError::Type { .. })));
    assert!(matches!(single("p > TRUE", &bare), Err(FilterError::Type { .. })));
}

#[test]
fn elements_are_read_by_their_type() {
    let of = |dtype: DType, bytes: &[u8], packing| {
        Column::new(&dtype, ChunkData::Fixed(bytes.to_vec().into()), Measured::Bare, packing)
    };
    use Truth::{False, True};
    let byte = of(DType::UInt(8), &[200, 3], Packing::none()).expect("numbers");
    assert_eq!(single("p > 127", &byte), Ok(vec![True, False]));
    let attributes = serde_json::json!({"_Unsigned": "true"});
    let unsigned = Packing::parse("p", attributes.as_object().expect("an object")).expect("sound");
    assert_eq!(single("p > 127", &of(DType::Int(8), &[200, 3], unsigned).expect("numbers")), Ok(vec![True, False]));
    // A tenth in single precision is the tenth that was written.
    let tenth = of(DType::Float(FloatKind::F32), &0.1_f32.to_le_bytes(), Packing::none()).expect("numbers");
    assert_eq!(single("p = 0.1", &tenth), Ok(vec![True]));
    assert_eq!(single("p <= 0.0999999999", &tenth), Ok(vec![False]));
    assert!(of(DType::Complex(FloatKind::F32), &[0; 8], Packing::none()).is_none());
    for wrong in
        [r#"{"scale_factor":"x"}"#, r#"{"scale_factor":0}"#, r#"{"_Unsigned":1}"#, r#"{"missing_value":["x"]}"#]
    {
        let attributes: serde_json::Map<_, _> = serde_json::from_str(wrong).expect("JSON");
        assert!(matches!(Packing::parse("p", &attributes), Err(FilterError::Broken { .. })), "{wrong}");
    }
}
