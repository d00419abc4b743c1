"""A store that denies, fails, hangs, cuts bodies short or changes objects: the right error, never a wrong value."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
import requests

from arrays import CHECKED, noise, save
from conftest import GatewayMaker
from fake_s3 import FakeS3
from gateway import Bucket, Config, Gateway, error_code, s3_store, wait_until

UPSTREAM_SECONDS = 3
Started = tuple[Gateway, FakeS3, Callable[[str, np.ndarray], None]]


@pytest.fixture
def fake() -> Iterator[FakeS3]:
    with FakeS3() as server:
        yield server


@pytest.fixture
def started(fake: FakeS3, gateway: GatewayMaker, tmp_path: Path) -> Started:
    """A gateway in front of the misbehaving store, and a way to put an array there."""
    served = gateway(
        Config(
            stores={"up": s3_store(fake.endpoint, fake.bucket, "any", "thing")},
            buckets={"data": Bucket("up", freshness="0s")},
            limits={"upstream_timeout": f"{UPSTREAM_SECONDS}s"},
        )
    )

    def put(key: str, dense: np.ndarray, **options: object) -> None:
        save(tmp_path, key, dense, **options)
        for path in (tmp_path / key).rglob("*"):
            if path.is_file():
                fake.objects[path.relative_to(tmp_path).as_posix()] = path.read_bytes()

    return served, fake, put  # type: ignore[return-value]


SHARDS = {"chunks": (2, 4), "shards": (4, 8), "compressors": CHECKED}
DENSE = noise((8, 8), "int32")
CHUNK = "v.zarr/c/0/0"


def test_the_double_serves_what_a_store_would(started: Started) -> None:
    served, _, put = started
    put("v.zarr", DENSE, **SHARDS)
    got = served.get("/data/v.zarr", slice="1:7,::-1", format="raw")
    assert got.status_code == 200, got.text
    assert got.content == DENSE[1:7, ::-1].tobytes()


@pytest.mark.parametrize("where", [CHUNK, "v.zarr/zarr.json"], ids=["chunk", "metadata"])
@pytest.mark.parametrize(
    ("fault", "answers"),
    [
        ("denied", {(502, "UpstreamDenied")}),
        ("signature", {(502, "UpstreamDenied")}),
        ("broken", {(502, "UpstreamError")}),
        ("busy", {(503, "SlowDown")}),
        ("closed", {(502, "UpstreamError")}),
        ("garbage", {(502, "UpstreamError")}),
        ("truncated", {(502, "UpstreamError")}),
        ("short", {(502, "UpstreamError"), (500, "CorruptData")}),
        ("hang", {(504, "UpstreamTimeout")}),
        ("stalls", {(504, "UpstreamTimeout")}),
    ],
)
def test_a_failing_store(started: Started, where: str, fault: str, answers: set[tuple[int, str]]) -> None:
    served, fake, put = started
    put("v.zarr", DENSE, **SHARDS)
    fake.faults[where] = fault
    start = time.monotonic()
    got = served.get("/data/v.zarr", slice="", format="raw")
    took = time.monotonic() - start
    assert (got.status_code, error_code(got)) in answers, got.text[:400]
    if fault in ("denied", "signature"):
        assert "fake upstream text" not in got.text, "what is said about the gateway's own credential stays inside"
    assert took < 10 * UPSTREAM_SECONDS
    if fault == "busy":
        assert int(got.headers["Retry-After"]) >= 1
    # The error is not remembered: once the store works again, so does the slice.
    fake.faults.clear()
    fake.release.set()
    good = served.get("/data/v.zarr", slice="", format="raw")
    assert (good.status_code, good.content) == (200, DENSE.tobytes())


@pytest.mark.parametrize("fault", ["ignores-range", "shifted"])
def test_a_range_answered_wrongly_is_never_taken_for_the_right_bytes(started: Started, fault: str) -> None:
    served, fake, put = started
    for key, options in (("v.zarr", SHARDS), ("plain.zarr", {"chunks": (4, 8), "compressors": None})):
        put(key, DENSE, **options)
    fake.faults |= {"v.zarr/c/0/0": fault, "v.zarr/c/1/0": fault, "plain.zarr/c/0/0": fault}
    for key in ("v.zarr", "plain.zarr"):
        for text in ("", "1,2:5"):
            got = served.get(f"/data/{key}", slice=text, format="raw")
            want = DENSE if not text else DENSE[1, 2:5]
            if got.status_code == 200:
                assert got.content == want.tobytes()
            else:
                assert error_code(got) in ("UpstreamError", "CorruptData"), got.text
    plain = served.get("/data/plain.zarr/c/0/0", {"Range": "bytes=4-9"})
    assert plain.status_code in (206, 502)
    if plain.status_code == 206:
        assert plain.content == fake.objects["plain.zarr/c/0/0"][4:10]


def test_only_a_true_404_is_an_absent_chunk(started: Started) -> None:
    served, fake, put = started
    put("v.zarr", DENSE, fill_value=7, chunks=(4, 8), compressors=CHECKED)
    fake.objects.pop("v.zarr/c/1/0")
    got = served.get("/data/v.zarr", slice="", format="raw")
    assert got.content == np.where(np.arange(8)[:, None] < 4, DENSE, 7).astype("int32").tobytes()
    for fault, status in (("denied", 502), ("broken", 502)):
        fake.faults["v.zarr/c/1/0"] = fault
        assert served.get("/data/v.zarr", slice="", format="raw").status_code == status


def test_an_object_that_changes_once_between_index_and_chunk(started: Started) -> None:
    """The plan is made again, once: the answer is wholly new."""
    served, fake, put = started
    put("v.zarr", DENSE, **SHARDS)
    old = dict(fake.objects)
    new = noise((8, 8), "int32", seed=9)
    put("v.zarr", new, **SHARDS)
    after = dict(fake.objects)
    fake.objects.clear()
    fake.objects.update(old)
    reads = 0

    def change(key: str) -> None:
        nonlocal reads
        if key == CHUNK:
            reads += 1
            if reads == 2:  # the index came from the old object, the chunks would come from the new one
                fake.objects.update(after)

    fake.before_read = change
    got = served.get("/data/v.zarr", slice=":4", format="raw")
    assert reads >= 2
    assert got.status_code == 200, got.text
    assert got.content == new[:4].tobytes()


@pytest.mark.parametrize("fault", ["", "ignores-if-match"])
def test_an_object_that_keeps_changing(started: Started, fault: str) -> None:
    served, fake, put = started
    put("v.zarr", DENSE, **SHARDS)
    bodies, states = {}, []
    for seed in range(2):
        states.append(noise((8, 8), "int32", seed=seed + 20))
        put("v.zarr", states[-1], **SHARDS)
        bodies[seed] = fake.objects[CHUNK]
    assert bodies[0] != bodies[1]
    turn = 0

    def change(key: str) -> None:
        nonlocal turn
        if key == CHUNK:
            turn += 1
            fake.objects[CHUNK] = bodies[turn % 2]

    fake.before_read = change
    fake.faults[CHUNK] = fault
    got = served.get("/data/v.zarr", slice=":4", format="raw")
    assert got.status_code in (409, 200), got.text
    if got.status_code == 409:
        assert error_code(got) == "ArrayChanged"
    else:
        assert got.content in [s[:4].tobytes() for s in states], "two versions of one object in one answer"


def big(put: Callable[..., None]) -> np.ndarray:
    """48 MiB in 48 chunks, more than any buffer between here and there."""
    dense = noise((48, 1 << 20), "uint8")
    put("big.zarr", dense, chunks=(1, 1 << 20), compressors=None)
    return dense


def test_a_body_that_fails_halfway_is_aborted_over_http_1(started: Started) -> None:
    served, fake, put = started
    dense = big(put)
    fake.faults["big.zarr/c/47/0"] = "truncated"  # its HEAD is as it should be
    fake.objects["plain.bin"] = dense.tobytes()
    fake.faults["plain.bin"] = "truncated"
    with pytest.raises((requests.exceptions.ChunkedEncodingError, requests.exceptions.ConnectionError)):
        served.get("/data/plain.bin")
    with pytest.raises((requests.exceptions.ChunkedEncodingError, requests.exceptions.ConnectionError)):
        served.get("/data/big.zarr", slice="", format="raw")
    # What fails before the headers has a status of its own.
    got = served.get("/data/big.zarr", slice="-1", format="raw")
    assert (got.status_code, error_code(got)) == (502, "UpstreamError")
    assert served.get("/-/health").status_code == 200


def test_a_body_that_fails_halfway_is_reset_over_http_2(started: Started) -> None:
    served, fake, put = started
    dense = big(put)
    fake.faults["big.zarr/c/47/0"] = "truncated"  # its HEAD is as it should be
    fake.objects["plain.bin"] = dense.tobytes()
    fake.faults["plain.bin"] = "truncated"
    with httpx.Client(http1=False, http2=True, trust_env=False, timeout=60) as client:
        with pytest.raises(httpx.RemoteProtocolError, match="StreamReset"):
            client.get(served.url + "/data/plain.bin")
        with pytest.raises(httpx.RemoteProtocolError, match="StreamReset"):
            client.get(served.url + "/data/big.zarr", params={"slice": "", "format": "raw"})
        # One stream was reset; the connection lives.
        assert client.get(served.url + "/-/health").status_code == 200


def test_clients_that_leave_do_not_keep_the_server_busy(started: Started) -> None:
    served, _, put = started
    big(put)
    for _ in range(20):
        with served.session.get(served.url + "/data/big.zarr?slice=&format=raw", stream=True) as answer:
            next(answer.iter_content(1024))
    got = served.get("/data/big.zarr", slice="0,:4", format="raw")
    assert got.status_code == 200


def test_many_clients_of_a_hanging_store_do_not_stop_the_others(started: Started) -> None:
    served, fake, put = started
    put("v.zarr", DENSE, **SHARDS)
    put("w.zarr", DENSE, **SHARDS)
    fake.faults[CHUNK] = "hang"
    with ThreadPoolExecutor(24) as pool:
        hanging = [pool.submit(served.get, "/data/v.zarr", None, slice="", format="raw") for _ in range(24)]
        wait_until(lambda: any(key == CHUNK for _, key, _ in list(fake.reads)), 10, "the store is asked")
        start = time.monotonic()
        assert served.get("/data/w.zarr", slice="", format="raw").content == DENSE.tobytes()
        assert time.monotonic() - start < UPSTREAM_SECONDS
        assert {f.result().status_code for f in hanging} == {504}


def test_sigterm_drains(started: Started) -> None:
    served, fake, put = started
    put("v.zarr", DENSE, **SHARDS)
    fake.faults[CHUNK] = "slow"
    answers: list[requests.Response] = []
    reader = threading.Thread(target=lambda: answers.append(served.get("/data/v.zarr", slice="", format="raw")))
    reader.start()
    wait_until(lambda: any(key == CHUNK for _, key, _ in list(fake.reads)), 10, "the slow read has begun")
    served.process.send_signal(signal.SIGTERM)
    reader.join(60)
    assert answers and answers[0].status_code == 200 and answers[0].content == DENSE.tobytes()
    assert served.process.wait(20) == 0
    with pytest.raises(requests.exceptions.ConnectionError):
        requests.get(served.url + "/-/health", timeout=5)


def test_secrets_are_never_logged(fake: FakeS3, gateway: GatewayMaker) -> None:
    secret = "very-secret-value-0123456789"
    served = gateway(
        Config(
            stores={"up": s3_store(fake.endpoint, fake.bucket, "UPSTREAMKEY", secret)},
            buckets={"data": Bucket("up")},
            keys=[{"access_key": "CLIENTKEY", "secret_key": secret + "-client"}],
        ),
        environment={"RUST_LOG": "trace"},
    )
    fake.faults["x"] = "denied"
    served.get("/data/x", slice="0")
    served.get("/data/x?X-Amz-Signature=abcdef0123456789&X-Amz-Security-Token=tokentoken")
    wait_until(lambda: "/data/x" in served.log_text() or len(served.log_text()) > 200, 10, "something is logged")
    served.stop()
    assert secret not in served.log_text()
    assert "tokentoken" not in served.log_text() and "abcdef0123456789" not in served.log_text()
