"""What the measures share: the data, the servers and the options of the run. Everything started here ends with it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import workload
from client import Connection, Wrk, get, slice_path
from gateway import ACCESS_KEY, SECRET_KEY, Bucket, Config, Gateway, local_store, s3_store
from meter import on_cores
from rounds import Row
from seaweed import Seaweed, free_ports
from sigv4 import canonical_query, signed

SETTLED_SECONDS = 2.5
"""The gateway keeps nothing of a local file that changed less than two seconds ago."""


CRITERION = re.compile(r"^(\S+/\S+)\s+time:\s+\[\S+ \S+ ([\d.]+) (\S+)", re.M)
NANOSECONDS = {"ps": 1e-3, "ns": 1.0, "µs": 1e3, "us": 1e3, "ms": 1e6, "s": 1e9}


class Unavailable(Exception):
    """A measure cannot be made here; the reason is the message."""


@dataclass
class Options:
    """The command line."""

    rounds: int
    quick: bool
    copy_bench: str | None
    decode_bench: str | None


class Nginx:
    """nginx with one worker, sendfile on and no access log, in front of a folder."""

    def __init__(self, binary: str, folder: Path, work: Path) -> None:
        self.folder = work / f"nginx-{time.monotonic_ns()}"
        self.folder.mkdir()
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "\n".join(f"  {kind}_temp_path {self.folder}/{kind};" for kind in kinds)
        user = "user root;" if os.geteuid() == 0 else ""
        (self.folder / "nginx.conf").write_text(
            f"""daemon off; master_process off; worker_processes 1; {user}
pid {self.folder}/pid; error_log {self.folder}/error.log;
events {{ worker_connections 1024; }}
http {{
{paths}
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; default_type application/octet-stream;
  server {{ listen 127.0.0.1:{port}; root {folder}; }}
}}
"""
        )
        self.process = subprocess.Popen(
            [binary, "-p", self.folder, "-c", self.folder / "nginx.conf", "-e", self.folder / "error.log"],
            stdin=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                Connection(self.url).__exit__()
                return
            except OSError:
                time.sleep(0.05)
        self.__exit__()
        raise Unavailable("nginx did not start: " + (self.folder / "error.log").read_text()[-500:])

    def __enter__(self) -> Nginx:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(10)


class Bench:
    """One run."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.rows: list[Row] = []
        self.measure = ""
        self._stack = ExitStack()
        self.work = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="w4dx-compare-")))
        self.start = time.monotonic()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def say(self, text: str) -> None:
        """A line of progress."""
        print(f"[{time.monotonic() - self.start:6.1f} s] {self.measure}: {text}", file=sys.stderr, flush=True)

    def row(
        self,
        name: str,
        values: Sequence[float],
        unit: str = "",
        target: tuple[str, float] | None = None,
        note: str = "",
    ) -> None:
        """Adds a line to the table."""
        self.rows.append(Row(self.measure, name, list(values), unit, target, note))
        self.say(f"{name}: {self.rows[-1].median:.4g} {unit} {self.rows[-1].verdict}")

    def pick(self, full: int, quick: int) -> int:
        """A count, smaller with --quick."""
        return quick if self.options.quick else full

    @property
    def rounds(self) -> int:
        """How many rounds each contestant runs."""
        return self.options.rounds

    @cached_property
    def _prepared(self) -> tuple[np.ndarray, float]:
        home = os.environ.get("W4DX_BENCH_CACHE")
        self.say("preparing the data")
        dense, ratio = workload.prepare(Path(home) / "compare-data" if home else self.work / "data")
        self.say(f"zstd at level 1 makes the video {ratio:.2f} times smaller")
        return dense, ratio

    @property
    def dense(self) -> np.ndarray:
        """The video, as numpy has it."""
        return self._prepared[0]

    @property
    def objects(self) -> Path:
        """The folder that holds both copies of the video as Zarr."""
        _ = self._prepared
        home = os.environ.get("W4DX_BENCH_CACHE")
        return (Path(home) / "compare-data" if home else self.work / "data") / "objects"

    @cached_property
    def seaweed(self) -> Seaweed:
        """SeaweedFS on loopback with the same objects under the same keys."""
        weed = os.environ.get("W4DX_WEED", "")
        if not os.access(weed, os.X_OK):
            raise Unavailable("no SeaweedFS: run this through benches/compare/run")
        server = self._stack.enter_context(Seaweed(weed))
        self.say("copying the video into SeaweedFS")
        self.upload(server, self.objects)
        return server

    @property
    def seaweed_pid(self) -> int:
        """Its process."""
        process = self.seaweed._process  # noqa: SLF001 - the tests have had no use for it
        if process is None or process.poll() is not None:
            raise RuntimeError("SeaweedFS ended")
        return process.pid

    def upload(self, server: Seaweed, folder: Path) -> None:
        """Writes every file beneath `folder`."""
        from concurrent.futures import ThreadPoolExecutor

        import boto3
        from botocore.config import Config as ClientConfig

        client = boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            region_name="us-east-1",
            aws_access_key_id=server.access_key,
            aws_secret_access_key=server.secret_key,
            config=ClientConfig(s3={"addressing_style": "path"}, proxies={}),
        )

        def put(path: Path) -> None:
            client.put_object(Bucket=server.bucket, Key=path.relative_to(folder).as_posix(), Body=path.read_bytes())

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(put, [p for p in sorted(folder.rglob("*")) if p.is_file()]))

    @cached_property
    def wrk(self) -> Wrk:
        """The load generator."""
        if "W4DX_WRK" not in os.environ:
            raise Unavailable("no wrk: neither installed nor to be had as a Debian package")
        return Wrk(os.environ["W4DX_WRK"], self.work)

    @contextmanager
    def nginx(self, folder: Path, cores: set[int] | None = None) -> Iterator[Nginx]:
        """nginx in front of `folder`."""
        if "W4DX_NGINX" not in os.environ:
            raise Unavailable("no nginx: neither installed nor to be had as a Debian package")
        with on_cores(cores):
            server = Nginx(os.environ["W4DX_NGINX"], folder, self.work)
        with server:
            yield server

    def seaweed_store(self, server: Seaweed) -> dict[str, Any]:
        """The `[stores.NAME]` table for it."""
        return s3_store(server.endpoint, server.bucket, server.access_key, server.secret_key)

    @contextmanager
    def gateway(
        self,
        *,
        remote: bool = False,
        folder: Path | None = None,
        store: dict[str, Any] | None = None,
        limits: dict[str, Any] | None = None,
        cores: set[int] | None = None,
    ) -> Iterator[Gateway]:
        """A gateway with the buckets `warm` (immutable), `fresh` (the default of its kind) and `ready` (memory).

        The first two are the same objects: those of `store`, of SeaweedFS with `remote`, else of `folder`.
        Its log says warnings alone: no server here writes a line a request.
        """
        stores = {
            "data": store or (self.seaweed_store(self.seaweed) if remote else local_store(folder or self.objects))
        }
        buckets = {
            "warm": Bucket("data", freshness="immutable", writable=False),
            "fresh": Bucket("data", freshness="10s" if remote or store else "0s", writable=False),
            "ready": Bucket("ready"),
        }
        config = Config(stores=stores | {"ready": {"kind": "memory"}}, buckets=buckets, limits=limits or {})
        with on_cores(cores):
            server = Gateway(config, self.work, {"W4DX_LOG": "warn"})
        with server:
            yield server

    def check(self, name: str, fetch: Any, crops: Sequence[workload.Crop], count: int = 8) -> None:
        """Compares what a contestant answers, byte for byte, with numpy."""
        for crop in crops[:count]:
            workload.expect_equal(name, crop, fetch(crop), self.dense)

    def external(self, command: str) -> dict[str, float]:
        """What a bench of the crate prints: nanoseconds by Criterion's names; of any other program the last number."""
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=300)
        found = {name: float(value) * NANOSECONDS[unit] for name, value, unit in CRITERION.findall(done.stdout)}
        words = [w for w in done.stdout.split() if w.replace(".", "", 1).isdigit()]
        if done.returncode or not (found or words):
            raise Unavailable(f"`{command}` printed no figure (exit {done.returncode}): {done.stderr[-300:]}")
        return found or {"": float(words[-1])}


