"""Predicates: rows and elements by their values, against three-valued logic written out."""

from __future__ import annotations

import io
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import zarr

import batch
from arrays import group, noise, save
from conftest import GatewayMaker
from gateway import ACCESS_KEY, SECRET_KEY, Bucket, Config, Gateway, error_code, local_store, slice_headers
from sigv4 import signed
from test_fields import tensors

ROWS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filter")
    rng = np.random.default_rng(7)
    group(path, "t.zarr")
    save(path, "t.zarr/images", noise((ROWS, 3, 4), "uint8"), dimension_names=("sample", "y", "x"), chunks=(7, 3, 4))
    quality = rng.integers(-8, 9, ROWS) / 4
    quality[rng.random(ROWS) < 0.15] = np.nan
    quality[[3, 50]] = np.inf, -np.inf
    quality[9] = -0.0
    save(path, "t.zarr/quality", quality, dimension_names=("sample",), chunks=(16,))
    save(path, "t.zarr/label", rng.integers(0, 10, ROWS).astype("uint8"), dimension_names=("sample",), chunks=(50,))
    save(path, "t.zarr/big", (2**53 + rng.integers(-3, 4, ROWS)).astype("int64"), dimension_names=("sample",))
    save(path, "t.zarr/wide", (2**63 + rng.integers(0, 4, ROWS).astype("uint64")).astype("uint64"), dimension_names=("sample",))
    save(path, "t.zarr/good", rng.random(ROWS) < 0.5, dimension_names=("sample",))
    names = np.array(["cat", "dog", "été", ""])[rng.integers(0, 4, ROWS)]
    save(path, "t.zarr/name", names.astype("<U5"), dimension_names=("sample",))
    taken = np.datetime64("2024-01-01", "m") + rng.integers(0, 60 * 24 * 40, ROWS)
    taken[5] = np.datetime64("NaT")
    save(path, "t.zarr/taken", taken.astype("datetime64[s]"), dimension_names=("sample",))
    packed = rng.integers(-20, 20, ROWS).astype(">i2")
    attributes = {"scale_factor": 0.5, "add_offset": 10, "_FillValue": 7}
    save(path, "t.zarr/packed", packed, dimension_names=("sample",), attributes=attributes)
    save(path, "t.zarr/nanfill", quality, dimension_names=("sample",), attributes={"_FillValue": "AAAAAAAA+H8="})
    save(path, "t.zarr/shorter", quality[:5], dimension_names=("sample",))
    save(path, "t.zarr/grid", rng.integers(-50, 50, (20, 30, 2)).astype("int16"), dimension_names=("time", "y", "x"), chunks=(6, 7, 2), attributes={"fps": 10})
    # Chunks that are absent read as the fill value, which a filter may take.
    zarr.create_array(path / "t.zarr/sparse", shape=(ROWS,), chunks=(10,), dtype="int32", fill_value=4, dimension_names=("sample",))[20:30] = np.arange(10)
    clouds(path, rng)
    return path


def clouds(path: Path, rng: np.random.Generator) -> None:
    points = rng.random((3000, 4)).astype("float32") * 10
    group(path, "cloud.zarr")
    save(path, "cloud.zarr/points", points, dimension_names=("point", "column"), chunks=(256, 4), attributes={"columns": ["x", "y", "z", "power"], "ragged": {"kind": "counts", "index": "counts", "dimension": "scan"}})
    save(path, "cloud.zarr/intensity", noise((3000,), "uint16"), dimension_names=("point",), chunks=(500,))
    save(path, "cloud.zarr/label", noise((3000,), "uint8", 3), dimension_names=("point",))
    save(path, "cloud.zarr/counts", np.array([1000, 0, 2000]), dimension_names=("scan",))


@pytest.fixture(scope="module")
def served(folder: Path, module_gateway: GatewayMaker) -> Gateway:
    return module_gateway(Config(stores={"disk": local_store(folder)}, buckets={"data": Bucket("disk")}))


@pytest.fixture(scope="module")
def stored(folder: Path) -> dict[str, np.ndarray]:
    found = zarr.open_group(folder / "t.zarr", mode="r")
    return {name: array[...] for name, array in found.arrays()}


def ask(served: Gateway, path: str, **params: object) -> np.ndarray:
    got = served.get(path, format="npy", **params)
    assert got.status_code == 200, (path, params, got.text)
    return np.load(io.BytesIO(got.content))


