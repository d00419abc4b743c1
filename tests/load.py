"""A bounded load test on loopback: mixed requests, clients that hang up, a store that fails 5 % of its reads.

    W4DX_BIN=PATH W4DX_WEED=PATH python tests/load.py [--seconds 60] [--clients 16] [--seed N]

It fails (exit 1) when a complete answer differs from numpy in one byte, when an error comes that the faults do not
explain, when a request is stuck, when the gateway still holds bytes for requests that are gone, or when its memory
grows after the warm-up. Runs in the environment of tests/python/requirements-main.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import random
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import google_crc32c
import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "python"))

from arrays import CHECKED, npy, save  # noqa: E402
from gateway import Bucket, Config, Gateway, local_store, s3_store  # noqa: E402
from seaweed import Seaweed  # noqa: E402
from sigv4 import signed  # noqa: E402

SHAPE, SHARD, CHUNK = (12, 16, 256, 256, 3), (1, 16, 256, 256, 3), (1, 4, 64, 64, 3)
OBJECT_SIZES = (0, 1, 4096, 300_000, 5 << 20)
FAULT_RATE = 0.05
STUCK_SECONDS = 60
"""No request here takes a second on an idle machine; the gateway itself gives a store 5 s."""
RESTS = 24
"""How often all clients pause: memory under load swings with what is in flight, memory at rest does not."""
LIMITS = {
    "cache_bytes": "16MiB",  # less than the data: chunks keep coming from the stores
    "inflight_bytes": "256MiB",
    "upstream_timeout": "5s",
}
BATCH_HEAD = struct.Struct("<4sHHIHHHHIQ")


class Faults:
    """A proxy in front of an S3 server that breaks some object reads: an error, a closed connection, half a body."""

    KINDS = ("error", "busy", "closed", "truncated")

    def __init__(self, upstream: str, seed: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.endpoint = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.reads, self.broken = multiprocessing.Value("q", 0), multiprocessing.Value("q", 0)
        place = urlsplit(upstream)
        # A process of its own, so that the checks of the clients do not slow the store down.
        self.process = multiprocessing.get_context("fork").Process(
            target=self._serve, args=((place.hostname, place.port), seed), daemon=True
        )
        self.process.start()
        self.listener.close()

    def __enter__(self) -> Faults:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.join(10)

    def _serve(self, upstream: tuple[str, int], seed: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        rng = random.Random(seed)
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self._carry, args=(client, upstream, rng.randrange(2**32)), daemon=True).start()

    def _carry(self, client: socket.socket, upstream: tuple[str, int], seed: int) -> None:
        rng = random.Random(seed)
        with contextlib.suppress(OSError, ValueError), client, socket.create_connection(upstream) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asked, answers = client.makefile("rb"), server.makefile("rb")
            while head := read_head(asked):
                is_read = head.startswith(b"GET /") and b"list-type" not in head.split(b"\r\n", 1)[0]
                fault = ""
                if is_read:
                    with self.reads:
                        self.reads.value += 1
                    if rng.random() < FAULT_RATE:
                        fault = rng.choice(self.KINDS)
                        with self.broken:
                            self.broken.value += 1
                if fault == "closed":
                    return
                if fault in ("error", "busy"):
                    status = b"500 Internal Server Error" if fault == "error" else b"503 Slow Down"
                    client.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
                    continue
                server.sendall(head + asked.read(content_length(head)))
                answer = read_head(answers)
                has_body = not head.startswith(b"HEAD ") and answer[9:12] not in (b"304", b"204")
                body = answers.read(content_length(answer)) if has_body else b""
                client.sendall(answer + (body[: len(body) // 2] if fault == "truncated" else body))
                if fault == "truncated":
                    return


def read_head(stream: object) -> bytes:
    """A request or answer up to its body; empty at the end of the connection."""
    lines = []
    while line := stream.readline():  # type: ignore[attr-defined]
        lines.append(line)
        if line == b"\r\n":
            return b"".join(lines)
    return b""


def content_length(head: bytes) -> int:
    """Of the body that follows; chunked bodies, which SeaweedFS does not use for objects, end the connection."""
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        raise ValueError("chunked")
    at = lower.find(b"\r\ncontent-length:")
    return int(lower[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0


@dataclass
class World:
    """What the clients ask for, and what is right."""

    gateway: Gateway
    video: np.ndarray
    table: np.ndarray
    objects: dict[str, bytes]
    batches: bool


@dataclass(frozen=True)
class Ask:
    """One request and the bytes that answer it."""

    kind: str
    path: str
    expected: Callable[[], bytes] | None
    headers: dict[str, str]
    status: int = 200
    body: bytes | None = None
    may_fail: bool = False
    """Whether the store beneath has faults."""
    items: tuple[tuple, ...] = ()


def crop(rng: random.Random) -> tuple[str, tuple]:
    """A box of the video: mostly small, sometimes whole samples."""
    if rng.random() < 0.06:
        first, count = rng.randrange(SHAPE[0] - 3), rng.randint(1, 4)
        return f"{first}:{first + count}", (slice(first, first + count),)
    size = rng.choice([(1, 1, 1), (4, 16, 16), (8, 32, 32), (8, 112, 112), (8, 112, 112), (16, 200, 200)])
    start = [rng.randrange(n - length + 1) for n, length in zip(SHAPE[1:4], size, strict=True)]
    sample = rng.randrange(SHAPE[0])
    parts = [f"{a}:{a + n}" for a, n in zip(start, size, strict=True)]
    return ",".join([str(sample), *parts]), (sample, *(slice(a, a + n) for a, n in zip(start, size, strict=True)))


def ask(rng: random.Random, world: World) -> Ask:
    """A random request."""
    bucket = rng.choice(["disk", "faulty"])
    may_fail = bucket == "faulty"
    turn = rng.random()
    if turn < 0.15:
        key, body = rng.choice(list(world.objects.items()))
        if body and rng.random() < 0.5:
            first = rng.randrange(len(body))
            last = rng.randrange(first, len(body))
            headers = {"Range": f"bytes={first}-{last}"}
            return Ask("range", f"/{bucket}/{key}", lambda: body[first : last + 1], headers, 206, may_fail=may_fail)
        return Ask("object", f"/{bucket}/{key}", lambda: body, {}, may_fail=may_fail)
    if turn < 0.25:
        first, last, step = rng.randrange(1000), rng.randrange(1000, 4000), rng.randint(1, 7)
        path = f"/{bucket}/table.npy?format=raw&slice={first}:{last}:{step}"
        return Ask("npy", path, lambda: world.table[first:last:step].tobytes(), {}, may_fail=may_fail)
    if turn < 0.4 and world.batches:
        items = tuple(crop(rng) for _ in range(rng.randint(1, 24)))
        body = json.dumps({"v": 1, "items": [{"slice": text} for text, _ in items]}).encode()
        boxes = tuple(box for _, box in items)
        path = f"/{bucket}/video?batch&on_error=skip"
        return Ask("batch", path, None, {"Content-Type": "application/json"}, body=body, may_fail=may_fail, items=boxes)
    text, box = crop(rng)
    path = f"/{bucket}/video?format=raw&slice={quote(text, safe=':,')}"
    return Ask("slice", path, lambda: world.video[box].tobytes(), {}, may_fail=may_fail)


def check_batch(asked: Ask, body: bytes, world: World) -> int:
    """Compares a framed answer with numpy; returns how many items it reports as failed."""
    at = failed = count = 0
    while True:
        head = body[at : at + 64]
        if len(head) < 64:
            raise AssertionError("a batch answer ended before its end frame")
        magic, version, kind, index, field, status, _, ndim, crc, length = BATCH_HEAD.unpack(head[: BATCH_HEAD.size])
        if magic != b"W4DB" or version != 1 or any(head[BATCH_HEAD.size :]):
            raise AssertionError(f"not a frame: {head!r}")
        at += 64
        if kind == 2:
            if index != count or count != len(asked.items) or length or at != len(body):
                raise AssertionError(f"the end frame counts {index} of {len(asked.items)} items at {at} of {len(body)}")
            return failed
        shape = struct.unpack_from(f"<{ndim}Q", body, at)
        at += -(-8 * ndim // 64) * 64
        payload = body[at : at + length]
        at += -(-length // 64) * 64
        if (kind, index, field) != (1, count, 0) or google_crc32c.value(payload) != crc:
            raise AssertionError(f"frame {count} says it is {kind, index, field}, or its checksum is wrong")
        if status == 200:
            right = world.video[asked.items[count]]
            if shape != right.shape or payload != right.tobytes():
                raise AssertionError(f"wrong bytes in item {count} of a batch")
        elif status in (502, 503, 504) and asked.may_fail:
            failed += 1
        else:
            raise AssertionError(f"item {count} of a batch: {status} {payload[:200]!r}")
        count += 1


class Client(threading.Thread):
    """Asks until the time is over; never asks again for what failed."""

    def __init__(self, number: int, seed: int, world: World, until: float, go: threading.Event) -> None:
        super().__init__(name=f"client {number}", daemon=True)
        self.rng, self.world, self.until, self.go = random.Random(seed), world, until, go
        self.told: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.bytes = 0
        self.asked_at: float | None = None
        self.line: http.client.HTTPConnection | None = None

    def run(self) -> None:
        place = urlsplit(self.world.gateway.url)
        while time.monotonic() < self.until and not self.wrong:
            self.go.wait()
            self.line = self.line or http.client.HTTPConnection(place.hostname, place.port, timeout=STUCK_SECONDS)
            asked = ask(self.rng, self.world)
            self.asked_at = time.monotonic()
            try:
                self.one(asked)
            except AssertionError as error:
                self.wrong.append(f"{asked.kind} {asked.path}: {error}")
            except TimeoutError:
                self.wrong.append(f"stuck: {asked.kind} {asked.path}")
            except (http.client.HTTPException, OSError) as error:
                self.drop()
                if not asked.may_fail:
                    self.wrong.append(f"{asked.kind} {asked.path}: {error!r}")
                self.told[f"{asked.kind}: aborted by the gateway"] += 1
            self.asked_at = None
        self.drop()

    def one(self, asked: Ask) -> None:
        """One request to its end, or to the moment when this client hangs up."""
        line = self.line
        assert line is not None
        line.request("POST" if asked.body else "GET", asked.path, body=asked.body, headers=asked.headers)
        if self.rng.random() < 0.03:
            self.hang_up()
            return
        answer = line.getresponse()
        if answer.status == asked.status and self.rng.random() < 0.05:
            answer.read(self.rng.randrange(1 << 18))
            self.hang_up()
            return
        body = answer.read()
        self.bytes += len(body)
        self.told[f"{asked.kind}: {answer.status}"] += 1
        if answer.status != asked.status:
            allowed = (502, 503, 504) if asked.may_fail else (503,)
            if answer.status not in allowed:
                raise AssertionError(f"{answer.status} {body[:300]!r}")
        elif asked.expected is None:
            self.told["batch items that failed"] += check_batch(asked, body, self.world)
        elif body != asked.expected():
            raise AssertionError(f"{len(body)} bytes that differ from numpy")
        if answer.will_close:
            self.drop()

    def hang_up(self) -> None:
        """Closes the connection under the answer, half the time with a reset."""
        self.told["hung up"] += 1
        if self.line and self.line.sock and self.rng.random() < 0.5:
            self.line.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.drop()

    def drop(self) -> None:
        """Leaves the connection."""
        if self.line:
            self.line.close()
        self.line = None


def quiet(gateway: Gateway, clients: list[Client]) -> None:
    """Waits until no client waits for an answer and the gateway holds nothing for one, but not for the stuck."""
    deadline = time.monotonic() + STUCK_SECONDS
    while time.monotonic() < deadline and gateway.alive():
        idle = all(client.asked_at is None for client in clients)
        if idle and not gateway.metrics().total("w4dx_inflight_bytes"):
            return
        time.sleep(0.02)


def resident_mib(pid: int) -> float:
    """Resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextlib.contextmanager
