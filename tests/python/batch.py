"""Batch answers back into arrays, as a client reads them: by the definition of the two forms."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
import requests

from gateway import Server
from wire import memory_dtype
from zoo import SMALL

FRAMED = "application/vnd.w4dx.batch;v=1"
STACKED = "application/vnd.w4dx.stack;v=1"
ALIGNMENT = 64
HEADER = struct.Struct("<4sHHIHHHHIQ32s")
"""Magic, version, kind, item, field, status, dtype, axes, CRC-32C, bytes of the payload, zeros."""
RECORD = struct.Struct("<HHI")
"""Status, zero, CRC-32C."""
ITEM, END = 1, 2

_NUMBERS = [
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (2, 4, 8, 16, 32, 64)),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
]
_SMALL_FLOATS = [
    *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
]
DTYPE_CODES = {name: 1 + i for i, name in enumerate(_NUMBERS)} | {n: 32 + i for i, n in enumerate(_SMALL_FLOATS)}
"""The numbers of element types in a frame; types that are not here have 0."""


class Truncated(Exception):
    """The body ended before its end frame."""


@dataclass(frozen=True)
class Part:
    """What the answer holds for one item of one field."""

    status: int
    tensor: np.ndarray | None = None
    problem: dict[str, Any] | None = None


def dtype_named(name: str) -> np.dtype:
    """The dtype of elements on the wire, by its Zarr v3 name."""
    if name in SMALL:
        return SMALL[name]
    if time := re.fullmatch(r"numpy\.(datetime64|timedelta64)\[(\w+)]", name):
        return np.dtype(f"{'M' if time[1] == 'datetime64' else 'm'}8[{time[2]}]")
    if text := re.fullmatch(r"(fixed_length_utf32|null_terminated_bytes)\[(\d+)]", name):
        return np.dtype(f"{'<U' if text[1] == 'fixed_length_utf32' else 'S'}{text[2]}")
    if raw := re.fullmatch(r"r(\d+)", name):
        return np.dtype(f"V{int(raw[1]) // 8}")
    return memory_dtype(np.dtype(name))


def ask(served: Server, path: str, document: object, **params: object) -> requests.Response:
    """Sends a batch. `document` is its body as JSON, or bytes as they are."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/problem+json"}
    return served.request("POST", path, params={"batch": ""} | params, data=body, headers=headers, timeout=120)


def layout(answer: requests.Response) -> dict[str, Any]:
    """What the answer says of its body."""
    found = json.loads(answer.headers["x-w4dx-layout"])
    assert found["v"] == 1
    return found


def read(answer: requests.Response) -> list[list[Part]]:
    """An answer in either form: per item, a part for each field."""
    assert answer.status_code == 200, (answer.status_code, answer.text[:600])
    form = answer.headers["Content-Type"]
    assert form in (FRAMED, STACKED), form
    return (frames if form == FRAMED else stack)(answer.content, layout(answer))


def frames(body: bytes, told: dict[str, Any]) -> list[list[Part]]:
    """The parts of a body of frames. Fails on anything that the format does not say."""
    items, fields = told["items"], told["fields"]
    parts = list(_parts(memoryview(body), fields))
    assert len(parts) == items * len(fields), (len(parts), items, len(fields))
    return [parts[i : i + len(fields)] for i in range(0, len(parts), len(fields))]


def _parts(body: memoryview, fields: list[dict[str, Any]]) -> Iterator[Part]:
    at = count = 0
    while True:
        if len(body) - at < HEADER.size:
            raise Truncated(f"{len(body) - at} bytes where a frame begins, after {count} frames")
        magic, version, kind, item, field, status, code, axes, crc, length, zeros = HEADER.unpack_from(body, at)
        assert (magic, version, zeros) == (b"W4DB", 1, bytes(32)), bytes(body[at : at + HEADER.size])
        if kind == END:
            assert (item, field, status, code, axes, crc, length) == (count, 0, 200, 0, 0, 0, 0)
            assert at + HEADER.size == len(body), "nothing follows the end frame"
            return
        assert (kind, item, field) == (ITEM, *divmod(count, len(fields))), (kind, item, field, count)
        start = at + HEADER.size + _aligned(8 * axes)
        end = start + _aligned(length)
        if end > len(body):
            raise Truncated(f"frame {count} needs {end} bytes of {len(body)}")
        assert start % ALIGNMENT == 0
        shape = struct.unpack_from(f"<{axes}Q", body, at + HEADER.size)
        payload = body[start : start + length]
        for padding in (body[at + HEADER.size + 8 * axes : start], body[start + length : end]):
            assert not any(padding), "padding is zero"
        assert google_crc32c.value(bytes(payload)) == crc, f"frame {count}: checksum"
        if status == 200:
            dtype = dtype_named(fields[field]["dtype"])
            assert code == DTYPE_CODES.get(fields[field]["dtype"], 0)
            assert length == dtype.itemsize * int(np.prod(shape, dtype=object)), (length, shape, dtype)
            yield Part(200, np.frombuffer(payload, dtype).reshape(shape))
        else:
            assert (code, axes) == (0, 0)
            problem = json.loads(bytes(payload))
            assert problem["status"] == status >= 400, problem
            yield Part(status, problem=problem)
        at, count = end, count + 1


def stack(body: bytes, told: dict[str, Any]) -> list[list[Part]]:
    """The parts of a stacked body; one that failed keeps what its slot holds."""
    items, fields, records = told["items"], told["fields"], told["records"]
    assert records["len"] == RECORD.size * items * len(fields)
    assert records["offset"] + records["len"] == len(body)
    view, tensors, end = memoryview(body), [], 0
    for field in fields:
        dtype, shape = dtype_named(field["dtype"]), field["shape"]
        assert shape[0] == items and field["offset"] == _aligned(end) and field["offset"] % ALIGNMENT == 0
        assert not any(view[end : field["offset"]]), "padding is zero"
        end = field["offset"] + field["len"]
        assert field["len"] == dtype.itemsize * int(np.prod(shape, dtype=object)), field
        tensors.append(np.frombuffer(view[field["offset"] : end], dtype).reshape(shape))
    assert records["offset"] == _aligned(end) and not any(view[end : records["offset"]])
    parts: list[list[Part]] = [[] for _ in range(items)]
    for number, (status, reserved, crc) in enumerate(RECORD.iter_unpack(view[records["offset"] :])):
        item, field = divmod(number, len(fields))
        slot = tensors[field][item, ...]
        assert reserved == 0
        assert google_crc32c.value(slot.tobytes()) == crc, f"item {item}, field {field}: checksum"
        parts[item].append(Part(status, slot))
    return parts


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT
