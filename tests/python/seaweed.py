"""SeaweedFS, a real S3 object store, on loopback for as long as a test run needs it.

    python seaweed.py WEED -- COMMAND ARG...

starts the binary WEED on free ports with one bucket, runs COMMAND with W4DX_TEST_S3_ENDPOINT, _BUCKET,
_ACCESS_KEY and _SECRET_KEY set, ends the server by its pid and exits as COMMAND did. Standard library
only, so that the Rust tests can use it without any environment.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from sigv4 import signed

READY_SECONDS = 90
# The data are thrown away, so a clean end is worth little.
STOP_SECONDS = 2


def free_ports(count: int) -> list[int]:
    """Loopback ports that were free a moment ago; held together so that they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for s in held:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in held]
    finally:
        for s in held:
            s.close()


class Seaweed:
    """One running server with one bucket. Use as a context manager."""

    def __init__(self, weed: str | os.PathLike[str], bucket: str = "vault") -> None:
        self.weed, self.bucket = str(weed), bucket
        self.access_key, self.secret_key = "test-" + secrets.token_hex(4), secrets.token_hex(16)
        self.endpoint = ""
        self._state = tempfile.TemporaryDirectory(prefix="w4dx-seaweed-", ignore_cleanup_errors=True)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Seaweed:
        try:
            for _ in range(3):
                self._start()
                if self._ready():
                    return self
                self._end_process()  # most likely another program took one of the ports
            raise RuntimeError(f"SeaweedFS did not start; its last lines:\n{self._log_tail()}")
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def environment(self) -> dict[str, str]:
        """What the tests read."""
        return {
            "W4DX_TEST_S3_ENDPOINT": self.endpoint,
            "W4DX_TEST_S3_BUCKET": self.bucket,
            "W4DX_TEST_S3_ACCESS_KEY": self.access_key,
            "W4DX_TEST_S3_SECRET_KEY": self.secret_key,
        }

    def stop(self) -> None:
        """Ends the server by its pid and removes its data."""
        self._end_process()
        self._state.cleanup()

    def _start(self) -> None:
        state = Path(self._state.name)
        (state / "data").mkdir(exist_ok=True)
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": self.access_key, "secretKey": self.secret_key}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        }
        (state / "s3.json").write_text(json.dumps({"identities": [identity]}))
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = free_ports(8)
        options = {
            "dir": state / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": 512,
            "master.port": master,
            "master.port.grpc": master_grpc,
            "volume.port": volume,
            "volume.port.grpc": volume_grpc,
            "volume.max": 0,
            "volume.preStopSeconds": 0,
            "filer": "true",
            "filer.port": filer,
            "filer.port.grpc": filer_grpc,
            "filer.localSocket": state / "filer.sock",
            "s3": "true",
            "s3.port": s3,
            "s3.port.grpc": s3_grpc,
            "s3.localSocket": state / "s3.sock",
            "s3.config": state / "s3.json",
            # Extra services, and behaviour that would hide a mistake of the gateway.
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.autoCreateBucket": "false",
        }
        self.endpoint = f"http://127.0.0.1:{s3}"
        with open(state / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self.weed, "server", *(f"-{name}={value}" for name, value in options.items())],
                cwd=state,  # weed reads *.toml of the working folder and of $HOME/.seaweedfs
                env={**os.environ, "HOME": str(state)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C must reach the tests first
            )

    def _ready(self) -> bool:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and self._process and self._process.poll() is None:
            status = self._request("HEAD", f"/{self.bucket}")
            if status == 404:
                self._request("PUT", f"/{self.bucket}")
            # A bucket exists before a volume can take an object: only a write proves readiness.
            if status == 200 and self._request("PUT", f"/{self.bucket}/.ready", b"ok") == 200:
                self._request("DELETE", f"/{self.bucket}/.ready")
                return True
            time.sleep(0.1)
        return False

    def _request(self, method: str, path: str, body: bytes | None = None) -> int:
        url, headers = signed(method, self.endpoint, path, [], self.access_key, self.secret_key)
        request = urllib.request.Request(url, data=body, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except (OSError, http.client.HTTPException):
            return 0

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _log_tail(self) -> str:
        log = Path(self._state.name) / "log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-10:]) if log.exists() else ""


def main() -> int:
    if len(sys.argv) < 4 or sys.argv[2] != "--":
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Seaweed(sys.argv[1]) as server:
        print(f"seaweedfs: {server.endpoint}, bucket {server.bucket}", flush=True)
        return subprocess.call(sys.argv[3:], env={**os.environ, **server.environment()})


if __name__ == "__main__":
    sys.exit(main())
