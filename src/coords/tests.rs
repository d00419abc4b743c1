//! Coordinates against definitions written out: every position is asked whether its cell is taken.

use proptest::prelude::*;

use super::declared::rate;
use super::*;
use crate::model::Unit;
use crate::model::exact::{decimal, fraction, shortest};
use crate::query::{OnAxis, Subset};

fn seconds() -> Measured {
    Measured::In(Unit::seconds(), "s".to_owned())
}

fn mark(value: Option<&Exact>) -> Mark {
    value.map_or(Mark::Open, |value| Mark::Number { value: value.clone(), unit: None })
}

fn between(lo: Option<&Exact>, hi: Option<&Exact>) -> Interval {
    Interval { lo: mark(lo), hi: Some(mark(hi)), cells: None }
}

/// The span of a cell and whether it is a point, by position.
fn spans(coordinates: &Coordinates, len: u64) -> Vec<Option<(Exact, Exact)>> {
    (0..len as usize)
        .map(|k| match coordinates {
            Coordinates::Regular(regular) => {
                let at = |k: Exact| &regular.first + &regular.step * k;
                let k = integer(k as i128);
                let half = fraction("1/2").expect("a half");
                let (a, b) = match regular.anchor {
                    Anchor::Start => (at(k.clone()), at(k + integer(1))),
                    Anchor::Centre => (at(&k - &half), at(k + half)),
                };
                Some(if a <= b { (a, b) } else { (b, a) })
            }
            Coordinates::Listed(listed) => listed.span(k),
        })
        .collect()
}

/// The positions that the rules of the contract take, each asked by itself.
fn expected(spans: &[Option<(Exact, Exact)>], lo: Option<&Exact>, hi: Option<&Exact>, closed: Closed) -> Vec<u64> {
    let takes = |(low, high): &(Exact, Exact)| match closed {
        Closed::Left => lo.is_none_or(|lo| low >= lo) && hi.is_none_or(|hi| low < hi),
        Closed::Both if low == high => lo.is_none_or(|lo| low >= lo) && hi.is_none_or(|hi| low <= hi),
        Closed::Both => lo.is_none_or(|lo| high > lo) && hi.is_none_or(|hi| low < hi),
    };
    spans.iter().enumerate().filter(|(_, span)| span.as_ref().is_some_and(takes)).map(|(at, _)| at as u64).collect()
}

fn positions(taken: Taken) -> Vec<u64> {
    match taken {
        Taken::Range(start, stop) => (start..stop).map(|at| at as u64).collect(),
        Taken::List(list) => list,
    }
}

fn rational(most: i64) -> impl Strategy<Value = Exact> {
    (-most..most, 1_i64..40).prop_map(|(over, under)| Exact::new(over.into(), under.into()))
}

fn regular() -> impl Strategy<Value = Coordinates> {
    let step = rational(60).prop_filter("0", |step| *step != integer(0));
    (rational(200), step, any::<bool>()).prop_map(|(first, step, start)| {
        let anchor = if start { Anchor::Start } else { Anchor::Centre };
        Regular { first, step, anchor, measured: seconds(), source: "test" }.into()
    })
}

fn listed() -> impl Strategy<Value = Coordinates> {
    let values = prop::collection::vec(
        prop_oneof![8 => (-40_i32..40).prop_map(|n| f64::from(n) / 10.0), 1 => Just(f64::NAN)],
        1..12,
    );
    (values, 0..4, any::<bool>()).prop_map(|(mut values, order, bounds)| {
        match order {
            0 => values.sort_by(f64::total_cmp),
            1 => values.sort_by(|a, b| b.total_cmp(a)),
            2 => values.retain(|value| !value.is_nan()),
            _ => {}
        }
        if bounds && order < 2 {
            // Cells that touch: each ends where the next begins.
            let ends = values.windows(2).flat_map(|pair| [pair[0], pair[1]]).collect();
            return Coordinates::Listed(Arc::new(Listed::cells(Values::Double(ends), seconds(), "t".into())));
        }
        if bounds && values.len() % 2 == 0 {
            return Coordinates::Listed(Arc::new(Listed::cells(Values::Double(values), seconds(), "t".into())));
        }
        Coordinates::Listed(Arc::new(Listed::points(Values::Double(values), seconds(), "t".into())))
    })
}

