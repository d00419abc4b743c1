"""Two HTTP clients: a lean connection for figures per request, and wrk for figures per second.

Both send requests that were made, and signed where need be, before the clock starts.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np

HEAD_BYTES = 64 << 10
"""Room for a status line and headers; what comes with them of the body is copied out, once."""


def get(url: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None) -> bytes:
    """The bytes of a request to the server at `url`; a POST when there is a body. `path` is sent as it stands."""
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1"]
    fields = {"host": urlsplit(url).netloc} | {k.lower(): v for k, v in (headers or {}).items()}
    if body is not None:
        fields["content-length"] = str(len(body))
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def slice_path(key: str, text: str, bucket: str) -> str:
    """The path of a slice as raw bytes."""
    return f"/{bucket}/{key}?format=raw&slice={quote(text, safe='')}"


class Connection:
    """One keep-alive connection."""

    def __init__(self, url: str, timeout: float = 60) -> None:
        place = urlsplit(url)
        self.socket = socket.create_connection((place.hostname, place.port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head = bytearray(HEAD_BYTES)
        self.sent_at = self.first_byte_seconds = 0.0
        self.headers = b""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def begin(self, request: bytes) -> tuple[int, int, memoryview]:
        """Sends a request; returns the status, the length that the body will have, and what has come of it."""
        view, filled = memoryview(self.head), 0
        self.sent_at = time.perf_counter()
        self.socket.sendall(request)
        while (end := self.head.find(b"\r\n\r\n", 0, filled)) < 0:
            more = self.socket.recv_into(view[filled:])
            if not more:
                raise ConnectionError("the server closed the connection before the end of the headers")
            filled += more
        self.headers = bytes(view[:end]).lower()
        at = self.headers.find(b"content-length:")
        if at < 0:
            raise ConnectionError(f"no content-length in {self.headers!r}")
        length = int(self.headers[at + 15 :].split(b"\r\n", 1)[0])
        return int(view[9:12]), length, view[end + 4 : filled]

    def fetch(self, request: bytes, expect: int = 200) -> np.ndarray:
        """The body, in memory of its own."""
        status, length, begun = self.begin(request)
        body = np.empty(length, "uint8")
        view = memoryview(body)
        view[: len(begun)] = begun
        filled = len(begun)
        while filled < length:
            more = self.socket.recv_into(view[filled:])
            if not more:
                raise ConnectionError(f"the body ended after {filled} of {length} bytes")
            filled += more
        if status != expect:
            raise RuntimeError(f"{status} instead of {expect}: {bytes(view[:300])!r}")
        return body

    def skim(self, request: bytes, room: memoryview) -> int:
        """Receives the body into `room` again and again; returns its length.

        Leaves in `first_byte_seconds` how long the body's first byte took.
        """
        status, length, begun = self.begin(request)
        if status != 200:
            raise RuntimeError(f"{status} for {request[:200]!r}")
        left = length - len(begun)
        self.first_byte_seconds = time.perf_counter() - self.sent_at
        while left:
            more = self.socket.recv_into(room[: min(left, len(room))])
            if not more:
                raise ConnectionError(f"the body ended {left} bytes early")
            if left == length:
                self.first_byte_seconds = time.perf_counter() - self.sent_at
            left -= more
        return length


def own_cpu_seconds() -> float:
    """CPU of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Wrk:
    """wrk with rotating requests."""

    def __init__(self, binary: str, work: Path) -> None:
        self.binary, self.work = binary, work
        # An unpacked Debian package brings its library beside it.
        beside = [str(p) for p in Path(binary).resolve().parents[1].glob("lib/*-linux-gnu") if p.is_dir()]
        self.environment = os.environ | ({"LD_LIBRARY_PATH": ":".join(beside)} if beside else {})
        self.script = Path(__file__).with_name("rotate.lua")
        self.files = 0

    def requests(self, requests: Sequence[bytes]) -> Path:
        """Writes the file that `run` reads."""
        self.files += 1
        path = self.work / f"requests-{self.files}"
        path.write_bytes(b"".join(b"%d\n%s" % (len(r), r) for r in requests))
        return path

    def run(
        self, url: str, requests: Path, seconds: int, connections: int, cores: set[int] | None = None
    ) -> dict[str, float]:
        """Counts what `connections` are answered in about `seconds`; any failed request ends the measure."""
        threads = 1 if cores is not None and len(cores) == 1 else 2
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [self.binary, f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s"]
        pin = [] if cores is None else ["taskset", "-c", ",".join(map(str, sorted(cores)))]
        done = subprocess.run(
            [*pin, *command, "-s", self.script, url, "--", requests],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds + 60,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        told = [line[5:] for line in done.stdout.splitlines() if line.startswith("JSON ")]
        if done.returncode or not told:
            raise RuntimeError(f"wrk failed: {done.stdout}{done.stderr}")
        counts = json.loads(told[0])
        if counts["errors"] or not counts["requests"]:
            raise RuntimeError(f"wrk counts {counts['errors']} errors in {counts['requests']} requests")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {
            "per_second": counts["requests"] / counts["seconds"],
            **counts,
            "client_cpu": cpu,
            "client_busy": cpu / counts["seconds"] / threads,
        }
