"""A running `w4dx serve` and what the tests ask of it.

Standard library and `requests` only: the OpenAPI checks use it in an environment without numpy.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import requests
from requests.adapters import HTTPAdapter

START_SECONDS = 60
STOP_SECONDS = 30
ACCESS_KEY, SECRET_KEY = "W4DXTESTKEY", "w4dx-test-secret"
LISTENING = re.compile(r"listening on (http://\S+)")


def binary() -> str:
    """The `w4dx` under test; `tests/run` builds it and sets W4DX_BIN."""
    path = os.environ.get("W4DX_BIN", "")
    if not os.access(path, os.X_OK):
        raise RuntimeError("W4DX_BIN must name a w4dx binary: run these tests through tests/run python")
    return path


@dataclass
class Bucket:
    """One bucket of a configuration."""

    store: str
    prefix: str = ""
    freshness: str = "0s"
    anonymous: str | None = "read"
    writable: bool = True


@dataclass
class Config:
    """A `w4dx.toml`, written as text with no TOML library so that a test can also write a wrong one."""

    stores: dict[str, dict[str, Any]] = field(default_factory=dict)
    buckets: dict[str, Bucket] = field(default_factory=dict)
    keys: list[dict[str, Any]] = field(default_factory=lambda: [{"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}])
    limits: dict[str, Any] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """The file."""
        tables = [("[server]", {"listen": "127.0.0.1:0"} | self.server)]
        tables += [(f"[stores.{name}]", store) for name, store in self.stores.items()]
        for name, bucket in self.buckets.items():
            entries = {k: v for k, v in vars(bucket).items() if v is not None}
            tables.append((f'[buckets."{name}"]', entries))
        tables += [("[[keys]]", key) for key in self.keys]
        if self.limits:
            tables.append(("[limits]", self.limits))
        # JSON's strings, numbers, booleans and flat lists are TOML too.
        lines = [[head, *(f"{k} = {json.dumps(v)}" for k, v in body.items()), ""] for head, body in tables]
        return "\n".join(line for table in lines for line in table)


def local_store(path: os.PathLike[str] | str) -> dict[str, Any]:
    """A store that is a folder."""
    return {"kind": "local", "path": str(path)}


def s3_store(endpoint: str, bucket: str, access_key: str, secret_key: str) -> dict[str, Any]:
    """A store that is a bucket of another S3 server."""
    return {
        "kind": "s3",
        "endpoint": endpoint,
        "region": "us-east-1",
        "bucket": bucket,
        "access_key": access_key,
        "secret_key": secret_key,
    }


def drain(stream: Any, lines: queue.Queue[str | None], log: Path) -> None:
    """Copies a pipe to a file and a queue, so that the process never blocks on a full pipe."""
    with open(log, "a", encoding="utf-8") as out:
        for line in stream:
            out.write(line)
            out.flush()
            lines.put(line)
    lines.put(None)


class Server:
    """A process that prints `listening on http://HOST:PORT`, ended by its pid."""

    def __init__(self, arguments: list[str], workdir: Path, environment: dict[str, str] | None = None) -> None:
        self.log = workdir / f"w4dx-{time.monotonic_ns()}.log"
        # No credential, proxy or endpoint of this machine may reach the gateway by accident.
        inherited = {k: v for k, v in os.environ.items() if not re.match(r"(AWS|W4DX)_|.*_proxy$", k, re.I)}
        with open(self.log, "a", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                [binary(), *arguments],
                cwd=workdir,
                env={**inherited, "AWS_EC2_METADATA_DISABLED": "true", **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                errors="replace",
            )
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.stdout: list[str] = []
        reader = threading.Thread(target=drain, args=(self.process.stdout, self.lines, self.log), daemon=True)
        reader.start()
        try:
            self.url = self._await_address()
        except BaseException:
            self.stop()
            raise
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount("http://", HTTPAdapter(pool_connections=32, pool_maxsize=32))

    def _await_address(self) -> str:
        deadline = time.monotonic() + START_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self.lines.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                break
            self.stdout.append(line)
            if found := LISTENING.search(line):
                return found[1].rstrip("/")
        raise RuntimeError(f"w4dx did not start:\n{self.log_text()}")

    def log_text(self) -> str:
        """All that the process wrote so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def stop(self, how: int = signal.SIGTERM) -> int:
        """Ends the process and returns its exit status."""
        if self.alive():
            self.process.send_signal(how)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()
        self.stop()

    def request(self, method: str, path: str, **options: Any) -> requests.Response:
        """One request; no proxy, no redirect, and no `Accept-Encoding` that would change the bytes."""
        options.setdefault("timeout", 60)
        if params := options.pop("params", None):
            # Percent-encoded as SigV4 would sign it: `requests` would write a space as `+`.
            pairs = params.items() if isinstance(params, dict) else params
            rows = [(k, v) for k, vs in pairs if vs is not None for v in (vs if isinstance(vs, list) else [vs])]
            path += "?" + urlencode(rows, quote_via=quote, safe="-_.~")
        headers = {"Accept-Encoding": "identity"} | dict(options.pop("headers", None) or {})
        session = options.pop("session", self.session)
        return session.request(method, self.url + path, headers=headers, allow_redirects=False, **options)

    def get(self, path: str, headers: dict[str, str] | None = None, **params: Any) -> requests.Response:
        """GET with parameters by keyword; `None` leaves a parameter out, a list repeats it."""
        return self.request("GET", path, params=params, headers=headers)

    def head(self, path: str, headers: dict[str, str] | None = None, **params: Any) -> requests.Response:
        """HEAD with parameters by keyword."""
        return self.request("HEAD", path, params=params, headers=headers)

    def metrics(self) -> Metrics:
        """The counters now."""
        answer = self.request("GET", "/-/metrics")
        assert answer.status_code == 200, answer.text
        return Metrics(answer.text)


