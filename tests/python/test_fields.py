"""Several fields by one selection: each along the dimensions that it has, with its own rate."""

from __future__ import annotations

import json
import random
import struct
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import requests

import batch
from arrays import group, noise, save
from conftest import GatewayMaker
from gateway import ACCESS_KEY, SECRET_KEY, Bucket, Config, Gateway, error_code, local_store
from sigv4 import signed

SIZES = {"U8": 1, "U16": 2, "I16": 2, "I64": 8, "F32": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fields")
    group(path, "av.zarr")
    save(path, "av.zarr/video", noise((3, 100, 4, 5), "uint8"), dimension_names=("sample", "time", "y", "x"), attributes={"fps": 25, "t0": 1.5})
    save(path, "av.zarr/audio", noise((3, 64_000), "int16", 1), dimension_names=("sample", "time"), attributes={"sample_rate": 16_000, "t0": 1.5})
    save(path, "av.zarr/label", noise((3,), "int64", 2), dimension_names=("sample",))
    save(path, "av.zarr/wide", noise((3, 100, 300, 300), "uint8", 3), dimension_names=("sample", "time", "y", "x"), attributes={"fps": 25, "t0": 1.5}, chunks=(1, 25, 300, 300))
    save(path, "av.zarr/height", noise((30,), "int16", 4), dimension_names=("y",), attributes={"scale": [0.5]})
    save(path, "av.zarr/when", noise((9,), "int16", 5), dimension_names=("t",))
    save(path, "av.zarr/t", np.arange(9) * 0.5, dimension_names=("t",))
    save(path, "av.zarr/speed", noise((90,), "int16", 6), dimension_names=("t",), attributes={"fps": 10}, chunks=(90,))
    return path


@pytest.fixture(scope="module")
def stored(folder: Path) -> dict[str, np.ndarray]:
    import zarr

    return {name: zarr.open_array(folder / "av.zarr" / name, mode="r")[...] for name in ("video", "audio", "label", "wide")}


@pytest.fixture(scope="module")
def served(folder: Path, module_gateway: GatewayMaker) -> Gateway:
    return module_gateway(Config(stores={"disk": local_store(folder)}, buckets={"data": Bucket("disk")}))


def tensors(body: bytes) -> dict[str, np.ndarray]:
    """A safetensors file by its specification: no gap, no overlap, every tensor where its type wants it."""
    (length,) = struct.unpack("<Q", body[:8])
    header = json.loads(body[8 : 8 + length])
    metadata = header.pop("__metadata__")
    data, end = body[8 + length :], 0
    found = {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        start, stop = entry["data_offsets"]
        size = SIZES[entry["dtype"]]
        assert start == end and start % size == 0 and stop - start == size * int(np.prod(entry["shape"]))
        end = stop
        dtype = batch.dtype_named(json.loads(metadata["dtype"])[name])
        found[name] = np.frombuffer(data[start:stop], dtype).reshape(entry["shape"])
        assert len(json.loads(metadata["dims"])[name]) == len(entry["shape"])
    assert end == len(data)
    return found


def fields(served: Gateway, names: str, **params: object) -> dict[str, np.ndarray]:
    got = served.get("/data/av.zarr", fields=names, **params)
    assert got.status_code == 200, got.text
    assert got.headers["Content-Type"] == "application/vnd.safetensors"
    return tensors(got.content)


def refused(served: Gateway, status: int, code: str, **params: object) -> dict[str, object]:
    got = served.get("/data/av.zarr", headers={"Accept": "application/problem+json"}, **params)
    assert (got.status_code, error_code(got)) == (status, code), (params, got.text)
    return got.json()


def test_frames_and_samples_of_the_same_two_seconds(served: Gateway, stored: dict[str, np.ndarray]) -> None:
    got = fields(served, "video,audio,label", subset="time(2s;n=50)", isel="sample=1")
    # The tape begins at 1.5 s: 2 s lies in frame 12, and is sample 8000.
    assert list(got) == ["label", "audio", "video"]
    assert np.array_equal(got["video"], stored["video"][1, 12:62])
    assert np.array_equal(got["audio"], stored["audio"][1, 8000:40_000])
    assert got["label"] == stored["label"][1]
    # The first field with the dimension counts: 16,000 samples are a second, and 25 frames.
    got = fields(served, "audio,video", subset="time(2s;n=16000)")
    assert got["audio"].shape == (3, 16_000) and got["video"].shape == (3, 25, 4, 5)
    # Without a number each takes what the interval meets.
    got = fields(served, "video,audio", subset="time(2.01s:2.05s)", isel="sample=(2,0)")
    assert np.array_equal(got["video"], stored["video"][[2, 0], 12:14])
    assert np.array_equal(got["audio"], stored["audio"][[2, 0], 8160:8800])
    got = fields(served, "video,audio", datetime=None, sel="time=nearest::2.5s", isel=["sample=0", "y=1:3"])
    assert np.array_equal(got["video"], stored["video"][0, 25, 1:3]) and got["audio"] == stored["audio"][0, 16_000]


def test_the_plan_of_fields(served: Gateway) -> None:
    params = {"fields": "video,audio", "subset": "time(2s;n=50)", "isel": "sample=1"}
    plan = served.get("/data/av.zarr", explain="1", **params).json()
    assert plan["fields"]["video"]["slice"] == "1,12:62,0:4,0:5" and plan["fields"]["audio"]["slice"] == "1,8000:40000"
    assert plan["fields"]["audio"]["coordinates"]["time"]["step"] == "0.0000625"
    # A file that changed less than two seconds ago is not cached.
    time.sleep(2.1)
    warmed = served.get("/data/av.zarr", prefetch="1", **params).json()
    assert warmed["chunks"] == plan["chunks"]["touched"] > 0
    assert served.get("/data/av.zarr", explain="1", **params).json()["cache"]["misses"] == 0


def test_each_rate_counts_its_own_cells(served: Gateway, folder: Path, rng: random.Random, soak: bool) -> None:
    for _ in range(120 if soak else 12):
        rates = [Fraction(rng.randint(1, 60_000), rng.choice([1, 1, 1001])) for _ in range(2)]
        begins = [Fraction(rng.randint(-40, 40), 8) for _ in range(2)]
        lengths = [4000, 4000]
        dense = []
        for i, (rate, t0, length) in enumerate(zip(rates, begins, lengths, strict=True)):
            text = f"{rate.numerator}/{rate.denominator}"
            attributes = {"fps": text, "t0": float(t0)}
            dense.append(save(folder, f"av.zarr/r{i}", noise((length,), "int16", i), dimension_names=("time",), attributes=attributes))
        start = max(begins) + Fraction(rng.randint(0, 3000), 1000)
        cells = rng.randint(1, 200)
        expected = []
        for rate, t0, data in zip(rates, begins, dense, strict=True):
            first = (start - t0) * rate // 1
            # Python rounds halves to even, as the contract does.
            expected.append((first, round(cells / rates[0] * rate), data))
        text = f"{float(start)}"
        inside = all(first < len(data) and first + count <= len(data) for first, count, data in expected)
        params = {"fields": "r0,r1", "subset": f"time({text}s;n={cells})"}
        got = served.get("/data/av.zarr", **params)
        if not inside:
            assert got.status_code in (400, 404), got.text
            got = served.get("/data/av.zarr", **params, oob="fill", fill="7")
            if got.status_code == 404:
                assert any(first >= len(data) for first, _, data in expected)
                continue
        found = tensors(got.content)
        for i, (first, count, data) in enumerate(expected):
            want = np.full(count, 7, "int16")
            part = data[first : first + count]
            want[: len(part)] = part
            assert np.array_equal(found[f"r{i}"], want), (rates, begins, params)


def test_a_body_of_fields_is_a_resource_of_its_own(served: Gateway, folder: Path) -> None:
    params = {"fields": "video,audio,label,wide", "subset": "time(2s;n=50)"}
    whole = served.get("/data/av.zarr", **params)
    layout = json.loads(whole.headers["x-w4dx-layout"])
    assert [field["name"] for field in layout["fields"]] == ["label", "audio", "video", "wide"]
    found = tensors(whole.content)
    for field in layout["fields"]:
        part = whole.content[field["offset"] : field["offset"] + field["len"]]
        assert part == found[field["name"]].tobytes() and field["shape"] == list(found[field["name"]].shape)
    head = served.head("/data/av.zarr", **params)
    same = ("ETag", "Content-Length", "Content-Type", "Last-Modified", "x-w4dx-layout")
    assert [head.headers[name] for name in same] == [whole.headers[name] for name in same] and not head.content
    ends = sorted({0, 1, 7, 300, *(field["offset"] + d for field in layout["fields"] for d in (-1, 0, 3)), len(whole.content) - 1})
    for start in ends:
        for stop in ends:
            if start <= stop:
                got = served.get("/data/av.zarr", headers={"Range": f"bytes={start}-{stop}"}, **params)
                assert got.status_code == 206 and got.content == whole.content[start : stop + 1], (start, stop)
                assert got.headers["Content-Range"] == f"bytes {start}-{stop}/{len(whole.content)}"
    tag = {"If-None-Match": whole.headers["ETag"]}
    assert served.get("/data/av.zarr", headers=tag, **params).status_code == 304
    # A chunk of one of them is another version of all of them.
    chunk = folder / "av.zarr/audio/c/0/0"
    old = chunk.read_bytes()
    chunk.unlink()
    changed = served.get("/data/av.zarr", headers=tag, **params)
    assert changed.status_code == 200 and changed.headers["ETag"] != whole.headers["ETag"]
    assert (tensors(changed.content)["audio"][0, :24_000] == 0).all()
    chunk.write_bytes(old)
    raw = served.get("/data/av.zarr", format="raw", **params)
    assert raw.content == whole.content[layout["fields"][0]["offset"] :]
    in_key = served.get("/data/av.zarr/@fields=video,audio;subset=time(2s:9s);count=time:50;isel=sample=1.safetensors")
    assert np.array_equal(tensors(in_key.content)["video"], found["video"][1])


def test_a_batch_of_aligned_fields(served: Gateway, stored: dict[str, np.ndarray]) -> None:
    wanted = [(1.5, 0), (2.02, 1), (3.24, 2)]
    items = [{"subset": f"time({t}s;n=10)", "isel": {"sample": i}} for t, i in wanted]
    document = {"v": 1, "fields": ["video", "audio", "label"], "items": items}
    for stack in (None, "1"):
        parts = batch.read(batch.ask(served, "/data/av.zarr", document, stack=stack))
        for [video, audio, label], (t, i) in zip(parts, wanted, strict=True):
            frame, sample = int((Fraction(str(t)) - Fraction(3, 2)) * 25 // 1), int((Fraction(str(t)) - Fraction(3, 2)) * 16_000)
            assert np.array_equal(video.tensor, stored["video"][i, frame : frame + 10])
            assert np.array_equal(audio.tensor, stored["audio"][i, sample : sample + 6400])
            assert label.tensor == stored["label"][i]
    items[1] = {"subset": "time(99s;n=10)", "isel": {"sample": 0}}
    items[2] = {"isel": {"nowhere": 0}}
    parts = batch.read(batch.ask(served, "/data/av.zarr", document, on_error="skip"))
    assert [[part.status for part in item] for item in parts] == [[200, 200, 200], [404] * 3, [400] * 3]
    told = batch.ask(served, "/data/av.zarr", document)
    assert (told.status_code, told.json()["item"]) == (404, 1), told.text


def test_what_fields_cannot_mean_is_told(served: Gateway) -> None:
    av = {"fields": "video,audio"}
    for beside in ({"slice": "0"}, {"array": "video"}, {"expect_shape": "1"}, {"describe": ""}, {"format": "pickle"}):
        refused(served, 400, "InvalidParameter", **av, **beside)
    refused(served, 400, "InvalidSelection", **av, isel="z=0")
    refused(served, 400, "InvalidSelection", **av, bbox="0,0,1,1")
    refused(served, 406, "FormatNotPossible", **av, format="npy")
    refused(served, 404, "NoDataInRange", **av, subset="time(90s;n=3)")
    assert refused(served, 404, "NoSuchKey", fields="video,nothing")["field"] == "nothing"
    refused(served, 400, "InvalidParameter", fields="video,../secret")
    # How many of the listed cells last as long as three others is nowhere said.
    assert refused(served, 400, "InvalidSelection", fields="speed,when", subset="t(1;n=3)")["dimension"] == "t"
    refused(served, 400, "IndexOutOfRange", **av, subset="time(5s;n=50)")
    # The vertical one is measured in other units.
    refused(served, 400, "InvalidSelection", fields="height,video", subset="y(0:2)")


def test_every_field_is_read_with_its_own_right(folder: Path, gateway: GatewayMaker) -> None:
    narrow = ("NARROW", "narrow-secret")
    keys = [
        {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY},
        {"access_key": narrow[0], "secret_key": narrow[1], "read": ["shut/av.zarr/video/", "shut/av.zarr/label/"]},
    ]
    served = gateway(Config(stores={"disk": local_store(folder)}, buckets={"shut": Bucket("disk", anonymous=None)}, keys=keys))

    def ask(pair: tuple[str, str], names: str) -> requests.Response:
        url, headers = signed("GET", served.url, "/shut/av.zarr", [("fields", names), ("isel", "sample=0")], *pair)
        return served.session.request("GET", url, headers=headers, timeout=60)

    assert ask((ACCESS_KEY, SECRET_KEY), "video,audio").status_code == 200
    assert ask(narrow, "video,label").status_code == 200
    denied = ask(narrow, "video,audio")
    assert (denied.status_code, error_code(denied)) == (403, "AccessDenied"), denied.text
