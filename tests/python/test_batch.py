"""Batches: many selections of one or several arrays in one request, against numpy; and `prefetch`.

What is counted (requests, bytes, decoded chunks) is read from the gateway's own counters.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import requests
import zarr

import batch
import zoo
from arrays import CHECKED, group, noise, npy, save
from batch import FRAMED, STACKED, Part, ask, layout, read
from conftest import SEED, SOAK, GatewayMaker, Upstream
from fake_s3 import FakeS3
from gateway import ACCESS_KEY, SECRET_KEY, Bucket, Config, Gateway, error_code, local_store, s3_store
from oracle import (
    Index,
    Many,
    Refused,
    Selection,
    answer,
    answer_names,
    random_selection,
    same,
    spell,
    spell_dim,
)
from sigv4 import UNSIGNED, presigned, signed
from test_differential import fill_for, key_of
from wire import memory_dtype
from zoo_files import write_safetensors

BATCHES = 3_000 if SOAK else 200
STATUS = {"InvalidSelection": 400, "AmbiguousSelection": 400, "IndexOutOfRange": 400, "ShapeMismatch": 412}


def whole(text: str) -> dict:
    """An item by its `slice`."""
    return {"slice": text}


def items(*texts: str) -> dict:
    """The body of a batch about one array."""
    return {"v": 1, "items": [whole(text) for text in texts]}


def good(parts: Iterable[Part]) -> list[np.ndarray]:
    """The tensors of parts that must not have failed."""
    found = []
    for part in parts:
        assert part.status == 200, part.problem
        assert part.tensor is not None
        found.append(part.tensor)
    return found


def equal(got: np.ndarray | None, want: np.ndarray) -> bool:
    """Whether an answer has the dtype, the shape and the very bytes of `want` (little-endian)."""
    want = want.astype(memory_dtype(want.dtype))
    return got is not None and (got.dtype, got.shape, got.tobytes()) == (want.dtype, want.shape, want.tobytes())


def refused(got: requests.Response, status: int, code: str, *said: str) -> dict:
    """The problem of an answer that must be this error and say these texts."""
    assert (got.status_code, error_code(got)) == (status, code), (got.status_code, got.text[:600])
    assert got.headers["Content-Type"] == "application/problem+json"
    problem = got.json()
    assert problem["status"] == status
    for text in said:
        assert text in json.dumps(problem, ensure_ascii=False), (text, problem)
    return problem


# -- random batches of the zoo --


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[zoo.Case]:
    folder = tmp_path_factory.mktemp("zoo")
    built = zoo.build(folder / "arrays")
    for case in built:
        case.folder = folder / "arrays"  # type: ignore[attr-defined]
    return built


@pytest.fixture(scope="module")
def animals(cases: list[zoo.Case], module_gateway: GatewayMaker) -> Gateway:
    folder: Path = cases[0].folder  # type: ignore[attr-defined]
    return module_gateway(
        Config(stores={"disk": local_store(folder)}, buckets={"zoo": Bucket("disk", freshness="60s")})
    )


class RandomBatch:
    """A batch of one array, or of several of one container, with what must be answered."""

    def __init__(self, cases: list[zoo.Case], rng: random.Random) -> None:
        fixed = [case for case in cases if case.dense.dtype.kind != "O"]
        first = rng.choice(fixed)
        container, _, _ = first.path.rpartition("/")
        self.params: dict[str, str] = {}
        self.named = rng.random() < 0.5
        if self.named:
            if first.array:
                self.path, near = key_of(first), [c for c in fixed if c.path == first.path]
                names = [c.array or "" for c in near]
            else:
                self.path = "/zoo/" + quote(container)
                near = [c for c in fixed if not c.array and c.path.startswith(container + "/")]
                names = [c.path.removeprefix(container + "/") for c in near]
            chosen = rng.sample(range(len(near)), min(len(near), rng.choice([1, 2, 2, 3, 4])))
            self.cases, self.names = [near[i] for i in chosen], [names[i] for i in chosen]
        else:
            self.path, self.cases, self.names = key_of(first), [first], [None]
            if first.array:
                self.params["array"] = first.array
        self.stacked = rng.random() < 0.4
        fill, text = fill_for(first.dense.dtype)
        oob = rng.choice([None, None, "clip", "error", "fill"])
        if oob == "fill" and (fill is None or self.named):
            oob = "error"
        keepdims = rng.random() < 0.3
        if oob:
            self.params["oob"] = oob
        if oob == "fill":
            self.params["fill"] = text or ""
        if keepdims:
            self.params["keepdims"] = rng.choice(["", "1", "true"])
        count = rng.choice([1, 2, 3, 5, 9, 20])
        self.selections: list[list[Selection]] = []
        for case in self.cases:
            made: list[Selection] = []
            while len(made) < count:
                s = random_selection(rng, case.dense.shape, case.names, fill)
                s.oob, s.keepdims = oob, keepdims
                if self.stacked and made:
                    s = moved(made[0], case, rng)
                elif self.stacked and isinstance(self._want(case, s), Refused):
                    continue
                made.append(s)
            self.selections.append(made)
        self.want = [
            [self._want(case, s) for s in made] for case, made in zip(self.cases, self.selections, strict=True)
        ]
        self.skip = rng.random() < 0.7
        if self.skip or rng.random() < 0.3:
            self.params["on_error"] = "skip" if self.skip else "fail"
        if self.stacked:
            self.params["stack"] = rng.choice(["", "1"])
        elif not self.named and rng.random() < 0.3 and isinstance(self.want[0][0], np.ndarray):
            shape = [None if rng.random() < 0.3 else n for n in self.want[0][0].shape]
            self.params["expect_shape"] = ",".join("*" if n is None else str(n) for n in shape) or "[]"
            self.want = [[expected(want, shape) for want in self.want[0]]]
        bodies = [[spelled(s, rng) for s in made] for made in self.selections]
        fields = dict(zip(self.names, bodies, strict=True))
        self.document = {"v": 1} | ({"fields": fields} if self.named else {"items": bodies[0]})
        if rng.random() < 0.2:
            self.params = {f"x-{name}": value for name, value in self.params.items()}

    @staticmethod
    def _want(case: zoo.Case, selection: Selection) -> np.ndarray | Refused:
        try:
            return answer(case.dense, case.names, selection)
        except Refused as error:
            return error

    def __str__(self) -> str:
        arrays = [f"{c.dense.dtype} {c.dense.shape} {c.names}" for c in self.cases]
        return f"{self.path} {self.params} {json.dumps(self.document)[:1500]} {arrays}"

    def check(self, got: requests.Response) -> None:
        """Holds an answer against the oracle."""
        bad = {
            (i, name): want.code
            for name, wants in zip(self.names, self.want, strict=True)
            for i, want in enumerate(wants)
            if isinstance(want, Refused)
        }
        if bad and not self.skip:
            problem = got.json()
            code = bad.get((problem["item"], problem.get("field")))
            assert (got.status_code, error_code(got)) == (STATUS[code or ""], code), (problem, bad)
            return
        assert got.headers["Content-Type"] == (STACKED if self.stacked else FRAMED), got.text[:500]
        parts = read(got)
        told = layout(got)
        assert told["items"] == len(parts) == len(self.want[0])
        for number, (case, wants) in enumerate(zip(self.cases, self.want, strict=True)):
            said = told["fields"][number]
            assert said["dtype"] == case.dtype
            assert said["name"] == (
                self.names[number] or case.array or case.path.rsplit("/", 1)[-1].removesuffix(".npy")
            )
            first = next((i for i, want in enumerate(wants) if isinstance(want, np.ndarray)), None)
            if first is not None:
                assert said["dims"] == answer_names(case.names, self.selections[number][first])
            for i, want in enumerate(wants):
                part = parts[i][number]
                if isinstance(want, Refused):
                    assert part.status == STATUS[want.code], (i, number, part)
                    if part.problem is not None:
                        assert part.problem["type"] == f"urn:w4dx:error:{want.code}", (i, number, part.problem)
                        assert part.problem["item"] == i and part.problem.get("field") == self.names[number]
                    continue
                assert part.status == 200, (i, number, part.problem)
                assert same(part.tensor, want.astype(memory_dtype(want.dtype))), f"item {i} of field {number}"  # type: ignore[arg-type]


def moved(selection: Selection, case: zoo.Case, rng: random.Random) -> Selection:
    """Another selection with the same shape of answer: indexes and lists elsewhere, or one outside now and then."""

    def move(dim: object, length: int) -> object:
        if isinstance(dim, Index):
            return Index(length if rng.random() < 0.03 else rng.randrange(-length, length))
        if isinstance(dim, Many) and length:
            return Many(tuple(rng.randrange(-length, length) for _ in dim.at))
        return dim

    full = dict(zip(case.names, case.dense.shape, strict=True))
    dims = selection.dims
    if dims is not None and not any(type(d).__name__ == "Dots" for d in dims):
        dims = [move(d, n) for d, n in zip(dims, case.dense.shape, strict=False)]  # type: ignore[misc]
    isel = {name: move(d, full[name]) for name, d in selection.isel.items()}
    return Selection(dims, isel, selection.oob, selection.fill, selection.keepdims)  # type: ignore[arg-type]


def expected(want: np.ndarray | Refused, shape: list[int | None]) -> np.ndarray | Refused:
    """What becomes of an answer that `expect_shape` does not allow."""
    if isinstance(want, Refused):
        return want
    fits = len(shape) == want.ndim and all(n in (None, m) for n, m in zip(shape, want.shape, strict=True))
    return want if fits else Refused("ShapeMismatch")


def spelled(selection: Selection, rng: random.Random) -> dict:
    """A selection as an item, in any of the spellings that mean the same."""
    item: dict = {}
    if selection.dims is not None and (selection.dims or selection.isel or rng.random() < 0.5):
        item["slice"] = spell(selection.dims, rng)
    if selection.isel or rng.random() < 0.1:
        item["isel"] = {name: spelled_dim(dim, rng) for name, dim in selection.isel.items()}
    return item


def spelled_dim(dim: object, rng: random.Random) -> object:
    """A dimension's selection as JSON: an integer, a list of integers, or text."""
    if isinstance(dim, Index) and rng.random() < 0.6:
        return dim.at
    if isinstance(dim, Many) and rng.random() < 0.6:
        return list(dim.at)
    return spell_dim(dim, rng)  # type: ignore[arg-type]


