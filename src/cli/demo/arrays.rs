//! Writes `clips.zarr`: a Zarr v3 group with video, audio, captions, point clouds and labels.
//!
//! The arrays differ in how they are stored, so that each way of reading has something to read: sharded with
//! checksums (`video`), chunked and compressed (`audio`, `points`), plain (`tokens`, offsets, `label`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use serde_json::{Value, json};
use zarrs::array::{Array, ArrayMetadata, Element};
use zarrs::filesystem::FilesystemStore;

use super::clip::{Clip, FPS};
use super::outline::Outline;
use super::{DemoError, Size, VERSION, VERSION_ATTRIBUTE, cloud, sound};

/// Frames, rows and columns of a chunk of `video`: 48 KiB, a fraction of a frame's area and a sixth of a second.
const VIDEO_CHUNK: [u64; 3] = [4, 64, 64];
/// Samples of a chunk of `audio`: a quarter of a second, 16 KiB.
const AUDIO_CHUNK: u64 = 4096;
/// Points of a chunk of `points`: 32 KiB.
const POINTS_CHUNK: u64 = 2048;

/// Bytes of all elements that [`write`] encodes: what its progress counts up to.
pub(super) fn total_bytes(size: &Size) -> u64 {
    let video = size.samples * video_bytes(size);
    let audio = size.samples * sound::length(size.frames) * 4;
    let points = (0..size.samples).map(|index| cloud::count(index) as u64 * 16).sum::<u64>();
    video + audio + points
}

fn video_bytes(size: &Size) -> u64 {
    size.frames * size.height * size.width * 3
}

/// Writes the group into the folder `root`, which is made; `progress` hears bytes done of [`total_bytes`].
///
/// Samples are rendered and encoded on all cores. Equal sizes give equal files.
pub(super) fn write(root: &Path, size: &Size, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<(), DemoError> {
    std::fs::create_dir_all(root).map_err(|error| DemoError::file("make", root, error))?;
    let group = json!({
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {
            "title": "Sixteen short clips of moving shapes, with sound, captions and point clouds",
            VERSION_ATTRIBUTE: VERSION,
        },
    });
    write_document(root, &group)?;
    let store = FilesystemStore::new(root).map_err(|error| DemoError::array("clips.zarr", error))?;
    let writer = Writer { root, store: Arc::new(store), size, done: AtomicU64::new(0), progress };
    writer.video()?;
    writer.audio()?;
    writer.tokens()?;
    writer.points()?;
    writer.label()
}

/// Writes the metadata document of a group or an array.
fn write_document(folder: &Path, content: &Value) -> Result<(), DemoError> {
    let path = folder.join("zarr.json");
    std::fs::write(&path, format!("{content:#}\n")).map_err(|error| DemoError::file("write", &path, error))
}

struct Writer<'a> {
    root: &'a Path,
    store: Arc<FilesystemStore>,
    size: &'a Size,
    done: AtomicU64,
    progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// What distinguishes one array from another.
struct Layout<'a> {
    name: &'static str,
    dtype: &'static str,
    shape: &'a [u64],
    /// Shape of a stored object: a chunk, or a shard.
    chunk: &'a [u64],
    dims: &'a [&'static str],
    codecs: Value,
    attributes: Value,
}

fn little_endian() -> Value {
    json!({ "name": "bytes", "configuration": { "endian": "little" } })
}

fn zstd() -> Value {
    json!({ "name": "zstd", "configuration": { "level": 3, "checksum": false } })
}