def refused(served: Gateway, path: str, status: int, code: str, **params: object) -> dict[str, Any]:
    got = served.get(path, headers={"Accept": "application/problem+json"}, **params)
    assert (got.status_code, error_code(got)) == (status, code), (path, params, got.text)
    return got.json()


# -- the oracle --

Value = Fraction | float | None


def exact(value: object) -> Value:
    """A number as the shortest decimal that denotes it; infinities as they are; None for what is no number."""
    if isinstance(value, np.floating):
        if np.isnan(value):
            return None
        return float(value) if np.isinf(value) else Fraction(np.format_float_positional(value, unique=True, trim="-"))
    return Fraction(int(value))


COMPARE = {"=": lambda a, b: a == b, "<>": lambda a, b: a != b, "<": lambda a, b: a < b, ">": lambda a, b: a > b, "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b}


def expression(rng: random.Random, names: list[str], depth: int) -> tuple[str, Any]:
    """A random predicate: its text, and what it yields for a row."""
    if depth and rng.random() < 0.6:
        kind = rng.choice(["AND", "OR", "NOT"])
        if kind == "NOT":
            text, of = expression(rng, names, depth - 1)
            return f"NOT ({text})", lambda row: None if of(row) is None else not of(row)
        parts = [expression(rng, names, depth - 1) for _ in range(rng.randint(2, 3))]
        decisive = kind == "OR"

        def joined(row: dict[str, Value]) -> bool | None:
            told = [of(row) for _, of in parts]
            return decisive if decisive in told else None if None in told else not decisive

        return f" {kind} ".join(f"({text})" for text, _ in parts), joined
    name = rng.choice(names)

    def literal() -> tuple[str, Fraction]:
        text = rng.choice([str(rng.randint(-9, 9)), f"{rng.randint(-9, 9)}.{rng.choice(['0', '25', '5'])}", "9007199254740992", "9007199254740992.5", "9223372036854775809", "-1e-3"])
        return text, Fraction(text)

    kind = rng.choice(["compare", "compare", "between", "in", "null"])
    maybe = rng.choice(["", "NOT "])
    if kind == "compare":
        symbol, (text, value) = rng.choice(list(COMPARE)), literal()
        if rng.random() < 0.2:
            turned = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(symbol, symbol)
            return f"{text} {turned} {name}", lambda row: None if row[name] is None else COMPARE[symbol](row[name], value)
        return f"{name} {symbol} {text}", lambda row: None if row[name] is None else COMPARE[symbol](row[name], value)
    if kind == "between":
        (lo, low), (hi, high) = literal(), literal()
        return f"{name} {maybe}BETWEEN {lo} AND {hi}", lambda row: None if row[name] is None else (low <= row[name] <= high) ^ bool(maybe)
    if kind == "in":
        listed = [literal() for _ in range(rng.randint(1, 4))]
        values = [value for _, value in listed]
        return f"{name} {maybe}IN ({', '.join(text for text, _ in listed)})", lambda row: None if row[name] is None else (row[name] in values) ^ bool(maybe)
    return f"{name} IS {maybe}NULL", lambda row: (row[name] is None) ^ bool(maybe)


def test_rows_are_taken_where_the_whole_is_true(served: Gateway, stored: dict[str, np.ndarray], rng: random.Random, soak: bool) -> None:
    names = ["quality", "label", "big", "wide", "sparse", "nanfill"]
    rows = [{name: exact(stored[name][i]) for name in names} for i in range(ROWS)]
    lengths = set()
    for _ in range(1500 if soak else 150):
        text, of = expression(rng, names, rng.randint(0, 3))
        expected = [i for i, row in enumerate(rows) if of(row) is True]
        lengths.add(len(expected))
        got = ask(served, "/data/t.zarr/images", filter=text)
        assert np.array_equal(got, stored["images"][expected]), text
    assert len(lengths) > 10, "the expressions tell rows apart"


def test_a_filter_is_about_what_else_is_selected(served: Gateway, stored: dict[str, np.ndarray]) -> None:
    label, images = stored["label"], stored["images"]
    path = "/data/t.zarr/images"
    odd = [i for i in range(100, 10, -3) if label[i] > 4]
    assert np.array_equal(ask(served, path, filter="label > 4", slice="100:10:-3,1"), images[odd, 1])
    listed = [i for i in (9, 3, 3, 70) if label[i] <= label[3]]
    assert np.array_equal(ask(served, path, filter=f"label <= {label[3]}", isel="sample=(9,3,3,70)"), images[listed])
    assert ask(served, path, filter="label > 99").shape == (0, 3, 4)
    assert np.array_equal(ask(served, path, filter="TRUE"), images) and ask(served, path, filter="FALSE").shape[0] == 0
    both = np.flatnonzero(stored["good"] & (stored["name"] == "été"))
    assert np.array_equal(ask(served, path, filter="good = TRUE AND name = 'été'"), images[both])
    january = np.flatnonzero((stored["taken"] > np.datetime64("2024-01-10")) & (stored["taken"] < np.datetime64("2024-01-20")))
    assert np.array_equal(ask(served, path, filter="T_DURING(taken, INTERVAL('2024-01-10', '2024-01-20T00:00:00Z'))"), images[january])
    assert np.array_equal(ask(served, path, filter="taken IS NULL"), images[[5]])
    # A slice by its rows is the slice of those rows.
    first = np.flatnonzero(label == label[0])
    by_filter = served.get(path, filter=f"label = {label[0]}", format="npy")
    by_rows = served.get(path, slice=f"({','.join(map(str, first))})", format="npy")
    assert by_filter.headers["ETag"] == by_rows.headers["ETag"] and by_filter.content == by_rows.content
    ranged = served.get(path, filter=f"label = {label[0]}", format="npy", headers={"Range": "bytes=100-219"})
    assert ranged.status_code == 206 and ranged.content == by_filter.content[100:220]


def test_what_a_filter_answers(served: Gateway, stored: dict[str, np.ndarray]) -> None:
    path, label = "/data/t.zarr/images", stored["label"]
    want = np.flatnonzero(label[10:90] == 3) + 10
    params = {"filter": "label = 3", "slice": "10:90"}
    assert np.array_equal(ask(served, path, select="indices", **params), want)
    assert np.array_equal(ask(served, path, select="mask", **params), label[10:90] == 3)
    assert np.array_equal(ask(served, path, select="box", **params), stored["images"][want[0] : want[-1] + 1])
    got = served.get(path, select="indices", **params)
    assert slice_headers(got) == ([len(want)], "int64", ["sample"])
    assert served.get(path, select="indices", headers={"If-None-Match": got.headers["ETag"]}, **params).status_code == 304
    head = served.head(path, select="indices", **params)
    assert (head.headers["ETag"], head.headers["Content-Length"]) == (got.headers["ETag"], str(len(got.content)))
    part = served.get(path, select="indices", headers={"Range": "bytes=8-40"}, **params)
    assert part.status_code == 206 and part.content == got.content[8:41]
    assert served.get(path, select="mask", format="json", filter="label = 3", slice="0:3").json() == (label[:3] == 3).tolist()
    assert ask(served, path, select="box", filter="label = 99").shape == (0, 3, 4)


def test_single_elements_by_their_own_value(served: Gateway, stored: dict[str, np.ndarray], rng: random.Random) -> None:
    path, grid = "/data/t.zarr/grid", stored["grid"]
    for _ in range(25):
        low, high = sorted(rng.randint(-60, 60) for _ in range(2))
        window = grid[2:18, ::2, :]
        for name in ("grid", "value"):
            text = f"{name} BETWEEN {low} AND {high} AND NOT {name} = 0"
            mask = (window >= low) & (window <= high) & (window != 0)
            params = {"filter": text, "slice": "2:18,::2"}
            assert np.array_equal(ask(served, path, **params), window[mask])
            assert np.array_equal(ask(served, path, select="mask", **params), mask)
            indices = np.argwhere(mask) * [1, 2, 1] + [2, 0, 0]
            assert np.array_equal(ask(served, path, select="indices", **params), indices)
            corners = np.argwhere(mask)
            box = tuple(slice(a, b + 1) for a, b in zip(corners.min(0), corners.max(0), strict=True)) if len(corners) else (slice(0, 0),) * 3
            assert np.array_equal(ask(served, path, select="box", **params), window[box])
    # With coordinates of the axes: those are narrowed first, elements after them.
    want = grid[5:12][grid[5:12] > 20]
    assert np.array_equal(ask(served, path, filter="time >= 0.5 AND time < 1.2 AND grid > 20"), want)
    mixed = (grid > 40) | (np.arange(20)[:, None, None] / 10 >= 1.5)
    assert np.array_equal(ask(served, path, filter="grid > 40 OR time >= 1.5"), grid[mixed])
    assert np.array_equal(ask(served, path, filter="time >= 0.5 AND time < 1.2"), grid[5:12])
    assert ask(served, path, filter="grid > 0", slice="3,4,1").shape == (int(grid[3, 4, 1] > 0),)


def test_points_in_a_box(served: Gateway, folder: Path, rng: random.Random) -> None:
    cloud = zarr.open_group(folder / "cloud.zarr", mode="r")
    points, intensity, label = (cloud[name][...] for name in ("points", "intensity", "label"))
    path = "/data/cloud.zarr/points"
    # As the shortest decimals that denote them.
    written = np.array([[float(np.format_float_positional(value, unique=True)) for value in row] for row in points])
    for _ in range(15):
        low = np.round(np.array([rng.uniform(0, 9) for _ in range(3)]), 3)
        high = np.round(low + [rng.uniform(0.5, 6) for _ in range(3)], 3)
        # One corner is a point's own coordinate: ends belong to the box.
        low[0] = written[rng.randrange(3000), 0]
        high[0] = max(high[0], low[0])
        inside = np.flatnonzero(((written[:, :3] >= low) & (written[:, :3] <= high)).all(axis=1))
        bbox = ",".join(map(repr, [*map(float, low), *map(float, high)]))
        assert np.array_equal(ask(served, path, bbox=bbox), points[inside])
        assert np.array_equal(ask(served, path, filter=f"S_INTERSECTS(geometry, BBOX({bbox}))"), points[inside])
        assert np.array_equal(ask(served, path, bbox=bbox, select="indices"), inside)
        strong = inside[(points[inside, 3] > 5) & (label[inside] < 100)]
        assert np.array_equal(ask(served, path, bbox=bbox, filter="power > 5 AND label < 100"), points[strong])
        found = tensors(served.get("/data/cloud.zarr", fields="points,intensity,label", bbox=bbox, filter="power > 5 AND label < 100").content)
        assert np.array_equal(found["points"], points[strong]) and np.array_equal(found["intensity"], intensity[strong]) and np.array_equal(found["label"], label[strong])
        scan = strong[strong >= 1000]
        assert np.array_equal(ask(served, path, bbox=bbox, filter="power > 5 AND label < 100", isel="scan=2"), points[scan])
    flat = np.flatnonzero((written[:, 0] <= 3) & (written[:, 1] >= 2) & (written[:, 1] <= 4))
    assert np.array_equal(ask(served, path, bbox="*,2,3,4", isel="column=(0,3)"), points[flat][:, [0, 3]])
    part = batch.read(batch.ask(served, path, {"v": 1, "items": [{"bbox": "*,2,3,4"}, {"bbox": "0,0,1,1"}]}))
    assert np.array_equal(part[0][0].tensor, points[flat])
    refused(served, path, 400, "InvalidSelection", bbox="3,0,1,1")
    refused(served, path, 400, "InvalidParameter", bbox="0m,0,1,1")


def test_packed_values_need_a_word(served: Gateway, stored: dict[str, np.ndarray]) -> None:
    path, packed = "/data/t.zarr/images", stored["packed"].astype("int64")
    told = refused(served, path, 400, "AmbiguousValues", filter="packed > 3")
    assert told["valid"] == "values=raw, values=cf" and "scale_factor" in told["detail"]
    assert np.array_equal(ask(served, path, filter="packed > 3", values="raw"), stored["images"][packed > 3])
    meant = (packed != 7) & (packed * 0.5 + 10 > 12.25)
    assert np.array_equal(ask(served, path, filter="packed > 12.25", values="cf"), stored["images"][meant])
    assert np.array_equal(ask(served, path, filter="packed IS NULL", values="cf"), stored["images"][packed == 7])
    assert np.array_equal(ask(served, path, filter="NOT packed > 12.25", values="cf"), stored["images"][(packed != 7) & ~meant])
    refused(served, path, 400, "InvalidParameter", filter="packed > 3", values="real")
    # A slice is what is stored, whatever it means.
    assert np.array_equal(ask(served, "/data/t.zarr/packed"), stored["packed"])
    refused(served, "/data/t.zarr/packed", 400, "AmbiguousValues", filter="value = 1")


def test_what_a_filter_cannot_mean_is_told(served: Gateway) -> None:
    path = "/data/t.zarr/images"
    for wrong in ("label >", "label > 'x'", "name > 3", "good > TRUE", "taken > 5 OR label > DATE('2024-01-01')", "label = TRUE", "nothing = 1", "../t.zarr/label = 1", '"../label" = 1'):
        refused(served, path, 400, "InvalidSelection", filter=wrong)
    assert "power" in refused(served, "/data/cloud.zarr/points", 400, "InvalidSelection", filter="speed > 1")["detail"]
    for operator, text in {"LIKE": "name LIKE 'c%'", "T_AFTER": "T_AFTER(taken, DATE('2024-01-01'))", "S_WITHIN": "S_WITHIN(geometry, BBOX(0,0,1,1))", "CASEI": "CASEI(name) = 'x'", "+": "label + 1 > 2", "two properties": "label = big"}.items():
        assert operator in refused(served, path, 501, "NotImplemented", filter=text)["detail"]
    for bomb in ("(" * 400, "NOT " * 2000, "-" * 8000, "label=" + "-" * 70 + "1", "(" * 65 + "label=1" + ")" * 65, "x" * 9000):
        refused(served, path, 400, "InvalidSelection", filter=bomb)
    assert ask(served, path, filter="(" * 64 + "label=1" + ")" * 64).ndim == 3
    for beside in ({"oob": "fill"}, {"pad": "9"}, {"describe": ""}, {"select": "rows"}):
        refused(served, path, 400, "InvalidParameter", filter="label = 1", **beside)
    refused(served, path, 400, "InvalidParameter", select="mask")
    refused(served, path, 400, "InvalidSelection", filter="label = 1", slice="3")
    refused(served, path, 500, "CorruptData", filter="shorter > 1")
    refused(served, "/data/cloud.zarr/points", 501, "NotImplemented", filter="power > 1", isel="scan=(0,2)")
    refused(served, "/data/t.zarr", 501, "NotImplemented", filter="label = 1", select="mask", fields="images,label")
    told = batch.ask(served, path, {"v": 1, "items": [{}]}, filter="label = 1")
    assert (told.status_code, error_code(told)) == (400, "InvalidParameter")


def test_the_plan_of_a_filter(served: Gateway) -> None:
    plan = served.get("/data/t.zarr/images", filter="label = 3 AND sample < 0", explain="1")
    assert plan.status_code in (200, 400)
    plan = served.get("/data/t.zarr/images", filter="label = 3 OR label IN (4, 5.5)", explain="1").json()
    assert plan["filter"] == {"op": "or", "args": [{"op": "=", "args": [{"property": "label"}, 3]}, {"op": "in", "args": [{"property": "label"}, [4, 5.5]]}]}
    assert plan["chunks"]["touched"] <= plan["chunks"]["total"]


def test_properties_are_read_with_the_rights_of_the_key(folder: Path, gateway: GatewayMaker) -> None:
    narrow = ("NARROW", "narrow-secret")
    keys = [
        {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY},
        {"access_key": narrow[0], "secret_key": narrow[1], "read": ["shut/t.zarr/images/", "shut/t.zarr/label/"]},
    ]
    served = gateway(Config(stores={"disk": local_store(folder)}, buckets={"shut": Bucket("disk", anonymous=None)}, keys=keys))

    def get(pair: tuple[str, str], text: str) -> requests.Response:
        url, headers = signed("GET", served.url, "/shut/t.zarr/images", [("filter", text)], *pair)
        return served.session.request("GET", url, headers=headers, timeout=60)

    assert get((ACCESS_KEY, SECRET_KEY), "quality > 0").status_code == 200
    assert get(narrow, "label > 3").status_code == 200
    denied = get(narrow, "quality > 0")
    assert (denied.status_code, error_code(denied)) == (403, "AccessDenied"), denied.text


def test_a_filter_sees_what_changed(served: Gateway, folder: Path) -> None:
    group(folder, "moving.zarr")
    dense = save(folder, "moving.zarr/a", noise((6, 2), "int32"), dimension_names=("row", "x"))
    for shift in (0, 2, 5):
        save(folder, "moving.zarr/key", np.arange(6) + shift, dimension_names=("row",))
        assert np.array_equal(ask(served, "/data/moving.zarr/a", filter="key >= 5"), dense[max(0, 5 - shift) :])
