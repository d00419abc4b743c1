"""How fast are plain objects of a local folder, beside nginx with sendfile?

Each server on core 0 alone and wrk on core 1. The 64 MiB object says bytes a second, the 16 KiB objects requests a
second. wrk copies what it receives, 8 KiB at a time; where that bounds both, the server's own CPU tells them apart.
"""

from __future__ import annotations

import os
import time

import numpy as np

from bench import SETTLED_SECONDS, Bench, Unavailable
from client import Connection, get
from meter import cpu_seconds
from rounds import Sample, each, interleave

BIG, SMALL, SMALL_COUNT = 64 << 20, 16 << 10, 4096
BIG_TARGET, SMALL_TARGET = (">=", 1.0), (">=", 0.6)


def run(bench: Bench) -> None:
    """Publishes both ratios, the rates, and the CPU of each server."""
    if len(os.sched_getaffinity(0)) < 2:
        raise Unavailable("server and client need a core each")
    rng = np.random.default_rng(3)
    folder = bench.work / "objects"
    (folder / "small").mkdir(parents=True)
    big = rng.bytes(BIG)
    (folder / "big").write_bytes(big)
    small = [rng.bytes(SMALL) for _ in range(SMALL_COUNT)]
    for number, body in enumerate(small):
        (folder / "small" / f"{number:05}").write_bytes(body)
    time.sleep(SETTLED_SECONDS)
    with bench.gateway(folder=folder, cores={0}) as gateway, bench.nginx(folder, cores={0}) as nginx:
        servers = {
            "gateway": (gateway.url, "/fresh", gateway.process.pid),
            "gateway, immutable": (gateway.url, "/warm", gateway.process.pid),
            "nginx": (nginx.url, "", nginx.process.pid),
        }
        files = {}
        for name, (url, root, _) in servers.items():
            requests = {
                "64 MiB": [get(url, f"{root}/big")],
                "16 KiB": [get(url, f"{root}/small/{n:05}") for n in range(SMALL_COUNT)],
            }
            with Connection(url) as line:
                if bytes(line.fetch(requests["64 MiB"][0])) != big:
                    raise RuntimeError(f"{name} answered wrong bytes for the 64 MiB object")
                for request, body in list(zip(requests["16 KiB"], small, strict=True))[::16]:
                    if bytes(line.fetch(request)) != body:
                        raise RuntimeError(f"{name} answered wrong bytes for a 16 KiB object")
            files[name] = {size: bench.wrk.requests(rows) for size, rows in requests.items()}
        bench.say("all objects equal")

        def load(name: str, size: str, connections: int) -> Sample:
            url, _, pid = servers[name]
            before = cpu_seconds(pid)
            sample = bench.wrk.run(url, files[name][size], bench.pick(5, 1), connections, {1})
            return sample | {"server_us": (cpu_seconds(pid) - before) / sample["requests"] * 1e6}

        for size, connections, target in (("64 MiB", 2, BIG_TARGET), ("16 KiB", 16, SMALL_TARGET)):
            runs = {name: lambda n=name, s=size, c=connections: load(n, s, c) for name in servers}
            samples = interleave(runs, bench.rounds, bench.say)
            for name in ("gateway", "gateway, immutable"):
                values = each(lambda a, b: a["per_second"] / b["per_second"], samples[name], samples["nginx"])
                bench.row(f"{size}: {name} / nginx", values, "", target if name == "gateway" else None)
            for name, runs_of in samples.items():
                busy = float(np.median([s["client_busy"] for s in runs_of]))
                note = f"client busy {busy:.0%}" + (": it bounds this" if busy > 0.95 else "")
                bench.row(f"{size}: {name}", [s["per_second"] for s in runs_of], "1/s", None, note)
                bench.row(f"{size}: server CPU, {name}", [s["server_us"] for s in runs_of], "us")
