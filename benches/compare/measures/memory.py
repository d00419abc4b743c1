"""How much memory does the gateway take at its worst, with 200 clients that each want 66 MiB at once?

Cache and in-flight budget of 512 MiB each. Every answer is compared with numpy while it arrives; 503 is the only other
answer allowed. The figure is the peak resident memory of the process (VmHWM).
"""

from __future__ import annotations

import random
import threading
from collections import Counter

import numpy as np

from bench import Bench
from client import Connection, get, slice_path
from meter import forget_peak, memory_bytes
from workload import COMPRESSED, SHAPE

CLIENTS, SAMPLES = 200, 22
LIMITS = {"cache_bytes": "512MiB", "inflight_bytes": "512MiB"}
TARGET = ("<=", 1.4)
CLIENT_SECONDS = 300


def run(bench: Bench) -> None:
    """Publishes the peak and how the clients were answered."""
    rng = random.Random(11)
    starts = [rng.randrange(SHAPE[0] - SAMPLES + 1) for _ in range(CLIENTS)]
    told: Counter[str] = Counter()
    lock = threading.Lock()
    gate = threading.Barrier(CLIENTS)
    with bench.gateway(limits=LIMITS) as server:
        idle = memory_bytes(server.process.pid)
        forget_peak(server.process.pid)

        def client(start: int) -> None:
            try:
                with Connection(server.url, CLIENT_SECONDS) as line:
                    gate.wait(60)
                    path = slice_path(COMPRESSED, f"{start}:{start + SAMPLES}", "warm")
                    outcome = compared(line, get(server.url, path), bench.dense[start : start + SAMPLES].reshape(-1))
            except (OSError, RuntimeError) as error:
                outcome = f"failed: {error}"
            with lock:
                told[outcome] += 1

        threads = [threading.Thread(target=client, args=(start,)) for start in starts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        peak = memory_bytes(server.process.pid, "VmHWM")
        still = server.alive()
    bench.say(f"answers: {dict(told)}")
    if not still:
        raise RuntimeError("the gateway ended")
    if set(told) - {"right", "503"} or not told["right"]:
        raise RuntimeError(f"answers that are neither right nor 503: {dict(told)}")
    note = f"{CLIENTS} clients: {told['right']} right, {told['503']} x 503; idle {idle / 2**20:.0f} MiB"
    bench.row("peak resident memory", [peak / 2**30], "GiB", TARGET, note)


def compared(line: Connection, request: bytes, expected: np.ndarray) -> str:
    """`right`, `503`, or what else came; wrong bytes end with an error."""
    status, length, begun = line.begin(request)
    if status != 200:
        return str(status)
    if length != len(expected):
        return f"{length} bytes"
    room = np.empty(1 << 18, "uint8")
    room[: len(begun)] = np.frombuffer(begun, "uint8")
    at, have = 0, len(begun)
    while True:
        if not np.array_equal(room[:have], expected[at : at + have]):
            return f"wrong bytes after {at}"
        at += have
        if at == length:
            return "right"
        have = line.socket.recv_into(memoryview(room)[: min(len(room), length - at)])
        if not have:
            raise ConnectionError(f"the body ended after {at} of {length} bytes")
