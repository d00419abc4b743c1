"""The same requests against a folder and against a SeaweedFS bucket give the same answers."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

import zoo
from conftest import SEED, SOAK, GatewayMaker, Upstream
from gateway import Bucket, Config, Gateway, local_store
from test_differential import Request, key_of

REQUESTS = 4000 if SOAK else 400
PREFIX = "backends/"
OWN = {
    "etag",
    "last-modified",
    "x-w4dx-source-etag",
    "date",
    "age",
    "server-timing",
    "x-amz-request-id",
    "x-request-id",
}


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory, module_gateway: GatewayMaker, upstream: Upstream
) -> tuple[Gateway, list]:
    folder = tmp_path_factory.mktemp("backends") / "zoo"
    # Every other array: the store does not care about dtypes, and uploads take time.
    cases = zoo.build(folder)[:: 1 if SOAK else 2]
    for name in sorted({c.path for c in cases}):
        where = folder / name
        if where.is_dir():
            upstream.upload(where, f"{PREFIX}{name}/")
        else:
            upstream.put(PREFIX + name, where.read_bytes())
    config = Config(
        stores={"disk": local_store(folder), "up": upstream.store()},
        buckets={"zoo": Bucket("disk", freshness="60s"), "far": Bucket("up", prefix=PREFIX, freshness="60s")},
    )
    return module_gateway(config), cases


def same_answer(near: requests.Response, far: requests.Response, own: set[str] = OWN) -> str | None:
    """None, or what differs."""
    if near.status_code != far.status_code:
        return f"status {near.status_code} and {far.status_code}: {far.text[:300]}"
    heads = [{k.lower(): v for k, v in r.headers.items() if k.lower() not in own} for r in (near, far)]
    if near.ok and near.content != far.content:
        return f"{len(near.content)} and {len(far.content)} bytes differ"
    if near.ok and heads[0] != heads[1]:
        return f"headers {set(heads[0].items()) ^ set(heads[1].items())}"
    return None


def test_slices(both: tuple[Gateway, list[zoo.Case]]) -> None:
    served, cases = both
    rng = random.Random(SEED + 1)
    asked = [Request(cases[i % len(cases)], rng) for i in range(REQUESTS)]

    def run(request: Request) -> str | None:
        def get(path: str) -> requests.Response:
            return served.request("GET", path, params=request.params, headers=request.headers)

        wrong = same_answer(get(request.path), get(request.path.replace("/zoo/", "/far/", 1)))
        return f"{request}: {wrong}" if wrong else None

    with ThreadPoolExecutor(4) as pool:
        wrong = [w for w in pool.map(run, asked) if w]
    assert not wrong, f"{len(wrong)} of {len(asked)}\n" + "\n".join(wrong[:20])


def own_version(body: dict) -> dict:
    """A description without the version, which each store gives by its own rules."""
    return {k: v for k, v in body.items() if k != "source_etag"}


def test_whole_objects_ranges_and_describe(both: tuple[Gateway, list[zoo.Case]]) -> None:
    served, cases = both
    wrong = []
    for case in cases[::3]:
        path = key_of(case)
        files = [path] if case.path.startswith("files/") else [path + "/zarr.json", path + "/.zarray"]
        asks: list[tuple[str, dict, dict]] = [(path, {"describe": "", "array": case.array}, {})]
        asks += [(f, {}, h) for f in files for h in ({}, {"Range": "bytes=3-20"}, {"Range": "bytes=-7"})]
        for where, params, headers in asks:
            got = [served.get(w, headers, **params) for w in (where, where.replace("/zoo/", "/far/", 1))]
            if "describe" in params:
                bodies = [g.json() for g in got]
                difference = None if own_version(bodies[0]) == own_version(bodies[1]) else f"{bodies}"
            else:
                # Each store has its own idea of an object's type.
                difference = same_answer(*got, own=OWN | {"content-type"})
            if difference:
                wrong.append(f"{where} {params} {headers}: {difference}")
    assert not wrong, "\n".join(wrong)


def test_head_and_etags_hold_on_both(both: tuple[Gateway, list[zoo.Case]]) -> None:
    served, cases = both
    for case in cases[::7]:
        for root in ("/zoo/", "/far/"):
            path = key_of(case).replace("/zoo/", root, 1)
            head = served.head(path, slice="", array=case.array)
            assert head.status_code == 200, (path, head.headers)
            again = served.get(path, {"If-None-Match": head.headers["ETag"]}, slice="", array=case.array)
            assert again.status_code == 304, path
