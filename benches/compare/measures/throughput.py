"""How many warm crops a second, beside ready-made answers of the same size from the same server?

Server on core 0 and wrk on core 1, and once more with both left to the scheduler.
"""

from __future__ import annotations

import os

from bench import Bench, crop_requests, put_ready, warm_up
from client import Connection
from meter import cpu_seconds
from measures.hop import READY_BYTES
from rounds import Sample, each, interleave
from workload import crops, expect_equal

CONNECTIONS = 8
TARGET = (">=", 0.55)


def run(bench: Bench) -> None:
    """Publishes the ratio and both rates, pinned and unpinned."""
    rates(bench, "unpinned", None, None)
    if len(os.sched_getaffinity(0)) >= 2:
        rates(bench, "pinned", {0}, {1})
    else:
        bench.say("one core: nothing to pin")


def rates(bench: Bench, layout: str, server_cores: set[int] | None, client_cores: set[int] | None) -> None:
    """Both rates with server and client where `layout` says."""
    wanted = crops(512)
    with bench.gateway(cores=server_cores) as server:
        answers = [bench.dense[c.box].tobytes() for c in wanted[: -(-READY_BYTES // wanted[0].bytes) + 1]]
        requests = {"crops": crop_requests(server, "warm", wanted), "ready": put_ready(server, answers)}
        warm_up(server, requests["crops"])
        with Connection(server.url) as line:
            for rows in requests.values():
                for crop, request in list(zip(wanted, rows, strict=False))[:8]:
                    expect_equal(layout, crop, line.fetch(request), bench.dense)
        files = {name: bench.wrk.requests(rows) for name, rows in requests.items()}

        def load(name: str) -> Sample:
            before = cpu_seconds(server.process.pid)
            sample = bench.wrk.run(server.url, files[name], bench.pick(5, 1), CONNECTIONS, client_cores)
            return sample | {"server_us": (cpu_seconds(server.process.pid) - before) / sample["requests"] * 1e6}

        samples = interleave({name: lambda n=name: load(n) for name in files}, bench.rounds, bench.say)
    ratio = each(lambda a, b: a["per_second"] / b["per_second"], samples["crops"], samples["ready"])
    bench.row(f"crops / ready-made, {layout}", ratio, "", TARGET)
    for name, taken in samples.items():
        busy = max(s["client_busy"] for s in taken)
        note = f"client busy {busy:.0%}" + (": it bounds this" if busy > 0.95 else "")
        bench.row(f"{name}, {layout}", [s["per_second"] for s in taken], "1/s", None, note)
        bench.row(f"server CPU, {name}, {layout}", [s["server_us"] for s in taken], "us")
