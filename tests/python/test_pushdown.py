"""Requests and bytes to the store are counted, not assumed; and what changes in the store is seen in time."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import wire
from arrays import CHECKED, noise, save
from conftest import SEED, GatewayMaker, Upstream
from gateway import ACCESS_KEY, SECRET_KEY, Bucket, Config, Gateway, wait_until
from sigv4 import signed

SHAPE, SHARD, CHUNK = (6, 16, 256, 256, 3), (1, 16, 256, 256, 3), (1, 4, 64, 64, 3)
CROP = (8, 112, 112)
ALL_CHUNKS = int(np.prod([n // c for n, c in zip(SHAPE, CHUNK, strict=True)]))
PATH = "/data/clips.zarr/video"
PREFIX = "pushdown/"


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> np.ndarray:
    """The crop workload in the upstream bucket."""
    folder = tmp_path_factory.mktemp("pushdown")
    dense = save(folder, "clips.zarr/video", noise(SHAPE), chunks=CHUNK, shards=SHARD, compressors=CHECKED)
    upstream.upload(folder, PREFIX)
    return dense


@pytest.fixture
def cold(gateway: GatewayMaker, upstream: Upstream) -> Callable[..., Gateway]:
    """A gateway that has read nothing yet."""

    def start(freshness: str = "60s", prefix: str = PREFIX) -> Gateway:
        buckets = {"data": Bucket("up", prefix=prefix, freshness=freshness)}
        return gateway(Config(stores={"up": upstream.store()}, buckets=buckets))

    return start


def crops(count: int) -> list[tuple[str, tuple[slice, ...]]]:
    """Random crops: their text and the same for numpy."""
    rng = random.Random(SEED)
    made = []
    for i in range(count):
        sample = i % SHAPE[0]  # no two of the first crops share a chunk
        t, y, x = (rng.randrange(n - size + 1) for n, size in zip(SHAPE[1:4], CROP, strict=False))
        where = (sample, slice(t, t + CROP[0]), slice(y, y + CROP[1]), slice(x, x + CROP[2]))
        made.append((f"{sample},{t}:{t + CROP[0]},{y}:{y + CROP[1]},{x}:{x + CROP[2]}", where))
    return made


def chunks_of(where: tuple) -> int:
    """How many inner chunks a crop touches."""
    spans = zip(where[1:4], CHUNK[1:4], strict=False)
    return int(np.prod([(s.stop - 1) // n - s.start // n + 1 for s, n in spans]))


def counts(served: Gateway) -> tuple[int, int]:
    """Requests to the store and bytes from it, so far."""
    metrics = served.metrics()
    return metrics.store_requests("data"), metrics.store_bytes("data")


def test_explain_agrees_with_what_a_cold_crop_costs(cold: Callable[..., Gateway], video: np.ndarray) -> None:
    served = cold()
    answer_bytes = int(np.prod(CROP)) * 3
    all_requests, all_bytes = 0, 0
    wanted = crops(SHAPE[0])
    for text, where in wanted:
        plan = served.get(PATH, slice=text, format="raw", explain="").json()
        assert plan["v"] == 1
        before = counts(served)
        got = served.get(PATH, slice=text, format="raw")
        after = counts(served)
        assert got.content == video[where].tobytes()
        made, moved = after[0] - before[0], after[1] - before[1]
        said = json.dumps(plan)
        assert plan["answer_bytes"] == len(got.content) == answer_bytes, said
        touched = chunks_of(where)
        assert plan["chunks"] == {"total": ALL_CHUNKS, "touched": touched, "absent": 0, "pruned": 0, "shared": 0}, said
        assert plan["cache"] == {"hits": 0, "misses": touched}, said
        assert (made, moved) == (plan["store_requests"], plan["store_bytes"]), said
        assert len(plan["reads"]) == made and sum(read["len"] for read in plan["reads"]) == moved, said
        assert sum(read["chunks"] for read in plan["reads"]) == touched, said
        assert {read["key"] for read in plan["reads"]} == {f"clips.zarr/video/c/{where[0]}/0/0/0/0"}, said
        all_requests, all_bytes = all_requests + made, all_bytes + moved
        size = int(np.prod(CHUNK))
        # Never a whole shard for a part of it, and fewer requests than chunks: zarr-python stores inner chunks in
        # Morton order, in which the neighbours of a crop lie in several runs.
        assert moved <= 2.4 * chunks_of(where) * size
        assert made < max(2, chunks_of(where))
    assert all_requests / len(wanted) <= 8, f"{all_requests / len(wanted)} requests a crop"
    print(
        f"{all_requests / len(wanted):.1f} requests, {all_bytes / len(wanted) / answer_bytes:.2f} bytes a byte, of {len(wanted)} crops"
    )


def test_explain_reads_no_chunk(cold: Callable[..., Gateway], video: np.ndarray) -> None:
    served = cold()
    served.get(PATH, slice="0", explain="")
    metrics = served.metrics()
    assert metrics.total("w4dx_chunks_decoded_total") == 0
    index = 16 * int(np.prod([s // c for s, c in zip(SHARD, CHUNK, strict=False)])) + 4
    assert metrics.store_bytes("data") < 2 * index + 8192
    # Only metadata and one shard index: a handful of requests, negative look-ups included.
    assert 1 <= metrics.store_requests("data") <= 8


def test_a_warm_repeat_makes_no_store_request(cold: Callable[..., Gateway], video: np.ndarray) -> None:
    served = cold()
    for text, where in crops(5):
        first = served.get(PATH, slice=text, format="raw")
        before = served.metrics()
        again = served.get(PATH, slice=text, format="raw")
        inside = served.get(PATH, slice=text, format="npy")
        unchanged = served.get(PATH, {"If-None-Match": first.headers["ETag"]}, slice=text, format="raw")
        after = served.metrics()
        assert again.content == first.content == video[where].tobytes() and inside.status_code == 200
        assert unchanged.status_code == 304
        assert after.store_requests("data") == before.store_requests("data")
        assert after.store_bytes("data") == before.store_bytes("data")
        assert after.total("w4dx_chunks_decoded_total") == before.total("w4dx_chunks_decoded_total")
        assert after.total("w4dx_cache_hits_total") > before.total("w4dx_cache_hits_total")


def test_64_concurrent_identical_cold_requests_make_the_reads_of_one(
    cold: Callable[..., Gateway], video: np.ndarray
) -> None:
    text, where = crops(1)[0]
    alone, together = cold(), cold()
    assert alone.get(PATH, slice=text, format="raw").status_code == 200
    barrier = threading.Barrier(64)

    def ask(_: int) -> bytes:
        barrier.wait()
        return together.get(PATH, slice=text, format="raw").content

    with ThreadPoolExecutor(64) as pool:
        bodies = list(pool.map(ask, range(64)))
    assert set(bodies) == {video[where].tobytes()}
    assert counts(together) == counts(alone)
    decoded = together.metrics().total("w4dx_chunks_decoded_total")
    assert decoded == chunks_of(where)


def test_overlapping_crops_share_their_chunks(cold: Callable[..., Gateway], video: np.ndarray) -> None:
    served = cold()
    served.get(PATH, slice="1,0:8,0:128,0:128", format="raw")
    before = counts(served)
    got = served.get(PATH, slice="1,3:7,10:100,20:128", format="raw")
    assert got.content == video[1, 3:7, 10:100, 20:128].tobytes()
    assert counts(served) == before


def test_a_range_of_a_slice_reads_only_the_chunks_beneath(cold: Callable[..., Gateway], video: np.ndarray) -> None:
    served = cold()
    served.get(PATH, slice="2,0:1,0:1,0:1", format="raw")  # metadata and index
    before = served.metrics()
    row = 256 * 3
    got = served.get(PATH, {"Range": f"bytes=0-{row - 1}"}, slice="2", format="raw")
    assert (got.status_code, got.content) == (206, video[2, 0, 0].tobytes())
    after = served.metrics()
    assert after.store_bytes("data") - before.store_bytes("data") < 8 * int(np.prod(CHUNK))
    assert after.total("w4dx_chunks_decoded_total") - before.total("w4dx_chunks_decoded_total") <= 4


def test_a_chunk_overwritten_by_another_program_is_seen_after_freshness(
    cold: Callable[..., Gateway], upstream: Upstream, tmp_path: Path
) -> None:
    prefix = f"overwritten-{time.monotonic_ns()}/"
    old = save(tmp_path, "a.zarr", noise((8, 8), "int32"), chunks=(4, 8), shards=(8, 8), compressors=CHECKED)
    upstream.upload(tmp_path, prefix)
    served = cold("1s", prefix)
    params = {"slice": "1:7", "format": "raw"}
    first = served.get("/data/a.zarr", **params)
    assert first.content == old[1:7].tobytes()
    for step in range(3):
        new = save(
            tmp_path, "a.zarr", noise((8, 8), "int32", seed=step + 5), chunks=(4, 8), shards=(8, 8), compressors=CHECKED
        )
        upstream.put(prefix + "a.zarr/c/0/0", (tmp_path / "a.zarr/c/0/0").read_bytes())
        written = time.monotonic()
        seen = {old[1:7].tobytes(): "old", new[1:7].tobytes(): "new"}

        def is_new() -> bool:
            got = served.get("/data/a.zarr", {"If-None-Match": first.headers["ETag"]}, **params)
            if got.status_code == 304:
                assert time.monotonic() - written < 3, "a 304 long after the data changed"
                return False
            assert got.content in seen, "neither the old nor the new values"
            return seen[got.content] == "new"

        wait_until(is_new, 5, "the new chunk is served")
        fresh = served.get("/data/a.zarr", {"Cache-Control": "no-cache"}, **params)
        assert fresh.content == new[1:7].tobytes()
        first, old = fresh, new


def test_no_cache_revalidates_at_once_but_keeps_decoded_chunks(
    cold: Callable[..., Gateway], upstream: Upstream, tmp_path: Path
) -> None:
    prefix = f"no-cache-{time.monotonic_ns()}/"
    save(tmp_path, "a.zarr", noise((8, 8), "int32"), chunks=(4, 8), compressors=CHECKED)
    upstream.upload(tmp_path, prefix)
    served = cold("3600s", prefix)
    params = {"slice": "", "format": "raw"}
    served.get("/data/a.zarr", **params)
    decoded = served.metrics().total("w4dx_chunks_decoded_total")
    served.get("/data/a.zarr", {"Cache-Control": "no-cache"}, **params)
    assert served.metrics().total("w4dx_chunks_decoded_total") == decoded
    new = save(tmp_path, "a.zarr", noise((8, 8), "int32", seed=3), chunks=(4, 8), compressors=CHECKED)
    upstream.put(prefix + "a.zarr/c/1/0", (tmp_path / "a.zarr/c/1/0").read_bytes())
    got = served.get("/data/a.zarr", {"Cache-Control": "no-cache"}, **params)
    assert wire.from_raw(got.content, new.dtype, (8, 8))[4:].tobytes() == new[4:].tobytes()


def test_a_local_repeat_decodes_nothing_though_versions_are_checked(
    folder_gateway: Callable[..., tuple[Gateway, Path]],
) -> None:
    """The default freshness of a folder is 0 s: a stat, never a second decoding of what did not change."""
    served, folder = folder_gateway(freshness=None)
    dense = save(folder, "a.zarr", noise((8, 8), "int32"), chunks=(4, 8), compressors=CHECKED)
    shard = save(folder, "s.zarr", noise((8, 8), "int32", 2), chunks=(2, 4), shards=(4, 8), compressors=CHECKED)
    time.sleep(2.2)  # a file that changed in the last two seconds is not cached

    def ask() -> float:
        assert served.get("/data/a.zarr", slice="1:7", format="raw").content == dense[1:7].tobytes()
        assert served.get("/data/s.zarr", slice="1:7", format="raw").content == shard[1:7].tobytes()
        return served.metrics().total("w4dx_chunks_decoded_total")

    first = ask()
    assert first == 2 + 8
    assert ask() == first


def test_a_write_through_the_gateway_is_seen_at_once(folder_gateway: Callable[..., tuple[Gateway, Path]]) -> None:
    """With freshness of an hour only the invalidation by the write itself can explain a new answer."""
    served, folder = folder_gateway(freshness="3600s")
    save(folder, "a.zarr", noise((8, 8), "int32"), chunks=(4, 8), compressors=CHECKED)
    scratch = folder.parent / "scratch"

    def write(method: str, key: str, body: bytes | None = None) -> None:
        url, headers = signed(method, served.url, f"/data/{key}", [], ACCESS_KEY, SECRET_KEY)
        got = served.session.request(method, url, headers=headers, data=body)
        assert got.status_code in (200, 204), got.text

    assert served.get("/data/new.zarr", slice="").status_code == 404
    etag = served.get("/data/a.zarr", slice="").headers["ETag"]
    for step in range(5):
        new = save(scratch, "a.zarr", noise((8, 8), "int32", seed=step + 1), chunks=(4, 8), compressors=CHECKED)
        for part in ("c/0/0", "c/1/0"):
            write("PUT", f"a.zarr/{part}", (scratch / "a.zarr" / part).read_bytes())
        got = served.get("/data/a.zarr", {"If-None-Match": etag}, slice="", format="npy")
        assert got.status_code == 200, "304 over changed data"
        assert np.array_equal(wire.from_npy(got.content), new)
        etag = got.headers["ETag"]
    write("DELETE", "a.zarr/c/1/0")
    got = served.get("/data/a.zarr", {"If-None-Match": etag}, slice="", format="npy")
    assert np.array_equal(wire.from_npy(got.content), np.where(np.arange(8)[:, None] < 4, new, 0))
    # A remembered absence ends with the write as well.
    for path in sorted(p for p in (scratch / "a.zarr").rglob("*") if p.is_file()):
        write("PUT", "new.zarr/" + path.relative_to(scratch / "a.zarr").as_posix(), path.read_bytes())
    got = served.get("/data/new.zarr", slice="")
    assert got.status_code == 200 and np.array_equal(wire.from_npy(got.content), new)
