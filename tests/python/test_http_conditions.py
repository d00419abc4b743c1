"""ETag, conditions, Range and HEAD of a slice."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
import requests

import wire
from arrays import CHECKED, noise, npy, save
from conftest import GatewayMaker
from gateway import Bucket, Config, Gateway, error_code, local_store

PATH = "/data/v.zarr"
SLICE = "2:6,...,1:9"
OTHER_TODAY = {"date", "server-timing", "age"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("conditions")
    save(path, "v.zarr", noise((8, 6, 10), "int32"), chunks=(2, 3, 5), compressors=CHECKED)
    npy(path, "f.npy", noise((50, 7), "float32"))
    save(path, "big.zarr", noise((64, 64, 64), "uint16"), chunks=(8, 64, 64), compressors=CHECKED)
    return path


@pytest.fixture(scope="module")
def served(folder: Path, module_gateway: GatewayMaker) -> Gateway:
    return module_gateway(Config(stores={"disk": local_store(folder)}, buckets={"data": Bucket("disk")}))


@pytest.fixture(params=[(PATH, SLICE), ("/data/f.npy", "3:40:2,::-1")], ids=["zarr", "npy"])
def whole(served: Gateway, request: pytest.FixtureRequest) -> requests.Response:
    path, text = request.param
    got = served.get(path, slice=text)
    assert got.status_code == 200, got.text
    return got


def again(served: Gateway, whole: requests.Response, **headers: str) -> requests.Response:
    """The same request with other headers, given with `_` for `-`."""
    path = whole.request.path_url
    return served.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})


def test_headers_of_a_slice(whole: requests.Response) -> None:
    h = whole.headers
    assert h["ETag"].startswith('"') and h["ETag"].endswith('"') and len(h["ETag"]) > 10
    for name in ("Last-Modified", "Content-Type", "x-w4dx-source-etag", "Server-Timing", "x-amz-request-id"):
        assert h.get(name), f"{name} is missing: {h}"
    assert h["Accept-Ranges"] == "bytes"
    assert int(h["Content-Length"]) == len(whole.content)
    for name in ("shape", "dtype", "dims"):
        assert h[f"x-amz-meta-w4dx-{name}"] == h[f"x-w4dx-{name}"]
    assert {v.strip().lower() for v in h["Vary"].split(",")} >= {"accept", "origin"}
    assert "Content-Encoding" not in h


def test_head_equals_get_without_the_body(served: Gateway, whole: requests.Response) -> None:
    for form in (None, "raw", "json", "safetensors"):
        path = whole.request.path_url + (f"&format={form}" if form else "")
        get, head = served.request("GET", path), served.request("HEAD", path)
        assert head.status_code == 200 and head.content == b""
        assert lasting(head) == lasting(get), form


def lasting(answer: requests.Response) -> dict[str, str]:
    """The headers that two answers to the same request share."""
    named = {name.lower(): value for name, value in answer.headers.items()}
    return {n: v for n, v in named.items() if n not in OTHER_TODAY and "request-id" not in n}


def test_equal_selections_share_an_etag_and_others_do_not(served: Gateway) -> None:
    def etag(**params: str) -> str:
        got = served.get(PATH, **params)
        assert got.status_code == 200, got.text
        return got.headers["ETag"]

    base = etag(slice="2:6")
    assert base == etag(slice="2:6") == etag(slice="2:6,...") == etag(slice="-6:-2,:,:") == etag(**{"x-slice": "2:6:1"})
    different = {
        base,
        etag(slice="2:7"),
        etag(slice="2:6", format="raw"),
        etag(slice="(2,3,4,5),0"),
        etag(slice="5:1:-1"),
    }
    assert len(different) == 5


def test_two_gateways_compute_the_same_etag(served: Gateway, folder: Path, gateway: GatewayMaker) -> None:
    other = gateway(Config(stores={"disk": local_store(folder)}, buckets={"data": Bucket("disk")}))
    for params in ({"slice": SLICE}, {"slice": "0", "format": "json"}):
        assert other.get(PATH, **params).headers["ETag"] == served.get(PATH, **params).headers["ETag"]


def test_if_none_match(served: Gateway, whole: requests.Response) -> None:
    etag = whole.headers["ETag"]
    for value in (etag, f'"x", {etag}', f"W/{etag}", "*"):
        got = again(served, whole, If_None_Match=value)
        assert (got.status_code, got.content) == (304, b""), value
        assert got.headers["ETag"] == etag
    assert again(served, whole, If_None_Match='"other"').status_code == 200


def test_if_match(served: Gateway, whole: requests.Response) -> None:
    etag = whole.headers["ETag"]
    for value in (etag, "*", f'"x", {etag}'):
        assert again(served, whole, If_Match=value).status_code == 200
    got = again(served, whole, If_Match='"other"')
    assert (got.status_code, error_code(got)) == (412, "PreconditionFailed")


def test_dates(served: Gateway, whole: requests.Response) -> None:
    modified = whole.headers["Last-Modified"]
    # A file has a date. A slice of many objects has none that could be trusted: it stays when one is removed.
    of_file = whole.url.partition("?")[0].endswith(".npy")
    assert again(served, whole, If_Modified_Since=modified).status_code == (304 if of_file else 200)
    assert again(served, whole, If_Modified_Since="Mon, 01 Jan 2001 00:00:00 GMT").status_code == 200
    assert again(served, whole, If_Unmodified_Since="Mon, 01 Jan 2001 00:00:00 GMT").status_code == 412
    assert again(served, whole, If_Unmodified_Since=modified).status_code == 200
    # The ETag is the stronger word.
    assert again(served, whole, If_None_Match='"other"', If_Modified_Since=modified).status_code == 200


def test_ranges_are_bytes_of_the_encoded_slice(served: Gateway, whole: requests.Response) -> None:
    body = whole.content
    n = len(body)
    spans = {"0-0": (0, 1), "5-20": (5, 21), f"0-{n - 1}": (0, n), f"{n - 7}-": (n - 7, n), "-9": (n - 9, n)}
    spans |= {f"100-{n + 999}": (100, n), f"-{n + 5}": (0, n), "0-": (0, n), "129-130": (129, 131)}
    for text, (start, stop) in spans.items():
        got = again(served, whole, Range=f"bytes={text}")
        assert got.status_code == 206, (text, got.status_code)
        assert got.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{n}", text
        assert got.content == body[start:stop], text
        assert got.headers["ETag"] == whole.headers["ETag"]


def test_ranges_put_together_are_the_whole(served: Gateway, whole: requests.Response) -> None:
    parts = [again(served, whole, Range=f"bytes={i}-{i + 96}").content for i in range(0, len(whole.content), 97)]
    assert b"".join(parts) == whole.content


@pytest.mark.parametrize("text", ["bytes=", "bytes=a-b", "bytes=9-3", "items=0-1", "bytes=--1", "bytes 0-1", "0-1"])
def test_malformed_ranges_are_ignored(served: Gateway, whole: requests.Response, text: str) -> None:
    got = again(served, whole, Range=text)
    assert (got.status_code, got.content) == (200, whole.content)
    assert "Content-Range" not in got.headers


def test_unsatisfiable_ranges_are_416(served: Gateway, whole: requests.Response) -> None:
    n = len(whole.content)
    for text in (f"bytes={n}-", f"bytes={n + 5}-{n + 9}", "bytes=-0"):
        got = again(served, whole, Range=text)
        assert (got.status_code, error_code(got)) == (416, "InvalidRange"), text
        assert got.headers["Content-Range"] == f"bytes */{n}"
    empty = served.get(PATH, {"Range": "bytes=0-"}, slice="0:0", format="raw")
    assert (empty.status_code, empty.headers["Content-Range"]) == (416, "bytes */0")
    assert served.get(PATH, slice="0:0", format="raw").status_code == 200


def test_if_range(served: Gateway, whole: requests.Response) -> None:
    etag = whole.headers["ETag"]
    assert again(served, whole, Range="bytes=2-4", If_Range=etag).content == whole.content[2:5]
    failed = again(served, whole, Range="bytes=2-4", If_Range='"other"')
    assert (failed.status_code, failed.content) == (200, whole.content)
    weak = again(served, whole, Range="bytes=2-4", If_Range=f"W/{etag}")
    assert weak.status_code == 200, "a weak validator never allows a part"


def test_conditions_come_before_the_range(served: Gateway, whole: requests.Response) -> None:
    assert again(served, whole, If_None_Match=whole.headers["ETag"], Range="bytes=99999999-").status_code == 304
    assert again(served, whole, If_Match='"x"', Range="bytes=99999999-").status_code == 412


def test_built_bodies_answer_ranges_too(served: Gateway) -> None:
    for form in ("json", "png"):
        path, text = ("/data/big.zarr", "0,:32,:48") if form == "png" else (PATH, SLICE)
        full = served.get(path, slice=text, format=form)
        assert full.status_code == 200, full.text
        part = served.get(path, {"Range": "bytes=10-29"}, slice=text, format=form)
        assert (part.status_code, part.content) == (206, full.content[10:30])
        head = served.head(path, slice=text, format=form)
        assert head.headers["Content-Length"] == str(len(full.content))


def test_a_range_and_a_condition_read_only_what_they_need(served: Gateway) -> None:
    params = {"slice": "", "format": "raw"}
    before = served.metrics()
    head = served.head("/data/big.zarr", **params)
    etag = head.headers["ETag"]
    assert served.get("/data/big.zarr", {"If-None-Match": etag}, **params).status_code == 304
    assert served.get("/data/big.zarr", {"If-Match": '"x"'}, **params).status_code == 412
    after = served.metrics()
    assert after.total("w4dx_chunks_decoded_total") == before.total("w4dx_chunks_decoded_total")
    plane = 8 * 64 * 64 * 2
    assert served.get("/data/big.zarr", {"Range": f"bytes={3 * plane}-{4 * plane - 1}"}, **params).status_code == 206
    last = served.metrics()
    assert last.total("w4dx_chunks_decoded_total") - after.total("w4dx_chunks_decoded_total") == 1
    assert 0 < last.store_bytes("data") - after.store_bytes("data") < 2 * plane


def test_plain_objects_keep_s3_semantics(served: Gateway, folder: Path) -> None:
    body = (folder / "f.npy").read_bytes()
    got = served.get("/data/f.npy")
    assert got.content == body and "x-w4dx-shape" not in got.headers
    part = served.get("/data/f.npy", {"Range": "bytes=-5"})
    assert (part.status_code, part.content) == (206, body[-5:])
    assert served.get("/data/f.npy", {"If-None-Match": got.headers["ETag"]}).status_code == 304
    assert served.get("/data/f.npy", {"If-Match": '"x"'}).status_code == 412
    head = served.head("/data/f.npy")
    assert head.headers["Content-Length"] == str(len(body)) and head.headers["ETag"] == got.headers["ETag"]
    missing = served.get("/data/missing")
    assert (missing.status_code, error_code(missing)) == (404, "NoSuchKey")


def test_never_304_over_changed_data(served: Gateway, folder: Path) -> None:
    """One chunk is overwritten by another program; freshness is 0 s, so the next answer must be new."""
    dense = save(folder, "changing.zarr", noise((4, 4), "int64"), chunks=(2, 2))
    path, params = "/data/changing.zarr", {"slice": "2:,2:", "format": "raw"}
    etag = served.get(path, **params).headers["ETag"]
    untouched = served.get(path, slice=":2,:2").headers["ETag"]
    for step in range(20):
        dense[2:, 2:] = noise((2, 2), "int64", seed=step + 1)
        save(folder, "scratch.zarr", dense, chunks=(2, 2))
        os.replace(folder / "scratch.zarr/c/1/1", folder / "changing.zarr/c/1/1")
        got = served.get(path, {"If-None-Match": etag}, **params)
        assert got.status_code == 200, f"304 over changed data at step {step}"
        assert np.array_equal(wire.from_raw(got.content, dense.dtype, (2, 2)), dense[2:, 2:])
        etag = got.headers["ETag"]
    assert served.get(path, slice=":2,:2").headers["ETag"] == untouched, "an untouched chunk keeps its slices"


def test_a_file_rewritten_in_place_is_seen(served: Gateway, folder: Path) -> None:
    dense = npy(folder, "live.npy", noise((6, 6), "int32"))
    params = {"slice": "1:5,::-1", "format": "raw"}
    for step in range(10):
        dense = npy(folder, "live.npy", noise((6, 6), "int32", seed=step))
        got = served.get("/data/live.npy", **params)
        assert np.array_equal(wire.from_raw(got.content, dense.dtype, (4, 6)), dense[1:5, ::-1])
        time.sleep(0.001)  # two writes within one tick of the file system's clock are not told apart by a stat
