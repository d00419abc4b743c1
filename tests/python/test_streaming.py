"""Large answers on their way: a client that hangs up ends the work, and one that reads slowly holds it back."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from zarr.codecs.numcodecs import BZ2

import batch
from arrays import noise, npy, save
from conftest import GatewayMaker
from fake_s3 import FakeS3
from gateway import Bucket, Config, Gateway, local_store, s3_store, wait_until

WINDOW = 8 << 20
"""Bytes of an answer that the gateway puts together at once."""
FORMS = ["slice", "framed", "stacked"]
ROW, SLOW_ROWS = 1 << 18, 144
SETTLED = 0.1
"""Seconds after which a client that left costs nothing more."""


class Line:
    """A request over a connection whose reading, and end, the test decides. The kernel buffers little for it."""

    def __init__(self, served: Gateway, form: str, path: str, rows: int) -> None:
        place = urlsplit(served.url)
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        self.socket.settimeout(60)
        self.socket.connect((place.hostname, place.port))
        connection = http.client.HTTPConnection(place.hostname or "", place.port)
        connection.sock = self.socket
        if form == "slice":
            connection.request("GET", f"{path}?slice=&format=raw")
        else:
            items = [{"slice": str(n)} for n in range(rows)]
            body = json.dumps({"v": 1, "items": items})
            connection.request("POST", f"{path}?batch" + ("&stack=1" if form == "stacked" else ""), body)
        self.answer = connection.getresponse()
        assert self.answer.status == 200, self.answer.read(500)

    def read(self, count: int) -> bytes:
        """So many bytes of the body."""
        body = self.answer.read(count)
        assert len(body) == count
        return body

    def hang_up(self) -> None:
        """Leaves in the middle."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.answer.close()
        self.socket.close()


def work(served: Gateway) -> tuple[int, int, int]:
    """Requests to the store, bytes from it, and chunks decoded, so far."""
    metrics = served.metrics()
    return metrics.store_requests(), metrics.store_bytes(), int(metrics.total("w4dx_chunks_decoded_total"))


def later_work(served: Gateway) -> tuple[int, ...]:
    """What is done from a moment after now until a second later."""
    time.sleep(SETTLED)
    before = work(served)
    time.sleep(1)
    return tuple(after - b for after, b in zip(work(served), before, strict=True))


def leaves_no_work(served: Gateway, form: str, path: str, rows: int) -> None:
    """A client that stops reading shows that work is under way; one that hangs up there ends it."""
    stays = Line(served, form, path, rows)
    stays.read(WINDOW + (1 << 20))
    done = later_work(served)
    assert any(done), "the test must find the gateway at work"
    stays.hang_up()
    wait_until(lambda: served.metrics().total("w4dx_inflight_bytes") == 0, 5, "no memory is held")
    leaves = Line(served, form, path, rows)
    leaves.read(WINDOW + (1 << 20))
    leaves.hang_up()
    assert later_work(served) == (0, 0, 0)
    assert served.metrics().total("w4dx_inflight_bytes") == 0
    assert served.get(path, slice="0,:4", format="raw").status_code == 200


@pytest.mark.parametrize("form", FORMS)
def test_a_client_that_hangs_up_ends_the_reads(form: str, gateway: GatewayMaker, tmp_path: Path) -> None:
    rows = 192
    save(tmp_path, "a.zarr", noise((rows, ROW)), chunks=(1, ROW), compressors=None)
    with FakeS3() as fake:
        for path in (tmp_path / "a.zarr").rglob("*"):
            if path.is_file():
                fake.objects[path.relative_to(tmp_path).as_posix()] = path.read_bytes()
        fake.before_read = lambda key: time.sleep(0.05 if "/c/" in key else 0)
        served = gateway(
            Config(
                stores={"up": s3_store(fake.endpoint, fake.bucket, "any", "thing")},
                buckets={"data": Bucket("up", freshness="60s")},
                limits={"store_concurrency": 4, "cache_bytes": 0},
            )
        )
        leaves_no_work(served, form, "/data/a.zarr", rows)
        assert served.metrics().store_requests() < 2 * rows, "neither answer was read to its end"


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory, module_gateway: GatewayMaker) -> Gateway:
    """A shard whose chunks take long to decode, of which one read brings many."""
    folder = tmp_path_factory.mktemp("slow")
    dense = noise((SLOW_ROWS, ROW))
    save(folder, "a.zarr", dense, chunks=(1, ROW), shards=dense.shape, compressors=BZ2(level=9))
    return module_gateway(
        Config(
            stores={"disk": local_store(folder)},
            buckets={"data": Bucket("disk", freshness="60s")},
            limits={"cache_bytes": 0},
        )
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_client_that_hangs_up_ends_the_decoding(form: str, slow: Gateway) -> None:
    before = work(slow)[2]
    leaves_no_work(slow, form, "/data/a.zarr", SLOW_ROWS)
    assert work(slow)[2] - before < 2 * SLOW_ROWS, "neither answer was put together to its end"


@pytest.mark.parametrize("form", FORMS)
def test_a_slow_reader_holds_the_reading_back(form: str, folder_gateway: Callable[..., tuple[Gateway, Path]]) -> None:
    served, folder = folder_gateway(freshness="60s", limits={"cache_bytes": 0})
    rows = 512
    dense = npy(folder, "a.npy", noise((rows, ROW)))
    line = Line(served, form, "/data/a.npy", rows)
    body = line.read(1 << 20)
    # One window is on its way, one is ready, one may have left into the kernel's buffers.
    ahead = 4 * WINDOW
    for _ in range(3):
        time.sleep(0.7)
        read = served.metrics().store_bytes()
        assert read <= len(body) + ahead, f"{read >> 20} MiB were read for a client that took {len(body) >> 20}"
        body += line.read(20 << 20)
    body += line.answer.read()
    assert served.metrics().store_bytes() >= dense.nbytes
    if form == "slice":
        assert body == dense.tobytes()
    else:
        told = json.loads(line.answer.headers["x-w4dx-layout"])
        parts = (batch.frames if form == "framed" else batch.stack)(body, told)
        assert all(np.array_equal(row[0].tensor, dense[n]) for n, row in enumerate(parts))
    line.socket.close()


@pytest.mark.parametrize("form", FORMS)
def test_many_clients_that_hang_up_leave_nothing_behind(
    form: str, folder_gateway: Callable[..., tuple[Gateway, Path]]
) -> None:
    served, folder = folder_gateway(freshness="60s", limits={"inflight_bytes": "128MiB"})
    rows = 256
    dense = npy(folder, "a.npy", noise((rows, ROW)))
    for n in range(40):
        line = Line(served, form, "/data/a.npy", rows)
        line.read((n * 977 << 10) % (20 << 20))
        line.hang_up()
    wait_until(lambda: served.metrics().total("w4dx_inflight_bytes") == 0, 5, "no memory is held")
    whole = Line(served, form, "/data/a.npy", rows)
    assert len(whole.answer.read()) >= dense.nbytes
    whole.socket.close()
