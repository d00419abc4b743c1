//! The sound of a clip: a tone whose pitch follows the height of the moving shape. Pure.

use std::f64::consts::TAU;

use super::clip::{Clip, FPS};

/// Samples per second of the `audio` array.
pub(super) const SAMPLE_RATE: u32 = 16_000;
/// Pitch at the lower edge of the picture, in Hz; two octaves higher at the upper edge.
const LOWEST_HZ: f64 = 220.0;
/// Length of the fade at either end, in samples: without it a clip starts with a click.
const FADE_SAMPLES: f64 = 320.0;

/// Number of audio samples that last as long as `frames` video frames.
pub(super) fn length(frames: u64) -> u64 {
    frames * u64::from(SAMPLE_RATE) / u64::from(FPS)
}

/// The sound of `clip`, `samples` long, each in -1..1.
pub(super) fn render(clip: Clip, samples: u64) -> Vec<f32> {
    // The phase is summed, not computed from the pitch of the moment, so that the tone glides without steps.
    let mut turns = 0.0f64;
    (0..samples)
        .map(|sample| {
            let [_, height] = clip.centre(sample as f32 / SAMPLE_RATE as f32);
            turns += LOWEST_HZ * (2.0 * f64::from(height)).exp2() / f64::from(SAMPLE_RATE);
            let phase = TAU * turns.fract();
            let tone = phase.sin() + 0.3 * (2.0 * phase).sin() + 0.12 * (3.0 * phase).sin();
            let from_end = sample.min(samples - 1 - sample) as f64;
            (0.5 * tone * (from_end / FADE_SAMPLES).min(1.0)) as f32
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upward passes through zero: the pitch, for a window of a tenth of a second, in tens of Hz.
    fn passes(window: &[f32]) -> usize {
        window.windows(2).filter(|pair| pair[0] < 0.0 && pair[1] >= 0.0).count()
    }

    #[test]
    fn the_pitch_is_higher_while_the_shape_is_higher() {
        let clip = Clip::new(3, 32);
        let sound = render(clip, length(32));
        let window_at = |time: f32| {
            let start = (time * SAMPLE_RATE as f32) as usize;
            &sound[start..start + 1600]
        };
        let (low, high) = (0.04f32, 0.59f32);
        assert!(clip.centre(high)[1] > clip.centre(low)[1] + 0.2, "the clip rises between the two windows");
        assert!(passes(window_at(high)) > passes(window_at(low)) + 5);
    }

    #[test]
    fn the_sound_lasts_as_long_as_the_picture_and_never_clips() {
        assert_eq!(length(25), 16_000);
        let sound = render(Clip::new(0, 32), length(32));
        assert_eq!(sound.len(), 20_480);
        assert!(sound.iter().all(|value| value.abs() < 1.0));
        assert!(sound.iter().any(|value| value.abs() > 0.4));
    }
}
