"""Samples of different lengths along one axis: by offsets, ends or counts, whole, in part, and padded."""

from __future__ import annotations

import io
import json
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import requests

import batch
from arrays import group, noise, save
from conftest import GatewayMaker
from gateway import ACCESS_KEY, SECRET_KEY, Bucket, Config, Gateway, error_code, local_store, slice_headers
from sigv4 import signed
from test_fields import tensors

LENGTHS = [5, 0, 12, 1, 30, 7, 0, 9]
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)])
TOTAL = int(OFFSETS[-1])
FPS = [10.0, 25.0, 30.0, 12.5, 8.0, 50.0, 1.0, 29.97]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ragged")
    group(path, "a.zarr")
    flat = {"chunks": (7, 2), "dimension_names": ("step", "joint")}
    by = {
        "offsets": {"kind": "offsets", "index": "off"},
        "ends": {"kind": "ends", "index": "ends", "dimension": "episode"},
        "counts": {"kind": "counts", "index": "counts"},
    }
    for name, ragged in by.items():
        save(path, f"a.zarr/{name}_of", noise((TOTAL, 3), "int16"), attributes={"ragged": ragged}, **flat)
    save(path, "a.zarr/off", OFFSETS.astype("uint64"), dimension_names=("edge",))
    save(path, "a.zarr/ends", OFFSETS[1:].astype("int32"), dimension_names=("trial",))
    save(path, "a.zarr/counts", np.array(LENGTHS, "int64"), dimension_names=("trial",))
    save(path, "a.zarr/label", noise((len(LENGTHS),), "int64", 4), dimension_names=("sample",))
    # Names alone, as robot learning has them.
    group(path, "named.zarr")
    save(path, "named.zarr/action", noise((TOTAL, 3), "int16", 1), **flat)
    save(path, "named.zarr/episode_ends", OFFSETS[1:])
    group(path, "misnamed.zarr")
    save(path, "misnamed.zarr/action", noise((TOTAL, 3), "int16", 1), **flat)
    save(path, "misnamed.zarr/lengths", np.array(LENGTHS) + 1)
    # CF's contiguous ragged arrays.
    group(path, "cf.zarr")
    save(path, "cf.zarr/temperature", noise((TOTAL,), "float32"), dimension_names=("obs",))
    save(path, "cf.zarr/rowSize", np.array(LENGTHS), dimension_names=("station",), attributes={"sample_dimension": "obs"})
    # Clips with a rate and a start of their own.
    group(path, "clips.zarr")
    of_clips = {"ragged": {"kind": "counts", "index": "frames", "dimension": "clip"}}
    save(path, "clips.zarr/video", noise((TOTAL, 2, 2), "uint8"), dimension_names=("time", "y", "x"), attributes=of_clips)
    save(path, "clips.zarr/frames", np.array(LENGTHS), dimension_names=("clip",))
    save(path, "clips.zarr/fps", np.array(FPS), dimension_names=("clip",))
    save(path, "clips.zarr/t0", np.arange(len(LENGTHS)) / 4, dimension_names=("clip",))
    group(path, "stamped.zarr")
    save(path, "stamped.zarr/video", noise((TOTAL,), "uint8"), dimension_names=("stamp",), attributes={"ragged": {"kind": "counts", "index": "frames"}})
    save(path, "stamped.zarr/frames", np.array(LENGTHS))
    save(path, "stamped.zarr/stamp", np.concatenate([np.arange(n) * 0.5 for n in LENGTHS]), dimension_names=("stamp",))
    return path


@pytest.fixture(scope="module")
def served(folder: Path, module_gateway: GatewayMaker) -> Gateway:
    return module_gateway(Config(stores={"disk": local_store(folder)}, buckets={"data": Bucket("disk")}))


def stored(folder: Path, path: str) -> np.ndarray:
    import zarr

    return zarr.open_array(folder / path, mode="r")[...]


def sample(dense: np.ndarray, i: int) -> np.ndarray:
    return dense[OFFSETS[i] : OFFSETS[i + 1]]


def array(served: Gateway, path: str, **params: object) -> np.ndarray:
    got = served.get(path, format="npy", **params)
    assert got.status_code == 200, (path, params, got.text)
    return np.load(io.BytesIO(got.content))


def refused(served: Gateway, path: str, status: int, code: str, **params: object) -> str:
    got = served.get(path, headers={"Accept": "application/problem+json"}, **params)
    assert (got.status_code, error_code(got)) == (status, code), (path, params, got.text)
    return got.text


