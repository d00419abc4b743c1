"""Random selections of every array of the zoo, over HTTP, against numpy on the values that another program reads."""

from __future__ import annotations

import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import requests

import wire
import zoo
from conftest import SEED, SOAK, GatewayMaker
from gateway import Bucket, Config, Gateway, error_code, local_store, slice_headers
from oracle import Refused, Selection, answer, answer_names, random_selection, same, spell, spell_dim

SELECTIONS = 20_000 if SOAK else 2_400
THREADS = 4
SUFFIX = {"npy": ".npy", "raw": ".raw", "safetensors": ".safetensors", "json": ".json", "png": ".png"}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[zoo.Case]:
    folder = tmp_path_factory.mktemp("zoo")
    built = zoo.build(folder / "arrays")
    assert len(built) >= 40
    for case in built:
        case.folder = folder / "arrays"  # type: ignore[attr-defined]
    return built


@pytest.fixture(scope="module")
def served(cases: list[zoo.Case], module_gateway: GatewayMaker) -> Gateway:
    folder: Path = cases[0].folder  # type: ignore[attr-defined]
    # Versions are trusted for a while, so that this measures values and not stat calls.
    return module_gateway(
        Config(stores={"disk": local_store(folder)}, buckets={"zoo": Bucket("disk", freshness="60s")})
    )


def key_of(case: zoo.Case) -> str:
    return "/zoo/" + quote(case.path)


def fill_for(dtype: np.dtype) -> tuple[object, str | None]:
    """A fill value of a dtype and how a query says it; None where text cannot say one simply."""
    dtype = np.dtype(dtype)
    if dtype.name in ("int4", "int2"):
        return 1, "1"
    if dtype.name == "float8_e8m0fnu":
        return 2.0, "2.0"
    if dtype.kind == "f" or dtype.name in zoo.SMALL:
        return (np.nan, "NaN") if dtype.itemsize > 2 else (1.5, "1.5")
    if dtype.kind == "c":
        return 1 - 2j, "[1.0,-2.0]"
    if dtype.kind == "b":
        return True, "true"
    if dtype.kind in "iu":
        top = np.iinfo(dtype).max
        return top, str(top)
    return None, None


class Request:
    """One selection of one array, spelled one way."""

    def __init__(self, case: zoo.Case, rng: random.Random) -> None:
        self.case = case
        fill, fill_text = fill_for(case.dense.dtype)
        self.selection = s = random_selection(rng, case.dense.shape, case.names, fill)
        pairs: list[tuple[str, str]] = []
        if case.array:
            pairs.append(("array", case.array))
        if s.dims is not None:
            pairs.append(("slice", spell(s.dims, rng)))
        pairs += [("isel", f"{quote(n, safe='')}={spell_dim(d, rng)}") for n, d in s.isel.items()]
        if s.oob:
            pairs.append(("oob", s.oob))
        if s.oob == "fill":
            pairs.append(("fill", fill_text or ""))
        if s.keepdims:
            pairs.append(("keepdims", "1"))
        try:
            self.want: np.ndarray | Refused = answer(case.dense, case.names, s)
        except Refused as refused:
            self.want = refused
        self.format, asked = self._format(rng)
        self.range = None
        if not isinstance(self.want, Refused) and rng.random() < 0.5:
            shape = list(self.want.shape)
            pairs.append(("expect_shape", ",".join("*" if rng.random() < 0.2 else str(n) for n in shape) or "[]"))
        if not pairs or (pairs == [("array", case.array)]):
            pairs.append(("slice", ""))
        self.headers: dict[str, str] = {}
        way = rng.random()
        # A key has at most 1,024 bytes in S3.
        if way < 0.2 and sum(len(n) + len(v) + 2 for n, v in pairs) + len(case.path) < 900:
            # Values are encoded once within the key, and once more as every key is.
            body = ";".join(f"{n}={quote(v, safe='()[],:.~*')}" for n, v in pairs)
            suffix = SUFFIX[self.format] if asked else ""
            self.path, self.params = f"{key_of(case)}/@{quote(body, safe='()[],:.~*;=@')}{suffix}", []
        else:
            if asked == "accept":
                self.headers["Accept"] = wire.MEDIA[self.format]
            elif asked:
                pairs.append(("format", self.format))
            if way < 0.4:
                pairs = [(f"x-{n}" if rng.random() < 0.5 else n, v) for n, v in pairs]
                # A repeatable name in both spellings would be the same name twice.
                pairs = [("isel" if n == "x-isel" else n, v) for n, v in pairs]
            self.path, self.params = key_of(case), pairs

    def _format(self, rng: random.Random) -> tuple[str, str | None]:
        held = wire.formats(self.case.dense.dtype)
        if not isinstance(self.want, Refused):
            if wire.png_possible(self.want.dtype, self.want.shape) and rng.random() < 0.3:
                return "png", "parameter"
            if self.want.size > 4000 and len(held) > 1:
                held = [f for f in held if f != "json"]
        chosen = rng.choice(held)
        if chosen == held[0] and chosen != "raw" and rng.random() < 0.5:
            return chosen, None
        return chosen, "accept" if rng.random() < 0.2 else "parameter"

    def __str__(self) -> str:
        return f"{self.path} {self.params} {self.headers} [{self.case.dense.dtype} {self.case.dense.shape} {self.case.names}]"

    def check(self, got: requests.Response) -> None:
        """Holds an answer against the oracle."""
        if isinstance(self.want, Refused):
            assert (got.status_code, error_code(got)) == (400, self.want.code), got.text[:500]
            return
        want = self.want
        assert got.status_code == 200, (got.status_code, got.text[:500])
        assert got.headers["Content-Type"] == wire.MEDIA[self.format]
        assert int(got.headers["Content-Length"]) == len(got.content)
        names = answer_names(self.case.names, self.selection)
        assert slice_headers(got) == (list(want.shape), self.case.dtype, names)
        assert same(self.decode(got.content), expected(want)), "the values differ"

    def decode(self, body: bytes) -> np.ndarray:
        assert isinstance(self.want, np.ndarray)
        dtype, shape = self.want.dtype, self.want.shape
        if self.format == "npy":
            return wire.from_npy(body)
        if self.format == "raw":
            return wire.from_raw(body, dtype, shape)
        if self.format == "json":
            return wire.from_json(body, dtype, shape)
        if self.format == "png":
            return wire.from_png(body, dtype, shape)
        name, tensor, metadata = wire.from_safetensors(body)
        # A tensor of a file keeps its name there; others have that of their last segment.
        assert name == (self.case.array or self.case.path.rsplit("/", 1)[-1].removesuffix(".npy"))
        assert metadata, "the dims belong in __metadata__"
        return tensor


