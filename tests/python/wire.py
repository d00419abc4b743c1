"""Bodies back into arrays, each by the definition of its format, with no code of the gateway's."""

from __future__ import annotations

import base64
import io
import json
import zlib

import numpy as np
from PIL import Image

from zoo import SMALL
from zoo_files import SAFETENSORS

NPY_KINDS = "biufcmM"
MEDIA = {
    "npy": "application/x-npy",
    "raw": "application/octet-stream",
    "safetensors": "application/vnd.safetensors",
    "json": "application/json",
    "png": "image/png",
}


def memory_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype that an answer's elements have: little-endian."""
    return np.dtype(dtype) if np.dtype(dtype).name in SMALL else np.dtype(dtype).newbyteorder("<")


def formats(dtype: np.dtype) -> list[str]:
    """The formats that can hold a dtype, the default first. png depends on the shape and is not among them."""
    dtype = np.dtype(dtype)
    if dtype.kind in "OUS":
        return ["json"]
    held = []
    if dtype.name not in SMALL and dtype.kind in NPY_KINDS:
        held.append("npy")
    if dtype.name in SAFETENSORS or dtype.name in ("complex64", "float8_e8m0fnu"):
        held.append("safetensors")
    return [*held, "raw", "json"]


def png_possible(dtype: np.dtype, shape: tuple[int, ...]) -> bool:
    """Whether an answer is an image."""
    # PNG has one bit a pixel in grayscale alone.
    channels = (1,) if np.dtype(dtype).kind == "b" else (1, 3, 4)
    good = np.dtype(dtype).kind == "b" or np.dtype(dtype) in (np.uint8, np.uint16)
    return good and (len(shape) == 2 or (len(shape) == 3 and shape[2] in channels)) and 0 not in shape


def from_npy(body: bytes) -> np.ndarray:
    """Must be version 1 to 3, C order, little-endian, nothing after the data."""
    read = io.BytesIO(body)
    version = np.lib.format.read_magic(read)
    reader = {(1, 0): np.lib.format.read_array_header_1_0}.get(version, np.lib.format.read_array_header_2_0)
    shape, fortran, dtype = reader(read)
    assert not fortran and not (dtype.byteorder == ">"), (fortran, dtype)
    rest = body[read.tell() :]
    assert read.tell() % 64 == 0, "the data of a .npy begin at a multiple of 64"
    return np.frombuffer(rest, dtype).reshape(shape)


def from_raw(body: bytes, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """The elements only."""
    return np.frombuffer(body, memory_dtype(dtype)).reshape(shape)


def from_safetensors(body: bytes) -> tuple[str, np.ndarray, dict[str, str]]:
    """Name, tensor and metadata of a file with one tensor."""
    length = int.from_bytes(body[:8], "little")
    header = json.loads(body[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    (name, entry), *more = header.items()
    assert not more
    start, stop = entry["data_offsets"]
    data = body[8 + length :]
    assert (start, stop) == (0, len(data)) and (8 + length) % 8 == 0
    names = {v: k for k, v in SAFETENSORS.items()} | {"C64": "complex64", "F8_E8M0": "float8_e8m0fnu"}
    dtype = SMALL.get(names[entry["dtype"]]) or np.dtype(names[entry["dtype"]])
    return name, np.frombuffer(data, memory_dtype(dtype)).reshape(entry["shape"]), metadata


def from_json(body: bytes, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Nested lists of exactly `shape`, each scalar read back into `dtype`."""

    def forbid(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    flat: list[object] = []

    def walk(value: object, left: tuple[int, ...]) -> None:
        if left:
            assert isinstance(value, list) and len(value) == left[0], (value, left)
            for each in value:
                walk(each, left[1:])
        else:
            flat.append(value)

    walk(json.loads(body, parse_constant=forbid), shape)
    out = np.empty(len(flat), object if np.dtype(dtype).kind in "OUS" else memory_dtype(dtype))
    for at, value in enumerate(flat):
        out[at] = _scalar(value, out.dtype)
    return out.reshape(shape)


def _scalar(value: object, dtype: np.dtype) -> object:
    if dtype.kind == "V" and dtype.name not in SMALL:
        assert isinstance(value, str)
        return np.void(base64.b64decode(value))
    real = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
    if dtype.kind == "c":
        assert isinstance(value, list) and len(value) == 2
        parts = [real[p] if isinstance(p, str) else float(p) for p in value]
        out = np.zeros((), dtype)
        out.real, out.imag = parts
        return out
    if dtype.kind in "mM":
        assert value is None or (isinstance(value, int) and not isinstance(value, bool))
        return np.array("NaT" if value is None else value, "i8" if value is not None else dtype).view(dtype)
    if dtype.kind == "b":
        assert isinstance(value, bool)
    elif dtype.kind in "iu" or dtype.name in ("int4", "int2"):
        assert isinstance(value, int) and not isinstance(value, bool)
    elif dtype.kind == "f" or dtype.name in SMALL:
        number = real[value] if isinstance(value, str) else float(value)  # type: ignore[arg-type]
        return np.asarray(number).astype(dtype)
    return value


def json_scalar(value: object) -> object:
    """How json says an element that is text or bytes."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def from_png(body: bytes, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """The pixels, as they are."""
    if np.dtype(dtype) == np.uint16 and len(shape) == 3:
        return _png_of_16_bits(body).reshape(shape)
    image = Image.open(io.BytesIO(body))
    if np.dtype(dtype).kind == "b":
        return (np.asarray(image.convert("L")) != 0).reshape(shape)
    pixels = np.asarray(image)
    assert pixels.dtype.itemsize >= np.dtype(dtype).itemsize, "fewer bits than the elements have"
    return pixels.astype(dtype).reshape(shape)


def _png_of_16_bits(body: bytes) -> np.ndarray:
    """Pillow reads colours of 16 bits as 8: this reads them by the specification of PNG."""
    assert body[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, head = 8, b"", b""
    while at < len(body):
        length = int.from_bytes(body[at : at + 4], "big")
        kind, chunk = body[at + 4 : at + 8], body[at + 8 : at + 8 + length]
        assert zlib.crc32(kind + chunk) == int.from_bytes(body[at + 8 + length : at + 12 + length], "big")
        head, data = (chunk if kind == b"IHDR" else head), (data + chunk if kind == b"IDAT" else data)
        at += 12 + length
    width, height = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
    channels = {0: 1, 2: 3, 6: 4}[head[9]]
    assert head[8] == 16 and head[12] == 0
    size, stride = 2 * channels, 2 * channels * width
    lines = zlib.decompress(data)
    before, rows = bytearray(stride), []
    for y in range(height):
        line = bytearray(lines[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        method = lines[y * (stride + 1)]
        for i in range(stride):
            left, up = (line[i - size] if i >= size else 0), before[i]
            corner = before[i - size] if i >= size else 0
            line[i] = (line[i] + _predicted(method, left, up, corner)) & 255
        rows.append(bytes(line))
        before = line
    return np.frombuffer(b"".join(rows), ">u2").reshape(height, width, channels).astype("<u2")


def _predicted(method: int, left: int, up: int, corner: int) -> int:
    """The filters of PNG: none, sub, up, average, Paeth."""
    if method == 4:
        guess = left + up - corner
        return min((left, up, corner), key=lambda v: abs(guess - v))
    return (0, left, up, (left + up) // 2)[method]
