"""What do crops cost that a loader takes by eights from one clip after the other, from data four times as large as the cache?

Epoch after epoch, the clips in a new order, eight crops of each in a row. The gateway has a cache of 48 MiB before
SeaweedFS, tensorstore one of the same size in process. CPU of client, gateway and store per crop, and the store's
requests and bytes as the gateway counts them.
"""

from __future__ import annotations

import random

import numpy as np

import peers
from bench import Bench, crop_requests
from client import Connection
from measures.cold import spent
from rounds import Sample, each, interleave
from workload import Crop, crops

CACHE_MIB = 48
A_CLIP = 8


def run(bench: Bench) -> None:
    """Publishes the ratio to tensorstore, and what the store was asked."""
    order = epochs(bench.pick(2, 1))
    with (
        bench.gateway(remote=True, limits={"cache_bytes": f"{CACHE_MIB}MiB"}) as server,
        Connection(server.url) as line,
    ):
        requests = dict(zip(order, crop_requests(server, "warm", order), strict=True))
        direct = peers.tensorstore(bench.seaweed, cache_bytes=CACHE_MIB << 20)

        def http(crop: Crop) -> np.ndarray:
            return line.fetch(requests[crop]).reshape(crop.shape)

        def tensorstore(crop: Crop) -> np.ndarray:
            return direct[crop.box].read().result()

        bench.check("gateway", http, order)
        bench.check("tensorstore", tensorstore, order)

        def gateway() -> Sample:
            before = server.metrics()
            sample = spent(bench, http, order, server)
            after = server.metrics()
            for name, count in (("requests", "store_requests"), ("bytes", "store_bytes")):
                sample[name] = (getattr(after, count)("warm") - getattr(before, count)("warm")) / len(order)
            return sample

        samples = interleave(
            {"gateway": gateway, "tensorstore": lambda: spent(bench, tensorstore, order, None)},
            bench.rounds,
            bench.say,
        )
    ratio = each(lambda x, y: x["ms"] / y["ms"], samples["gateway"], samples["tensorstore"])
    bench.row("CPU of all: gateway / tensorstore, both caches 48 MiB", ratio)
    for name, runs in samples.items():
        parts = ", ".join(f"{who} {np.median([s[who] for s in runs]):.2f}" for who in ("client", "server", "store"))
        bench.row(f"CPU of all, {name}", [s["ms"] for s in runs], "ms/crop", None, parts)
    bench.row("store requests a crop, gateway", [s["requests"] for s in samples["gateway"]])
    bench.row("store bytes a crop, gateway", [s["bytes"] / 2**20 for s in samples["gateway"]], "MiB")


def epochs(count: int) -> list[Crop]:
    """Each clip once an epoch, in a new order, by eight crops."""
    rng = random.Random(13)
    by_clip: dict[int, list[Crop]] = {}
    for crop in crops(count * 64 * A_CLIP * 2, seed=17):
        by_clip.setdefault(crop.sample, []).append(crop)
    made: list[Crop] = []
    for _ in range(count):
        clips = sorted(by_clip)
        rng.shuffle(clips)
        for clip in clips:
            made += [by_clip[clip].pop() for _ in range(min(A_CLIP, len(by_clip[clip])))]
    return made
