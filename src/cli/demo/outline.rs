//! The outlines of the demonstration's shapes, as signed distances. Pure.
//!
//! A signed distance is negative inside, positive outside, and grows by one per unit of length (nearly so for the
//! star, whose points are rounded). One formula thus gives antialiasing, bevels, shadows and point clouds.

/// A point or a direction in the plane of the picture: x to the right, y upwards, in units of the shape's radius.
pub(super) type Point = [f32; 2];

/// An outline that fits the unit circle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outline {
    Ball,
    Ring,
    Block,
    Star,
    Pill,
    Cross,
    Nut,
    Flower,
}

impl Outline {
    /// Every outline, in the order of the demonstration's `label` array.
    pub(super) const ALL: [Self; 8] =
        [Self::Ball, Self::Ring, Self::Block, Self::Star, Self::Pill, Self::Cross, Self::Nut, Self::Flower];

    /// The word that captions use.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ball => "ball",
            Self::Ring => "ring",
            Self::Block => "block",
            Self::Star => "star",
            Self::Pill => "pill",
            Self::Cross => "cross",
            Self::Nut => "nut",
            Self::Flower => "flower",
        }
    }

    /// How far from the edge the surface curves before it is flat, in units of the radius.
    pub(super) fn bevel(self) -> f32 {
        match self {
            Self::Ball => 1.0,
            Self::Ring => 0.3,
            Self::Block => 0.36,
            Self::Star => 0.42,
            Self::Pill => 0.45,
            Self::Cross => 0.32,
            Self::Nut => 0.24,
            Self::Flower => 0.55,
        }
    }

    /// Signed distance of `p` from the edge.
    pub(super) fn distance(self, p: Point) -> f32 {
        match self {
            Self::Ball => length(p) - 1.0,
            Self::Ring => (length(p) - 0.7).abs() - 0.3,
            Self::Block => box_distance(p, [0.56, 0.56]) - 0.2,
            Self::Star => star_distance(p, 0.86, 0.48) - 0.12,
            Self::Pill => box_distance(p, [0.55, 0.0]) - 0.45,
            Self::Cross => box_distance(p, [0.82, 0.2]).min(box_distance(p, [0.2, 0.82])) - 0.14,
            Self::Nut => (hexagon_distance(p, 0.78) - 0.08).max(0.4 - length(p)),
            Self::Flower => flower_distance(p),
        }
    }

    /// Direction in which the distance grows fastest, of length one; zero at the centre of a symmetric shape.
    pub(super) fn outward(self, p: Point) -> Point {
        // About a pixel: ridges are rounded instead of jagged.
        const STEP: f32 = 0.025;
        let along_x = self.distance([p[0] + STEP, p[1]]) - self.distance([p[0] - STEP, p[1]]);
        let along_y = self.distance([p[0], p[1] + STEP]) - self.distance([p[0], p[1] - STEP]);
        let norm = length([along_x, along_y]);
        if norm == 0.0 { [0.0, 0.0] } else { [along_x / norm, along_y / norm] }
    }

    /// Height of the surface above the plane of the picture at `p`, and its unit normal (x, y, towards the viewer).
    /// `None` outside. The bevel is a quarter of a circle, so that a ball is a sphere and a ring a torus.
    pub(super) fn surface(self, p: Point) -> Option<(f32, [f32; 3])> {
        let inside = -self.distance(p);
        if inside < 0.0 {
            return None;
        }
        let slope = 1.0 - (inside / self.bevel()).min(1.0);
        let rise = (1.0 - slope * slope).max(0.0).sqrt();
        let outward = self.outward(p);
        Some((self.bevel() * rise, [outward[0] * slope, outward[1] * slope, rise]))
    }
}

/// Length of a vector.
pub(super) fn length(p: Point) -> f32 {
    p[0].hypot(p[1])
}

fn box_distance(p: Point, half: Point) -> f32 {
    let d = [p[0].abs() - half[0], p[1].abs() - half[1]];
    length([d[0].max(0.0), d[1].max(0.0)]) + d[0].max(d[1]).min(0.0)
}

/// A regular hexagon whose sides lie `apothem` from the centre.
fn hexagon_distance(p: Point, apothem: f32) -> f32 {
    const HALF_SQRT_3: f32 = 0.866_025_4;
    let [x, y] = [p[0].abs(), p[1].abs()];
    (x * HALF_SQRT_3 + y * 0.5).max(y) - apothem
}

/// A five-pointed star: tips at `outer`, notches at `outer * inner` from the centre.
fn star_distance(p: Point, outer: f32, inner: f32) -> f32 {
    const SECTOR: f32 = std::f32::consts::TAU / 5.0;
    // Fold the plane into half a sector whose tip lies on the axis that `angle` 0 stands for.
    let angle = p[0].atan2(p[1]);
    let folded = (angle - (angle / SECTOR).round() * SECTOR).abs();
    let (sin, cos) = folded.sin_cos();
    let q = [length(p) * sin, length(p) * cos];
    let (notch_sin, notch_cos) = (SECTOR / 2.0).sin_cos();
    let notch = [outer * inner * notch_sin, outer * inner * notch_cos];
    let edge = [notch[0], notch[1] - outer];
    let from_tip = [q[0], q[1] - outer];
    let along =
        ((from_tip[0] * edge[0] + from_tip[1] * edge[1]) / (edge[0] * edge[0] + edge[1] * edge[1])).clamp(0.0, 1.0);
    let away = length([from_tip[0] - edge[0] * along, from_tip[1] - edge[1] * along]);
    let side = edge[1] * from_tip[0] - edge[0] * from_tip[1];
    if side < 0.0 { away } else { -away }
}

/// Five round petals around a round heart, blended where they meet.
fn flower_distance(p: Point) -> f32 {
    const SECTOR: f32 = std::f32::consts::TAU / 5.0;
    let angle = p[0].atan2(p[1]);
    let folded = angle - (angle / SECTOR).round() * SECTOR;
    let (sin, cos) = folded.sin_cos();
    let petal = length([length(p) * sin, length(p) * cos - 0.58]) - 0.4;
    smooth_min(petal, length(p) - 0.45, 0.15)
}

/// The smaller of two distances, rounded off where they are within `blend` of each other.
fn smooth_min(a: f32, b: f32, blend: f32) -> f32 {
    let h = (blend - (a - b).abs()).max(0.0) / blend;
    a.min(b) - h * h * blend * 0.25
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outline_fits_the_unit_circle_and_is_not_empty() {
        for outline in Outline::ALL {
            let mut inside = 0;
            for step in 0..360 {
                let (sin, cos) = (step as f32).to_radians().sin_cos();
                assert!(outline.distance([1.02 * cos, 1.02 * sin]) > 0.0, "{outline:?} passes the circle at {step}°");
                inside += usize::from(outline.distance([0.6 * cos, 0.6 * sin]) < 0.0);
            }
            assert!(inside > 100, "{outline:?} is nearly empty");
        }
    }

    #[test]
    fn a_ball_is_a_sphere() {
        let p = [0.3, -0.4];
        let (height, normal) = Outline::Ball.surface(p).expect("inside");
        assert!((height - (1.0f32 - 0.25).sqrt()).abs() < 1e-4);
        for (n, expected) in normal.iter().zip([p[0], p[1], height]) {
            assert!((n - expected).abs() < 1e-3, "{normal:?}");
        }
    }

    #[test]
    fn there_is_no_surface_in_the_hole_of_a_ring() {
        assert!(Outline::Ring.surface([0.0, 0.0]).is_none());
        assert!(Outline::Ring.surface([0.7, 0.0]).is_some());
    }
}
