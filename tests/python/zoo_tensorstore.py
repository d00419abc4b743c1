"""The zoo's arrays that TensorStore writes, and reads back: types that zarr-python lacks, and layouts of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts

from zoo import SMALL, Case, values, zarr_name

SHARDED = [
    {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [2, 4, 4],
            "codecs": [
                {"name": "transpose", "configuration": {"order": [2, 0, 1]}},
                {"name": "bytes", "configuration": {"endian": "little"}},
                {"name": "zstd", "configuration": {"level": 2}},
                {"name": "crc32c"},
            ],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
            "index_location": "start",
        },
    }
]


def build(folder: Path) -> list[Case]:
    """Writes them all."""
    cases = []

    def add(name: str, dense: np.ndarray, grid: list[int], dtype: str, /, part: Any = ..., **metadata: Any) -> None:
        path = f"ts/{name}"
        spec = {
            "driver": metadata.pop("driver", "zarr3"),
            "kvstore": {"driver": "file", "path": f"{folder / path}/"},
            "metadata": metadata,
        }
        if spec["driver"] == "zarr3":
            regular = {"name": "regular", "configuration": {"chunk_shape": grid}}
            metadata |= {"shape": list(dense.shape), "chunk_grid": regular, "data_type": dtype}
        stored = ts.open(spec, create=True).result()
        stored[part].write(dense[part]).result()
        read = ts.open({k: spec[k] for k in ("driver", "kvstore")}, open=True).result()
        names = [n or None for n in read.domain.labels]
        cases.append(Case(path, np.asarray(read.read().result()), dtype, names))

    for dtype, numpy_dtype in SMALL.items():
        add(f"dtype-{dtype}", values(dtype, numpy_dtype, (5, 7)), [2, 3], dtype)
    for dtype in ("bfloat16", "float8_e5m2", "int4"):
        dense = values(f"{dtype}-shard", SMALL[dtype], (7, 9, 10))
        add(f"shard-{dtype}", dense, [4, 8, 8], dtype, codecs=SHARDED, dimension_names=["t", "y", "x"])
    big = [{"name": "bytes", "configuration": {"endian": "big"}}]
    add("big-endian-bfloat16", values("bf-big", SMALL["bfloat16"], (6, 5)), [4, 4], "bfloat16", codecs=big)
    add(
        "fill-bfloat16",
        values("bf-fill", SMALL["bfloat16"], (6, 5)),
        [2, 2],
        "bfloat16",
        part=np.s_[:2],
        fill_value=1.5,
    )
    add("complex", values("ts-c", np.dtype("c8"), (6, 5)), [4, 4], "complex64", fill_value=[1.0, "NaN"], part=np.s_[:3])
    blosc = {"cname": "lz4", "clevel": 5, "shuffle": "bitshuffle", "typesize": 2, "blocksize": 0}
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    add(
        "blosc",
        values("ts-blosc", np.dtype("i2"), (30, 40)),
        [16, 16],
        "int16",
        codecs=[little, {"name": "blosc", "configuration": blosc}],
    )
    add("scalar", np.array(7, "i4"), [], "int32")

    for name, dtype, order, compressor in (
        ("v2-blosc", ">i2", "F", {"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 1, "blocksize": 0}),
        ("v2-bz2", "<u4", "C", {"id": "bz2", "level": 1}),
        ("v2-zlib", "<f4", "C", {"id": "zlib", "level": 1}),
    ):
        dense = values(name, np.dtype(dtype), (9, 10))
        add(
            name,
            dense,
            [],
            zarr_name(dense.dtype),
            driver="zarr",
            zarr_format=2,
            shape=[9, 10],
            chunks=[4, 4],
            dtype=dtype,
            order=order,
            compressor=compressor,
            dimension_separator="/",
        )
    return cases
