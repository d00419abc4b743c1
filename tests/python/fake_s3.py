"""A test double of an S3 server that misbehaves on request. It proves how failures are handled, never compatibility.

Objects live in memory; the signature is not checked. A fault is named per key and applies to its object reads.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

DATE = "Tue, 01 Dec 2026 00:00:00 GMT"


class FakeS3:
    """One bucket named `fake`. Use as a context manager."""

    bucket = "fake"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.faults: dict[str, str] = {}
        """Key to the name of a fault; see `Handler.do_GET`."""
        self.before_read: Callable[[str], None] = lambda key: None
        """Called with the key before each object read, so that a test can change the world in between."""
        self.reads: list[tuple[str, str, str]] = []
        """(method, key, Range) of each object read."""
        self.release = threading.Event()
        self._lock = threading.Lock()
        owner = self

        class Bound(Handler):
            s3 = owner

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> FakeS3:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self.server.shutdown()
        self.server.server_close()

    def note(self, method: str, key: str, spans: str) -> None:
        """Remembers a read."""
        with self._lock:
            self.reads.append((method, key, spans))

    @staticmethod
    def etag(body: bytes) -> str:
        """As S3 gives it for a simple upload."""
        return f'"{hashlib.md5(body).hexdigest()}"'


class Handler(BaseHTTPRequestHandler):
    """Speaks just enough S3."""

    s3: FakeS3
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Silence."""

    def do_HEAD(self) -> None:  # noqa: N802 - the name is the library's
        self.do_GET()

    def do_GET(self) -> None:  # noqa: N802 - the name is the library's
        url = urlsplit(self.path)
        path = unquote(url.path).lstrip("/")
        bucket, _, key = path.partition("/")
        if bucket != self.s3.bucket:
            return self._error(404, "NoSuchBucket")
        query = parse_qs(url.query, keep_blank_values=True)
        if not key:
            return self._list(query)
        self.s3.before_read(key)
        self.s3.note(self.command, key, self.headers.get("Range", ""))
        fault = self.s3.faults.get(key, "")
        if fault == "denied":
            return self._error(403, "AccessDenied")
        if fault == "signature":
            return self._error(403, "SignatureDoesNotMatch")
        if fault == "broken":
            return self._error(500, "InternalError")
        if fault == "busy":
            return self._error(503, "SlowDown")
        if fault == "hang":
            self.s3.release.wait(120)
            self.close_connection = True
            return None
        if fault == "garbage":
            self.wfile.write(b"this is not HTTP at all\r\n\r\n")
            self.close_connection = True
            return None
        if fault == "closed":
            self.close_connection = True
            return None
        if fault == "slow":
            time.sleep(1.5)
        return self._object(key, fault)

    def _object(self, key: str, fault: str) -> None:
        body = self.s3.objects.get(key)
        if body is None:
            return self._error(404, "NoSuchKey")
        etag = self.s3.etag(body)
        wanted = self.headers.get("If-Match")
        if wanted and wanted not in (etag, "*") and fault != "ignores-if-match":
            return self._error(412, "PreconditionFailed")
        if self.headers.get("If-None-Match") == etag:
            return self._send(304, b"", {"ETag": etag})
        head = {"ETag": etag, "Last-Modified": DATE, "Accept-Ranges": "bytes"}
        span = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not span or fault == "ignores-range":
            return self._send(200, body, head, fault)
        first, last = span.groups()
        start = int(first) if first else max(0, len(body) - int(last))
        stop = min(len(body), int(last) + 1) if first and last else len(body)
        if start >= stop:
            return self._error(416, "InvalidRange")
        part = body[start:stop]
        if fault == "shifted":
            start, stop, part = start + 1, stop + 1, body[start + 1 : stop] + b"?"
        head["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
        return self._send(206, part, head, fault)

    def _send(self, status: int, body: bytes, headers: dict[str, str], fault: str = "") -> None:
        if fault == "short":  # fewer bytes than asked, and consistently so
            body = body[: len(body) // 2]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-amz-request-id", "FAKE0000")
        self.end_headers()
        if self.command == "HEAD" or status == 304:
            return
        if fault == "truncated":
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        elif fault == "stalls":
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.s3.release.wait(120)
            self.close_connection = True
        else:
            self.wfile.write(body)

    def _error(self, status: int, code: str) -> None:
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>fake upstream text</Message></Error>"
        self._send(status, text.encode(), {"Content-Type": "application/xml"})

    def _list(self, query: dict[str, list[str]]) -> None:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        keys, folders = [], set()
        for key in sorted(k for k in self.s3.objects if k.startswith(prefix)):
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
            else:
                keys.append(key)
        rows = "".join(
            f"<Contents><Key>{escape(k)}</Key><LastModified>2026-12-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(self.s3.etag(self.s3.objects[k]))}</ETag><Size>{len(self.s3.objects[k])}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
            for k in keys
        )
        rows += "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in sorted(folders))
        text = (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{self.s3.bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(keys)}</KeyCount>"
            f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
        )
        self._send(200, text.encode(), {"Content-Type": "application/xml"})
