"""How fast is a warm crop over HTTP beside tensorstore and zarr-python in the client's own process?

tensorstore with a cache that holds everything and never asks again; tensorstore and zarr-python without a cache, from
the same SeaweedFS. All are called from one Python thread, one crop after another, and give a numpy array.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import peers
from bench import Bench, crop_requests, warm_up
from client import Connection
from rounds import Sample, each, interleave
from workload import Crop, crops

UNCACHED_TARGET, ZARR_TARGET = (">=", 5.0), (">=", 30.0)


def run(bench: Bench) -> None:
    """Publishes the three ratios and all rates."""
    wanted = crops(256)
    cached, uncached, slow = (bench.pick(*n) for n in ((512, 256), (100, 30), (16, 6)))
    bench.say("opening the peers")
    warm_store = peers.tensorstore(bench.seaweed, cache_bytes=1 << 30)
    bare_store = peers.tensorstore(bench.seaweed, cache_bytes=0)
    array = peers.zarr_python(bench.seaweed)
    with bench.gateway(remote=True) as server, Connection(server.url) as line:
        requests = dict(zip(wanted, crop_requests(server, "warm", wanted), strict=True))
        warm_up(server, list(requests.values()))

        def http(crop: Crop) -> np.ndarray:
            return line.fetch(requests[crop]).reshape(crop.shape)

        def with_cache(crop: Crop) -> np.ndarray:
            return warm_store[crop.box].read().result()

        def without_cache(crop: Crop) -> np.ndarray:
            return bare_store[crop.box].read().result()

        def zarr(crop: Crop) -> np.ndarray:
            return array[crop.box]

        contestants = {"http": http, "ts cached": with_cache, "ts": without_cache, "zarr": zarr}
        for name, fetch in contestants.items():
            bench.check(name, fetch, wanted)
        for crop in wanted:
            with_cache(crop)
        counts = {"http": cached, "ts cached": cached, "ts": uncached, "zarr": slow}
        samples = interleave(
            {name: lambda f=fetch, n=counts[name]: timed(f, wanted, n) for name, fetch in contestants.items()},
            bench.rounds,
            bench.say,
        )
    for name, target in (("ts cached", None), ("ts", UNCACHED_TARGET), ("zarr", ZARR_TARGET)):
        values = each(lambda a, b: a["per_second"] / b["per_second"], samples["http"], samples[name])
        bench.row(f"http warm / {name}", values, "", target)
    for name in contestants:
        bench.row(f"{name}", [s["per_second"] for s in samples[name]], "crops/s")


def timed(fetch: Callable[[Crop], np.ndarray], wanted: list[Crop], count: int) -> Sample:
    """Crops a second."""
    start = time.perf_counter()
    for i in range(count):
        fetch(wanted[i % len(wanted)])
    return {"per_second": count / (time.perf_counter() - start)}
