"""What does the gateway take from a 1 Gbit/s link to the store, in rate and in time to the first byte?

SeaweedFS in a network namespace behind a veth pair that tc limits; client and gateway on the near side. Whole objects,
through the gateway and directly, signed both times; one connection each.
"""

from __future__ import annotations

import os
import time

import numpy as np

from bench import Bench, Unavailable, signed_get
from client import Connection
from gateway import ACCESS_KEY, SECRET_KEY, Gateway
from link import FarSeaweed, limited
from rounds import Sample, each, interleave

RATE = "1gbit"
SIZES = {"64 MiB": 64 << 20, "1 MiB": 1 << 20}
RATE_TARGET, ADDED_TARGET = (">=", 0.97), ("<=", 1.0)


def run(bench: Bench) -> None:
    """Publishes both ratios, the added time, and the rates."""
    weed = os.environ.get("W4DX_WEED", "")
    if not os.access(weed, os.X_OK):
        raise Unavailable("no SeaweedFS: run this through benches/compare/run")
    rng = np.random.default_rng(9)
    folder = bench.work / "link"
    folder.mkdir()
    bodies = {name: rng.bytes(size) for name, size in SIZES.items()}
    for name, body in bodies.items():
        (folder / name.replace(" ", "")).write_bytes(body)
    with limited(RATE) as space, FarSeaweed(weed, space, bench.work) as store:
        bench.upload(store, folder)
        with bench.gateway(store=bench.seaweed_store(store)) as server:
            for name, body in bodies.items():
                compare(bench, server, store, name, body)


def compare(bench: Bench, server: Gateway, store: FarSeaweed, name: str, body: bytes) -> None:
    """One size, both ways."""
    key, room = name.replace(" ", ""), memoryview(bytearray(1 << 20))
    count = bench.pick(4, 1) if len(body) > 8 << 20 else bench.pick(100, 30)
    through = signed_get(server.url, f"/fresh/{key}", [], ACCESS_KEY, SECRET_KEY)
    direct = signed_get(store.endpoint, f"/{store.bucket}/{key}", [], store.access_key, store.secret_key)
    with Connection(server.url) as near, Connection(store.endpoint) as far:
        ways = {"gateway": (near, through), "direct": (far, direct)}
        for who, (line, request) in ways.items():
            if bytes(line.fetch(request)) != body:
                raise RuntimeError(f"{who} answered wrong bytes for {name}")

        def load(who: str) -> Sample:
            line, request = ways[who]
            firsts, start = [], time.perf_counter()
            for _ in range(count):
                line.skim(request, room)
                firsts.append(line.first_byte_seconds)
            took = time.perf_counter() - start
            return {"mb_per_second": count * len(body) / took / 1e6, "first_ms": float(np.median(firsts)) * 1e3}

        samples = interleave({who: lambda w=who: load(w) for who in ways}, bench.rounds, bench.say)
    a, b = samples["gateway"], samples["direct"]
    ratio = each(lambda x, y: x["mb_per_second"] / y["mb_per_second"], a, b)
    bench.row(f"{name}: gateway / direct", ratio, "", RATE_TARGET, f"link of {RATE}")
    bench.row(
        f"{name}: added time to first byte", each(lambda x, y: x["first_ms"] - y["first_ms"], a, b), "ms", ADDED_TARGET
    )
    for who, taken in samples.items():
        bench.row(f"{name}: {who}", [s["mb_per_second"] for s in taken], "MB/s")
        bench.row(f"{name}: time to first byte, {who}", [s["first_ms"] for s in taken], "ms")
