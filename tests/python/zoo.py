"""Arrays of every kind, each with the dense values that another implementation reads from it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np


@dataclass
class Case:
    """One stored array and what is true of it."""

    path: str
    """Key beneath the bucket."""
    dense: np.ndarray
    """The values, as the other implementation reads them."""
    dtype: str
    """What `x-w4dx-dtype` must say: the Zarr v3 name."""
    names: list[str | None] = field(default_factory=list)
    array: str | None = None
    """The `array` parameter, for files that hold several."""

    def __post_init__(self) -> None:
        if self.dense.dtype.kind == "T":  # numpy's own variable-length strings
            self.dense = self.dense.astype(object)
        self.names = self.names or [None] * self.dense.ndim

    def __str__(self) -> str:
        return self.path + (f"?array={self.array}" if self.array else "")


SMALL = {
    name: np.dtype(getattr(ml_dtypes, name))
    for name in (
        "bfloat16",
        "float8_e3m4",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn",
        "int4",
        "int2",
    )
}
"""Types that numpy lacks, by their Zarr names."""


def zarr_name(dtype: np.dtype) -> str:
    """The Zarr v3 name of a numpy dtype."""
    dtype = np.dtype(dtype)
    if dtype.kind in "mM":
        unit, scale = np.datetime_data(dtype)
        kind = "datetime64" if dtype.kind == "M" else "timedelta64"
        return f"numpy.{kind}[{scale if scale > 1 else ''}{unit}]"
    if dtype.kind == "U":
        return f"fixed_length_utf32[{dtype.itemsize // 4}]"
    if dtype.kind == "S":
        return f"null_terminated_bytes[{dtype.itemsize}]"
    return dtype.name


def values(name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Values with entropy and with the extremes of the type, the same for the same name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    dtype, count = np.dtype(dtype), int(np.prod(shape))
    if dtype.name in ("int4", "int2"):
        bits = int(dtype.name[3:])
        flat = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), count).astype(dtype)
    elif dtype.name in SMALL:
        spread = rng.integers(0, 2 ** min(8 * dtype.itemsize, 4 if "float4" in dtype.name else 16), count)
        flat = spread.astype(f"u{dtype.itemsize}").view(dtype)
        # Other programs may canonicalise NaN on the way; which NaN it was is not what is tested.
        flat = np.where(np.isnan(flat.astype("f4")), np.ones((), dtype), flat)
    elif dtype.kind == "b":
        flat = rng.random(count) < 0.5
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
        flat = rng.integers(info.min, info.max, count, dtype=dtype.newbyteorder("="), endpoint=True)
    elif dtype.kind in "fc":
        flat = (rng.standard_normal(count) * 100).astype(dtype)
        if dtype.kind == "c":
            flat = flat + (1j * rng.standard_normal(count)).astype(dtype)
        special = [np.nan, np.inf, -np.inf, -0.0, 0.0]
        for at, value in zip(rng.integers(0, max(count, 1), len(special)), special, strict=False):
            flat[at : at + 1] = value
    elif dtype.kind in "mM":
        flat = rng.integers(-(10**9), 10**9, count).view(dtype)
        flat[:1] = np.array("NaT", dtype)
    elif dtype.kind in "US":
        words = ["", "a", "wick", "é", "日本", "🜁", "end"] if dtype.kind == "U" else [b"", b"a", b"wick", b"\xff\x01"]
        flat = np.array([words[i] for i in rng.integers(0, len(words), count)], dtype=dtype)
    else:
        raise TypeError(dtype)
    return np.asarray(flat, dtype=dtype).reshape(shape)


def texts(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Strings of any length."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    words = ["", "a", 'quote "q"', "back\\slash", "line\nfeed", "日本語", "🜁🜂", "x" * 300]
    flat = np.empty(int(np.prod(shape)), dtype=object)
    flat[:] = [words[i] for i in rng.integers(0, len(words), flat.size)]
    return flat.reshape(shape)


def build(folder: Path) -> list[Case]:
    """Writes every array of the zoo beneath `folder`."""
    import zoo_files
    import zoo_tensorstore
    import zoo_zarr

    folder.mkdir(parents=True, exist_ok=True)
    return zoo_zarr.build(folder) + zoo_tensorstore.build(folder) + zoo_files.build(folder)