WAYS = [
    ("a.zarr/offsets_of", "sample"),
    ("a.zarr/offsets_of", "edge"),
    ("a.zarr/ends_of", "episode"),
    ("a.zarr/counts_of", "trial"),
    ("a.zarr/counts_of", "sample"),
    ("named.zarr/action", "episode"),
    ("named.zarr/action", "sample"),
    ("cf.zarr/temperature", "station"),
]


@pytest.mark.parametrize(("path", "name"), WAYS)
def test_samples_lie_where_their_index_says(served: Gateway, folder: Path, path: str, name: str) -> None:
    dense = stored(folder, path)
    flat = "obs" if path.startswith("cf") else "step"
    for i, length in enumerate(LENGTHS):
        got = served.get(f"/data/{path}", isel=f"{name}={i}", format="npy")
        assert np.array_equal(np.load(io.BytesIO(got.content)), sample(dense, i))
        assert slice_headers(got)[0][0] == length and slice_headers(got)[2][0] == flat
    assert np.array_equal(array(served, f"/data/{path}", isel=f"{name}=-1"), sample(dense, len(LENGTHS) - 1))
    # What else is selected of the axis is about the sample.
    assert np.array_equal(array(served, f"/data/{path}", isel=[f"{name}=4", f"{flat}=3:-2:2"]), sample(dense, 4)[3:-2:2])
    assert np.array_equal(array(served, f"/data/{path}", isel=[f"{name}=4", f"{flat}=-1"]), sample(dense, 4)[-1])
    assert np.array_equal(array(served, f"/data/{path}", isel=[f"{name}=4", f"{flat}=::-1"]), sample(dense, 4)[::-1])
    for wrong in (f"{name}=8", f"{name}=-9", [f"{name}=0", f"{flat}=5"]):
        refused(served, f"/data/{path}", 400, "IndexOutOfRange", isel=wrong)


def test_several_samples_come_with_their_lengths(served: Gateway, folder: Path, rng: random.Random) -> None:
    path, dense = "/data/a.zarr/offsets_of", stored(folder, "a.zarr/offsets_of")
    for _ in range(20):
        chosen = [rng.randrange(len(LENGTHS)) for _ in range(rng.randint(1, 6))]
        listed = ",".join(map(str, chosen))
        got = served.get(path, isel=f"sample=({listed})")
        assert got.status_code == 200, got.text
        found = tensors(got.content)
        assert list(found) == ["lengths", "offsets_of"]
        assert found["lengths"].tolist() == [LENGTHS[i] for i in chosen]
        assert np.array_equal(found["offsets_of"], np.concatenate([sample(dense, i) for i in chosen]))
        part = tensors(served.get(path, isel=[f"sample=({listed})", "step=2:6", "joint=1"]).content)
        assert np.array_equal(part["offsets_of"], np.concatenate([sample(dense, i)[2:6, 1] for i in chosen]))
        assert part["lengths"].tolist() == [len(sample(dense, i)[2:6]) for i in chosen]
    ranged = tensors(served.get(path, isel="sample=1:5").content)
    assert np.array_equal(ranged["offsets_of"], dense[OFFSETS[1] : OFFSETS[5]]) and ranged["lengths"].tolist() == LENGTHS[1:5]
    # An empty sample between two is another answer than none.
    tags = {served.head(path, isel=f"sample={s}").headers["ETag"] for s in ("(0,2)", "(0,1,2)", "(2,0)")}
    assert len(tags) == 3
    whole = served.get(path, isel="sample=(4,0)")
    for start, stop in [(0, 9), (200, 260), (len(whole.content) - 5, len(whole.content) - 1)]:
        got = served.get(path, headers={"Range": f"bytes={start}-{stop}"}, isel="sample=(4,0)")
        assert got.status_code == 206 and got.content == whole.content[start : stop + 1]
    assert "one array" in refused(served, path, 406, "FormatNotPossible", isel="sample=(0,2)", format="npy")
    refused(served, path, 400, "InvalidSelection", isel=["sample=(0,2)", "step=0"])


