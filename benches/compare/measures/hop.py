"""What does a warm crop cost beyond sending its bytes, in bare copies of those bytes?

(server CPU per warm crop - server CPU per ready-made answer of the same size) / bare strided copy of the same chunks.
Ready-made answers are plain objects of a memory bucket of the same server, at least 64 MiB of them in turn, so that
both read memory that no cache of the processor holds. Under load, 8 connections of wrk; and once more with one
connection and pauses, where waking up threads costs the server more than under load.

The bare copy should be native: --copy-bench CMD. numpy's takes several times as long, calls included; the hop against
it flatters the gateway and is judged by no target.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from bench import Bench, crop_requests, put_ready, warm_up
from client import Connection
from gateway import Gateway
from meter import cpu_seconds
from rounds import Sample, each, interleave
from workload import ChunkPool, crops

READY_BYTES = 64 << 20
CONNECTIONS = 8
TARGET = ("<=", 1.8)


def run(bench: Bench) -> None:
    """Publishes the hop of an immutable bucket and of one with the default freshness of a local folder."""
    wanted = crops(512)
    count = bench.pick(2048, 512)
    native = bench.options.copy_bench
    pool = ChunkPool(bench.dense)
    out = np.empty(wanted[0].shape, "uint8")

    def bare(crop: object) -> np.ndarray:
        pool.copy(crop, out)  # type: ignore[arg-type]
        return out

    def copy() -> Sample:
        if native:
            figures = bench.external(native)
            named = [value for name, value in figures.items() if name.endswith("/bare")]
            return {"us": (named or list(figures.values()))[0] / 1e3}
        start = time.thread_time()
        for i in range(count):
            pool.copy(wanted[i % len(wanted)], out)
        return {"us": (time.thread_time() - start) / count * 1e6}

    with bench.gateway() as server, Connection(server.url) as line:
        answers = [bench.dense[c.box].tobytes() for c in wanted[: -(-READY_BYTES // wanted[0].bytes) + 1]]
        requests = {
            "immutable": crop_requests(server, "warm", wanted),
            "freshness 0s": crop_requests(server, "fresh", wanted),
            "ready-made": put_ready(server, answers),
        }
        place = {id(c): i for i, c in enumerate(wanted)}
        for name, rows in requests.items():
            if name != "ready-made":
                warm_up(server, rows)
            bench.check(name, lambda c, r=rows: line.fetch(r[place[id(c)]]), wanted, 64)
        bench.check("bare copy", bare, wanted, 64)
        bench.say(f"all equal; {len(answers)} ready-made answers")
        files = {name: bench.wrk.requests(rows) for name, rows in requests.items()}

        def loaded(name: str) -> Sample:
            before = cpu_seconds(server.process.pid)
            sample = bench.wrk.run(server.url, files[name], bench.pick(3, 1), CONNECTIONS)
            return {"us": (cpu_seconds(server.process.pid) - before) / sample["requests"] * 1e6}

        runs = {name: lambda n=name: loaded(n) for name in requests}
        runs |= {f"{name}, one": lambda r=rows: alone(server, line, r, count) for name, rows in requests.items()}
        samples = interleave(runs | {"copy": copy}, bench.rounds, bench.say)
    note = "" if native else "bare copy by numpy, which flatters: not judged"
    for suffix, told in (("", f"{CONNECTIONS} connections"), (", one", "one connection")):
        for name in ("immutable", "freshness 0s"):
            values = each(
                lambda a, b, c: (a["us"] - b["us"]) / c["us"],
                samples[name + suffix],
                samples["ready-made" + suffix],
                samples["copy"],
            )
            target = TARGET if native and name == "immutable" else None
            bench.row(f"hop, {name}, {told}", values, "copies", target, note)
        for name in requests:
            bench.row(f"server CPU, {name}, {told}", [s["us"] for s in samples[name + suffix]], "us")
    bench.row(f"bare copy, {'native' if native else 'numpy'}", [s["us"] for s in samples["copy"]], "us")


def alone(server: Gateway, line: Connection, requests: Sequence[bytes], count: int) -> Sample:
    """CPU of the server a request, one after another."""
    room = memoryview(bytearray(1 << 20))
    before = cpu_seconds(server.process.pid)
    for i in range(count):
        line.skim(requests[i % len(requests)], room)
    return {"us": (cpu_seconds(server.process.pid) - before) / count * 1e6}