impl Writer<'_> {
    fn clips(&self) -> impl ParallelIterator<Item = (u64, Clip)> + use<> {
        let frames = self.size.frames;
        (0..self.size.samples).into_par_iter().map(move |index| (index, Clip::new(index, frames)))
    }

    fn create(&self, layout: Layout<'_>) -> Result<NamedArray, DemoError> {
        let name = layout.name;
        let metadata = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": layout.shape,
            "data_type": layout.dtype,
            "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": layout.chunk } },
            "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
            "fill_value": 0,
            "codecs": layout.codecs,
            "dimension_names": layout.dims,
            "attributes": layout.attributes,
        });
        let folder = self.root.join(name);
        std::fs::create_dir_all(&folder).map_err(|error| DemoError::file("make", &folder, error))?;
        // Not `Array::store_metadata`: it shortens `{"name": "crc32c"}` to `"crc32c"`, as Zarr 3.1 allows, and
        // zarr-python 3.1.6 cannot open that.
        write_document(&folder, &metadata)?;
        let metadata =
            ArrayMetadata::try_from(metadata.to_string().as_str()).map_err(|error| DemoError::array(name, error))?;
        let array = Array::new_with_metadata(self.store.clone(), &format!("/{name}"), metadata)
            .map_err(|error| DemoError::array(name, error))?;
        Ok(NamedArray { name, array })
    }

    /// An array that is small enough to be made in one piece.
    fn store_whole<T: Element>(&self, layout: Layout<'_>, values: Vec<T>) -> Result<(), DemoError> {
        let NamedArray { name, array } = self.create(layout)?;
        array.store_array_subset(&array.subset_all(), values).map_err(|error| DemoError::array(name, error))
    }

    fn advance(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.progress)(done, total_bytes(self.size));
    }

    fn video(&self) -> Result<(), DemoError> {
        let Size { samples, frames, height, width } = *self.size;
        let [chunk_frames, rows, columns] = VIDEO_CHUNK;
        let crc32c = json!({ "name": "crc32c" });
        let sharding = json!({
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": [1, chunk_frames, rows, columns, 3],
                "codecs": [{ "name": "bytes" }, zstd(), crc32c],
                "index_codecs": [little_endian(), crc32c],
                "index_location": "end",
            },
        });
        let array = self.create(Layout {
            name: "video",
            dtype: "uint8",
            shape: &[samples, frames, height, width, 3],
            chunk: &[1, frames, height, width, 3],
            dims: &["sample", "time", "y", "x", "channel"],
            codecs: json!([sharding]),
            attributes: json!({
                "long_name": "moving shapes, as sRGB frames",
                "units": "1",
                "fps": FPS,
                "channels": ["red", "green", "blue"],
            }),
        })?;
        self.clips().try_for_each(|(index, clip)| {
            let mut pixels = Vec::with_capacity(video_bytes(self.size) as usize);
            for frame in 0..frames {
                let scene = clip.scene(frame as f32 / FPS as f32);
                pixels.extend(scene.render(height as usize, width as usize));
                self.advance(height * width * 3);
            }
            array.store(&[index, 0, 0, 0, 0], pixels)
        })
    }

    fn audio(&self) -> Result<(), DemoError> {
        let (samples, length) = (self.size.samples, sound::length(self.size.frames));
        let array = self.create(Layout {
            name: "audio",
            dtype: "float32",
            shape: &[samples, length],
            chunk: &[1, AUDIO_CHUNK],
            dims: &["sample", "time"],
            codecs: json!([little_endian(), zstd()]),
            attributes: json!({
                "long_name": "a tone whose pitch follows the height of the shape",
                "units": "1",
                "sample_rate": sound::SAMPLE_RATE,
            }),
        })?;
        self.clips().try_for_each(|(index, clip)| {
            let sound = sound::render(clip, length);
            for (chunk, values) in (0u64..).zip(sound.chunks(AUDIO_CHUNK as usize)) {
                // A chunk at the border is stored whole: what lies past the shape is fill value.
                let mut values = values.to_vec();
                values.resize(AUDIO_CHUNK as usize, 0.0);
                array.store(&[index, chunk], values)?;
            }
            self.advance(length * 4);
            Ok(())
        })
    }

    fn tokens(&self) -> Result<(), DemoError> {
        let captions = (0..self.size.samples).map(|index| Clip::new(index, self.size.frames).caption());
        let samples: Vec<Vec<i32>> = captions.map(|caption| caption.bytes().map(i32::from).collect()).collect();
        self.offsets("tokens_offsets", samples.iter().map(Vec::len))?;
        let flat = samples.concat();
        let length = flat.len() as u64;
        let layout = Layout {
            name: "tokens",
            dtype: "int32",
            shape: &[length],
            chunk: &[length],
            dims: &["token"],
            codecs: json!([little_endian()]),
            attributes: json!({
                "long_name": "captions as UTF-8, one byte a token",
                "ragged": { "kind": "offsets", "index": "tokens_offsets" },
            }),
        };
        self.store_whole(layout, flat)
    }

    fn points(&self) -> Result<(), DemoError> {
        let clouds: Vec<Vec<[f32; 4]>> = self.clips().map(|(index, clip)| cloud::render(index, clip)).collect();
        self.offsets("points_offsets", clouds.iter().map(Vec::len))?;
        let flat = clouds.concat();
        let count = flat.len() as u64;
        let width = cloud::COLUMNS.len() as u64;
        let layout = Layout {
            name: "points",
            dtype: "float32",
            shape: &[count, width],
            chunk: &[POINTS_CHUNK, width],
            dims: &["point", "column"],
            codecs: json!([little_endian(), zstd(), { "name": "crc32c" }]),
            attributes: json!({
                "long_name": "surfaces of the shapes, three metres apart",
                "columns": cloud::COLUMNS,
                "units": "m",
                "ragged": { "kind": "offsets", "index": "points_offsets" },
            }),
        };
        self.store_whole(layout, flat.into_flattened())?;
        self.advance(count * width * 4);
        Ok(())
    }

    /// Where each ragged sample starts in its flat array, and where the last one ends.
    fn offsets(&self, name: &'static str, lengths: impl Iterator<Item = usize>) -> Result<(), DemoError> {
        let mut end = 0i64;
        let mut offsets = vec![end];
        for length in lengths {
            end += length as i64;
            offsets.push(end);
        }
        let count = offsets.len() as u64;
        let layout = Layout {
            name,
            dtype: "int64",
            shape: &[count],
            chunk: &[count],
            dims: &["offset"],
            codecs: json!([little_endian()]),
            attributes: json!({ "long_name": "sample i is elements offset[i] up to offset[i + 1]" }),
        };
        self.store_whole(layout, offsets)
    }

    fn label(&self) -> Result<(), DemoError> {
        let samples = self.size.samples;
        let layout = Layout {
            name: "label",
            dtype: "int32",
            shape: &[samples],
            chunk: &[samples],
            dims: &["sample"],
            codecs: json!([little_endian()]),
            attributes: json!({
                "long_name": "which shape moves",
                "flag_values": (0..Outline::ALL.len()).collect::<Vec<_>>(),
                "flag_meanings": Outline::ALL.map(Outline::name).join(" "),
            }),
        };
        self.store_whole(layout, (0..samples).map(|index| Clip::new(index, self.size.frames).label()).collect())
    }
}

/// An array, with the name that its errors carry.
struct NamedArray {
    name: &'static str,
    array: Array<FilesystemStore>,
}

impl NamedArray {
    fn store<T: Element>(&self, chunk: &[u64], values: Vec<T>) -> Result<(), DemoError> {
        self.array.store_chunk(chunk, values).map_err(|error| DemoError::array(self.name, error))
    }
}