fn any_axis() -> impl Strategy<Value = (Coordinates, u64)> {
    let regular = (regular(), 0_u64..30);
    let listed = listed().prop_map(|coordinates| {
        let len = match &coordinates {
            Coordinates::Listed(listed) => listed.len(),
            Coordinates::Regular(_) => 0,
        };
        (coordinates, len)
    });
    prop_oneof![regular, listed]
}

fn end() -> impl Strategy<Value = Option<Exact>> {
    prop_oneof![1 => Just(None), 2 => rational(300).prop_map(Some), 4 => (-50_i64..50).prop_map(|n| Some(Exact::new(n.into(), 10.into())))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn an_interval_takes_what_its_rules_say((coordinates, len) in any_axis(), ends in (end(), end()), left in any::<bool>()) {
        let (lo, hi) = match ends {
            (Some(a), Some(b)) if a > b => (Some(b), Some(a)),
            // An interval without length has a rule of its own, below.
            (Some(a), Some(b)) if a == b => (Some(a), None),
            other => other,
        };
        let closed = if left { Closed::Left } else { Closed::Both };
        let axis = Axis { name: "t", len, coordinates: &coordinates };
        let expected = expected(&spans(&coordinates, len), lo.as_ref(), hi.as_ref(), closed);
        match axis.take("subset", &between(lo.as_ref(), hi.as_ref()), closed) {
            Ok(taken) => prop_assert_eq!(positions(taken), expected),
            Err(CoordsError::Outside { .. }) => prop_assert!(expected.is_empty(), "{:?}", expected),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn windows_that_meet_share_nothing_and_leave_nothing_out(
        (coordinates, len) in any_axis(), mut cuts in prop::collection::vec(rational(300), 1..6),
    ) {
        cuts.sort();
        cuts.dedup();
        let axis = Axis { name: "t", len, coordinates: &coordinates };
        let ends: Vec<Option<&Exact>> = std::iter::once(None).chain(cuts.iter().map(Some)).chain([None]).collect();
        let mut all = Vec::new();
        for pair in ends.windows(2) {
            match axis.take("subset", &between(pair[0], pair[1]), Closed::Left) {
                Ok(taken) => all.extend(positions(taken)),
                Err(error) => prop_assert!(matches!(error, CoordsError::Outside { .. }), "{}", error),
            }
        }
        all.sort_unstable();
        let numbers = spans(&coordinates, len).iter().enumerate().filter(|(_, span)| span.is_some()).map(|(k, _)| k as u64).collect::<Vec<_>>();
        prop_assert_eq!(all, numbers);
    }

    #[test]
    fn a_number_of_cells_begins_with_the_one_that_contains_the_start(coordinates in regular(), len in 1_u64..30, at in rational(300), n in 1_u64..40) {
        let axis = Axis { name: "t", len, coordinates: &coordinates };
        let holds = spans(&coordinates, len).into_iter().flatten().position(|(low, high)| low < at && at < high);
        let interval = Interval { lo: mark(Some(&at)), hi: None, cells: Some(n) };
        let Coordinates::Regular(regular) = &coordinates else { unreachable!() };
        if let Some(first) = holds {
            let first = first as i128;
            let range = if regular.step > integer(0) { (first, first + i128::from(n)) } else { (first - i128::from(n) + 1, first + 1) };
            prop_assert_eq!(axis.take("subset", &interval, Closed::Both), Ok(Taken::Range(range.0, range.1)));
        }
    }

    #[test]
    fn one_place_takes_the_first_cell_that_contains_it((coordinates, len) in any_axis(), at in (-50_i64..50).prop_map(|n| Exact::new(n.into(), 10.into()))) {
        let Coordinates::Listed(_) = &coordinates else { return Ok(()) };
        let axis = Axis { name: "t", len, coordinates: &coordinates };
        let holds = |(low, high): &(Exact, Exact)| if low == high { *low == at } else { *low <= at && at < *high };
        let expected = spans(&coordinates, len).iter().position(|span| span.as_ref().is_some_and(holds));
        let taken = axis.take("subset", &Interval { lo: mark(Some(&at)), hi: None, cells: None }, Closed::Both);
        prop_assert_eq!(taken.ok(), expected.map(|at| Taken::Range(at as i128, at as i128 + 1)));
    }

    #[test]
    fn labels_are_found_as_pandas_finds_them((coordinates, len) in any_axis(), at in (-50_i64..50).prop_map(|n| Exact::new(n.into(), 10.into()))) {
        let labels: Vec<Option<Exact>> = (0..len as usize).map(|k| match &coordinates {
            Coordinates::Regular(regular) => Some(&regular.first + &regular.step * integer(k as i128)),
            Coordinates::Listed(listed) => listed.span(k).filter(|(low, high)| low == high).map(|(low, _)| low),
        }).collect();
        prop_assume!(len > 0 && labels.iter().all(Option::is_some));
        let labels: Vec<Exact> = labels.into_iter().flatten().collect();
        let sorted = labels.is_sorted() || labels.is_sorted_by(|a, b| a >= b);
        let axis = Axis { name: "t", len, coordinates: &coordinates };
        let found = |method| axis.find(&Label { dimension: "t".into(), method, mark: mark(Some(&at)) }).ok().map(|k| labels[k as usize].clone());
        if matches!(&coordinates, Coordinates::Listed(listed) if listed.is_cells()) {
            return Ok(());
        }
        prop_assert_eq!(found(Method::Exact), labels.iter().find(|label| **label == at).cloned());
        if !sorted {
            return Ok(());
        }
        prop_assert_eq!(found(Method::Forward), labels.iter().filter(|label| **label <= at).max().cloned());
        prop_assert_eq!(found(Method::Backward), labels.iter().filter(|label| **label >= at).min().cloned());
        let distance = |label: &Exact| if *label > at { label - &at } else { &at - label };
        let least = labels.iter().map(distance).min();
        let nearest = labels.iter().filter(|label| Some(distance(label)) == least).max().cloned();
        prop_assert_eq!(found(Method::Nearest), nearest);
    }

    #[test]
    fn shortest_decimals_decide_near_a_limit(value in any::<f64>(), limit in any::<f64>()) {
        if let (Some(exact), true) = (shortest(limit), value.is_finite()) {
            let coordinates = Coordinates::Listed(Arc::new(Listed::points(Values::Double(vec![value]), Measured::Bare, "t".into())));
            let axis = Axis { name: "t", len: 1, coordinates: &coordinates };
            let taken = axis.take("subset", &between(Some(&exact), None), Closed::Both);
            prop_assert_eq!(taken.is_ok(), value >= limit);
        }
    }
}

fn rate_of(text: &str, t0: &str) -> Coordinates {
    let attributes = serde_json::from_str(&format!(r#"{{"fps":{text},"t0":{t0}}}"#)).expect("JSON");
    rate(&attributes, "time").expect("a rate").expect("declared").into()
}

fn take(coordinates: &Coordinates, len: u64, text: &str) -> Result<Taken, CoordsError> {
    let pairs = [("subset".to_owned(), text.to_owned())];
    let request = crate::query::Request::parse("a", &pairs, true).expect(text);
    let Subset { parameter, axis, interval } = &request.selection.subsets[0];
    assert!(matches!(axis, OnAxis::Named(_)));
    Axis { name: "t", len, coordinates }.take(parameter, interval, Closed::Both)
}

#[test]
fn frames_belong_to_seconds_without_an_epsilon() {
    let of = |fps: &str, text: &str| take(&rate_of(fps, "0"), 10_000, text);
    assert_eq!(of("25", "t(12:13)"), Ok(Taken::Range(300, 325)));
    assert_eq!(of("25", "t(12.01s:13.01s)"), Ok(Taken::Range(300, 326)));
    assert_eq!(of("25", "t(12s;n=50)"), Ok(Taken::Range(300, 350)));
    assert_eq!(of("25", "t(12.04s)"), Ok(Taken::Range(301, 302)));
    assert_eq!(of("25", "t(300frames:350frames)"), Ok(Taken::Range(300, 350)));
    assert_eq!(of("25", "t(12000ms:0.2min)"), Ok(Taken::Range(300, 301)));
    // The exact rate is not 29.97: in ten hours they are eleven frames apart.
    let long = |fps: &str| take(&rate_of(fps, "0"), 2_000_000, "t(36000s)");
    assert_eq!(long("29.97"), Ok(Taken::Range(1_078_920, 1_078_921)));
    assert_eq!(long(r#""30000/1001""#), Ok(Taken::Range(1_078_921, 1_078_922)));
    assert_eq!(long("[30000,1001]"), long(r#""30000/1001""#));
    assert_eq!(take(&rate_of("10", "-0.35"), 10, "t(0s)"), Ok(Taken::Range(3, 4)));
}

#[test]
fn rates_that_say_two_things_are_refused() {
    let of = |text: &str| rate(&serde_json::from_str(text).expect("JSON"), "time");
    assert!(matches!(of(r#"{"fps":25,"frame_rate":24}"#), Err(CoordsError::Broken { .. })));
    assert!(of(r#"{"fps":25,"frame_rate":25.0,"sample_rate":"50/2"}"#).expect("the same").is_some());
    for text in [
        r#"{"fps":0}"#,
        r#"{"fps":-1}"#,
        r#"{"fps":"fast"}"#,
        r#"{"fps":[1]}"#,
        r#"{"fps":[1,0]}"#,
        r#"{"fps":25,"t0":"x"}"#,
    ] {
        assert!(matches!(of(text), Err(CoordsError::Broken { .. })), "{text}");
    }
    assert_eq!(rate(&serde_json::from_str(r#"{"fps":25}"#).expect("JSON"), "y"), Ok(None));
}

#[test]
fn units_without_a_relation_are_refused() {
    let frames = rate_of("25", "0");
    for text in ["t(1m:2m)", "t(1furlong)", "t(2024-01-01)", "t(1frames:2s)", "t(3:2)"] {
        assert!(take(&frames, 100, text).is_err(), "{text}");
    }
    for text in ["t(5s:6s)", "t(-2:-1)", "t(4s)", "t(-0.01)"] {
        assert!(matches!(take(&frames, 100, text), Err(CoordsError::Outside { .. })), "{text}");
    }
    let days = Measured::parse(Some("days since 2000-01-01"), Some("proleptic_gregorian")).expect("served");
    let step = decimal("1").expect("one");
    let axis =
        Coordinates::from(Regular { first: integer(0), step, anchor: Anchor::Start, measured: days, source: "test" });
    assert_eq!(take(&axis, 400, "t(2000-02-01:\"2000-02-03T00:00Z\")"), Ok(Taken::Range(31, 33)));
    assert_eq!(take(&axis, 400, "t(24h:48h)"), Ok(Taken::Range(1, 2)));
    for (units, calendar) in
        [("months since 2000-01-01", None), ("days since 2000-01-01", Some("noleap")), ("days since 0001-01-01", None)]
    {
        assert!(Measured::parse(Some(units), calendar).is_err(), "{units}");
    }
}

#[test]
fn pixels_lie_about_their_centres() {
    let group = serde_json::json!({"ome": {"version": "0.5", "multiscales": [{
        "axes": [{"name": "c", "type": "channel"}, {"name": "y", "type": "space", "unit": "micrometer"}],
        "datasets": [{"path": "s1", "coordinateTransformations": [
            {"type": "scale", "scale": [1, 0.5]}, {"type": "translation", "translation": [0, 0.25]}]}],
        "coordinateTransformations": [{"type": "scale", "scale": [1, 2.0]}]}]}});
    let of = |axis| multiscale(group.as_object().expect("an object"), "s1", axis);
    assert_eq!(of(0), Ok(None));
    let y = Coordinates::from(of(1).expect("sound").expect("declared"));
    // Centres at 0.5, 1.5, 2.5: pixel 0 spans 0 to 1.
    assert_eq!(take(&y, 10, "t(0:2)"), Ok(Taken::Range(0, 2)));
    assert_eq!(take(&y, 10, "t(0.001mm:0.0021mm)"), Ok(Taken::Range(1, 3)));
    assert_eq!(multiscale(group.as_object().expect("an object"), "s2", 1), Ok(None));
    let affine = serde_json::json!({"multiscales": [{"axes": [{"name": "y", "type": "space"}], "datasets": [{"path": "0",
        "coordinateTransformations": [{"type": "affine", "affine": [[1, 0]]}]}]}]});
    let found = multiscale(affine.as_object().expect("an object"), "0", 0);
    assert!(matches!(found, Err(CoordsError::Unsupported { .. })));
}

#[test]
fn single_precision_coordinates_are_the_decimals_they_were_written_as() {
    let values = Values::Single(vec![0.1, 0.2, 0.3]);
    let axis = Coordinates::Listed(Arc::new(Listed::points(values, Measured::Bare, "t".into())));
    assert_eq!(take(&axis, 3, "t(0.1:0.2)"), Ok(Taken::Range(0, 2)));
    assert_eq!(take(&axis, 3, "t(0.3)"), Ok(Taken::Range(2, 3)));
}

#[test]
fn durations_become_cells_of_each_rate() {
    let two = integer(2);
    assert_eq!([25, 16_000, 30].map(|rate| cells_of(&two, &integer(rate))), [50, 32_000, 60]);
    assert_eq!(cells_of(&decimal("0.5").expect("a half"), &integer(5)), 2);
}
