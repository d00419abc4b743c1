//! Shaded shapes before a backdrop, rendered to 8-bit RGB. Pure.
//!
//! A picture is one unit high; x runs to the right, y upwards, both from the lower left corner. Colours are linear
//! light in 0..=1 until the last step.

use super::outline::{Outline, Point};

/// A colour: red, green, blue as linear light.
pub(super) type Rgb = [f32; 3];

/// One shape in the picture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Solid {
    pub outline: Outline,
    pub centre: Point,
    /// Radius of the circle around the shape, in heights of the picture.
    pub radius: f32,
    /// Rotation in radians, anticlockwise.
    pub angle: f32,
    pub colour: Rgb,
}

/// A backdrop and the shapes before it, the nearest last.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    /// Colour at the top and at the bottom.
    pub backdrop: [Rgb; 2],
    pub solids: Vec<Solid>,
}

/// Direction of the light: from the upper left, before the picture. Of length one.
pub(super) const LIGHT: [f32; 3] = [-0.42, 0.56, 0.714];
/// How far a shadow falls to the lower right of its shape, in radii.
const SHADOW_OFFSET: Point = [0.22, -0.3];
/// Width of a shadow's soft edge, in radii.
const SHADOW_BLUR: f32 = 0.55;

impl Scene {
    /// Renders `height` × `width` pixels of red, green, blue, row by row from the top.
    pub(super) fn render(&self, height: usize, width: usize) -> Vec<u8> {
        let mut pixels = Vec::with_capacity(height * width * 3);
        let unit = 1.0 / height as f32;
        for row in 0..height {
            let y = 1.0 - (row as f32 + 0.5) * unit;
            for column in 0..width {
                let x = (column as f32 + 0.5) * unit;
                let colour = self.colour_at([x, y], width as f32 * unit, unit);
                pixels.extend(colour.map(to_byte));
            }
        }
        pixels
    }

    fn colour_at(&self, at: Point, aspect: f32, pixel: f32) -> Rgb {
        let off_centre = [at[0] / aspect - 0.5, at[1] - 0.5];
        let vignette = 1.0 - 0.9 * (off_centre[0] * off_centre[0] + off_centre[1] * off_centre[1]);
        // The gradient leans a little, so that both axes of a frame carry something.
        let mix = smoothstep(0.0, 1.0, 1.0 - at[1] + 0.35 * off_centre[0]);
        let mut colour = blend(self.backdrop[0], self.backdrop[1], mix).map(|light| light * vignette);
        for solid in &self.solids {
            let local = solid.to_local(at);
            // Shape and shadow lie within 1.8 radii: most pixels are done here.
            if local[0].hypot(local[1]) > 1.8 {
                continue;
            }
            let shadow = solid.shadow_at(at);
            colour = colour.map(|light| light * (1.0 - 0.55 * shadow));
            let coverage = (0.5 - solid.outline.distance(local) * solid.radius / pixel).clamp(0.0, 1.0);
            if coverage > 0.0 {
                colour = blend(colour, solid.shade(local, self.backdrop[0]), coverage);
            }
        }
        colour
    }
}

impl Solid {
    /// A point of the picture in the shape's own frame, in radii.
    fn to_local(self, at: Point) -> Point {
        let (sin, cos) = self.angle.sin_cos();
        let [x, y] = [(at[0] - self.centre[0]) / self.radius, (at[1] - self.centre[1]) / self.radius];
        [x * cos + y * sin, y * cos - x * sin]
    }

    fn shadow_at(self, at: Point) -> f32 {
        let lit_from = [at[0] - SHADOW_OFFSET[0] * self.radius, at[1] - SHADOW_OFFSET[1] * self.radius];
        1.0 - smoothstep(-0.5 * SHADOW_BLUR, SHADOW_BLUR, self.outline.distance(self.to_local(lit_from)))
    }

