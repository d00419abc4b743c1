//! The point cloud of a clip: the surface of its shape, standing on a grid of places three metres apart. Pure.

use super::clip::Clip;
use super::scene::diffuse;

/// What the columns of a point hold.
pub(super) const COLUMNS: [&str; 4] = ["x", "y", "z", "intensity"];
/// Distance between neighbouring shapes, in metres. A shape's radius is one metre.
const SPACING_METRES: f32 = 3.0;
/// Shapes in a row along x.
const ROW: u64 = 4;

/// Number of points of sample `index`: another for each, as clouds have.
pub(super) fn count(index: u64) -> usize {
    4000 + (index * 1777 % 4096) as usize
}

/// The cloud of sample `index`: x to the right, y away from the viewer and z upwards in metres, and the share of
/// light that the point catches (0..=1).
///
/// Neighbours in the list are neighbours in space, so that a chunk covers a small box.
pub(super) fn render(index: u64, clip: Clip) -> Vec<[f32; 4]> {
    let outline = clip.outline();
    let base = [SPACING_METRES * (index % ROW) as f32, SPACING_METRES * (index / ROW) as f32, 1.0];
    let mut points: Vec<_> = (1u32..)
        .map(spread)
        .filter_map(|p| Some((p, outline.surface(p)?)))
        .enumerate()
        .take(count(index))
        .map(|(order, (p, (height, normal)))| {
            // The picture's plane stands upright in the world; every second point lies on the back.
            let side = if order % 2 == 0 { 1.0 } else { -1.0 };
            let at = [base[0] + p[0], base[1] - side * height, base[2] + p[1]];
            let light = diffuse([normal[0], normal[1], side * normal[2]]);
            [at[0], at[1], at[2], light]
        })
        .collect();
    points.sort_by_cached_key(|&[x, y, z, _]| interleave([x - base[0], y - base[1], z - base[2]]));
    points
}

/// The `n`-th point of a sequence that fills the square -1..1 evenly (Roberts' R2, from the plastic number).
fn spread(n: u32) -> [f32; 2] {
    [0.754_877_666_246_693, 0.569_840_290_998_053].map(|step: f64| ((f64::from(n) * step).fract() * 2.0 - 1.0) as f32)
}

/// A Morton code: the bits of the three coordinates, -1..1 each in 1,024 steps, in turn.
fn interleave(at: [f32; 3]) -> u32 {
    let cells = at.map(|coordinate| ((coordinate + 1.0) * 511.5).clamp(0.0, 1023.0) as u32);
    (0..10).fold(0, |code, bit| {
        cells.iter().enumerate().fold(code, |code, (axis, cell)| code | ((cell >> bit) & 1) << (3 * bit + axis as u32))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_points_of_a_ball_lie_on_a_sphere_about_its_place() {
        let cloud = render(8, Clip::new(8, 32)); // Sample 8 is the second ball: first in the third row.
        assert_eq!(cloud.len(), count(8));
        for [x, y, z, intensity] in cloud {
            let radius = (x.powi(2) + (y - 6.0).powi(2) + (z - 1.0).powi(2)).sqrt();
            assert!((radius - 1.0).abs() < 1e-3, "{x} {y} {z}");
            assert!((0.0..=1.001).contains(&intensity));
        }
    }

    #[test]
    fn neighbours_in_the_list_are_neighbours_in_space() {
        let cloud = render(1, Clip::new(1, 32));
        let steps = cloud.windows(2).map(|pair| (pair[0][0] - pair[1][0]).hypot(pair[0][2] - pair[1][2]));
        let mean = steps.sum::<f32>() / (cloud.len() - 1) as f32;
        assert!(mean < 0.15, "mean step {mean} m");
    }
}
