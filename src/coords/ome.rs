//! Coordinates of OME-Zarr images, versions 0.4 to 0.6: scales and translations of a multiscale group.

use serde_json::{Map, Value};

use super::declared::number;
use super::measure::Measured;
use super::{Anchor, CoordsError, Regular};
use crate::model::exact::{Exact, integer};

/// The coordinates of one axis of the image that the group's `multiscales` names by `path`, if they do.
///
/// # Errors
/// [`CoordsError`] for transformations that are malformed, or that move an axis otherwise than by a scale and a
/// translation.
pub fn multiscale(attributes: &Map<String, Value>, path: &str, axis: usize) -> Result<Option<Regular>, CoordsError> {
    let holder = attributes.get("ome").and_then(Value::as_object).unwrap_or(attributes);
    for image in holder.get("multiscales").and_then(Value::as_array).into_iter().flatten() {
        let datasets = image.get("datasets").and_then(Value::as_array);
        let dataset =
            datasets.into_iter().flatten().find(|dataset| dataset.get("path").and_then(Value::as_str) == Some(path));
        if let Some(dataset) = dataset {
            return of_image(image, dataset, axis);
        }
    }
    Ok(None)
}

fn of_image(image: &Value, dataset: &Value, axis: usize) -> Result<Option<Regular>, CoordsError> {
    let own = transformations(dataset);
    let system = own
        .iter()
        .rev()
        .find_map(|transformation| transformation.get("output"))
        .map(|output| output.get("name").unwrap_or(output).as_str().unwrap_or_default());
    let systems = image.get("coordinateSystems").and_then(Value::as_array);
    let systems = || systems.into_iter().flatten();
    let named = systems().find(|entry| entry.get("name").and_then(Value::as_str) == system);
    let axes = image.get("axes").or_else(|| named.or_else(|| systems().next())?.get("axes"));
    let Some(meaning) = axes.and_then(|axes| axes.get(axis)) else { return Ok(None) };
    // An axis without a continuum has positions and no coordinates. Version 0.3 has bare names.
    let kind = meaning.get("type").and_then(Value::as_str).unwrap_or("space");
    if !matches!(kind, "space" | "time") {
        return Ok(None);
    }
    let mut map = Map1 { scale: integer(1), offset: integer(0), axis };
    for transformation in own {
        map.then(transformation)?;
    }
    // In 0.4 and 0.5 these hold for every dataset, after its own; in 0.6 they lead on to other systems.
    if image.get("coordinateSystems").is_none() {
        for transformation in transformations(image) {
            map.then(transformation)?;
        }
    }
    if map.scale == integer(0) {
        return Err(broken("a scale of 0"));
    }
    let unit = meaning.get("unit").and_then(Value::as_str);
    let measured =
        Measured::parse(unit, None).map_err(|reason| CoordsError::Unsupported { place: PLACE.to_owned(), reason })?;
    Ok(Some(Regular { first: map.offset, step: map.scale, anchor: Anchor::Centre, measured, source: "ome" }))
}

fn transformations(of: &Value) -> &[Value] {
    of.get("coordinateTransformations").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Position to coordinate along one axis.
struct Map1 {
    scale: Exact,
    offset: Exact,
    axis: usize,
}

/// Sequences within sequences that are followed.
const DEPTH: usize = 8;

impl Map1 {
    fn then(&mut self, transformation: &Value) -> Result<(), CoordsError> {
        self.apply(transformation, DEPTH)
    }

    fn apply(&mut self, transformation: &Value, depth: usize) -> Result<(), CoordsError> {
        let kind = transformation
            .get("type")
            .and_then(Value::as_str)
            .ok_or_else(|| broken("a transformation without a type"))?;
        match kind {
            "identity" => {}
            "scale" => {
                let scale = self.entry(transformation, "scale")?;
                self.scale *= &scale;
                self.offset *= &scale;
            }
            "translation" => self.offset += self.entry(transformation, "translation")?,
            "sequence" if depth > 0 => {
                for part in transformation.get("transformations").and_then(Value::as_array).into_iter().flatten() {
                    self.apply(part, depth - 1)?;
                }
            }
            other => {
                let reason = format!("the transformation `{other}` is not a scale or a translation");
                return Err(CoordsError::Unsupported { place: PLACE.to_owned(), reason });
            }
        }
        Ok(())
    }

    fn entry(&self, transformation: &Value, kind: &str) -> Result<Exact, CoordsError> {
        let Some(list) = transformation.get(kind) else {
            let reason = format!("a {kind} that is kept in an array");
            return Err(CoordsError::Unsupported { place: PLACE.to_owned(), reason });
        };
        list.get(self.axis)
            .and_then(number)
            .ok_or_else(|| broken(&format!("a {kind} without a number for axis {}", self.axis)))
    }
}

const PLACE: &str = "attribute `multiscales`";

fn broken(reason: &str) -> CoordsError {
    CoordsError::Broken { place: PLACE.to_owned(), reason: reason.to_owned() }
}