def world(seed: int, work: Path) -> Iterator[tuple[World, Faults]]:
    """The data, in a folder and in SeaweedFS behind the faults, and a gateway in front of both."""
    weed = os.environ.get("W4DX_WEED", "")
    if not os.access(weed, os.X_OK):
        sys.exit("tests/load.py: W4DX_WEED must name a SeaweedFS binary")
    rng = np.random.default_rng(seed)
    folder = work / "data"
    smooth = np.add.outer(np.add.outer(np.arange(256) // 2, np.arange(256) // 3), np.arange(3) * 8)
    video = (smooth + rng.integers(0, 12, SHAPE) + np.arange(SHAPE[0])[:, None, None, None, None]).astype("uint8")
    save(folder, "video", video, chunks=CHUNK, shards=SHARD, compressors=CHECKED)
    table = npy(folder, "table.npy", rng.standard_normal((4000, 25)))
    objects = {f"object-{n}": rng.bytes(n) for n in OBJECT_SIZES}
    for name, body in objects.items():
        (folder / name).write_bytes(body)
    with Seaweed(weed) as store, Faults(store.endpoint, seed) as faults:
        import requests

        with requests.Session() as session:
            session.trust_env = False
            for path in sorted(p for p in folder.rglob("*") if p.is_file()):
                key = f"/{store.bucket}/{path.relative_to(folder).as_posix()}"
                url, headers = signed("PUT", store.endpoint, key, [], store.access_key, store.secret_key)
                session.put(url, data=path.read_bytes(), headers=headers, timeout=60).raise_for_status()
        config = Config(
            stores={
                "disk": local_store(folder),
                "faulty": s3_store(faults.endpoint, store.bucket, store.access_key, store.secret_key),
            },
            buckets={
                "disk": Bucket("disk", writable=False),
                "faulty": Bucket("faulty", freshness="1s", writable=False),
            },
            limits=LIMITS,
        )
        time.sleep(2.5)  # the gateway keeps nothing of files that are younger than two seconds
        with Gateway(config, work, {"W4DX_LOG": "error"}) as gateway:
            probe = gateway.request(
                "POST",
                "/disk/video?batch",
                data=b'{"v":1,"items":[{"slice":"0,0,0,0"}]}',
                headers={"Content-Type": "application/json"},
            )
            yield World(gateway, video, table, objects, probe.status_code == 200), faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--most-growth", type=float, default=64, metavar="MIB", help="of memory after the warm-up")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end too
    print(f"load: {options.seconds:.0f} s, {options.clients} clients, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="w4dx-load-") as work, world(options.seed, Path(work)) as (made, faults):
        return hold(options, made, faults)


def hold(options: argparse.Namespace, made: World, faults: Faults) -> int:
    """Runs the clients and judges."""
    pid = made.gateway.process.pid
    start = time.monotonic()
    until = start + options.seconds
    go = threading.Event()
    go.set()
    clients = [Client(n, options.seed + n, made, until, go) for n in range(options.clients)]
    for client in clients:
        client.start()
    memory: list[tuple[float, float]] = []
    told_at = start
    while time.monotonic() < until and made.gateway.alive() and not any(c.wrong for c in clients):
        time.sleep(options.seconds / RESTS)
        go.clear()
        quiet(made.gateway, clients)
        now = time.monotonic()
        memory.append((now - start, resident_mib(pid) if made.gateway.alive() else 0.0))
        go.set()
        if now - told_at >= 30:
            told_at = now
            done = sum(sum(c.told.values()) for c in clients)
            print(f"load: {now - start:.0f} s, {done} requests, {memory[-1][1]:.0f} MiB at rest", flush=True)
    for client in clients:
        client.until = 0
    for client in clients:
        client.join(STUCK_SECONDS + 10)

    problems = [text for client in clients for text in client.wrong]
    problems += [f"stuck: {client.name}" for client in clients if client.is_alive()]
    if not made.gateway.alive():
        problems.append(f"the gateway ended:\n{made.gateway.log_text()[-2000:]}")
    else:
        deadline = time.monotonic() + 15
        while (held := made.gateway.metrics().total("w4dx_inflight_bytes")) and time.monotonic() < deadline:
            time.sleep(0.2)
        if held:
            problems.append(f"{held:.0f} bytes are held for requests that are gone")
    # The first half fills the cache and the allocator.
    steady = [(at, mib) for at, mib in memory if at > options.seconds / 2]
    if len(steady) >= 5:
        slope = float(np.polyfit(*zip(*steady, strict=True), 1)[0])
        growth = slope * (steady[-1][0] - steady[0][0])
        print(f"load: memory at rest {steady[-1][1]:.0f} MiB, {slope * 60:+.2f} MiB a minute, {growth:+.1f} MiB in all")
        if growth > options.most_growth:
            problems.append(f"memory grew by {growth:.0f} MiB after the warm-up")
    elif not problems:
        problems.append("too short a run to judge memory")
    answers: Counter[str] = sum((c.told for c in clients), Counter())
    total = sum(c.bytes for c in clients)
    print(f"load: {total / 1e9:.2f} GB; the store failed {faults.broken.value} of {faults.reads.value} reads")
    if not made.batches:
        print("load: this gateway has no batches; none were sent")
    for name, count in sorted(answers.items()):
        print(f"  {count:8} {name}")
    if "slice: 200" not in answers or not faults.broken.value:
        problems.append("nothing was answered, or no fault was injected")
    for problem in problems:
        print(f"load: FAILED: {problem}")
    print("load: " + ("FAILED" if problems else "passed"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
