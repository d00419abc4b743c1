"""Selection by coordinates: seconds, metres, dates and labels, against xarray and against rules written out."""

from __future__ import annotations

import io
import json
import math
import random
import warnings
from fractions import Fraction
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest
import requests
import xarray as xr
import zarr

import batch
from arrays import group, noise, save
from conftest import GatewayMaker
from gateway import ACCESS_KEY, SECRET_KEY, Bucket, Config, Gateway, error_code, local_store, slice_headers
from sigv4 import signed

FRAMES = 1_078_920
"""Ten hours at 29.97 frames a second."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("coordinates")
    group(path, "av.zarr")
    video = noise((2, 100, 4, 5), "uint8")
    save(path, "av.zarr/video", video, dimension_names=("sample", "time", "y", "x"), attributes={"fps": 25, "t0": 1.5})
    save(path, "av.zarr/audio", noise((2, 64_000), "int16", 1), dimension_names=("sample", "time"), attributes={"sample_rate": 16_000, "t0": 1.5})
    for name, rate in [("tape", 29.97), ("ntsc", "30000/1001")]:
        # Chunks are absent: what is asked of them is their number.
        zarr.create_array(path / "av.zarr" / name, shape=(FRAMES,), chunks=(100_000,), dtype="uint8", dimension_names=("time",), attributes={"fps": rate})
    weather(path)
    microscope(path)
    return path


def weather(path: Path) -> None:
    """What xarray writes: a descending latitude, an irregular time, bounds."""
    time = pd.DatetimeIndex(np.datetime64("2021-03-01T06:00") + np.cumsum(np.random.default_rng(3).integers(1, 90, 60)).astype("timedelta64[m]"))
    lat, lon = np.linspace(70.0, -70.0, 29), np.arange(0.0, 1.95, 0.1).astype("float32")
    data = xr.DataArray(noise((60, 29, 20), "float32"), dims=("time", "lat", "lon"), coords={"time": time, "lat": lat, "lon": lon})
    ds = xr.Dataset({"temperature": data})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds.to_zarr(path / "weather.zarr", zarr_format=3, consolidated=False)
    edges = np.array([0.0, 0.5, 0.6, 2.0, 5.0, 5.5])
    group(path, "depths.zarr")
    save(path, "depths.zarr/salt", noise((5, 3), "int32"), dimension_names=("depth", "station"))
    save(path, "depths.zarr/depth", (edges[1:] + edges[:-1]) / 2, dimension_names=("depth",), attributes={"units": "m", "bounds": "depth_bnds"})
    save(path, "depths.zarr/depth_bnds", np.stack([edges[:-1], edges[1:]], axis=1), dimension_names=("depth", "ends"))
    save(path, "depths.zarr/station", np.array([7, 3, 9], "int64"), dimension_names=("station",))
    save(path, "depths.zarr/short", noise((4,), "int32"), dimension_names=("wrong",))
    save(path, "depths.zarr/wrong", noise((3,), "int32"), dimension_names=("wrong",))
    save(path, "depths.zarr/packed", noise((4,), "int32"), dimension_names=("p",))
    save(path, "depths.zarr/p", noise((4,), "int16"), dimension_names=("p",), attributes={"scale_factor": 0.1})
    save(path, "depths.zarr/up", noise((3,), "int32"), dimension_names=("../../secret/t",))
    save(path, "depths.zarr/months", noise((4,), "int32"), dimension_names=("m",))
    save(path, "depths.zarr/m", np.arange(4), dimension_names=("m",), attributes={"units": "months since 2000-01-01"})


def microscope(path: Path) -> None:
    axes = [{"name": "c", "type": "channel"}, *({"name": n, "type": "space", "unit": "micrometer"} for n in "yx")]
    scaled = lambda s: [{"type": "scale", "scale": [1, s, s]}, {"type": "translation", "translation": [0, s / 2, s / 2]}]
    image = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": scaled(0.25)}, {"path": "low/1", "coordinateTransformations": scaled(0.5)}]}]}
    group(path, "cells.zarr")
    zarr.open_group(path / "cells.zarr", mode="a").attrs["ome"] = image
    save(path, "cells.zarr/0", noise((2, 40, 48), "uint16"), dimension_names=("c", "y", "x"))
    save(path, "cells.zarr/low/1", noise((2, 20, 24), "uint16"), dimension_names=("c", "y", "x"))
    save(path, "cells.zarr/plain", noise((4, 6), "uint8"), dimension_names=("y", "x"), attributes={"scale": {"y": 0.5, "x": -2}, "offset": {"x": 10}, "axis_units": {"y": "mm"}})


@pytest.fixture(scope="module")
def served(folder: Path, module_gateway: GatewayMaker) -> Gateway:
    return module_gateway(Config(stores={"disk": local_store(folder)}, buckets={"data": Bucket("disk")}))


def array(served: Gateway, path: str, **params: object) -> np.ndarray:
    got = served.get(path, format="npy", **params)
    assert got.status_code == 200, (path, params, got.text)
    return np.load(io.BytesIO(got.content))


def refused(served: Gateway, path: str, status: int, code: str, **params: object) -> str:
    got = served.get(path, headers={"Accept": "application/problem+json"}, **params)
    assert (got.status_code, error_code(got)) == (status, code), (path, params, got.text)
    return got.text


def stored(folder: Path, path: str) -> np.ndarray:
    return zarr.open_array(folder / path, mode="r")[...]


def test_frames_and_samples_of_one_interval(served: Gateway, folder: Path) -> None:
    video, audio = stored(folder, "av.zarr/video"), stored(folder, "av.zarr/audio")
    assert np.array_equal(array(served, "/data/av.zarr/video", subset="time(2s:4s)"), video[:, 12:63])
    # 2 s is in the middle of frame 12 when the tape begins at 1.5 s.
    assert np.array_equal(array(served, "/data/av.zarr/video", subset="time(2.02s:2.5s)"), video[:, 13:25])
    for params in ({"subset": "time(2.02s;n=50)"}, {"subset": "time(2.02s:4.02s)", "count": "time:50"}):
        assert np.array_equal(array(served, "/data/av.zarr/video", **params), video[:, 13:63])
    assert np.array_equal(array(served, "/data/av.zarr/audio", subset="time(2020ms;n=32000)"), audio[:, 8320:40320])
    assert np.array_equal(array(served, "/data/av.zarr/video", subset="time(2.02s:*)", isel="sample=1"), video[1, 13:])
    assert np.array_equal(array(served, "/data/av.zarr/video", sel="time=nearest::3.33s", slice="0"), video[0, 46])
    got = served.get("/data/av.zarr/video", subset="time(2.02s;n=50)", format="npy")
    assert slice_headers(got) == ([2, 50, 4, 5], "uint8", ["sample", "time", "y", "x"])
    # The same selection, the same resource.
    assert got.headers["ETag"] == served.get("/data/av.zarr/video", slice=":,13:63", format="npy").headers["ETag"]


def test_ten_hours_of_tape_do_not_drift(served: Gateway, rng: random.Random, soak: bool) -> None:
    rates = {"tape": Fraction("29.97"), "ntsc": Fraction(30000, 1001)}
    for _ in range(400 if soak else 40):
        name = rng.choice(list(rates))
        rate = rates[name]
        # Ends on the edges of frames, beside them, and anywhere.
        ends = sorted(Fraction(round(Fraction(rng.randrange(FRAMES - 2), 1) / rate, 6)) + rng.choice([0, 0, Fraction(1, 10**6), Fraction(-1, 10**6)]) for _ in range(2))
        if ends[0] < 0 or ends[0] == ends[1]:
            continue
        lo, hi = (f"{float(end):.6f}" for end in ends)
        lo_exact, hi_exact = Fraction(lo), Fraction(hi)
        first, stop = math.floor(lo_exact * rate), min(math.ceil(hi_exact * rate), FRAMES)
        plan = served.get(f"/data/av.zarr/{name}", subset=f"time({lo}:{hi})", explain="1").json()
        assert plan["selection"]["shape"] == [stop - first], (name, lo, hi)
        assert plan["selection"]["slice"] == f"{first}:{stop}", (name, lo, hi)


@pytest.fixture(scope="module")
def climate(folder: Path) -> xr.Dataset:
    return xr.open_zarr(folder / "weather.zarr", consolidated=False).load()


def test_intervals_are_xarrays(served: Gateway, climate: xr.Dataset, rng: random.Random, soak: bool) -> None:
    data = climate["temperature"]
    path = "/data/weather.zarr/temperature"
    times, lats, lons = data.time.values, data.lat.values, data.lon.values
    for _ in range(600 if soak else 60):
        picked = sorted(rng.choice(times) + np.timedelta64(rng.choice([0, 0, 1, -1]), "m") for _ in range(2))
        lat = sorted(float(rng.choice(lats)) + rng.choice([0, 0, 0.5, -2.5, 200]) for _ in range(2))
        lon = sorted(round(float(rng.choice(lons)), 1) + rng.choice([0.0, 0.05]) for _ in range(2))
        # xarray compares float32 labels as doubles: 0.1 is not among them. Here it is.
        expected = data.assign_coords(lon=[float(str(v)) for v in lons]).sel(time=slice(*picked), lat=slice(*lat[::-1]), lon=slice(*lon))
        written = [str(t)[:16] for t in picked]
        params: dict[str, object] = {"subset": [f'time("{written[0]}":"{written[1]}")']}
        if rng.random() < 0.5:
            params["bbox"] = f"{lon[0]},{lat[0]},{lon[1]},{lat[1]}"
        else:
            params["subset"] = [f"lat({lat[0]}:{lat[1]})", f"lon({lon[0]}:{lon[1]})"]
            params["datetime"] = f"{written[0]}Z/{written[1]}Z"
        got = served.get(path, format="npy", **params)
        if got.status_code == 404:
            assert error_code(got) == "NoDataInRange" and expected.size == 0, (params, got.text)
            continue
        assert got.status_code == 200, (params, got.text)
        if lat[0] == lat[1] or lon[0] == lon[1] or picked[0] == picked[1]:
            continue
        assert np.array_equal(np.load(io.BytesIO(got.content)), expected.values), params


def test_labels_are_pandas(served: Gateway, climate: xr.Dataset, rng: random.Random, soak: bool) -> None:
    data = climate["temperature"]
    for _ in range(300 if soak else 40):
        method = rng.choice(["nearest", "ffill", "bfill", None])
        lat = rng.choice([round(rng.uniform(-80, 80), 2), float(rng.choice(data.lat.values)), float(rng.choice(data.lat.values)) + 2.5])
        label = f"lat={method}::{lat}" if method else f"lat={lat}"
        # The axis falls, and pandas' fills follow the index there: what is meant is the coordinate.
        rising = data.isel(lat=slice(None, None, -1))
        got = served.get("/data/weather.zarr/temperature", format="npy", sel=label, isel="lon=0")
        try:
            expected = rising.sel(lat=lat, method=method).isel(lon=0).values
        except KeyError:
            assert got.status_code == 404 and error_code(got) == "NoDataInRange", (label, got.text)
            continue
        assert got.status_code == 200, (label, got.text)
        assert np.array_equal(np.load(io.BytesIO(got.content)), expected), label


def test_times_and_labels_together(served: Gateway, climate: xr.Dataset) -> None:
    data = climate["temperature"]
    when = str(data.time.values[17])[:19]
    got = array(served, "/data/weather.zarr/temperature", sel=[f"time=nearest::{when}", "lon=0.1"])
    assert np.array_equal(got, data.values[17, :, 1])
    first = str(data.time.values[0])[:10]
    got = array(served, "/data/weather.zarr/temperature", datetime=f"../{first}T23:59:59Z")
    assert np.array_equal(got, data.sel(time=slice(None, f"{first}T23:59:59")).values)


def test_cells_with_bounds(served: Gateway, folder: Path) -> None:
    salt = stored(folder, "depths.zarr/salt")
    path = "/data/depths.zarr/salt"
    assert np.array_equal(array(served, path, subset="depth(0.5m:2m)"), salt[1:3])
    assert np.array_equal(array(served, path, subset="depth(50cm:2001mm)"), salt[1:4])
    assert np.array_equal(array(served, path, subset="depth(0.55)"), salt[1:2])
    assert np.array_equal(array(served, path, subset="depth(0.5:2)", closed="left"), salt[1:3])
    assert np.array_equal(array(served, path, subset="depth(1:5.2)", closed="left"), salt[3:5])
    # Stations are in no order: what lies between is taken where it stands.
    assert np.array_equal(array(served, path, subset="station(5:10)"), salt[:, [0, 2]])
    assert np.array_equal(array(served, path, sel="station=3"), salt[:, 1])
    refused(served, path, 400, "InvalidSelection", sel="station=nearest::4")


def test_pixels_of_an_image(served: Gateway, folder: Path) -> None:
    full, low, plain = (stored(folder, f"cells.zarr/{name}") for name in ("0", "low/1", "plain"))
    # Centres at 0.125, 0.375 …: pixel k of the finest spans k/4 to (k + 1)/4 µm.
    assert np.array_equal(array(served, "/data/cells.zarr/0", bbox="1,2,3,4.1"), full[:, 8:17, 4:12])
    assert np.array_equal(array(served, "/data/cells.zarr/low/1", bbox="1,2,3,4.1"), low[:, 4:9, 2:6])
    assert np.array_equal(array(served, "/data/cells.zarr/0", subset="y(0.002mm:4um)"), full[:, 8:16])
    # By attributes: rows of half a millimetre about 0, columns that fall from 10.
    assert np.array_equal(array(served, "/data/cells.zarr/plain", subset=["y(0.3mm:1mm)", "x(5:10)"]), plain[1:3, 0:3])
    assert np.array_equal(array(served, "/data/cells.zarr/plain", sel="x=8"), plain[:, 1])
    refused(served, "/data/cells.zarr/0", 400, "InvalidSelection", subset="c(0:1)")


def test_what_cannot_be_meant_is_told(served: Gateway) -> None:
    video = "/data/av.zarr/video"
    assert "1.5s:5.5s" in refused(served, video, 404, "NoDataInRange", subset="time(10s:12s)")
    assert "lower end" in refused(served, video, 400, "InvalidSelection", subset="time(4s:2s)")
    refused(served, video, 400, "InvalidSelection", subset="time(4m:5m)")
    refused(served, video, 400, "InvalidSelection", subset="time(2024-01-01:2024-01-02)")
    refused(served, video, 400, "InvalidSelection", subset="time(2s:3s)", slice=":,0:4")
    refused(served, video, 400, "InvalidSelection", subset=["time(2s:3s)", "time(3s:4s)"])
    refused(served, video, 400, "InvalidSelection", subset="y(0:1)")
    refused(served, video, 400, "InvalidSelection", subset="z(0:1)")
    refused(served, video, 400, "InvalidSelection", bbox="0,0,1,1")
    refused(served, video, 400, "InvalidSelection", subset="time(2s:3s")
    refused(served, video, 400, "InvalidParameter", count="time:5")
    refused(served, video, 400, "InvalidParameter", closed="right", subset="time(2s:3s)")
    left = json.loads(refused(served, video, 400, "IndexOutOfRange", subset="time(5.02s;n=50)"))
    assert left["parameter"] == "subset" and left["dimension"] == "time" and left["valid"] == "at most 12 cells"
    filled = array(served, video, subset="time(5.02s;n=50)", oob="fill", fill="7", isel="sample=0")
    assert filled.shape == (50, 4, 5) and (filled[12:] == 7).all()
    refused(served, "/data/weather.zarr/temperature", 400, "InvalidSelection", bbox="1,0,0,1")


def test_metadata_that_mislead_are_named(served: Gateway) -> None:
    assert "wrong" in refused(served, "/data/depths.zarr/short", 500, "CorruptData", subset="wrong(1:2)")
    assert "packed" in refused(served, "/data/depths.zarr/packed", 501, "NotImplemented", subset="p(1:2)")
    assert "months" in refused(served, "/data/depths.zarr/months", 501, "NotImplemented", subset="m(1:2)")
    # A name that leads out of the container is no coordinate.
    refused(served, "/data/depths.zarr/up", 400, "InvalidSelection", subset=f"{quote('../../secret/t', safe='')}(1:2)")


def test_coordinates_are_read_with_the_rights_of_the_key(folder: Path, gateway: GatewayMaker) -> None:
    narrow = ("NARROW", "narrow-secret")
    keys = [
        {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY},
        {"access_key": narrow[0], "secret_key": narrow[1], "read": ["shut/weather.zarr/temperature/"]},
    ]
    buckets = {"shut": Bucket("disk", anonymous=None)}
    served = gateway(Config(stores={"disk": local_store(folder)}, buckets=buckets, keys=keys))

    def ask(pair: tuple[str, str], **params: str) -> requests.Response:
        path = "/shut/weather.zarr/temperature"
        url, headers = signed("GET", served.url, path, list(params.items()), *pair)
        return served.session.request("GET", url, headers=headers, timeout=60)

    allowed = ask((ACCESS_KEY, SECRET_KEY), subset="lat(0:10)")
    assert allowed.status_code == 200, allowed.text
    assert ask(narrow, slice="0,0,0").status_code == 200
    # What another key has just learned is not told to this one.
    denied = ask(narrow, subset="lat(0:10)")
    assert (denied.status_code, error_code(denied)) == (403, "AccessDenied"), denied.text


def test_coordinates_that_change_are_read_anew(folder: Path, served: Gateway, tmp_path: Path) -> None:
    group(folder, "moving.zarr")
    data = save(folder, "moving.zarr/a", noise((6,), "int32"), dimension_names=("t",))
    for shift in (0, 2, 5):
        save(folder, "moving.zarr/t", np.arange(6) + shift, dimension_names=("t",))
        assert np.array_equal(array(served, "/data/moving.zarr/a", subset="t(5:7)"), data[max(0, 5 - shift) : 8 - shift])


def test_a_batch_of_intervals(served: Gateway, folder: Path) -> None:
    video = stored(folder, "av.zarr/video")
    items = [
        {"subset": "time(2s;n=4)", "isel": {"sample": 1}},
        {"sel": "time=2.5s"},
        {"subset": ["time(2s:2.5s)"]},
        {"subset": "time(99s;n=1)"},
        {"subset": "time(99s"},
    ]
    parts = batch.read(batch.ask(served, "/data/av.zarr/video", {"v": 1, "items": items}, on_error="skip"))
    assert [part.status for [part] in parts] == [200, 200, 200, 404, 400]
    expected = [video[1, 12:16], video[:, 25], video[:, 12:25]]
    for [part], dense in zip(parts, expected, strict=False):
        assert np.array_equal(part.tensor, dense)
    stacked = [{"subset": f"time({t}s;n=4)", "isel": {"sample": i}} for t, i in [(1.5, 0), (2.02, 1), (5.0, 1)]]
    got = batch.ask(served, "/data/av.zarr/video", {"v": 1, "items": stacked}, stack="1")
    for [part], (first, sample) in zip(batch.read(got), [(0, 0), (13, 1), (87, 1)], strict=True):
        assert np.array_equal(part.tensor, video[sample, first : first + 4])