def test_random_batches_equal_numpy(animals: Gateway, cases: list[zoo.Case]) -> None:
    rng = random.Random(SEED)
    failures: list[str] = []
    answered = 0
    for _ in range(BATCHES):
        made = RandomBatch(cases, rng)
        got = ask(animals, made.path, made.document, **made.params)
        try:
            made.check(got)
            answered += got.status_code == 200
        except Exception as error:  # noqa: BLE001 - every failure is reported with its request
            text = got.text[:300] if got.status_code != 200 else ""
            failures.append(f"{made}\n    {got.status_code} {text} {type(error).__name__}: {str(error)[:600]}")
    assert animals.alive()
    assert answered > BATCHES // 2
    head = "\n".join(failures[:10])
    assert not failures, f"{len(failures)} of {BATCHES} differ (W4DX_SEED={SEED})\n{head}"


# -- both forms --


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("batch")


@pytest.fixture(scope="module")
def dense(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of `clips.zarr`, and files beside it."""
    group(folder, "clips.zarr")
    group(folder, "clips.zarr/text")
    names = ("sample", "time", "y", "x", "channel")
    made = {
        "video": save(
            folder,
            "clips.zarr/video",
            noise((6, 16, 64, 48, 3)),
            chunks=(1, 4, 16, 16, 3),
            shards=(1, 16, 64, 48, 3),
            compressors=CHECKED,
            dimension_names=names,
        ),
        "audio": save(
            folder,
            "clips.zarr/audio",
            noise((6, 4096), "float32", 1),
            chunks=(2, 1000),
            dimension_names=("sample", "time"),
        ),
        "tokens": save(folder, "clips.zarr/text/tokens", noise((6, 33), "int64", 2), zarr_format=2, chunks=(4, 10)),
        "mask": save(folder, "clips.zarr/mask", noise((6, 7)) > 99, chunks=(4, 4), fill_value=True),
        "npy": npy(folder, "frame.npy", noise((40, 30, 3), "uint16", 3)),
    }
    made["wte"] = noise((9, 5), "float64", 4)
    made["block/0"] = noise((4,), "int16", 5)
    write_safetensors(folder / "m.safetensors", {"wte": made["wte"], "block/0": made["block/0"]})
    return made


@pytest.fixture(scope="module")
def served(folder: Path, dense: dict[str, np.ndarray], module_gateway: GatewayMaker) -> Gateway:
    return module_gateway(Config(stores={"disk": local_store(folder)}, buckets={"data": Bucket("disk")}))


CLIPS, VIDEO = "/data/clips.zarr", "/data/clips.zarr/video"


def test_frames_of_several_fields(served: Gateway, dense: dict[str, np.ndarray]) -> None:
    """Fields of other types, ranks and rates, in the order in which they are asked for, items of any shape."""
    document = {
        "v": 1,
        "fields": {
            "video": [{"slice": "0,:4,8:40,::2"}, {"isel": {"sample": 5, "time": [3, 0], "x": "-1"}}, {"slice": "..."}],
            "audio": [{"isel": {"sample": 0, "time": "100:1380"}}, {"slice": "5,::-1"}, {"slice": "()"}],
            "text/tokens": [{}, {"slice": "(5,0,5)"}, {"slice": "1:3,-4:"}],
            "mask": [{"slice": "2"}, {"slice": "3,3"}, {"slice": ":,(6,0)"}],
        },
    }
    got = ask(served, CLIPS, document)
    parts = read(got)
    video, audio, tokens, mask = (dense[n] for n in ("video", "audio", "tokens", "mask"))
    want = [
        [video[0, :4, 8:40, ::2], audio[0, 100:1380], tokens, mask[2]],
        [video[5][[3, 0]][:, :, -1], audio[5, ::-1], tokens[[5, 0, 5]], mask[3, 3]],
        [video, audio[:0], tokens[1:3, -4:], mask[:, [6, 0]]],
    ]
    for i, (row, wanted) in enumerate(zip(parts, want, strict=True)):
        for number, (tensor, array) in enumerate(zip(good(row), wanted, strict=True)):
            assert equal(tensor, np.asarray(array)), (i, number)
    told = layout(got)
    assert [f["name"] for f in told["fields"]] == list(document["fields"])  # type: ignore[call-overload]
    assert [f["dtype"] for f in told["fields"]] == ["uint8", "float32", "int64", "bool"]
    assert all(f["source_etag"] for f in told["fields"])
    assert got.headers["Content-Type"] == FRAMED
    assert "ETag" not in got.headers and "Content-Length" not in got.headers
    assert got.headers["x-amz-request-id"]
    backwards = {"v": 1, "fields": dict(reversed(document["fields"].items()))}  # type: ignore[attr-defined]
    again = read(ask(served, CLIPS, backwards))
    for row, wanted in zip(again, want, strict=True):
        assert all(equal(t, np.asarray(a)) for t, a in zip(good(row), reversed(wanted), strict=True))


def test_a_stack_of_several_fields(served: Gateway, dense: dict[str, np.ndarray]) -> None:
    starts = [(0, 3), (5, 0), (2, 9), (2, 9), (3, 12)]
    document = {
        "v": 1,
        "fields": {
            "audio": [{"isel": {"sample": s, "time": f"{t * 250}:{t * 250 + 777}"}} for s, t in starts],
            "video": [{"slice": f"{s},{t}:{t + 4},5:38,7:40"} for s, t in starts],
            "mask": [{"slice": f"{s},0"} for s, _ in starts],
            "text/tokens": [{"slice": "0:0"} for _ in starts],
        },
    }
    got = ask(served, CLIPS, document, stack="1")
    parts = read(got)
    assert int(got.headers["Content-Length"]) == len(got.content)
    assert "ETag" not in got.headers
    told = layout(got)
    assert [f["name"] for f in told["fields"]] == ["audio", "video", "mask", "text/tokens"]
    assert [f["shape"] for f in told["fields"]] == [[5, 777], [5, 4, 33, 33, 3], [5], [5, 0, 33]]
    assert [f["dims"] for f in told["fields"]] == [["time"], ["time", "y", "x", "channel"], [], [None, None]]
    for row, (s, t) in zip(parts, starts, strict=True):
        audio, video, mask, tokens = good(row)
        assert equal(audio, dense["audio"][s, t * 250 : t * 250 + 777])
        assert equal(video, dense["video"][s, t : t + 4, 5:38, 7:40])
        assert equal(mask, np.asarray(dense["mask"][s, 0]))
        assert equal(tokens, dense["tokens"][:0])


@pytest.mark.parametrize("stack", [None, "1"], ids=["framed", "stacked"])
@pytest.mark.parametrize(
    ("path", "array", "name"),
    [
        (VIDEO, None, "video"),
        (CLIPS, "video", "video"),
        (CLIPS, "text/tokens", "tokens"),
        ("/data/clips.zarr/text/tokens", None, "tokens"),
        ("/data/frame.npy", None, "npy"),
        ("/data/m.safetensors", "wte", "wte"),
        ("/data/m.safetensors", "block/0", "block/0"),
    ],
)
def test_every_kind_of_source(
    served: Gateway, dense: dict[str, np.ndarray], path: str, array: str | None, name: str, stack: str | None
) -> None:
    got = ask(served, path, items("0", "2", "-1"), array=array, stack=stack)
    tensors = [good(row)[0] for row in read(got)]
    assert all(equal(t, np.asarray(dense[name][at])) for t, at in zip(tensors, (0, 2, -1), strict=True))


def test_fields_of_a_file(served: Gateway, dense: dict[str, np.ndarray]) -> None:
    document = {"v": 1, "fields": {"block/0": [{"slice": "1:3"}], "wte": [{"slice": "::-2"}]}}
    ((small, large),) = read(ask(served, "/data/m.safetensors", document))
    assert equal(small.tensor, dense["block/0"][1:3]) and equal(large.tensor, dense["wte"][::-2])


def test_what_lies_outside_is_filled_with_each_array_s_own_value(served: Gateway, dense: dict[str, np.ndarray]) -> None:
    document = {"v": 1, "fields": {"mask": [{"slice": "0,-1:9"}], "audio": [{"slice": "0,-2:1"}]}}
    for stack in (None, "1"):
        ((mask, audio),) = read(ask(served, CLIPS, document, oob="fill", stack=stack))
        assert equal(mask.tensor, np.concatenate([[True], dense["mask"][0], [True, True]]))
        assert equal(audio.tensor, np.concatenate([np.zeros(2, "f4"), dense["audio"][0, :1]]))
    ((mask,),) = read(ask(served, CLIPS + "/mask", items("0,-1:9"), oob="fill", fill="false"))
    assert equal(mask.tensor, np.concatenate([[False], dense["mask"][0], [False, False]]))


def test_keepdims_and_expected_shapes_hold_for_every_item(served: Gateway, dense: dict[str, np.ndarray]) -> None:
    parts = read(ask(served, VIDEO, items("0,0", "1,2"), keepdims="", expect_shape="1,1,*,48,3"))
    assert equal(parts[1][0].tensor, dense["video"][1:2, 2:3])
    got = ask(served, VIDEO, items("0,0", "1,2,3"), expect_shape="64,48,3")
    assert refused(got, 412, "ShapeMismatch")["item"] == 1
    one, two = (row[0] for row in read(ask(served, VIDEO, items("0,0", "1"), expect_shape="64,48,3", on_error="skip")))
    assert equal(one.tensor, dense["video"][0, 0]) and two.status == 412


def test_no_items(served: Gateway) -> None:
    for document, path in (({"v": 1, "items": []}, VIDEO), ({"v": 1, "fields": {"video": [], "audio": []}}, CLIPS)):
        got = ask(served, path, document)
        assert read(got) == [] and len(got.content) == 64
        refused(ask(served, path, document, stack="1"), 400, "InvalidParameter", "no items")
        refused(ask(served, path, document, stack="1", on_error="skip"), 400, "InvalidParameter", "no items")


def test_text_and_byte_strings_have_no_batch(animals: Gateway, cases: list[zoo.Case]) -> None:
    for case in (c for c in cases if c.dense.dtype.kind == "O"):
        refused(ask(animals, key_of(case), items("0"), array=case.array), 406, "FormatNotPossible", case.path)


def test_ten_thousand_items_take_bounded_memory(folder_gateway: Callable[..., tuple[Gateway, Path]]) -> None:
    served, folder = folder_gateway(freshness="60s", limits={"cache_bytes": "32MiB"})
    video = save(folder, "v.zarr", noise((40, 256, 256, 3)), chunks=(4, 64, 64, 3), compressors=CHECKED)
    rng = random.Random(SEED)
    ask(served, "/data/v.zarr", items("0,0,0")).raise_for_status()
    before = peak_bytes(served)
    boxes = [(rng.randrange(40), rng.randrange(193), rng.randrange(193)) for _ in range(12_000)]
    texts = [f"{t},{y}:{y + 64},{x}:{x + 64}" for t, y, x in boxes]
    for stack in (None, "1"):
        parts = read(ask(served, "/data/v.zarr", items(*texts), stack=stack))
        assert len(parts) == len(boxes)
        for row, (t, y, x) in zip(parts, boxes, strict=True):
            assert equal(good(row)[0], video[t, y : y + 64, x : x + 64]), (t, y, x)
    grown = peak_bytes(served) - before
    print(f"12,000 items of 12 KiB, 141 MiB: memory grew by {grown >> 20} MiB")
    # Two windows of 8 MiB, the chunks beneath them, the cache, the request itself; not the answer.
    assert grown < 128 << 20


@pytest.mark.parametrize("form", ["batch", "slice"])
def test_small_items_of_large_chunks_take_bounded_memory(
    form: str, folder_gateway: Callable[..., tuple[Gateway, Path]]
) -> None:
    """One element of each of 300 chunks of 4 MiB: 300 bytes of answer, 1.2 GiB beneath it."""
    served, folder = folder_gateway(freshness="60s", limits={"inflight_bytes": "256MiB", "cache_bytes": "32MiB"})
    rows, length = 300, 4 << 20
    stored = zarr.create_array(folder / "a.zarr", shape=(rows, length), chunks=(1, length), dtype="u1")
    for n in range(rows):
        stored[n] = n % 251 + 1
    served.get("/data/a.zarr", slice="0,0")
    before = peak_bytes(served)
    if form == "batch":
        parts = read(ask(served, "/data/a.zarr", items(*(f"{n},7" for n in range(rows)))))
        got = [int(good(row)[0]) for row in parts]
    else:
        got = list(served.get("/data/a.zarr", slice=":,7", format="raw").content)
    assert got == [n % 251 + 1 for n in range(rows)]
    grown = peak_bytes(served) - before
    assert grown < 512 << 20, f"memory grew by {grown >> 20} MiB, the limit of what requests hold is 256 MiB"


def peak_bytes(served: Gateway) -> int:
    """The most memory that the gateway has held."""
    status = Path(f"/proc/{served.process.pid}/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def test_fields_that_need_one_shape_or_one_length(served: Gateway, dense: dict[str, np.ndarray]) -> None:
    texts = ("0,:4", "1,:4", "1,:5", "2,12:")
    problem = refused(ask(served, VIDEO, items(*texts), stack="1"), 412, "ShapeMismatch", "[5, ", "[4, ")
    assert problem["item"] == 2 and "field" not in problem
    fields = {"audio": [whole("0")] * 3, "video": [whole("0"), whole("1"), whole("0:1")]}
    problem = refused(ask(served, CLIPS, {"v": 1, "fields": fields}, stack="1"), 412, "ShapeMismatch")
    assert (problem["item"], problem["field"]) == (2, "video")
    parts = [row[0] for row in read(ask(served, VIDEO, items(*texts), stack="1", on_error="skip"))]
    assert [p.status for p in parts] == [200, 200, 412, 200]
    assert equal(parts[2].tensor, np.zeros((4, 64, 48, 3), "u1"))
    assert equal(parts[3].tensor, dense["video"][2, 12:])
    fields = {"video": [whole("0")], "audio": [whole("0"), whole("1")]}
    refused(ask(served, CLIPS, {"v": 1, "fields": fields}), 400, "InvalidParameter", "audio", "2", "1")


# -- errors --


@pytest.mark.parametrize("stack", [None, "1"], ids=["framed", "stacked"])
@pytest.mark.parametrize(
    ("wrong", "status", "code", "more"),
    [
        ({"slice": "0,0:2:0"}, 400, "InvalidSelection", {}),
        ({"slice": "[1,3]"}, 400, "AmbiguousSelection", {}),
        ({"slice": "6"}, 400, "IndexOutOfRange", {"dimension": "sample", "valid": "-6..6"}),
        ({"slice": "0,0,0,0,0,0"}, 400, "InvalidSelection", {}),
        ({"isel": {"tim": 0}}, 400, "InvalidSelection", {}),
        ({"isel": {"time": "a"}}, 400, "InvalidSelection", {}),
        ({"slice": "0", "isel": {"sample": 1}}, 400, "InvalidSelection", {}),
    ],
)
def test_a_bad_item_is_named_before_anything_is_sent(
    served: Gateway, wrong: dict, status: int, code: str, more: dict, stack: str | None
) -> None:
    problem = refused(ask(served, VIDEO, {"v": 1, "items": [whole("0"), wrong, whole("1")]}, stack=stack), status, code)
    assert problem["item"] == 1 and "field" not in problem and problem["array"] == "clips.zarr/video"
    assert more.items() <= problem.items(), problem
    fields = {"audio": [whole("0")] * 3, "video": [whole("0"), whole("0"), wrong]}
    problem = refused(ask(served, CLIPS, {"v": 1, "fields": fields}, stack=stack), status, code)
    assert (problem["item"], problem["field"]) == (2, "video")
    xml = served.request("POST", VIDEO, params={"batch": ""}, data=json.dumps({"v": 1, "items": [whole("0"), wrong]}))
    assert xml.headers["Content-Type"].startswith("application/xml") and "<Item>1</Item>" in xml.text


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [("text", 400, "NotAnArray"), ("nothing", 404, "NoSuchKey"), ("zarr.json", 400, "NotAnArray")],
)
def test_a_field_that_is_no_array_is_named(served: Gateway, name: str, status: int, code: str) -> None:
    document = {"v": 1, "fields": {"video": [whole("0")], name: [whole("0")]}}
    for on_error in ("fail", "skip"):
        problem = refused(ask(served, CLIPS, document, on_error=on_error), status, code)
        assert problem["field"] == name, problem
    refused(ask(served, f"{CLIPS}/{name}", items("0")), status, code)


def test_a_group_is_no_array(served: Gateway) -> None:
    refused(ask(served, CLIPS, items("0")), 400, "NotAnArray", "video", "audio")
    refused(ask(served, "/data/m.safetensors", items("0")), 400, "NotAnArray", "wte")
    refused(ask(served, "/data/nothing", items("0")), 404, "NoSuchKey")


def test_bad_items_are_skipped_when_asked(served: Gateway, dense: dict[str, np.ndarray]) -> None:
    audio = [whole("0,:9"), whole("1,:0:0"), whole("2,:9"), whole("9,:9")]
    masks = [whole("0"), whole("1"), whole("7"), whole("3")]
    document = {"v": 1, "fields": {"audio": audio, "mask": masks}}
    for stack in (None, "1"):
        parts = read(ask(served, CLIPS, document, on_error="skip", stack=stack))
        assert [[p.status for p in row] for row in parts] == [[200, 200], [400, 200], [200, 400], [400, 200]]
        assert equal(parts[2][0].tensor, dense["audio"][2, :9]) and equal(parts[3][1].tensor, dense["mask"][3])
        if stack:
            # What a skipped slot holds is the array's fill value.
            assert equal(parts[1][0].tensor, np.zeros(9, "f4")) and equal(parts[2][1].tensor, np.ones(7, bool))
        else:
            problem = parts[3][0].problem
            assert problem is not None and (problem["item"], problem["field"]) == (3, "audio")
            assert problem["type"] == "urn:w4dx:error:IndexOutOfRange" and problem["dimension"] == "sample"
    every = ask(served, VIDEO, items("9", "7"), on_error="skip", stack="1")
    assert refused(every, 400, "IndexOutOfRange")["item"] == 0
    assert [row[0].status for row in read(ask(served, VIDEO, items("9", "7"), on_error="skip"))] == [400, 400]


def flip(served: Gateway, folder: Path, key: str, text: str) -> None:
    """Flips a bit in the one stored chunk beneath a selection."""
    (found,) = served.get(f"/data/{key}", slice=text, explain="").json()["reads"]
    path = folder / found["key"]
    body = bytearray(path.read_bytes())
    body[found["start"] + found["len"] // 2] ^= 16
    path.write_bytes(body)


@pytest.mark.parametrize("stack", [None, "1"], ids=["framed", "stacked"])
@pytest.mark.parametrize("shards", [None, (8, 32)], ids=["chunks", "shard"])
def test_only_items_that_touch_a_corrupt_chunk_carry_its_error(
    folder_gateway: Callable[..., tuple[Gateway, Path]], shards: tuple[int, ...] | None, stack: str | None
) -> None:
    served, folder = folder_gateway()
    array = save(
        folder, "a.zarr", noise((8, 32), "int32"), chunks=(2, 4), shards=shards, compressors=CHECKED, fill_value=-7
    )
    flip(served, folder, "a.zarr", "2:4,8:12")
    boxes = [(y, x) for y in range(0, 7) for x in range(0, 30, 3)]
    document = items(*(f"{y}:{y + 2},{x}:{x + 2}" for y, x in boxes))
    for _ in range(2):  # what is read once may be kept
        parts = [row[0] for row in read(ask(served, "/data/a.zarr", document, on_error="skip", stack=stack))]
        for part, (y, x) in zip(parts, boxes, strict=True):
            if 0 < y < 4 and 6 < x < 12:
                assert part.status == 500, (y, x)
                if stack:
                    assert equal(part.tensor, np.full((2, 2), -7, "i4"))
                else:
                    assert part.problem is not None and part.problem["type"] == "urn:w4dx:error:CorruptData"
                    assert part.problem["chunk"] == "[1,2]", part.problem
            else:
                assert part.status == 200, (y, x, part.problem)
                assert equal(part.tensor, array[y : y + 2, x : x + 2]), (y, x)


@pytest.mark.parametrize("stack", [None, "1"], ids=["framed", "stacked"])
def test_a_corrupt_chunk_fails_the_batch_by_its_item(
    folder_gateway: Callable[..., tuple[Gateway, Path]], stack: str | None
) -> None:
    served, folder = folder_gateway()
    group(folder, "g.zarr")
    for name in ("a", "b"):
        save(folder, f"g.zarr/{name}", noise((8, 8), "int32"), chunks=(2, 8), compressors=CHECKED)
    flip(served, folder, "g.zarr/b", "4:6")
    rows = [whole(str(n)) for n in (0, 5, 7)]
    problem = refused(ask(served, "/data/g.zarr/b", {"v": 1, "items": rows}, stack=stack), 500, "CorruptData")
    assert (problem["chunk"], problem["item"]) == ("[2,0]", 1), problem
    document = {"v": 1, "fields": {"a": rows, "b": rows}}
    problem = refused(ask(served, "/data/g.zarr", document, stack=stack), 500, "CorruptData")
    assert (problem["chunk"], problem["item"], problem["field"]) == ("[2,0]", 1, "b"), problem


def test_a_corrupt_chunk_s_error_names_array_and_object(folder_gateway: Callable[..., tuple[Gateway, Path]]) -> None:
    served, folder = folder_gateway()
    save(folder, "a.zarr", noise((8, 8), "int32"), chunks=(4, 4), compressors=CHECKED)
    flip(served, folder, "a.zarr", "0,0")
    for got in (
        served.get("/data/a.zarr", {"Accept": "application/problem+json"}, slice="0"),
        ask(served, "/data/a.zarr", items("0")),
    ):
        problem = refused(got, 500, "CorruptData", "a.zarr/c/0/0", "crc32c")
        assert (problem["array"], problem["chunk"]) == ("a.zarr", "[0,0]"), problem


@pytest.mark.parametrize("stack", [None, "1"], ids=["framed", "stacked"])
def test_a_failure_after_the_headers_aborts_the_connection(
    folder_gateway: Callable[..., tuple[Gateway, Path]], stack: str | None
) -> None:
    served, folder = folder_gateway()
    array = save(folder, "a.zarr", noise((40, 1 << 20)), chunks=(1, 1 << 20), compressors=CHECKED)
    document = items(*(str(n) for n in range(40)))
    assert equal(good(read(ask(served, "/data/a.zarr", document, stack=stack))[39])[0], array[39])
    flip(served, folder, "a.zarr", "38")
    with pytest.raises((requests.exceptions.ChunkedEncodingError, requests.exceptions.ConnectionError)):
        ask(served, "/data/a.zarr", document, stack=stack)
    parts = [row[0] for row in read(ask(served, "/data/a.zarr", document, stack=stack, on_error="skip"))]
    assert [n for n, part in enumerate(parts) if part.status != 200] == [38]
    assert all(equal(part.tensor, array[n]) for n, part in enumerate(parts) if n != 38)
    assert served.get("/-/health").status_code == 200


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("stack", [None, "1"], ids=["framed", "stacked"])
def test_an_object_replaced_midway_never_mixes_with_its_predecessor(
    gateway: GatewayMaker, tmp_path: Path, stack: str | None, on_error: str
) -> None:
    """One shard beneath all items, another one from the second window on."""
    rows, length = 40, 1 << 20
    old, new = noise((rows, length)), noise((rows, length), seed=1)
    options = {"chunks": (1, length), "shards": (rows, length), "compressors": CHECKED}
    bodies = []
    for dense in (new, old):
        save(tmp_path, "a.zarr", dense, **options)
        bodies.append((tmp_path / "a.zarr/c/0/0").read_bytes())
    with FakeS3() as fake:
        fake.objects["a.zarr/zarr.json"] = (tmp_path / "a.zarr/zarr.json").read_bytes()
        fake.objects["a.zarr/c/0/0"] = bodies[1]
        reads: list[str] = []

        def replace(key: str) -> None:
            reads.append(key)
            if reads.count("a.zarr/c/0/0") == 4:  # after the index and the first windows
                fake.objects["a.zarr/c/0/0"] = bodies[0]

        fake.before_read = replace
        store = s3_store(fake.endpoint, fake.bucket, "any", "thing")
        served = gateway(Config(stores={"up": store}, buckets={"data": Bucket("up", freshness="60s")}))
        document = items(*map(str, range(rows)))
        if on_error == "fail":
            with pytest.raises((requests.exceptions.ChunkedEncodingError, requests.exceptions.ConnectionError)):
                ask(served, "/data/a.zarr", document, stack=stack)
            return
        parts = [row[0] for row in read(ask(served, "/data/a.zarr", document, stack=stack, on_error="skip"))]
        assert reads.count("a.zarr/c/0/0") >= 4
        statuses = [part.status for part in parts]
        assert set(statuses) == {200, 409}, statuses
        assert all(equal(part.tensor, old[n]) for n, part in enumerate(parts) if part.status == 200), statuses


# -- what a batch costs --

SHAPE, CHUNK, CROP = (2, 16, 128, 128, 3), (1, 4, 32, 32, 3), (8, 48, 48)
CLIP = "/data/clips.zarr/video"
PREFIX = "batch/"


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> np.ndarray:
    """One shard a sample, in the upstream bucket."""
    folder = tmp_path_factory.mktemp("counted")
    shard = (1, *SHAPE[1:])
    dense = save(folder, "clips.zarr/video", noise(SHAPE), chunks=CHUNK, shards=shard, compressors=CHECKED)
    npy(folder, "rows.npy", noise((40, 1 << 20)))
    upstream.upload(folder, PREFIX)
    return dense


@pytest.fixture
def cold(gateway: GatewayMaker, upstream: Upstream) -> Callable[..., Gateway]:
    """A gateway that has read nothing yet."""

    def start(**limits: object) -> Gateway:
        buckets = {"data": Bucket("up", prefix=PREFIX, freshness="60s")}
        return gateway(Config(stores={"up": upstream.store()}, buckets=buckets, limits=limits))

    return start


def crops(count: int) -> list[tuple[int, ...]]:
    """Corners of random crops, which overlap a great deal."""
    rng = random.Random(SEED)
    return [
        (rng.randrange(SHAPE[0]), *(rng.randrange(n - size + 1) for n, size in zip(SHAPE[1:4], CROP, strict=False)))
        for _ in range(count)
    ]


def text_of(corner: tuple[int, ...]) -> str:
    """A crop as a selection."""
    spans = (f"{at}:{at + size}" for at, size in zip(corner[1:], CROP, strict=True))
    return ",".join([str(corner[0]), *spans])


def crop_of(video: np.ndarray, corner: tuple[int, ...]) -> np.ndarray:
    """A crop's values."""
    return video[corner[0]][tuple(slice(at, at + size) for at, size in zip(corner[1:], CROP, strict=True))]


def chunks_of(corner: tuple[int, ...]) -> set[tuple[int, ...]]:
    """The chunks that a crop touches."""
    spans = zip(corner[1:], CROP, CHUNK[1:4], strict=True)
    touched = [range(at // n, (at + size - 1) // n + 1) for at, size, n in spans]
    return set(itertools.product([corner[0]], *touched))


def costs(served: Gateway) -> np.ndarray:
    """Requests to the store, bytes from it, and chunks decoded, so far."""
    metrics = served.metrics()
    decoded = int(metrics.total("w4dx_chunks_decoded_total"))
    return np.array([metrics.store_requests("data"), metrics.store_bytes("data"), decoded])


@pytest.mark.parametrize("stack", [None, "1"], ids=["framed", "stacked"])
@pytest.mark.parametrize("cache", ["64MiB", 0], ids=["cache", "no-cache"])
def test_a_chunk_of_several_items_is_read_and_decoded_once(
    cold: Callable[..., Gateway], video: np.ndarray, cache: object, stack: str | None
) -> None:
    served = cold(cache_bytes=cache)
    corners = crops(40)
    texts = [text_of(corner) for corner in corners]
    touched = [chunks_of(corner) for corner in corners]
    distinct = set().union(*touched)
    plans = [served.get(CLIP, slice=text, explain="").json() for text in texts]
    plan = ask(served, CLIP, items(*texts), explain="").json()
    assert plan["v"] == 1 and plan["items"] == len(corners)
    assert plan["chunks"]["touched"] == len(distinct)
    assert plan["chunks"]["shared"] == sum(map(len, touched)) - len(distinct)
    assert plan["chunks"]["total"] == int(np.prod([n // c for n, c in zip(SHAPE, CHUNK, strict=True)]))
    assert plan["answer_bytes"] == len(corners) * int(np.prod(CROP)) * 3
    before = costs(served)
    got = ask(served, CLIP, items(*texts), stack=stack)
    requests_made, moved, decoded = costs(served) - before
    assert all(equal(good(row)[0], crop_of(video, c)) for row, c in zip(read(got), corners, strict=True))
    assert decoded == len(distinct)
    assert (requests_made, moved) == (plan["store_requests"], plan["store_bytes"]), json.dumps(plan)[:2000]
    assert len(plan["reads"]) == requests_made and sum(r["len"] for r in plan["reads"]) == moved
    assert requests_made < sum(p["store_requests"] for p in plans), "reads are joined across items"
    assert moved < sum(p["store_bytes"] for p in plans) / 4
    print(
        f"{len(corners)} crops: {requests_made} requests and {moved} bytes, one by one "
        f"{sum(p['store_requests'] for p in plans)} and {sum(p['store_bytes'] for p in plans)}"
    )
    again = costs(served)
    read(ask(served, CLIP, items(*texts), stack=stack))
    repeated = costs(served) - again
    assert list(repeated) == ([0, 0, 0] if cache else [requests_made, moved, decoded])


def test_windows_share_their_chunks_through_the_cache(cold: Callable[..., Gateway], video: np.ndarray) -> None:
    """A body of several windows: what the first has decoded the others find."""
    served = cold()
    texts = [f"{n % 2},:,{n}:{n + 96},{n // 2}:" for n in range(32)]
    before = costs(served)
    got = ask(served, CLIP, items(*texts))
    decoded = (costs(served) - before)[2]
    parts = read(got)
    assert len(got.content) > 16 << 20
    assert all(equal(good(row)[0], video[n % 2, :, n : n + 96, n // 2 :]) for n, row in enumerate(parts))
    assert decoded == int(np.prod([n // c for n, c in zip(SHAPE, CHUNK, strict=True)]))


def test_explain_agrees_with_a_batch_of_several_windows(cold: Callable[..., Gateway], video: np.ndarray) -> None:
    served = cold()
    document = items(*(str(n) for n in range(40)))
    plan = ask(served, "/data/rows.npy", document, explain="").json()
    before = costs(served)
    assert len(read(ask(served, "/data/rows.npy", document))) == 40
    made, moved, _ = costs(served) - before
    assert (made, moved) == (plan["store_requests"], plan["store_bytes"]), json.dumps(plan)[:2000]


def test_a_slice_shares_nothing_with_itself(served: Gateway) -> None:
    assert served.get(VIDEO, slice="0", explain="").json()["chunks"]["shared"] == 0


def test_identical_cold_batches_make_the_reads_of_one(cold: Callable[..., Gateway], video: np.ndarray) -> None:
    alone, together = cold(), cold()
    document = items(*map(text_of, crops(40)))
    want = ask(alone, CLIP, document).content
    barrier = threading.Barrier(16)

    def send(_: int) -> bytes:
        barrier.wait()
        return ask(together, CLIP, document).content

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(send, range(16))) == {want}
    assert list(costs(together)) == list(costs(alone))


def test_explain_of_fields_counts_items(served: Gateway) -> None:
    document = {"v": 1, "fields": {"video": [whole("0"), whole("1")], "audio": [whole("0"), whole("9")]}}
    plan = ask(served, CLIPS, document, explain="", on_error="skip").json()
    assert plan["items"] == 2, "as in x-w4dx-layout"
    refused(ask(served, CLIPS, document, explain=""), 400, "IndexOutOfRange")


# -- access --

FULL = (ACCESS_KEY, SECRET_KEY)
VIDEO_ONLY = ("VIDEOKEY", "video-secret")


@pytest.fixture(scope="module")
def shut(folder: Path, dense: dict[str, np.ndarray], module_gateway: GatewayMaker) -> Gateway:
    """The same arrays for those with a key alone."""
    keys: list[dict] = [
        {"access_key": FULL[0], "secret_key": FULL[1]},
        {"access_key": VIDEO_ONLY[0], "secret_key": VIDEO_ONLY[1], "read": ["data/clips.zarr/video/"]},
    ]
    buckets = {"data": Bucket("disk", anonymous=None)}
    return module_gateway(Config(stores={"disk": local_store(folder)}, buckets=buckets, keys=keys))


def signed_batch(
    shut: Gateway,
    path: str,
    body: bytes,
    pair: tuple[str, str] = FULL,
    payload_hash: str | None = None,
    sent: bytes | None = None,
    **params: str,
) -> requests.Response:
    """A batch signed in its headers; `sent` is another body than the signed one."""
    headers = {"content-type": "application/json", "accept": "application/problem+json"}
    payload_hash = payload_hash or hashlib.sha256(body).hexdigest()
    pairs = list(({"batch": ""} | params).items())
    url, headers = signed("POST", shut.url, path, pairs, *pair, headers=headers, payload_hash=payload_hash)
    return shut.session.post(url, data=body if sent is None else sent, headers=headers, timeout=60)


BODY = json.dumps(items("0,0", "1,1")).encode()


def test_signed_batches(shut: Gateway, dense: dict[str, np.ndarray]) -> None:
    for payload_hash in (None, UNSIGNED):
        for params in ({}, {"stack": "1"}, {"x-keepdims": "1"}):
            got = signed_batch(shut, VIDEO, BODY, payload_hash=payload_hash, **params)
            want = dense["video"][1:2, 1:2] if "x-keepdims" in params else dense["video"][1, 1]
            assert equal(good(read(got)[1])[0], want), (payload_hash, params)
            assert got.headers["Cache-Control"].startswith("private")
    assert equal(good(read(signed_batch(shut, VIDEO, BODY, VIDEO_ONLY))[0])[0], dense["video"][0, 0])


def test_a_body_changed_after_signing_is_refused(shut: Gateway) -> None:
    for sent in (BODY.replace(b"1,1", b"1,2"), BODY[:-1], BODY + b" ", b"", b"{" * 1000):
        got = signed_batch(shut, VIDEO, BODY, sent=sent)
        assert 400 <= got.status_code < 500 and got.headers["Content-Type"] != FRAMED, (sent[:40], got.text[:300])
        assert "x-w4dx-layout" not in got.headers
    assert signed_batch(shut, VIDEO, BODY, (ACCESS_KEY, "wrong")).status_code == 403
    good_url, headers = signed("POST", shut.url, VIDEO, [("batch", "")], *FULL)
    assert shut.session.post(good_url + "&stack=1", data=BODY, headers=headers).status_code == 403


def test_a_presigned_read_is_no_batch(shut: Gateway) -> None:
    for params in ([("slice", "0")], [("batch", "")], []):
        url = presigned("GET", shut.url, VIDEO, params, *FULL)
        for more in ("", "&batch="):
            got = shut.session.post(url + more, data=BODY)
            assert got.status_code in (400, 403, 405, 501), (params, more, got.text[:300])
            assert "x-w4dx-layout" not in got.headers
    url = presigned("POST", shut.url, VIDEO, [("batch", "")], *FULL)
    assert len(read(shut.session.post(url, data=BODY))) == 2
    assert shut.session.get(url).status_code == 403


def test_without_rights_nothing_is_told(shut: Gateway) -> None:
    """Whether the array is there, whether the body is well-formed: the answer is the same."""
    told = set()
    for path in (VIDEO, CLIPS, "/data/clips.zarr/nothing", "/data/nothing", "/data/frame.npy"):
        for body in (BODY, b"not JSON", json.dumps({"v": 1, "fields": {"video": [{}], "nothing": [{}]}}).encode()):
            for params in ({}, {"stack": "1"}, {"explain": ""}, {"prefetch": ""}, {"slice": "0"}):
                problem = refused(ask(shut, path, body, **params), 403, "AccessDenied")
                told.add(problem["detail"])
    assert len(told) == 1, told


def test_a_key_needs_the_right_to_every_field(shut: Gateway, dense: dict[str, np.ndarray]) -> None:
    def fields(*names: str) -> bytes:
        return json.dumps({"v": 1, "fields": {name: [whole("0")] for name in names}}).encode()

    ((part,),) = read(signed_batch(shut, CLIPS, fields("video"), VIDEO_ONLY))
    assert equal(part.tensor, dense["video"][0])
    for names in (("video", "audio"), ("audio", "video"), ("audio",), ("video", "nothing")):
        for params in ({}, {"on_error": "skip"}, {"explain": ""}, {"prefetch": ""}):
            got = signed_batch(shut, CLIPS, fields(*names), VIDEO_ONLY, **params)
            refused(got, 403, "AccessDenied")
            assert "x-w4dx-layout" not in got.headers
    assert len(read(signed_batch(shut, CLIPS, fields("video", "audio")))) == 1
    refused(signed_batch(shut, CLIPS, fields("video", "nothing")), 404, "NoSuchKey")
    for name in ("video/../audio", "../clips.zarr/audio", "video/../../frame.npy"):
        assert signed_batch(shut, CLIPS, fields(name), VIDEO_ONLY).status_code in (400, 403), name


# -- bodies and parameters that are wrong --


def test_malformed_bodies_are_told_what_is_wrong(served: Gateway) -> None:
    many = json.dumps(items(*["0,0,0,0,0"] * 100_001)).encode()
    too_many = {"v": 1, "fields": {name: [whole("0")] * 50_001 for name in ("video", "audio")}}
    bodies: dict[str, tuple[object, str]] = {
        "empty": (b"", "EOF"),
        "text": (b"slice=0", "line 1"),
        "binary": (b"\x00\xff\xfe", "line 1"),
        "not UTF-8": (b'{"v":1,"items":[{"slice":"\xff"}]}', "line 1"),
        "half a surrogate": (b'{"v":1,"items":[{"slice":"\\ud800"}]}', "line 1"),
        "cut": (BODY[:-2], "EOF"),
        "more": (BODY + b"{}", "trailing"),
        "list": ([], "line 1"),
        "a batch as a list": ([1, [{"slice": "0"}], None], "line 1"),
        "an item as a list": ({"v": 1, "items": [["0", {"time": 0}]]}, "line 1"),
        "null": (None, "null"),
        "number": (7, "integer"),
        "no version": ({"items": []}, "`v`"),
        "version 2": ({"v": 2, "items": []}, "2"),
        "version as text": ({"v": "1", "items": []}, "string"),
        "neither": ({"v": 1}, "fields"),
        "both": ({"v": 1, "items": [], "fields": {"video": []}}, "list of names"),
            "fields without items": ({"v": 1, "fields": ["video"]}, "items"),
        "no field": ({"v": 1, "fields": {}}, "no array"),
        "unknown name": ({"v": 1, "items": [], "itens": []}, "itens"),
        "unknown name of an item": ({"v": 1, "items": [{"slise": "0"}]}, "slise"),
        "items as an object": ({"v": 1, "items": {"slice": "0"}}, "map"),
        "item as text": ({"v": 1, "items": ["0"]}, "string"),
        "item as a list": ({"v": 1, "items": [[["0"]]]}, "line 1"),
        "item as null": ({"v": 1, "items": [None]}, "null"),
        "slice as a number": ({"v": 1, "items": [{"slice": 0}]}, "integer"),
        "slice as a list": ({"v": 1, "items": [{"slice": ["0"]}]}, "sequence"),
        "isel as a list": ({"v": 1, "items": [{"isel": ["time"]}]}, "sequence"),
        "isel of a real": ({"v": 1, "items": [{"isel": {"time": 1.5}}]}, "time"),
        "isel of null": ({"v": 1, "items": [{"isel": {"time": None}}]}, "time"),
        "isel of an object": ({"v": 1, "items": [{"isel": {"time": {"a": 1}}}]}, "time"),
        "isel of reals": ({"v": 1, "items": [{"isel": {"time": [1.5]}}]}, "time"),
        "isel beyond 64 bits": (b'{"v":1,"items":[{"isel":{"time":99999999999999999999}}]}', "time"),
        "a name twice": (b'{"v":1,"items":[],"items":[]}', "items"),
        "a field twice": (b'{"v":1,"fields":{"video":[],"video":[]}}', "video"),
        "a dimension twice": (b'{"v":1,"items":[{"isel":{"time":1,"time":2}}]}', "time"),
        "deep lists": (b"[" * 200_000, "line 1"),
        "deep objects": (b'{"v":' * 200_000, "line 1"),
        "deep items": (b'{"v":1,"items":' + b"[" * 200_000, "line 1"),
        "deep in isel": (b'{"v":1,"items":[{"isel":{"time":' + b"[" * 200_000, "line 1"),
        "100,001 items": (many, "100000"),
        "100,002 selections": (too_many, "100000"),
    }
    wrong = []
    for name, (document, said) in bodies.items():
        started = time.monotonic()
        got = ask(served, CLIPS if isinstance(document, dict) and "fields" in document else VIDEO, document)
        took = time.monotonic() - started
        if not 400 <= got.status_code < 500 or said not in got.text or took > 20:
            wrong.append(f"{name}: {got.status_code} in {took:.1f} s, not `{said}`: {got.content[:300]!r}")
        elif got.json().get("parameter") != "batch":
            wrong.append(f"{name}: the parameter is not told: {got.text[:300]}")
    assert served.alive() and served.get("/-/health").status_code == 200
    assert not wrong, "\n".join(wrong)


def test_a_body_of_17_mib_is_told_the_limit(served: Gateway) -> None:
    """Each time: the answer must not be lost because the client is still sending when it comes."""
    body = b" " * (17 << 20) + BODY
    for _ in range(10):
        refused(ask(served, VIDEO, body), 400, "SliceTooLarge", str(16 << 20))
    assert len(read(ask(served, VIDEO, b" " * (15 << 20) + BODY))) == 2


@pytest.mark.parametrize(
    "name", ["../frame.npy", "..", ".", "", "/video", "video/", "a//b", "text/../video", "a\\b", "\0"]
)
def test_field_names_cannot_leave_their_container(served: Gateway, name: str) -> None:
    problem = refused(ask(served, CLIPS, {"v": 1, "fields": {name: [whole("0")]}}), 400, "InvalidParameter")
    assert problem["parameter"] == "batch", problem


def test_100_000_items_are_served(served: Gateway, dense: dict[str, np.ndarray]) -> None:
    parts = read(ask(served, "/data/m.safetensors", items(*["-1"] * 100_000), array="wte"))
    assert len(parts) == 100_000 and equal(parts[-1][0].tensor, dense["wte"][-1])


@pytest.mark.parametrize("media", [None, "application/json; charset=utf-8", "application/x-www-form-urlencoded", "a/b"])
def test_the_body_s_media_type_does_not_matter(served: Gateway, media: str | None) -> None:
    headers = {"Content-Type": media} if media else {}
    got = served.request("POST", VIDEO, params={"batch": ""}, data=BODY, headers=headers)
    assert len(read(got)) == 2
    # Without a length known in advance.
    got = served.request("POST", VIDEO, params={"batch": ""}, data=iter([BODY[:9], BODY[9:]]), headers=headers)
    assert len(read(got)) == 2


@pytest.mark.parametrize(
    ("params", "parameter"),
    [
        ({"slice": "0"}, "slice"),
        ({"isel": "time=0"}, "isel"),
        ({"format": "npy"}, "format"),
        ({"describe": ""}, "describe"),
        ({"limit": "3"}, "limit"),
        ({"token": "x"}, "token"),
        ({"stack": "maybe"}, "stack"),
        ({"batch": "maybe"}, "batch"),
        ({"on_error": "ignore"}, "on_error"),
        ({"explain": "", "prefetch": ""}, "prefetch"),
        ({"oob": "wrap"}, "oob"),
        ({"fill": "1"}, "fill"),
        ({"oob": "fill", "fill": "abc"}, "fill"),
        ({"expect_shape": "a"}, "expect_shape"),
        ({"stak": "1"}, "stak"),
    ],
)
def test_parameters_beside_batch(served: Gateway, params: dict[str, str], parameter: str) -> None:
    problem = refused(ask(served, VIDEO, BODY, **params), 400, "InvalidParameter")
    assert parameter in (problem.get("parameter"), *problem["detail"].replace("`", " ").split()), problem


def test_array_stands_beside_items_alone(served: Gateway) -> None:
    document = {"v": 1, "fields": {"video": [whole("0")]}}
    problem = refused(ask(served, CLIPS, document, array="video"), 400, "InvalidParameter")
    assert problem["parameter"] == "array"


def test_a_batch_is_a_post_and_a_post_a_batch(served: Gateway, folder: Path) -> None:
    problem_json = {"Accept": "application/problem+json"}
    for params in ({"batch": ""}, {"x-batch": "1"}, {"batch": "", "slice": "0"}):
        for method in ("GET", "HEAD"):
            got = served.request(method, VIDEO, params=params, headers=problem_json)
            assert got.status_code == 400, (method, params)
    refused(served.get(VIDEO, problem_json, batch=""), 400, "InvalidParameter", "POST")
    for params in ({"stack": "1"}, {"on_error": "skip"}, {"slice": "0", "stack": "1"}):
        problem = refused(served.get(VIDEO, problem_json, **params), 400, "InvalidParameter", "batch")
        assert problem["parameter"] in params
    before = (folder / "frame.npy").read_bytes()
    for params in ({}, {"slice": "0"}, {"stack": "1"}, {"prefetch": ""}):
        got = served.request("POST", "/data/frame.npy", params=params, data=BODY)
        assert got.status_code in (400, 403, 405, 501), (params, got.status_code)
        assert "x-w4dx-layout" not in got.headers
    refused(ask(served, VIDEO, BODY, batch="0"), 400, "InvalidParameter", "batch")
    assert (folder / "frame.npy").read_bytes() == before


def test_limits_hold_for_the_whole_batch(folder_gateway: Callable[..., tuple[Gateway, Path]]) -> None:
    served, folder = folder_gateway(limits={"result_bytes": "64KiB", "chunks_per_request": 50})
    save(folder, "a.zarr", noise((100, 1024)), chunks=(1, 1024))
    refused(ask(served, "/data/a.zarr", items("0:60")), 400, "SliceTooLarge", "50")
    refused(ask(served, "/data/a.zarr", items(*[str(n) for n in range(65)])), 400, "SliceTooLarge", "65536")
    before = costs(served)
    refused(ask(served, "/data/a.zarr", items(*["0:40"] * 2000)), 400, "SliceTooLarge")
    assert (costs(served) - before)[2] == 0
    assert len(read(ask(served, "/data/a.zarr", items(*[str(n) for n in range(64)])))) == 64


def test_cors_lets_pages_send_batches(served: Gateway) -> None:
    origin = {"Origin": "https://viewer.example"}
    got = served.request("POST", VIDEO, params={"batch": ""}, data=BODY, headers=origin)
    assert got.headers["Access-Control-Allow-Origin"] in ("*", origin["Origin"])
    exposed = got.headers["Access-Control-Expose-Headers"].lower()
    assert exposed == "*" or "x-w4dx-layout" in exposed
    wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    preflight = served.request("OPTIONS", VIDEO, headers=origin | wanted)
    assert preflight.status_code in (200, 204)
    assert "POST" in preflight.headers["Access-Control-Allow-Methods"].upper()


# -- prefetch --

PREFETCHED = {"v", "chunks", "absent", "cached", "fetched", "bytes"}


def test_a_prefetched_slice_needs_no_store(cold: Callable[..., Gateway], video: np.ndarray) -> None:
    served = cold()
    corner = crops(1)[0]
    touched = len(chunks_of(corner))
    told = served.get(CLIP, slice=text_of(corner), prefetch="").json()
    size = int(np.prod(CHUNK))
    assert told == {"v": 1, "chunks": touched, "absent": 0, "cached": 0, "fetched": touched, "bytes": touched * size}
    before = costs(served)
    got = served.get(CLIP, slice=text_of(corner), format="raw")
    assert got.content == crop_of(video, corner).tobytes()
    assert list(costs(served) - before) == [0, 0, 0]
    again = served.get(CLIP, slice=text_of(corner), prefetch="").json()
    assert (again["cached"], again["fetched"]) == (touched, 0)
    assert list(costs(served) - before) == [0, 0, 0]


def test_a_prefetched_batch_needs_no_store(cold: Callable[..., Gateway], video: np.ndarray) -> None:
    served = cold()
    corners = crops(40)
    document = items(*map(text_of, corners))
    plan = ask(served, CLIP, document, explain="").json()
    before = costs(served)
    told = ask(served, CLIP, document, prefetch="").json()
    assert set(told) == PREFETCHED and told["v"] == 1
    made = costs(served) - before
    assert made[2] == plan["chunks"]["touched"]
    before = costs(served)
    parts = read(ask(served, CLIP, document))
    assert all(equal(good(row)[0], crop_of(video, c)) for row, c in zip(parts, corners, strict=True))
    assert list(costs(served) - before) == [0, 0, 0]


def test_prefetch_counts_chunks_that_are_not_stored(folder_gateway: Callable[..., tuple[Gateway, Path]]) -> None:
    served, folder = folder_gateway(freshness="60s")
    dense = np.zeros((8, 8), "i4")
    dense[:4] = noise((4, 8), "int32")
    save(folder, "a.zarr", dense, chunks=(4, 4), shards=(8, 8), compressors=CHECKED)
    told = served.get("/data/a.zarr", slice="", prefetch="").json()
    assert (told["chunks"], told["absent"], told["fetched"]) == (4, 2, 2)


def test_prefetch_without_a_cache_is_refused(folder_gateway: Callable[..., tuple[Gateway, Path]]) -> None:
    served, folder = folder_gateway(limits={"cache_bytes": 0})
    save(folder, "a.zarr", noise((8, 8)))
    for got in (
        served.get("/data/a.zarr", {"Accept": "application/problem+json"}, slice="", prefetch=""),
        ask(served, "/data/a.zarr", items("0", "1"), prefetch=""),
    ):
        assert got.status_code == 400 and "cache" in got.text, got.text


def test_prefetch_of_more_than_the_cache_holds_is_refused(
    folder_gateway: Callable[..., tuple[Gateway, Path]],
) -> None:
    """Not answered as done when a part of it has already left the cache again."""
    served, folder = folder_gateway(freshness="60s", limits={"cache_bytes": "4MiB"})
    save(folder, "a.zarr", noise((64, 1 << 18)), chunks=(1, 1 << 18), compressors=CHECKED)
    accept = {"Accept": "application/problem+json"}
    refused(served.get("/data/a.zarr", accept, slice="", prefetch=""), 400, "SliceTooLarge", "cache")
    every = items(*(str(n) for n in range(64)))
    refused(ask(served, "/data/a.zarr", every, prefetch=""), 400, "SliceTooLarge", "cache")


def test_prefetch_is_for_those_who_may_read(shut: Gateway) -> None:
    assert shut.get(VIDEO, slice="0", prefetch="").status_code == 403
    url, headers = signed("GET", shut.url, VIDEO, [("slice", "0"), ("prefetch", "")], *FULL)
    assert shut.session.get(url, headers=headers).json()["v"] == 1


def test_a_body_without_its_end_frame_is_truncated(served: Gateway) -> None:
    """Of the decoder that these tests rely on."""
    got = ask(served, VIDEO, BODY)
    for cut in (64, 65, len(got.content) - 64, len(got.content)):
        with pytest.raises(batch.Truncated):
            batch.frames(got.content[:-cut], layout(got))
    changed = bytearray(got.content)
    changed[200] ^= 1
    with pytest.raises(AssertionError, match="checksum"):
        batch.frames(bytes(changed), layout(got))