    /// Colour of the surface at a point of the shape's own frame: diffuse light, a highlight, and a rim that
    /// reflects `surroundings`.
    fn shade(self, local: Point, surroundings: Rgb) -> Rgb {
        // An antialiased pixel may have its middle just outside; there the surface faces sideways.
        let normal = self.outline.surface(local).map_or_else(
            || {
                let outward = self.outline.outward(local);
                [outward[0], outward[1], 0.0]
            },
            |(_, normal)| normal,
        );
        let (sin, cos) = self.angle.sin_cos();
        let normal = [normal[0] * cos - normal[1] * sin, normal[0] * sin + normal[1] * cos, normal[2]];
        let facing_light = diffuse(normal);
        // Blinn's half vector for a viewer straight before the picture.
        let half = unit([LIGHT[0], LIGHT[1], LIGHT[2] + 1.0]);
        let highlight = dot(normal, half).max(0.0).powi(48) * 0.8;
        let rim = (1.0 - normal[2].clamp(0.0, 1.0)).powi(3) * 0.5;
        let mut colour = self.colour.map(|light| light * (0.16 + 0.95 * facing_light));
        for (channel, around) in colour.iter_mut().zip(surroundings) {
            *channel = (*channel + rim * around * 0.8 + highlight).min(1.0);
        }
        colour
    }
}

/// How much of the light a surface with this unit normal catches, 0..=1.
pub(super) fn diffuse(normal: [f32; 3]) -> f32 {
    dot(normal, LIGHT).max(0.0)
}

/// A colour from its 8-bit sRGB value, `0xRRGGBB`.
pub(super) fn rgb(hex: u32) -> Rgb {
    [16, 8, 0].map(|shift| {
        let byte = ((hex >> shift) & 0xff) as f32 / 255.0;
        byte * byte
    })
}

/// The inverse of [`rgb`]: a square root stands for the sRGB curve, which is all that a demonstration needs.
fn to_byte(light: f32) -> u8 {
    (light.clamp(0.0, 1.0).sqrt() * 255.0).round() as u8
}

fn blend(from: Rgb, to: Rgb, share: f32) -> Rgb {
    std::array::from_fn(|channel| from[channel] + (to[channel] - from[channel]) * share)
}

fn smoothstep(low: f32, high: f32, value: f32) -> f32 {
    let t = ((value - low) / (high - low)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

fn dot(a: [f32; 3], b: [f32; 3]) -> f32 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn unit(v: [f32; 3]) -> [f32; 3] {
    let norm = dot(v, v).sqrt();
    v.map(|component| component / norm)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_ball(centre: Point) -> Scene {
        let ball = Solid { outline: Outline::Ball, centre, radius: 0.2, angle: 0.0, colour: rgb(0xff_00_00) };
        Scene { backdrop: [rgb(0x10_20_40), rgb(0x20_40_80)], solids: vec![ball] }
    }

    fn pixel(image: &[u8], width: usize, row: usize, column: usize) -> [u8; 3] {
        let at = (row * width + column) * 3;
        [image[at], image[at + 1], image[at + 2]]
    }

    #[test]
    fn y_points_up_and_the_shape_is_where_its_centre_says() {
        let image = one_ball([0.75, 0.75]).render(64, 64);
        let [red, _, blue] = pixel(&image, 64, 16, 48);
        assert!(red > blue, "the ball is red in the upper right quarter");
        let [red, _, blue] = pixel(&image, 64, 48, 16);
        assert!(red < blue, "the lower left quarter shows the backdrop");
    }

    #[test]
    fn the_side_towards_the_light_is_brighter() {
        let image = one_ball([0.5, 0.5]).render(64, 64);
        assert!(pixel(&image, 64, 26, 26)[0] > pixel(&image, 64, 38, 38)[0] + 40);
    }

    #[test]
    fn colours_survive_the_way_to_bytes_and_back() {
        assert_eq!(rgb(0x12_80_fe).map(to_byte), [0x12, 0x80, 0xfe]);
    }
}
