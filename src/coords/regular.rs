//! Axes of equal steps.

use serde_json::{Value, json};

use super::measure::{Measured, Place};
use super::{Taken, ceil, floor, integer};
use crate::model::exact::{Exact, text};
use crate::query::{Closed, Method};

/// Where a cell lies about its coordinate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// From it to the next: frames, and samples of sound.
    Start,
    /// Half a step to both sides: pixels. OME-Zarr 0.6: "The continuous rectangle of the pixel is given by the half-open
    /// interval [-0.5, 0.5) x [-0.5, 0.5)".
    Centre,
}

/// Equal steps: position k has the coordinate `first + k * step`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regular {
    /// The coordinate of position 0.
    pub first: Exact,
    /// From one to the next; never 0, negative on a descending axis.
    pub step: Exact,
    /// Where cells lie about their coordinates.
    pub anchor: Anchor,
    /// What the numbers mean.
    pub measured: Measured,
    /// What told so, for `describe`.
    pub source: &'static str,
}

impl Regular {
    /// Where the edge of cell 0 lies that position 0.0 is at.
    fn edge(&self) -> Exact {
        match self.anchor {
            Anchor::Start => self.first.clone(),
            Anchor::Centre => &self.first - &self.step / integer(2),
        }
    }

    /// A place in positions: cell k spans k to k + 1.
    pub(super) fn position(&self, place: &Place) -> Exact {
        match place {
            Place::At(value) => (value - self.edge()) / &self.step,
            Place::Position(position) => position.clone(),
        }
    }

    /// Both ends in positions, the lower one first.
    fn span(&self, len: u64, lo: Option<&Place>, hi: Option<&Place>) -> (Exact, Exact) {
        let ascends = self.step > integer(0);
        // Frames count upwards whatever the axis does.
        let upwards = ascends || matches!((lo, hi), (Some(Place::Position(_)), _) | (_, Some(Place::Position(_))));
        let end = |mark: Option<&Place>, open: u64| {
            mark.map_or_else(|| integer(i128::from(open)), |mark| self.position(mark))
        };
        if upwards { (end(lo, 0), end(hi, len)) } else { (end(hi, 0), end(lo, len)) }
    }

    pub(super) fn take(&self, len: u64, lo: Option<&Place>, hi: Option<&Place>, closed: Closed) -> Taken {
        let (low, high) = self.span(len, lo, hi);
        let (start, stop) = match closed {
            // Cell k spans k to k + 1, and its interior meets what lies between.
            Closed::Both if low == high => (floor(&low), floor(&low).saturating_add(1)),
            Closed::Both => (floor(&low), ceil(&high)),
            // Cells whose lower edge lies within, the upper end excluded.
            Closed::Left if self.step > integer(0) => (ceil(&low), ceil(&high)),
            Closed::Left => (floor(&low), floor(&high)),
        };
        let clip = |at: i128| at.clamp(0, i128::from(len));
        let (start, stop) = (clip(start), clip(stop));
        Taken::Range(start, stop.max(start))
    }

    /// Whether an interval meets the axis at all.
    pub(super) fn reaches(&self, len: u64, lo: Option<&Place>, hi: Option<&Place>) -> bool {
        let (low, high) = self.span(len, lo, hi);
        let end = integer(i128::from(len));
        len > 0 && low < end && (high > integer(0) || (low == high && low >= integer(0)))
    }

    /// The ends of the first and the last cell, in numbers of the axis.
    pub(super) fn extent(&self, len: u64) -> Option<(Exact, Exact)> {
        let (first, last) = (self.edge(), self.edge() + &self.step * integer(i128::from(len)));
        (len > 0).then(|| if first <= last { (first, last) } else { (last, first) })
    }

    pub(super) fn find(&self, len: u64, place: &Place, method: Method) -> Option<u64> {
        let at = match place {
            Place::At(value) => (value - &self.first) / &self.step,
            Place::Position(position) => position.clone(),
        };
        let half = Exact::new(1.into(), 2.into());
        let (ascends, last) = (self.step > integer(0), i128::from(len) - 1);
        let found = match method {
            Method::Exact => at.is_integer().then(|| floor(&at)).filter(|k| (0..=last).contains(k)),
            // Of two the larger coordinate.
            Method::Nearest if ascends => Some(floor(&(at + half)).clamp(0, last)),
            Method::Nearest => Some(ceil(&(at - half)).clamp(0, last)),
            Method::Forward if ascends => Some(floor(&at).min(last)).filter(|k| *k >= 0),
            Method::Forward => Some(ceil(&at).max(0)).filter(|k| *k <= last),
            Method::Backward if ascends => Some(ceil(&at).max(0)).filter(|k| *k <= last),
            Method::Backward => Some(floor(&at).min(last)).filter(|k| *k >= 0),
        };
        found.and_then(|k| u64::try_from(k).ok())
    }

    pub(super) fn describe(&self) -> Value {
        json!({
            "kind": "regular",
            "source": self.source,
            "first": text(&self.first),
            "step": text(&self.step),
            "cells": match self.anchor { Anchor::Start => "start", Anchor::Centre => "centre" },
            "unit": self.measured.name(),
        })
    }
}
