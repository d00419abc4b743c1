"""How many items a second do stacked batches bring, beside single requests over 8 connections?

Both signed (SigV4, made before the clock starts), both by wrk over 8 connections, warm. And how many bytes does a cold
batch whose items share chunks read from the store, beside the same items asked for one by one with no chunk cache?
"""

from __future__ import annotations

import dataclasses

from batches import stacked_items, stacked_request
from bench import Bench, Unavailable, signed_get, warm_up
from client import Connection, get, slice_path
from gateway import ACCESS_KEY, SECRET_KEY, Gateway
from meter import cpu_seconds
from rounds import Sample, each, interleave
from workload import COMPRESSED, CROP, SMALL_CROP, Crop, crops, expect_equal, partition

CONNECTIONS, ITEMS = 8, 64
TARGET = (">=", 1.5)


def run(bench: Bench) -> None:
    """Publishes the ratio for small and for ordinary crops, and the bytes of a cold batch."""
    with bench.gateway() as server:
        for size, target in ((SMALL_CROP, TARGET), (CROP, None)):
            rates(bench, server, size, target)
    shared(bench)


def stacked(server: Gateway, wanted: list[Crop]) -> bytes:
    """The request for `wanted` as one stack."""
    return stacked_request(server.url, COMPRESSED, "warm", wanted, ACCESS_KEY, SECRET_KEY)


def single(server: Gateway, crop: Crop) -> bytes:
    """The signed request for one crop."""
    params = [("format", "raw"), ("slice", crop.text)]
    return signed_get(server.url, f"/warm/{COMPRESSED}", params, ACCESS_KEY, SECRET_KEY)


def expect_batches(line: Connection, request: bytes) -> None:
    """Says so when the gateway has no batches."""
    status, length, _ = line.begin(request)
    if status in (405, 501):
        raise Unavailable(f"this gateway answers a batch with {status}")
    if status != 200:
        raise RuntimeError(f"{status} for a batch, {length} bytes")


def rates(bench: Bench, server: Gateway, size: tuple[int, int, int], target: tuple[str, float] | None) -> None:
    """Items a second, both ways."""
    wanted = crops(1024, size, seed=5)
    stacks = [list(part) for part in partition(wanted, len(wanted) // ITEMS)]
    with Connection(server.url) as line:
        expect_batches(line, stacked(server, stacks[0]))
    warm_up(server, [get(server.url, slice_path(COMPRESSED, c.text, "warm")) for c in wanted])
    requests = {"single": [single(server, c) for c in wanted], "stacked": [stacked(server, s) for s in stacks]}
    with Connection(server.url) as line:
        for crop, request in zip(wanted, requests["single"], strict=True):
            expect_equal("single", crop, line.fetch(request), bench.dense)
        for stack, request in zip(stacks, requests["stacked"], strict=True):
            body = line.fetch(request)
            for crop, item in zip(stack, stacked_items(line.headers, body), strict=True):
                expect_equal("stacked", crop, item, bench.dense)
    files = {name: bench.wrk.requests(rows) for name, rows in requests.items()}

    def load(name: str, items: int) -> Sample:
        before = cpu_seconds(server.process.pid)
        sample = bench.wrk.run(server.url, files[name], bench.pick(5, 1), CONNECTIONS)
        used = cpu_seconds(server.process.pid) - before
        rate = sample["per_second"] * items
        return {"items_per_second": rate, "server_us": used / sample["requests"] / items * 1e6}

    runs = {"stacked": lambda: load("stacked", ITEMS), "single": lambda: load("single", 1)}
    samples = interleave(runs, bench.rounds, bench.say)
    text = "x".join(map(str, size))
    values = each(lambda a, b: a["items_per_second"] / b["items_per_second"], samples["stacked"], samples["single"])
    bench.row(f"{text}: stacked / single", values, "", target, f"{ITEMS} items a batch, signed")
    for name, taken in samples.items():
        bench.row(f"{text}: {name}", [s["items_per_second"] for s in taken], "items/s")
        bench.row(f"{text}: server CPU, {name}", [s["server_us"] for s in taken], "us/item")


def shared(bench: Bench) -> None:
    """Store bytes of one cold batch / of its items asked for singly."""
    wanted = [dataclasses.replace(c, sample=c.sample % 2) for c in crops(ITEMS, SMALL_CROP, seed=6)]
    moved = {}
    for name, limits in (("single", {"cache_bytes": 0}), ("stacked", {})):
        with bench.gateway(remote=True, limits=limits) as server, Connection(server.url) as line:
            for crop in wanted:  # metadata and indexes are not what is compared
                line.fetch(get(server.url, slice_path(COMPRESSED, crop.text, "warm") + "&explain"))
            before = server.metrics().store_bytes("warm")
            if name == "single":
                for crop in wanted:
                    expect_equal(name, crop, line.fetch(single(server, crop)), bench.dense)
            else:
                body = line.fetch(stacked(server, wanted))
                for crop, item in zip(wanted, stacked_items(line.headers, body), strict=True):
                    expect_equal(name, crop, item, bench.dense)
            moved[name] = server.metrics().store_bytes("warm") - before
    bench.row("cold batch with shared chunks: store bytes / singly", [moved["stacked"] / moved["single"]])