class Gateway(Server):
    """`w4dx serve` with a configuration."""

    def __init__(self, config: Config, workdir: Path, environment: dict[str, str] | None = None) -> None:
        workdir.mkdir(parents=True, exist_ok=True)
        self.config = config
        path = workdir / f"w4dx-{time.monotonic_ns()}.toml"
        path.write_text(config.text(), encoding="utf-8")
        super().__init__(["serve", "--config", str(path)], workdir, environment)


SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Metrics:
    """A Prometheus text page, read."""

    def __init__(self, text: str) -> None:
        self.samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for line in text.splitlines():
            if found := SAMPLE.match(line):
                labels = dict(LABEL.findall(found[2] or ""))
                self.samples.setdefault(found[1], []).append((labels, float(found[3])))

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples of `name` whose labels include `labels`; 0 when there is none yet."""
        rows = self.samples.get(name, [])
        return sum(value for have, value in rows if labels.items() <= have.items())

    def store_requests(self, bucket: str | None = None, **labels: str) -> int:
        """Requests sent to the store."""
        named = {"bucket": bucket} if bucket else {}
        return int(self.total("w4dx_store_requests_total", **named, **labels))

    def store_bytes(self, bucket: str | None = None) -> int:
        """Bytes received from the store."""
        return int(self.total("w4dx_store_bytes_total", **({"bucket": bucket} if bucket else {})))


def error_code(answer: requests.Response) -> str:
    """The code of an error answer, XML or problem+json."""
    if answer.headers.get("Content-Type", "").startswith("application/problem+json"):
        return answer.json()["type"].rsplit(":", 1)[-1]
    found = re.search(r"<Code>([^<]+)</Code>", answer.text)
    assert found, f"{answer.status_code} without an error code: {answer.headers} {answer.text[:300]}"
    return found[1]


def slice_headers(answer: requests.Response) -> tuple[list[int], str, list[str | None]]:
    """Shape, dtype and dims that an array answer declares."""
    h = answer.headers
    return json.loads(h["x-w4dx-shape"]), h["x-w4dx-dtype"], json.loads(h["x-w4dx-dims"])


def wait_until(condition: Any, seconds: float, what: str) -> None:
    """Polls until `condition()` is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)
