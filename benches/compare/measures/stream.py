"""Does an answer of many GiB stream at flat memory, begin at once, and wait for a slow reader?

One sample after another of the uncompressed video, again and again, by a list of indexes. No chunk cache, so that every
byte is fetched when its turn comes. For the slow reader the client stops after 8 MiB and the bytes read from the store
are counted while it waits.
"""

from __future__ import annotations

import time

import numpy as np

from bench import Bench
from client import Connection, get, slice_path
from gateway import Gateway
from meter import forget_peak, memory_bytes
from workload import PLAIN, SHAPE

SAMPLE_BYTES = int(np.prod(SHAPE[1:]))
PAUSE_AFTER, PAUSE_SECONDS = 8 << 20, 3.0
LIMITS = {"cache_bytes": 0, "result_bytes": "16GiB", "chunks_per_request": 10_000_000}
MOST_GROWTH, MOST_AHEAD = 512.0, 0.2


def run(bench: Bench) -> None:
    """Publishes memory, time to the first byte, rate, and how far fetching runs ahead."""
    total = bench.pick(10, 2) << 30
    repeats = total // SAMPLE_BYTES
    text = "(" + ",".join(str(i % SHAPE[0]) for i in range(repeats)) + ")"
    with bench.gateway(limits=LIMITS) as server:
        request = get(server.url, slice_path(PLAIN, text, "warm"))
        with Connection(server.url, 300) as line:
            line.fetch(get(server.url, slice_path(PLAIN, "0,0,0:8,0:8", "warm")))
            flat(bench, server, line, request, repeats)
        slow(bench, server, request, repeats)


def flat(bench: Bench, server: Gateway, line: Connection, request: bytes, repeats: int) -> None:
    """One whole answer; every sample in it is compared."""
    pid = server.process.pid
    forget_peak(pid)
    idle = memory_bytes(pid)
    status, length, begun = line.begin(request)
    if status != 200 or length != repeats * SAMPLE_BYTES:
        raise RuntimeError(f"{status}, {length} bytes instead of {repeats * SAMPLE_BYTES}")
    sample = np.empty(SAMPLE_BYTES, "uint8")
    view, filled = memoryview(sample), len(begun)
    view[:filled] = begun
    first = time.perf_counter() - line.sent_at if filled else 0.0
    seen: list[int] = []
    for number in range(repeats):
        while filled < SAMPLE_BYTES:
            more = line.socket.recv_into(view[filled:])
            if not more:
                raise ConnectionError(f"the body ended in sample {number} of {repeats}")
            first = first or time.perf_counter() - line.sent_at
            filled += more
        if not np.array_equal(sample, bench.dense[number % SHAPE[0]].reshape(-1)):
            raise RuntimeError(f"wrong bytes in sample {number} of the stream")
        filled = 0
        if number % 64 == 63:
            seen.append(memory_bytes(pid))
    took = time.perf_counter() - line.sent_at
    peak = memory_bytes(pid, "VmHWM")
    half = len(seen) // 2
    drift = (max(seen[half:]) - max(seen[:half])) / 2**20 if half else 0.0
    note = f"{length / 2**30:.1f} GiB, every sample equal"
    bench.row("growth of the peak over idle", [(peak - idle) / 2**20], "MiB", ("<=", MOST_GROWTH), note)
    bench.row("peak of the second half over the first", [drift], "MiB")
    bench.row("time to first byte", [first * 1e3], "ms")
    bench.row("rate, client comparing", [length / took / 1e9], "GB/s")


def slow(bench: Bench, server: Gateway, request: bytes, repeats: int) -> None:
    """A reader that stops: what is fetched meanwhile."""
    before = server.metrics().store_bytes("warm")
    with Connection(server.url, 300) as line:
        _, _, begun = line.begin(request)
        got, room = len(begun), memoryview(bytearray(1 << 20))
        while got < PAUSE_AFTER:
            got += line.socket.recv_into(room)
        time.sleep(PAUSE_SECONDS)
        early = server.metrics().store_bytes("warm") - before
        time.sleep(PAUSE_SECONDS)
        late = server.metrics().store_bytes("warm") - before
    total = repeats * SAMPLE_BYTES
    note = f"read {got / 2**20:.0f} MiB of {total / 2**30:.0f} GiB, then nothing for {2 * PAUSE_SECONDS:.0f} s"
    bench.row(
        "fetched ahead of a stopped reader", [(late - got) / 2**20], "MiB", ("<=", MOST_AHEAD * total / 2**20), note
    )
    bench.row("fetched in the second half of the stop", [(late - early) / 2**20], "MiB", ("<=", 0.0))
