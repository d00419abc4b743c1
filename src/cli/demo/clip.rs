//! What the clips show: one shape each, on a closed path before a backdrop, with a caption that says so. Pure.

use std::f32::consts::TAU;

use super::outline::{Outline, Point};
use super::scene::{Rgb, Scene, Solid, rgb};

/// Frames per second of the `video` array.
pub(super) const FPS: u32 = 25;

/// Name and colour of the shapes.
const PAINTS: [(&str, u32); 8] = [
    ("coral", 0xff_5a_4d),
    ("golden", 0xff_b8_1c),
    ("turquoise", 0x1c_d4_c4),
    ("violet", 0x9a_5c_f5),
    ("lime", 0x9c_d8_2c),
    ("sky-blue", 0x3a_9c_f8),
    ("pink", 0xff_6e_b4),
    ("ivory", 0xf4_ec_dc),
];

/// Name of the backdrops, and their colours at the top and at the bottom. None is close to a paint.
const BACKDROPS: [(&str, u32, u32); 5] = [
    ("midnight", 0x14_1c_48, 0x3c_2c_6c),
    ("dusk", 0x2a_24_4e, 0xb0_56_5e),
    ("forest", 0x0c_34_34, 0x3e_78_58),
    ("slate", 0x26_30_3c, 0x76_84_94),
    ("ocean", 0x06_2a_4c, 0x1c_72_90),
];

/// How a shape moves. Every path closes after one clip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Motion {
    Circle,
    Bounce,
    Swing,
    Weave,
    Rise,
}

impl Motion {
    const ALL: [Self; 5] = [Self::Circle, Self::Bounce, Self::Swing, Self::Weave, Self::Rise];

    fn verb(self) -> &'static str {
        match self {
            Self::Circle => "circles",
            Self::Bounce => "bounces",
            Self::Swing => "swings",
            Self::Weave => "weaves",
            Self::Rise => "rises and sinks",
        }
    }

    /// Centre of the shape at `phase`, 0..1 of the clip.
    fn centre(self, phase: f32) -> Point {
        let turn = TAU * phase;
        match self {
            Self::Circle => [0.5 + 0.24 * turn.cos(), 0.5 + 0.24 * turn.sin()],
            Self::Bounce => [0.5 - 0.26 * turn.cos(), 0.27 + 0.45 * turn.sin().abs()],
            Self::Swing => {
                let angle = 0.62 * turn.sin();
                [0.5 + 0.46 * angle.sin(), 0.82 - 0.52 * angle.cos()]
            }
            Self::Weave => [0.5 + 0.26 * turn.sin(), 0.5 + 0.22 * (2.0 * turn).sin()],
            Self::Rise => [0.5 + 0.06 * (3.0 * turn).sin(), 0.5 - 0.24 * turn.cos()],
        }
    }
}

/// One sample of the demonstration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clip {
    index: u64,
    /// Length in seconds.
    seconds: f32,
    motion: Motion,
}

impl Clip {
    /// The clip of sample `index`, `frames` long.
    pub(super) fn new(index: u64, frames: u64) -> Self {
        let motion = Motion::ALL[(index * 3 % 5) as usize];
        Self { index, seconds: frames as f32 / FPS as f32, motion }
    }

    /// The class of the sample: its shape's position in [`Outline::ALL`].
    pub(super) fn label(self) -> i32 {
        (self.index % Outline::ALL.len() as u64) as i32
    }

    /// The shape that moves.
    pub(super) fn outline(self) -> Outline {
        Outline::ALL[self.label() as usize]
    }

    /// A sentence in ASCII that describes the clip.
    pub(super) fn caption(self) -> String {
        let (paint, backdrop) = (self.paint().0, self.backdrop().0);
        let (shape, verb) = (self.outline().name(), self.motion.verb());
        let (a, b) = (article(paint), article(backdrop));
        let sentence = format!("{a} {paint} {shape} {verb} against {b} {backdrop} background.");
        sentence[..1].to_ascii_uppercase() + &sentence[1..]
    }

    /// Where the shape is `time` seconds after the start: x, y in heights of the picture, from the lower left.
    pub(super) fn centre(self, time: f32) -> Point {
        self.motion.centre(time / self.seconds)
    }

    /// The picture `time` seconds after the start.
    pub(super) fn scene(self, time: f32) -> Scene {
        let (_, top, bottom) = self.backdrop();
        let direction = if self.index.is_multiple_of(2) { 1.0 } else { -1.0 };
        let solid = Solid {
            outline: self.outline(),
            centre: self.centre(time),
            radius: 0.21,
            // Two fifths of a turn per clip bring stars and flowers back to themselves.
            angle: 0.3 + direction * 0.4 * TAU * time / self.seconds,
            colour: self.colour(),
        };
        Scene { backdrop: [rgb(top), rgb(bottom)], solids: vec![solid] }
    }

    fn colour(self) -> Rgb {
        rgb(self.paint().1)
    }

    fn paint(self) -> (&'static str, u32) {
        PAINTS[((self.index * 3 + self.index / 8) % 8) as usize]
    }

    fn backdrop(self) -> (&'static str, u32, u32) {
        BACKDROPS[((self.index * 2 + self.index / 5) % 5) as usize]
    }
}

fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

/// A still life of every shape, for `frame.npy`; best at four to three.
pub(super) fn still_life() -> Scene {
    // x, y, radius, angle, paint, of each outline in turn: far ones first, small and high up.
    const PLACES: [(f32, f32, f32, f32, usize); 8] = [
        (0.30, 0.70, 0.155, 0.0, 0),
        (0.66, 0.76, 0.135, 0.0, 1),
        (1.03, 0.71, 0.150, 0.3, 2),
        (0.20, 0.32, 0.140, 0.2, 6),
        (0.50, 0.47, 0.130, 0.6, 4),
        (0.83, 0.46, 0.135, 0.4, 7),
        (0.55, 0.19, 0.125, 0.2, 5),
        (1.06, 0.28, 0.180, 0.1, 3),
    ];
    let solids = Outline::ALL.into_iter().zip(PLACES).map(|(outline, (x, y, radius, angle, paint))| Solid {
        outline,
        centre: [x, y],
        radius,
        angle,
        colour: rgb(PAINTS[paint].1),
    });
    Scene { backdrop: [rgb(BACKDROPS[0].1), rgb(BACKDROPS[1].2)], solids: solids.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_stay_inside_the_picture() {
        for clip in (0..16).map(|index| Clip::new(index, 32)) {
            for frame in 0..32 {
                for coordinate in clip.centre(frame as f32 / FPS as f32) {
                    assert!((0.2..=0.8).contains(&coordinate), "clip {} frame {frame}", clip.index);
                }
            }
        }
    }

    #[test]
    fn captions_differ_and_name_the_shape() {
        let captions: std::collections::HashSet<_> = (0..16).map(|index| Clip::new(index, 32).caption()).collect();
        assert_eq!(captions.len(), 16);
        assert!(Clip::new(3, 32).caption().contains("star"));
    }

    #[test]
    fn consecutive_frames_differ_and_the_same_frame_is_the_same() {
        let clip = Clip::new(5, 32);
        assert_ne!(clip.scene(0.0).render(32, 32), clip.scene(0.04).render(32, 32));
        assert_eq!(clip.scene(0.04).render(32, 32), clip.scene(0.04).render(32, 32));
    }
}
