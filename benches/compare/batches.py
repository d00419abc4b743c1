"""Batch requests and their stacked answers, as a client reads them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import google_crc32c
import numpy as np

from client import get
from sigv4 import canonical_query, signed
from workload import Crop


def stacked_request(url: str, key: str, bucket: str, crops: Sequence[Crop], access_key: str, secret_key: str) -> bytes:
    """A signed POST for all crops in one answer."""
    body = json.dumps({"v": 1, "items": [{"slice": crop.text} for crop in crops]}, separators=(",", ":")).encode()
    path, params = f"/{bucket}/{key}", [("batch", ""), ("stack", "1")]
    digest = hashlib.sha256(body).hexdigest()
    headers = {"content-type": "application/json"}
    _, headers = signed("POST", url, path, params, access_key, secret_key, headers=headers, payload_hash=digest)
    return get(url, f"{path}?{canonical_query(params)}", headers, body)


def stacked_items(headers: bytes, body: np.ndarray) -> list[np.ndarray]:
    """The items of a one-field answer, each checked against its record. `headers` are in lower case."""
    line = next(line for line in headers.split(b"\r\n") if line.startswith(b"x-w4dx-layout:"))
    layout = json.loads(line.split(b":", 1)[1])
    (field,), records = layout["fields"], layout["records"]
    count = layout["items"]
    slots = body[field["offset"] : field["offset"] + field["len"]].reshape(count, -1)
    kept = body[records["offset"] : records["offset"] + records["len"]]
    if len(kept) != 8 * count:
        raise RuntimeError(f"{len(kept)} bytes of records for {count} items")
    items = []
    for slot, record in zip(slots, kept.view([("status", "<u2"), ("reserved", "<u2"), ("crc32c", "<u4")]), strict=True):
        if record["status"] != 200 or record["crc32c"] != google_crc32c.value(slot.tobytes()):
            raise RuntimeError(f"record {record} does not fit its slot")
        items.append(slot)
    return items