def expected(want: np.ndarray) -> np.ndarray:
    """What the decoded answer must equal: strings and bytes as json says them, all else little-endian."""
    if want.dtype.kind in "OUS":
        out = np.empty(want.shape, dtype=object)
        out.ravel()[:] = [wire.json_scalar(v) for v in want.ravel()]
        return out
    return want.astype(wire.memory_dtype(want.dtype))


def test_random_selections_equal_numpy(served: Gateway, cases: list[zoo.Case]) -> None:
    rng = random.Random(SEED)
    requests_ = [Request(cases[i % len(cases)], rng) for i in range(SELECTIONS)]
    refused = sum(isinstance(r.want, Refused) for r in requests_)
    print(f"{SELECTIONS} selections of {len(cases)} arrays, {refused} to be refused, seed {SEED}")
    failures: list[str] = []
    local = threading.local()

    def run(request: Request) -> None:
        if not hasattr(local, "session"):
            local.session = requests.Session()
            local.session.trust_env = False
        try:
            request.check(
                served.request(
                    "GET", request.path, params=request.params, headers=request.headers, session=local.session
                )
            )
        except Exception as error:  # noqa: BLE001 - every failure is reported with its request
            failures.append(f"{request}\n    {type(error).__name__}: {str(error)[:600]}")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(run, requests_))
    assert served.alive()
    by_array: dict[str, int] = {}
    for failure in failures:
        by_array[failure.split(" ")[0].split("/@")[0]] = by_array.get(failure.split(" ")[0].split("/@")[0], 0) + 1
    head = "\n".join(failures[:25])
    assert not failures, (
        f"{len(failures)} of {SELECTIONS} differ (W4DX_SEED={SEED}) {json.dumps(by_array, indent=1)}\n{head}"
    )


def test_every_array_is_read_whole(served: Gateway, cases: list[zoo.Case]) -> None:
    wrong = []
    for case in cases:
        form = wire.formats(case.dense.dtype)[0]
        got = served.get(key_of(case), slice="", array=case.array, format=form)
        request = object.__new__(Request)
        request.case, request.want, request.format = case, case.dense, form
        request.selection = Selection([])
        try:
            request.check(got)
        except AssertionError as error:
            wrong.append(f"{case}: {error}"[:400])
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong)


