"""The zoo's arrays that zarr-python writes, and reads back: Zarr v3 and v2."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import zarr
import zarr.codecs.numcodecs as zn
import zarr.dtype
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)

from zoo import Case, texts, values, zarr_name

V3_DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
)
V3_DTYPES += ["datetime64[ms]", "datetime64[10us]", "timedelta64[ns]", "timedelta64[D]"]

CODECS: dict[str, Any] = {
    "none": None,
    "zstd-checksum": ZstdCodec(level=1, checksum=True),
    "zstd-crc32c": [ZstdCodec(level=1), Crc32cCodec()],
    "gzip": GzipCodec(level=5),
    "crc32c": Crc32cCodec(),
    "crc32c-zstd": [Crc32cCodec(), ZstdCodec()],
    "blosc-lz4-noshuffle": BloscCodec(cname="lz4", clevel=5, shuffle="noshuffle", typesize=4),
    "blosc-lz4hc-shuffle": BloscCodec(cname="lz4hc", clevel=5, shuffle="shuffle", typesize=4),
    "blosc-zstd-bitshuffle": BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle", typesize=4),
    "blosc-zlib-shuffle": BloscCodec(cname="zlib", clevel=3, shuffle="shuffle", typesize=4),
    "blosc-blosclz-shuffle": BloscCodec(cname="blosclz", clevel=9, shuffle="shuffle", typesize=4),
    "gzip-crc32c": [GzipCodec(level=1), Crc32cCodec()],
}

V2_COMPRESSORS: dict[str, Any] = {
    "none": None,
    "zlib": numcodecs.Zlib(1),
    "gzip": numcodecs.GZip(1),
    "bz2": numcodecs.BZ2(1),
    "lz4": numcodecs.LZ4(),
    "zstd": numcodecs.Zstd(3),
    "blosc": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE),
    "blosc-bit": numcodecs.Blosc("zstd", 5, numcodecs.Blosc.BITSHUFFLE),
}


class Writer:
    """Writes arrays beneath a folder and remembers what zarr-python reads from each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cases = folder, []  # type: ignore[var-annotated]
        zarr.open_group(folder / "zarr", mode="w")

    def add(
        self, name: str, dense: np.ndarray, part: Any = Ellipsis, dtype_name: str | None = None, **options: Any
    ) -> None:
        """One array; only `part` of `dense` is written (None: nothing), the rest stays absent."""
        path = f"zarr/{name}"
        options.setdefault("chunks", tuple(max(1, -(-n * 2 // 5)) for n in dense.shape))
        options.setdefault("dtype", dense.dtype)
        stored = zarr.create_array(self.folder / path, shape=dense.shape, **options)
        if part is not None:
            stored[part] = dense[part]
        read = np.asarray(zarr.open_array(self.folder / path, mode="r")[...])
        names = list(options.get("dimension_names") or [None] * dense.ndim)
        self.cases.append(Case(path, read, dtype_name or zarr_name(read.dtype), names))


def build(folder: Path) -> list[Case]:
    """Writes them all."""
    with warnings.catch_warnings():
        # Types and codecs without a finished specification; interoperability is the point here.
        warnings.simplefilter("ignore")
        w = Writer(folder)
        _dtypes(w)
        _codecs(w)
        _numcodecs(w)
        _shards(w)
        _shapes_and_fills(w)
        _version_2(w)
        return w.cases


def _dtypes(w: Writer) -> None:
    for dtype in V3_DTYPES:
        name = "dtype-" + dtype.replace("[", "-").replace("]", "")
        w.add(name, values(name, np.dtype(dtype), (7, 9)), dimension_names=("row", "column"))
    for dtype in ("int16", "float32", "complex128", "uint64"):
        name = f"big-endian-{dtype}"
        dense = values(name, np.dtype(dtype), (6, 5))
        w.add(name, dense, serializer=BytesCodec(endian="big"))
    w.add("string", texts("string", (11,)), dtype=str, dtype_name="string")
    w.add("string-2d", texts("string-2d", (4, 6)), dtype=str, dtype_name="string", dimension_names=("a", "b"))
    for dtype in ("<U4", "S4"):
        w.add(f"fixed-{dtype[-2:]}", values(dtype, np.dtype(dtype), (5, 4)), dimension_names=("a", "b"))
    raw = values("raw", np.dtype("u4"), (5, 4)).view("V4")
    w.add("raw-bytes", raw, dtype_name="r32")
    blobs = np.empty(9, dtype=object)
    blobs[:] = [b"", b"a", b"\x00\xff", b"wick" * 50, b"%", b"\n", b"z", b"", b"last"]
    w.add("blobs", blobs, dtype=zarr.dtype.VariableLengthBytes(), dtype_name="bytes")


def _codecs(w: Writer) -> None:
    for name, codec in CODECS.items():
        dense = values(name, np.dtype("int32" if "gzip" in name else "float32"), (8, 13, 5))
        w.add(f"codec-{name}", dense, chunks=(3, 5, 4), compressors=codec, dimension_names=("t", "y", "x"))
    for name, order in (("reverse", (2, 1, 0)), ("swap", (1, 0, 2))):
        w.add(
            f"transpose-{name}",
            values(name, np.dtype("uint16"), (6, 7, 5)),
            chunks=(4, 3, 2),
            filters=TransposeCodec(order=order),
        )
    both = [TransposeCodec(order=(1, 2, 0)), TransposeCodec(order=(2, 1, 0))]
    w.add("transpose-twice", values("twice", np.dtype("int16"), (6, 7, 5)), chunks=(4, 3, 2), filters=both)


def _numcodecs(w: Writer) -> None:
    """The codecs of numcodecs in Zarr v3, under the names that zarr-python gives them."""
    dense = values("numcodecs", np.dtype("int32"), (9, 7))
    coders: dict[str, Any] = {
        "lz4": zn.LZ4(),
        "zlib": zn.Zlib(level=1),
        "bz2": zn.BZ2(level=1),
        "crc32": zn.CRC32(),
        "adler32": zn.Adler32(),
        "fletcher32": zn.Fletcher32(),
        "shuffle-zstd": [zn.Shuffle(elementsize=4), ZstdCodec()],
    }
    for name, coder in coders.items():
        w.add(f"numcodecs-{name}", dense, compressors=coder)
    w.add("numcodecs-delta", dense, filters=zn.Delta(dtype="<i4"), compressors=GzipCodec())
    w.add("numcodecs-packbits", values("packed", np.dtype(bool), (9, 7)), filters=zn.PackBits(), compressors=None)
    hundredths = np.round(values("hundredths", np.dtype("f8"), (9, 7)).clip(-99, 99).astype("f8"), 2)
    hundredths[~np.isfinite(hundredths)] = 0.5
    scaled = zn.FixedScaleOffset(offset=0, scale=100, dtype="<f8", astype="<i4")
    w.add("numcodecs-scaled", hundredths, filters=scaled)


def _shards(w: Writer) -> None:
    dense = values("shards", np.dtype("uint8"), (10, 12, 9, 3))
    plain = {"chunks": (1, 3, 4, 3), "shards": (2, 6, 8, 3), "dimension_names": ("time", "y", "x", "channel")}
    w.add("shard", dense, **plain, compressors=[ZstdCodec(level=1), Crc32cCodec()])
    w.add("shard-uncompressed", dense, **plain, compressors=None)
    w.add("shard-absent", dense, part=np.s_[2:5, :5], fill_value=9, **plain)
    w.add("shard-single", dense, chunks=(5, 4, 3, 1), shards=(10, 12, 9, 3), compressors=BloscCodec(typesize=1))
    inner = [BytesCodec(), ZstdCodec(level=1), Crc32cCodec()]
    for where in ("start", "end"):
        for index in ([BytesCodec(), Crc32cCodec()], [BytesCodec()]):
            codec = ShardingCodec(chunk_shape=(1, 3, 4, 3), codecs=inner, index_codecs=index, index_location=where)
            name = f"shard-index-{where}-{'checked' if len(index) == 2 else 'bare'}"
            w.add(name, dense, chunks=(3, 6, 8, 3), serializer=codec, compressors=None, filters=None)
    nested = ShardingCodec(
        chunk_shape=(2, 6, 4, 3),
        codecs=[ShardingCodec(chunk_shape=(1, 3, 2, 3), codecs=inner, index_location="start")],
    )
    w.add("shard-nested", dense, chunks=(4, 12, 8, 3), serializer=nested, compressors=None, filters=None)
    w.add(
        "shard-nested-absent",
        dense,
        part=np.s_[:1, 3:7],
        chunks=(4, 12, 8, 3),
        serializer=nested,
        compressors=None,
        filters=None,
        fill_value=200,
    )
    turned = ShardingCodec(
        chunk_shape=(5, 4), codecs=[TransposeCodec(order=(1, 0)), BytesCodec(endian="big"), GzipCodec()]
    )
    w.add(
        "shard-transposed",
        values("turned", np.dtype("int32"), (17, 11)),
        chunks=(10, 8),
        serializer=turned,
        compressors=None,
        filters=None,
    )


def _shapes_and_fills(w: Writer) -> None:
    w.add("absent-all", np.zeros((5, 6), "f4"), part=np.s_[:0], fill_value=float("nan"))
    w.add("fill-nan", values("fill-nan", np.dtype("f8"), (9, 7)), part=np.s_[2:4, 3:], fill_value=float("nan"))
    w.add("fill-inf", values("fill-inf", np.dtype("f2"), (9,)), part=np.s_[:3], fill_value=float("-inf"))
    w.add("fill-int", values("fill-int", np.dtype("i8"), (9, 7)), part=np.s_[5:], fill_value=-(2**63))
    w.add("fill-uint", values("fill-uint", np.dtype("u8"), (9,)), part=np.s_[5:], fill_value=2**64 - 1)
    w.add("fill-bool", values("fill-bool", np.dtype(bool), (20,)), part=np.s_[5:7], fill_value=True)
    w.add("fill-complex", values("fill-complex", np.dtype("c8"), (6, 3)), part=np.s_[1], fill_value=1 - 2j)
    w.add("scalar", np.array(3.25), chunks=())
    w.add("scalar-absent", np.array(0, "i4"), part=None, chunks=(), fill_value=7)
    w.add("zero-length", np.zeros((0, 4), "i4"), chunks=(1, 2), dimension_names=("a", "b"))
    w.add("zero-length-inside", np.zeros((3, 0, 2), "f4"), chunks=(2, 1, 2))
    w.add("long-thin", values("long", np.dtype("i2"), (10007,)), chunks=(97,), shards=(97 * 13,))
    w.add(
        "five-d",
        values("five", np.dtype("u1"), (3, 4, 5, 6, 3)),
        chunks=(2, 3, 2, 4, 3),
        dimension_names=("sample", "time", "y", "x", "channel"),
    )
    w.add("v2-keys", values("v2-keys", np.dtype("i4"), (9, 7)), chunk_key_encoding={"name": "v2", "separator": "."})
    w.add(
        "dotted-keys",
        values("dotted", np.dtype("i4"), (9, 7)),
        chunk_key_encoding={"name": "default", "separator": "."},
    )
    w.add("names partly%/größe x", values("odd", np.dtype("i4"), (4, 5)), dimension_names=(None, "x"))
    w.add("names-twice", values("names-twice", np.dtype("i4"), (4, 5)), dimension_names=("x", "x"))


def _version_2(w: Writer) -> None:
    for (name, compressor), (separator, order) in zip(
        V2_COMPRESSORS.items(), itertools.cycle([(".", "C"), ("/", "F"), ("/", "C"), (".", "F")])
    ):
        dense = values("v2" + name, np.dtype(">i4" if order == "F" else "<f8"), (9, 7, 4))
        w.add(
            f"v2-{name}-{order}-{'dot' if separator == '.' else 'slash'}",
            dense,
            chunks=(4, 3, 4),
            zarr_format=2,
            compressors=compressor,
            order=order,
            chunk_key_encoding={"name": "v2", "separator": separator},
        )
    v2 = {"zarr_format": 2, "chunks": (4, 3)}
    w.add(
        "v2-shuffle",
        values("v2-shuffle", np.dtype("i4"), (9, 7)),
        filters=[numcodecs.Shuffle(4)],
        compressors=numcodecs.Zlib(1),
        **v2,
    )
    delta = [numcodecs.Delta("<i4"), numcodecs.Shuffle(4)]
    w.add("v2-delta", values("v2-delta", np.dtype("i4"), (9, 7)), filters=delta, compressors=numcodecs.LZ4(), **v2)
    w.add("v2-absent", values("v2-absent", np.dtype("f4"), (9, 7)), part=np.s_[:2], fill_value=float("nan"), **v2)
    w.add("v2-datetime", values("v2-datetime", np.dtype("<M8[s]"), (9, 7)), **v2)
    w.add("v2-bool-f", values("v2-bool", np.dtype(bool), (9, 7)), order="F", **v2)
    w.add("v2-complex", values("v2-complex", np.dtype(">c16"), (9, 7)), **v2)
    named = {"attributes": {"_ARRAY_DIMENSIONS": ["lat", "lon"]}}
    w.add("v2-named", values("v2-named", np.dtype("u2"), (9, 7)), **named, **v2)
    w.cases[-1].names = ["lat", "lon"]
    w.add("v2-fixed-U4", values("v2-U4", np.dtype("<U4"), (5, 4)), **v2)
    w.add("v2-string", texts("v2-string", (7,)), dtype=str, dtype_name="string", zarr_format=2, chunks=(3,))