def test_padded_samples_are_one_dense_array(served: Gateway, folder: Path) -> None:
    path, dense = "/data/a.zarr/counts_of", stored(folder, "a.zarr/counts_of")
    chosen = [2, 1, 0, 7]
    expected = np.full((4, 12, 3), -7, "int16")
    for row, i in zip(expected, chosen, strict=True):
        row[: LENGTHS[i]] = sample(dense, i)
    got = served.get(path, isel="sample=(2,1,0,7)", pad="12:-7")
    assert slice_headers(got) == ([4, 12, 3], "int16", ["sample", "step", "joint"])
    assert np.array_equal(np.load(io.BytesIO(got.content)), expected)
    named = tensors(served.get(path, isel="sample=(2,1,0,7)", pad="12:-7", format="safetensors").content)
    assert np.array_equal(named["counts_of"], expected) and named["lengths"].tolist() == [LENGTHS[i] for i in chosen]
    one = array(served, path, isel="sample=0", pad="8")
    assert one.shape == (8, 3) and np.array_equal(one[:5], sample(dense, 0)) and (one[5:] == 0).all()
    cut = array(served, path, isel=["sample=(4,0)", "step=:6", "joint=::2"], pad="6:1")
    assert np.array_equal(cut[0], sample(dense, 4)[:6, ::2]) and (cut[1, 5:] == 1).all()
    # As many positions, in another order of axes.
    tags = [served.head(path, isel=f"sample={s}", pad="8").headers["ETag"] for s in ("0", "(0)", "0:1")]
    assert tags[0] != tags[1] == tags[2]
    assert json.loads(refused(served, path, 400, "IndexOutOfRange", isel="sample=4", pad="20"))["valid"] == "at least 30"
    for params in ({"isel": "joint=1", "pad": "4"}, {"isel": "sample=1", "pad": "x"}, {"isel": "sample=1", "pad": "-1"}, {"isel": "sample=1", "pad": "4:x"}, {"isel": "sample=1", "pad": "4", "oob": "fill"}):
        refused(served, path, 400, "InvalidParameter", **params)
    refused(served, path, 400, "SliceTooLarge", isel="sample=" + "(" + ",".join(["1"] * 300) + ")", pad="100000")
    refused(served, path, 412, "ShapeMismatch", isel="sample=(2,1)", pad="12", expect_shape="2,13,3")


def test_each_sample_has_its_own_rate_and_start(served: Gateway, folder: Path, rng: random.Random) -> None:
    path, dense = "/data/clips.zarr/video", stored(folder, "clips.zarr/video")
    for i, (length, fps) in enumerate(zip(LENGTHS, FPS, strict=True)):
        rate, start = Fraction(str(fps)), Fraction(i, 4)
        for _ in range(4 if length else 0):
            first = start + rate**-1 * rng.randrange(length) + Fraction(1, 1000)
            cells = rng.randint(1, 4)
            at = (first - start) * rate // 1
            params = {"isel": f"clip={i}", "subset": f"time({float(first)}s;n={cells})"}
            if at + cells > length:
                refused(served, path, 400, "IndexOutOfRange", **params)
                filled = array(served, path, **params, oob="fill", fill="9")
                assert np.array_equal(filled[: length - at], sample(dense, i)[at:]) and (filled[length - at :] == 9).all()
            else:
                assert np.array_equal(array(served, path, **params), sample(dense, i)[at : at + cells])
    # A quarter of a second of two clips: the third begins at 0.5 s with 30 frames a second, the fifth at 1 s with 8.
    found = tensors(served.get(path, isel="clip=(2,4)", subset="time(0.75s:1.25s)").content)
    assert found["lengths"].tolist() == [5, 2]
    assert np.array_equal(found["video"], np.concatenate([sample(dense, 2)[7:12], sample(dense, 4)[:2]]))
    stamped = stored(folder, "stamped.zarr/video")
    assert np.array_equal(array(served, "/data/stamped.zarr/video", isel="sample=4", subset="stamp(1.2:3)"), sample(stamped, 4)[3:7])
    assert array(served, "/data/stamped.zarr/video", isel="sample=4", sel="stamp=nearest::2.2") == sample(stamped, 4)[4]
    refused(served, path, 404, "NoDataInRange", isel="clip=0", subset="time(99s:100s)")


def test_fields_of_samples(served: Gateway, folder: Path) -> None:
    got = served.get("/data/a.zarr", fields="offsets_of,counts_of,label", isel="sample=(4,2)")
    found = tensors(got.content)
    assert list(found) == ["offsets_of.lengths", "counts_of.lengths", "label", "offsets_of", "counts_of"]
    assert found["offsets_of.lengths"].tolist() == [30, 12]
    assert np.array_equal(found["label"], stored(folder, "a.zarr/label")[[4, 2]])
    assert np.array_equal(found["counts_of"], np.concatenate([sample(stored(folder, "a.zarr/counts_of"), i) for i in (4, 2)]))
    padded = tensors(served.get("/data/a.zarr", fields="offsets_of,label", isel="sample=(4,2)", pad="30:1").content)
    assert padded["offsets_of"].shape == (2, 30, 3)


