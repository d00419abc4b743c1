"""The workload: a video array with entropy, and random crops of it that a seed repeats."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SHAPE, SHARD, CHUNK = (64, 16, 256, 256, 3), (1, 16, 256, 256, 3), (1, 4, 64, 64, 3)
CROP, SMALL_CROP = (8, 112, 112), (8, 32, 32)
SEED = 20261201
COMPRESSED, PLAIN = "zstd.zarr/video", "plain.zarr/video"


@dataclass(frozen=True)
class Crop:
    """A box of one sample: `start` and `size` over time, y and x; all channels."""

    sample: int
    start: tuple[int, int, int]
    size: tuple[int, int, int]

    @property
    def box(self) -> tuple:
        """For numpy, and for what indexes like it."""
        return (self.sample, *(slice(a, a + n) for a, n in zip(self.start, self.size, strict=True)))

    @property
    def text(self) -> str:
        """For `slice=`."""
        return ",".join([str(self.sample), *(f"{a}:{a + n}" for a, n in zip(self.start, self.size, strict=True))])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the answer."""
        return (*self.size, SHAPE[4])

    @property
    def bytes(self) -> int:
        """Of the answer."""
        return int(np.prod(self.shape))

    def chunks(self) -> list[tuple[int, int, int]]:
        """Positions, in chunks, of those it touches."""
        spans = [range(a // c, (a + n - 1) // c + 1) for a, n, c in zip(self.start, self.size, CHUNK[1:4], strict=True)]
        return [(t, y, x) for t in spans[0] for y in spans[1] for x in spans[2]]


def crops(count: int, size: tuple[int, int, int] = CROP, seed: int = SEED) -> list[Crop]:
    """Crops at random places of random samples, the same for the same seed."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        start = tuple(rng.randrange(n - length + 1) for n, length in zip(SHAPE[1:4], size, strict=True))
        made.append(Crop(rng.randrange(SHAPE[0]), start, size))
    return made


def video() -> np.ndarray:
    """Moving gradients under noise: zstd at level 1 makes it smaller by a half or so, as it does camera pictures."""
    rng = np.random.default_rng(SEED)
    dense = np.empty(SHAPE, "uint8")
    t, y, x, c = (np.arange(n, dtype="float32") for n in SHAPE[1:])
    for sample in range(SHAPE[0]):
        speed, slope_y, slope_x, phase = rng.uniform([1, 0.1, 0.1, 0], [4, 0.4, 0.4, 256]).astype("float32")
        moving = (t * speed)[:, None, None, None] + (c * 8)[None, None, None, :] + phase
        smooth = moving + (y * slope_y)[None, :, None, None] + (x * slope_x)[None, None, :, None]
        noise = rng.standard_normal(SHAPE[1:], dtype="float32") * 2.5
        dense[sample] = (np.abs(smooth % 510 - 255) + noise).clip(0, 255)
    return dense


def prepare(folder: Path) -> tuple[np.ndarray, float]:
    """Writes both copies of the video beneath `folder`, unless an earlier run has; returns it and its zstd ratio.

    zarr-python writes it, so that neither the gateway nor tensorstore reads what it wrote itself.
    """
    import zarr
    from zarr.codecs import Crc32cCodec, ZstdCodec

    recipe = hashlib.sha256(Path(__file__).read_bytes() + zarr.__version__.encode()).hexdigest()
    mark = folder / "recipe"
    if not mark.exists() or mark.read_text() != recipe:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        dense = video()
        np.save(folder / "dense.npy", dense)
        for key, codecs in ((COMPRESSED, [ZstdCodec(level=1), Crc32cCodec()]), (PLAIN, None)):
            array = zarr.create_array(
                folder / "objects" / key,
                shape=SHAPE,
                chunks=CHUNK,
                shards=SHARD,
                dtype="uint8",
                compressors=codecs,
                dimension_names=["sample", "time", "y", "x", "channel"],
            )
            for sample in range(SHAPE[0]):
                array[sample] = dense[sample]
        mark.write_text(recipe)
    dense = np.load(folder / "dense.npy")
    stored = sum(p.stat().st_size for p in (folder / "objects" / COMPRESSED / "c").rglob("*") if p.is_file())
    return dense, dense.nbytes / stored


def expect_equal(name: str, crop: Crop, got: np.ndarray | bytes | memoryview, dense: np.ndarray) -> None:
    """Ends the run when a contestant answers anything but the crop's bytes."""
    flat = np.frombuffer(got, "uint8") if not isinstance(got, np.ndarray) else got.reshape(-1)
    if not np.array_equal(flat, dense[crop.box].reshape(-1)):
        raise RuntimeError(f"{name} answered wrong bytes for {crop.text}: nothing is measured")


class ChunkPool:
    """The decoded chunks as a cache holds them, and the bare strided copy of a crop out of them."""

    def __init__(self, dense: np.ndarray) -> None:
        n, grid = SHAPE[0], [SHAPE[i] // CHUNK[i] for i in (1, 2, 3)]
        split = dense.reshape(n, grid[0], CHUNK[1], grid[1], CHUNK[2], grid[2], CHUNK[3], CHUNK[4])
        self.chunks = np.ascontiguousarray(split.transpose(0, 1, 3, 5, 2, 4, 6, 7))

    def copy(self, crop: Crop, out: np.ndarray) -> None:
        """Fills `out`, of the crop's shape."""
        pool = self.chunks[crop.sample]
        for place in crop.chunks():
            into, of = [], []
            for at, length, start, size in zip(place, CHUNK[1:4], crop.start, crop.size, strict=True):
                first, last = max(start, at * length), min(start + size, (at + 1) * length)
                into.append(slice(first - start, last - start))
                of.append(slice(first - at * length, last - at * length))
            np.copyto(out[tuple(into)], pool[place][tuple(of)])


def partition(items: Sequence, parts: int) -> list[Sequence]:
    """`items` dealt to `parts` hands."""
    return [items[i::parts] for i in range(parts)]
