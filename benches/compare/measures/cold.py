"""What does a crop that nothing has cached cost all sides together, beside tensorstore reading it directly?

Client, gateway and store CPU per crop / client and store CPU of tensorstore. The gateway caches no chunk; its indexes
are warm, and cold once more on a gateway just started. tensorstore without a cache reads a shard's index with each
crop: its chunks and indexes share one cache. "Cold" is a new context and a new open for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import peers
from bench import Bench, crop_requests
from client import Connection, own_cpu_seconds
from gateway import Gateway
from meter import cpu_seconds
from rounds import Sample, each, interleave
from workload import Crop, crops

TARGET = ("<=", 0.5)


def run(bench: Bench) -> None:
    """Publishes the ratio with warm and with cold indexes, and who spends what."""
    wanted = crops(256)
    few = crops(64, seed=2)
    warm_count, cold_count = bench.pick(128, 32), bench.pick(64, 24)
    with bench.gateway(remote=True, limits={"cache_bytes": 0}) as server, Connection(server.url) as line:
        requests = dict(zip(wanted, crop_requests(server, "warm", wanted), strict=True))
        direct = peers.tensorstore(bench.seaweed, cache_bytes=0)

        def http(crop: Crop) -> np.ndarray:
            return line.fetch(requests[crop]).reshape(crop.shape)

        def tensorstore(crop: Crop) -> np.ndarray:
            return direct[crop.box].read().result()

        bench.check("gateway", http, wanted)
        bench.check("tensorstore", tensorstore, wanted)
        for crop in wanted:
            http(crop)
        decoded = server.metrics().total("w4dx_chunks_decoded_total")
        http(wanted[0])
        if server.metrics().total("w4dx_chunks_decoded_total") == decoded:
            raise RuntimeError("the gateway caches chunks with cache_bytes = 0: this would not be cold")

        def gateway_warm() -> Sample:
            return spent(bench, http, wanted[:warm_count], server)

        def tensorstore_warm() -> Sample:
            return spent(bench, tensorstore, wanted[:warm_count], None)

        def gateway_cold() -> Sample:
            with bench.gateway(remote=True, limits={"cache_bytes": 0}) as fresh, Connection(fresh.url) as its:
                texts = dict(zip(few, crop_requests(fresh, "warm", few), strict=True))
                return spent(bench, lambda c: its.fetch(texts[c]).reshape(c.shape), few[:cold_count], fresh)

        def tensorstore_cold() -> Sample:
            fresh: list = []

            def fetch(crop: Crop) -> np.ndarray:
                if not fresh:
                    fresh.append(peers.tensorstore(bench.seaweed, cache_bytes=0))
                return fresh[0][crop.box].read().result()

            return spent(bench, fetch, few[:cold_count], None)

        samples = interleave(
            {
                "gateway": gateway_warm,
                "tensorstore": tensorstore_warm,
                "gateway, cold indexes": gateway_cold,
                "tensorstore, new": tensorstore_cold,
            },
            bench.rounds,
            bench.say,
        )
    for a, b, target in (
        ("gateway", "tensorstore", TARGET),
        ("gateway, cold indexes", "tensorstore, new", None),
    ):
        bench.row(f"CPU of all: {a} / {b}", each(lambda x, y: x["ms"] / y["ms"], samples[a], samples[b]), "", target)
    for name, runs in samples.items():
        parts = ", ".join(f"{who} {np.median([s[who] for s in runs]):.2f}" for who in ("client", "server", "store"))
        bench.row(f"CPU of all, {name}", [s["ms"] for s in runs], "ms/crop", None, parts)
        bench.row(f"crops, {name}", [s["per_second"] for s in runs], "crops/s")


def spent(bench: Bench, fetch: Callable[[Crop], np.ndarray], wanted: list[Crop], server: Gateway | None) -> Sample:
    """CPU per crop in milliseconds: of this process, of the gateway and of the store."""

    def now() -> tuple[float, float, float]:
        gateway = cpu_seconds(server.process.pid) if server else 0.0
        return own_cpu_seconds(), gateway, cpu_seconds(bench.seaweed_pid)

    before, start = now(), time.perf_counter()
    for crop in wanted:
        fetch(crop)
    took, after = time.perf_counter() - start, now()
    client, gateway, store = ((b - a) / len(wanted) * 1e3 for a, b in zip(before, after, strict=True))
    return {
        "ms": client + gateway + store,
        "client": client,
        "server": gateway,
        "store": store,
        "per_second": len(wanted) / took,
    }