def put_ready(server: Gateway, bodies: Sequence[bytes]) -> list[bytes]:
    """Stores ready-made answers in the memory bucket; returns the requests for them."""
    requests = []
    for number, body in enumerate(bodies):
        path = f"/ready/answer-{number:04}"
        url, headers = signed("PUT", server.url, path, [], ACCESS_KEY, SECRET_KEY)
        answer = server.session.put(url, data=body, headers=headers, timeout=60)
        if answer.status_code != 200:
            raise RuntimeError(f"PUT of a ready-made answer: {answer.status_code} {answer.text[:200]}")
        requests.append(get(server.url, path))
    return requests


def crop_requests(
    server: Gateway, bucket: str, crops: Sequence[workload.Crop], key: str = workload.COMPRESSED
) -> list[bytes]:
    """The requests for crops."""
    return [get(server.url, slice_path(key, crop.text, bucket)) for crop in crops]


def signed_get(url: str, path: str, params: Sequence[tuple[str, str]], access_key: str, secret_key: str) -> bytes:
    """A GET signed in its headers, made now and good for a quarter of an hour."""
    _, headers = signed("GET", url, path, list(params), access_key, secret_key)
    query = canonical_query(list(params))
    return get(url, path + (f"?{query}" if query else ""), headers)


def warm_up(server: Gateway, requests: Sequence[bytes]) -> None:
    """Sends every request once, so that what they touch is cached, and makes sure that it is."""
    with Connection(server.url) as line:
        for request in requests:
            line.fetch(request)
        before = server.metrics().total("w4dx_cache_misses_total")
        for request in requests[:64]:
            line.fetch(request)
    if server.metrics().total("w4dx_cache_misses_total") > before:
        raise RuntimeError("the cache does not hold the workload: the warm figures would not be warm")
