"""Short ways to store an array or a file, for tests that are about something else."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

CHECKED = [ZstdCodec(level=1), Crc32cCodec()]
"""zstd, then a checksum of what is stored."""


def noise(shape: tuple[int, ...], dtype: str = "uint8", seed: int = 0) -> np.ndarray:
    """Values with entropy, which no codec makes smaller."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def save(folder: Path, key: str, dense: np.ndarray, **options: Any) -> np.ndarray:
    """Stores a Zarr array (v3 unless told) at `folder/key` and returns `dense`."""
    options.setdefault("chunks", tuple(max(1, -(-n // 2)) for n in dense.shape))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.create_array(folder / key, shape=dense.shape, dtype=dense.dtype, overwrite=True, **options)[...] = dense
    return dense


def group(folder: Path, key: str) -> None:
    """Makes an empty Zarr v3 group."""
    zarr.open_group(folder / key, mode="w")


def npy(folder: Path, key: str, dense: np.ndarray) -> np.ndarray:
    """Stores a `.npy` file and returns `dense`."""
    (folder / key).parent.mkdir(parents=True, exist_ok=True)
    np.save(folder / key, dense)
    return dense