def test_batches_of_samples(served: Gateway, folder: Path) -> None:
    dense = stored(folder, "a.zarr/offsets_of")
    items = [{"isel": {"sample": i, "step": "1:"}} for i in (0, 4, 1)]
    parts = batch.read(batch.ask(served, "/data/a.zarr/offsets_of", {"v": 1, "items": items}))
    for [part], i in zip(parts, (0, 4, 1), strict=True):
        assert np.array_equal(part.tensor, sample(dense, i)[1:])
    stacked = batch.read(batch.ask(served, "/data/a.zarr/offsets_of", {"v": 1, "items": items}, stack="1", pad="29:5"))
    for [part], i in zip(stacked, (0, 4, 1), strict=True):
        length = max(0, LENGTHS[i] - 1)
        assert part.tensor.shape == (29, 3) and np.array_equal(part.tensor[:length], sample(dense, i)[1:]) and (part.tensor[length:] == 5).all()
    told = batch.ask(served, "/data/a.zarr/offsets_of", {"v": 1, "items": [{"isel": {"sample": [1, 2]}}]})
    assert (told.status_code, error_code(told)) == (400, "InvalidSelection")


def test_an_index_that_does_not_fit_is_told(served: Gateway, folder: Path) -> None:
    # By its name alone it is no index at all.
    assert "declares one" in refused(served, "/data/misnamed.zarr/action", 400, "InvalidSelection", isel="sample=1")
    refused(served, "/data/a.zarr/offsets_of", 400, "InvalidSelection", isel="trial=1")
    refused(served, "/data/a.zarr/ends_of", 400, "InvalidSelection", isel="sample=1")
    # Declared, and wrong by one: data are broken.
    for broken in (OFFSETS + 1, OFFSETS[:-1], OFFSETS[::-1], OFFSETS - 1, OFFSETS.astype("float32")):
        group(folder, "broken.zarr")
        save(folder, "broken.zarr/flat", noise((TOTAL,), "int16"), attributes={"ragged": {"kind": "offsets", "index": "off"}}, dimension_names=("step",))
        save(folder, "broken.zarr/off", np.ascontiguousarray(broken))
        assert "off" in refused(served, "/data/broken.zarr/flat", 500, "CorruptData", isel="sample=1")
    for ragged in ({"kind": "offset", "index": "off"}, {"kind": "offsets"}, {"kind": "offsets", "index": "gone"}, {"kind": "offsets", "index": "../a.zarr/off"}, 7):
        save(folder, "broken.zarr/flat", noise((TOTAL,), "int16"), attributes={"ragged": ragged}, dimension_names=("step",))
        refused(served, "/data/broken.zarr/flat", 500, "CorruptData", isel="sample=1")
    plan = served.get("/data/a.zarr/ends_of", isel="episode=2", explain="1").json()
    assert plan["selection"]["samples"] == {"dimension": "episode", "index": "ends", "samples": 8}
    assert plan["selection"]["slice"] == "5:17,0:3"


def test_an_index_that_changes_is_read_anew(served: Gateway, folder: Path) -> None:
    group(folder, "moving.zarr")
    dense = save(folder, "moving.zarr/flat", noise((10,), "int16"), attributes={"ragged": {"kind": "ends", "index": "ends"}}, dimension_names=("step",))
    for first in (3, 6, 0):
        save(folder, "moving.zarr/ends", np.array([first, 10]))
        assert np.array_equal(array(served, "/data/moving.zarr/flat", isel="sample=0"), dense[:first])
        assert np.array_equal(array(served, "/data/moving.zarr/flat", isel="sample=1"), dense[first:])


def test_the_index_is_read_with_the_rights_of_the_key(folder: Path, gateway: GatewayMaker) -> None:
    narrow = ("NARROW", "narrow-secret")
    keys = [
        {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY},
        {"access_key": narrow[0], "secret_key": narrow[1], "read": ["shut/a.zarr/offsets_of/", "shut/cf.zarr/temperature/"]},
    ]
    served = gateway(Config(stores={"disk": local_store(folder)}, buckets={"shut": Bucket("disk", anonymous=None)}, keys=keys))

    def ask(pair: tuple[str, str], path: str, isel: str) -> requests.Response:
        url, headers = signed("GET", served.url, path, [("isel", isel)], *pair)
        return served.session.request("GET", url, headers=headers, timeout=60)

    assert ask((ACCESS_KEY, SECRET_KEY), "/shut/a.zarr/offsets_of", "sample=2").status_code == 200
    assert ask(narrow, "/shut/a.zarr/offsets_of", "step=0:2").status_code == 200
    denied = ask(narrow, "/shut/a.zarr/offsets_of", "sample=2")
    assert (denied.status_code, error_code(denied)) == (403, "AccessDenied"), denied.text
    assert ask((ACCESS_KEY, SECRET_KEY), "/shut/cf.zarr/temperature", "station=2").status_code == 200
    assert ask(narrow, "/shut/cf.zarr/temperature", "station=2").status_code in (400, 403)