def test_formats_that_cannot_hold_an_array_are_406(served: Gateway, cases: list[zoo.Case]) -> None:
    wrong, seen = [], set()
    for case in cases:
        held = wire.formats(case.dense.dtype)
        for form in ("npy", "raw", "safetensors", "png"):
            if form in held or (form == "png" and wire.png_possible(case.dense.dtype, case.dense.shape)):
                continue
            if (form, case.dtype) in seen:
                continue
            seen.add((form, case.dtype))
            got = served.get(key_of(case), slice="", array=case.array, format=form)
            if got.status_code != 406 or error_code(got) != "FormatNotPossible":
                wrong.append(f"{case} as {form}: {got.status_code} {got.text[:200]}")
    assert len(seen) > 20
    assert not wrong, "\n".join(wrong)


def test_expected_shapes(served: Gateway) -> None:
    path = "/zoo/zarr/five-d"
    assert served.get(path, slice="0,:2", expect_shape="2,5,6,3").status_code == 200
    assert served.get(path, slice="0,:2", expect_shape="2,*,*,3").status_code == 200
    for wrong in ("2,5,6", "2,5,6,4", "[]", "2,5,6,3,1"):
        got = served.get(path, slice="0,:2", expect_shape=wrong)
        assert (got.status_code, error_code(got)) == (412, "ShapeMismatch"), wrong
    assert served.get("/zoo/zarr/scalar", slice="", expect_shape="[]").status_code == 200
    for bad in ("a", "-1", "2,,3"):
        assert served.get(path, slice="0,:2", expect_shape=bad).status_code == 400


def test_a_dimension_constrained_twice_names_both(served: Gateway) -> None:
    got = served.get("/zoo/zarr/five-d", slice="0:1,2", isel="time=1")
    assert got.status_code == 400
    assert "slice" in got.text and "isel" in got.text and "time" in got.text
    got = served.get("/zoo/zarr/five-d", isel=["time=1", "time=2"])
    assert got.status_code == 400 and "time" in got.text


def test_duplicate_dimension_names_are_addressed_by_position_only(served: Gateway) -> None:
    assert served.get("/zoo/zarr/names-twice", isel="x=1").status_code == 400
    assert served.get("/zoo/zarr/names-twice", slice="1").status_code == 200
    unknown = served.get("/zoo/zarr/five-d", isel="tim=1")
    assert unknown.status_code == 400 and "time" in unknown.text, "the nearest name helps"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[1,3]", "AmbiguousSelection"),
        ("1,,2", "InvalidSelection"),
        ("a", "InvalidSelection"),
        ("1:2:3:4", "InvalidSelection"),
        ("(1", "InvalidSelection"),
        ("None", "InvalidSelection"),
        ("newaxis,0", "InvalidSelection"),
        ("0,None", "InvalidSelection"),
        ("::0", "InvalidSelection"),
        ("...,...", "InvalidSelection"),
        ("99999999999999999999", "IndexOutOfRange InvalidSelection"),
        ("1.5", "InvalidSelection"),
        ("0x1", "InvalidSelection"),
        ("(1,2):", "InvalidSelection"),
    ],
)
def test_malformed_selections_are_named(served: Gateway, text: str, code: str) -> None:
    got = served.get("/zoo/zarr/five-d", slice=text)
    assert got.status_code == 400, got.text
    assert error_code(got) in code.split()
    if text == "[1,3]":
        assert "1,3" in got.text and "(1,3)" in got.text


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("[0:2, ...]", [2, 4, 5, 6, 3]),
        ("[[0,2]]", [2, 4, 5, 6, 3]),
        ("[0,2],:", [2, 4, 5, 6, 3]),
        ("()", [0, 4, 5, 6, 3]),
        ("(1)", [1, 4, 5, 6, 3]),
        ("~:~", [3, 4, 5, 6, 3]),
        ("~:~:-1,0", [3, 5, 6, 3]),
        ("2:1", [0, 4, 5, 6, 3]),
        ("...", [3, 4, 5, 6, 3]),
        ("", [3, 4, 5, 6, 3]),
        ("...,0,0,0,0,0", []),
        ("[...]", [3, 4, 5, 6, 3]),
    ],
)
def test_spellings(served: Gateway, text: str, shape: list[int]) -> None:
    got = served.get("/zoo/zarr/five-d", slice=text)
    assert got.status_code == 200, got.text
    assert slice_headers(got)[0] == shape
