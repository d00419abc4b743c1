"""Parameters, errors, addressing, limits, CORS, protocols and the routes of the server itself."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import pytest

import wire
from arrays import group, noise, npy, save
from conftest import GatewayMaker
from gateway import Bucket, Config, Gateway, error_code, local_store, slice_headers
from zoo_files import write_safetensors

A = "/data/a.npy"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules")
    npy(path, "a.npy", noise((20, 6), "int16"))
    group(path, "g.zarr")
    save(path, "g.zarr/video", noise((4, 6, 5), "uint8"), dimension_names=("time", "y", "x"))
    group(path, "g.zarr/deep")
    save(path, "g.zarr/deep/inner", noise((3,), "float32"))
    write_safetensors(path / "m.safetensors", {"wte": noise((4, 5), "float32"), "block/0": noise((2,), "int64")})
    (path / "noise.bin").write_bytes(b"\x01\x02\x03 not an array")
    (path / "@home").write_bytes(b"an ordinary object")
    return path


@pytest.fixture(scope="module")
def served(folder: Path, module_gateway: GatewayMaker) -> Gateway:
    return module_gateway(
        Config(
            stores={"disk": local_store(folder)},
            buckets={"data": Bucket("disk")},
            limits={"result_bytes": "64KiB", "chunks_per_request": 50},
        )
    )


def refused(served: Gateway, path: str, status: int, code: str, method: str = "GET", **params: object) -> str:
    """The text of an answer that must be this error, in XML and in problem+json alike."""
    got = served.request(method, path, params=params)
    assert (got.status_code, error_code(got)) == (status, code), (path, params, got.text[:400])
    assert got.headers["Content-Type"].startswith("application/xml")
    problem = served.request(method, path, params=params, headers={"Accept": "application/problem+json"})
    assert problem.status_code == status and problem.headers["Content-Type"] == "application/problem+json"
    body = problem.json()
    assert body["type"] == f"urn:w4dx:error:{code}" and body["status"] == status
    return got.text + problem.text


def test_unknown_parameters_name_the_nearest(served: Gateway) -> None:
    text = refused(served, A, 400, "InvalidParameter", slice="0", formt="raw")
    assert "format" in text and "formt" in text
    refused(served, A, 400, "InvalidParameter", slice="0", zzzzzzzz="1")
    # Alone, an unknown name is plain S3's business: the object, not a slice.
    assert "x-w4dx-shape" not in served.get(A, unknown="1").headers


@pytest.mark.parametrize("extra", [{"x-id": "GetObject"}, {"X-Amz-Meta-Foo": "1"}, {"response-content-type": "a/b"}])
def test_names_that_sdks_add_pass(served: Gateway, extra: dict[str, str]) -> None:
    got = served.get(A, slice="0", **extra)
    assert got.status_code == 200, got.text


def test_repeated_and_doubled_names_are_refused(served: Gateway) -> None:
    refused(served, A, 400, "InvalidParameter", slice=["0", "1"])
    refused(served, A, 400, "InvalidParameter", **{"slice": "0", "x-slice": "0"})
    refused(served, A, 400, "InvalidParameter", **{"slice": "0", "versionId": "1"})
    refused(served, A, 400, "InvalidParameter", **{"slice": "0", "partNumber": "1"})
    refused(served, A, 400, "InvalidParameter", **{"slice": "0", "tagging": ""})
    refused(served, A + "/@slice=0", 400, "InvalidParameter", slice="1")
    assert served.get("/data/g.zarr/video", isel=["time=0", "y=1:3"]).status_code == 200


def test_x_names_mean_the_same(served: Gateway) -> None:
    plain = served.get(A, slice="1:3", format="raw")
    other = served.get(A, **{"x-slice": "1:3", "x-format": "raw"})
    assert plain.content == other.content and plain.headers["ETag"] == other.headers["ETag"]


@pytest.mark.parametrize("name", ["reduce"])
def test_reserved_features_are_501(served: Gateway, name: str) -> None:
    assert name in refused(served, A, 501, "NotImplemented", **{name: "t(0:1)"})
    refused(served, f"{A}/@{name}=1.npy", 501, "NotImplemented")


@pytest.mark.parametrize("name", ["../secret", "..", ".", "a/../b", "/video", "video/", "a//b", "%2e%2e/x", ""])
def test_array_names_cannot_leave_their_container(served: Gateway, name: str) -> None:
    got = served.get("/data/g.zarr", array=name, slice="0")
    assert got.status_code == (404 if name == "%2e%2e/x" else 400), got.text
    inkey = served.request("GET", f"/data/g.zarr/@array={name.replace('%', '%25').replace('/', '%252F')};slice=0.raw")
    assert inkey.status_code in (400, 404) and error_code(inkey) in ("InvalidParameter", "NoSuchKey")


def test_addressing(served: Gateway) -> None:
    assert slice_headers(served.get("/data/g.zarr", array="video", slice="0"))[0] == [6, 5]
    assert slice_headers(served.get("/data/g.zarr", array="deep/inner", slice=""))[0] == [3]
    assert slice_headers(served.get("/data/g.zarr/video", slice="0")) == ([6, 5], "uint8", ["y", "x"])
    assert slice_headers(served.get("/data/m.safetensors", array="block/0", slice=""))[:2] == ([2], "int64")
    text = refused(served, "/data/g.zarr", 400, "NotAnArray", slice="0")
    assert "video" in text
    text = refused(served, "/data/m.safetensors", 400, "NotAnArray", slice="0")
    assert "wte" in text and "block/0" in text
    refused(served, "/data/nothing", 404, "NoSuchKey", slice="0")
    refused(served, "/data/g.zarr", 404, "NoSuchKey", array="nothing", slice="0")
    refused(served, "/data/noise.bin", 400, "NotAnArray", slice="0")


def test_the_in_key_form(served: Gateway) -> None:
    want = served.get("/data/g.zarr/video", slice="1:3,...,0:2", format="npy").content
    for key in (
        "@slice=1:3,...,0:2.npy",
        "@slice=1:3,...,0:2",
        "@slice=1%253A3,...,0:2;format=npy",
        "@x-slice=1:3,...,0:2.npy",
    ):
        got = served.request("GET", f"/data/g.zarr/video/{key}")
        assert (got.status_code, got.content) == (200, want), (key, got.text[:200])
    got = served.request("GET", "/data/m.safetensors/@array=block%252F0;slice=:1.raw")
    assert len(got.content) == 8, got.text
    assert served.request("GET", "/data/a.npy/@describe").json()["v"] == 1
    assert served.get("/data/@home").content == b"an ordinary object"
    for ending, media in (
        ("raw", "raw"),
        ("bin", "raw"),
        ("json", "json"),
        ("png", "png"),
        ("safetensors", "safetensors"),
    ):
        got = served.request("GET", f"/data/g.zarr/video/@slice=0.{ending}")
        assert got.headers["Content-Type"] == wire.MEDIA[media], got.text
    assert served.request("GET", "/data/g.zarr/video/@slice=0.arrow").status_code == 501


def test_in_key_names_cannot_be_written_and_are_not_listed(served: Gateway) -> None:
    for key in ("a.npy/@slice=0.npy", "@describe", "x/@array=y", "x/@filter=1"):
        got = served.request("PUT", f"/data/{key}", data=b"x")
        assert got.status_code in (400, 403), (key, got.status_code)
    listing = served.get("/data", **{"list-type": "2"})
    assert listing.status_code == 200 and "@slice" not in listing.text and "@home" in listing.text


def test_a_slice_parameter_never_writes_or_deletes(served: Gateway, folder: Path) -> None:
    before = (folder / "a.npy").read_bytes()
    for method in ("PUT", "DELETE", "POST"):
        got = served.request(method, A, params={"slice": "0"}, data=b"x" if method != "DELETE" else None)
        assert got.status_code in (400, 403, 405, 501), (method, got.status_code)
    assert (folder / "a.npy").read_bytes() == before


def test_limits_are_decided_before_reading(served: Gateway, folder: Path) -> None:
    save(folder, "many.zarr", np.zeros((100,), "u1"), chunks=(1,))
    save(folder, "wide.zarr", np.zeros((1, 1), "u1"), chunks=(1, 1))
    meta = json.loads((folder / "wide.zarr/zarr.json").read_text())
    meta["shape"] = [10**15, 10**4]
    meta["chunk_grid"]["configuration"]["chunk_shape"] = [10**4, 10**4]
    (folder / "wide.zarr/zarr.json").write_text(json.dumps(meta))
    before = served.metrics().store_requests("data")
    text = refused(served, "/data/many.zarr", 400, "SliceTooLarge", slice="")
    assert "50" in text, "the limit is named"
    text = refused(served, "/data/wide.zarr", 400, "SliceTooLarge", slice="")
    refused(served, "/data/wide.zarr", 400, "SliceTooLarge", slice=":70000,0")
    refused(
        served,
        "/data/a.npy",
        400,
        "SliceTooLarge",
        slice=":,-9223372036854775807:9223372036854775807",
        oob="fill",
        fill="0",
    )
    refused(served, "/data/a.npy", 400, "SliceTooLarge", slice=f"({','.join(['0'] * 6000)})")
    assert served.metrics().store_requests("data") - before < 30
    assert served.alive()


@pytest.mark.parametrize(
    "params",
    [
        {"slice": "0", "format": "gif"},
        {"slice": "0", "oob": "wrap"},
        {"slice": "0", "oob": "fill", "fill": "abc"},
        {"slice": "0", "oob": "fill", "fill": "70000"},
        {"slice": "0", "keepdims": "maybe"},
    ],
)
def test_bad_values_are_named(served: Gateway, params: dict[str, str]) -> None:
    text = refused(served, A, 400, "InvalidParameter", **params)
    assert list(params)[-1] in text


def test_errors_say_where(served: Gateway) -> None:
    got = served.get("/data/g.zarr/video", {"Accept": "application/problem+json"}, slice="0,99")
    body = got.json()
    assert body["type"] == "urn:w4dx:error:IndexOutOfRange"
    assert "y" in json.dumps(body) and "-6..6" in json.dumps(body)
    assert got.headers["x-amz-request-id"] in json.dumps(body)
    xml = served.get("/data/g.zarr/video", slice="0,99")
    assert f"<RequestId>{xml.headers['x-amz-request-id']}</RequestId>" in xml.text
    assert served.head("/data/g.zarr/video", slice="0,99").status_code == 400


def test_accept(served: Gateway) -> None:
    for accept, media in (
        ("*/*", "application/x-npy"),
        ("application/octet-stream", "application/octet-stream"),
        ("application/json;q=0.5, image/png;q=0.1", "application/json"),
        ("text/html, */*;q=0.1", "application/x-npy"),
    ):
        assert served.get(A, {"Accept": accept}, slice="0").headers["Content-Type"] == media, accept
    assert (
        served.get(A, {"Accept": "application/json"}, slice="0", format="raw").headers["Content-Type"]
        == wire.MEDIA["raw"]
    )


def test_cors(served: Gateway) -> None:
    origin = {"Origin": "https://viewer.example"}
    for path, params in ((A, {"slice": "0"}), (A, {"slice": "999"}), ("/data/missing", {}), ("/-/health", {})):
        got = served.get(path, origin, **params)
        assert got.headers.get("Access-Control-Allow-Origin") in ("*", origin["Origin"]), path
    exposed = served.get(A, origin, slice="0").headers["Access-Control-Expose-Headers"].lower()
    for name in (
        "etag",
        "content-range",
        "x-w4dx-shape",
        "x-w4dx-dtype",
        "x-w4dx-dims",
        "x-w4dx-source-etag",
        "x-amz-request-id",
        "server-timing",
        "age",
    ):
        assert exposed == "*" or name in exposed, name
    asked = origin | {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "range,authorization"}
    preflight = served.request("OPTIONS", A, headers=asked)
    assert preflight.status_code in (200, 204)
    allowed = preflight.headers["Access-Control-Allow-Headers"].lower()
    assert allowed == "*" or ("range" in allowed and "authorization" in allowed)


def test_http_2_with_prior_knowledge(served: Gateway) -> None:
    with httpx.Client(http1=False, http2=True, trust_env=False) as client:
        got = client.get(served.url + A, params={"slice": "1:3"})
        assert (got.http_version, got.status_code) == ("HTTP/2", 200)
        assert got.content == served.get(A, slice="1:3").content
        assert client.get(served.url + A, params={"slice": "999"}).status_code == 400
        assert client.get(served.url + A).content == served.get(A).content


def test_routes_of_the_server(served: Gateway) -> None:
    health = served.get("/-/health")
    assert health.status_code == 200 and health.json()
    assert served.get("/-/ready").status_code == 200
    metrics = served.get("/-/metrics")
    assert metrics.headers["Content-Type"].startswith(("text/plain", "application/openmetrics-text"))
    assert served.get("/-/openapi.json").json()["openapi"].startswith("3.1")
    assert "html" in served.get("/-/docs/").headers["Content-Type"]
    nothing = served.get("/-/nothing")
    assert nothing.status_code == 404
    assert nothing.headers["Content-Type"] == "application/problem+json"


def test_requests_are_counted_by_kind_and_status(served: Gateway) -> None:
    def total(status: str) -> float:
        return served.metrics().total("w4dx_requests_total", status=status)

    before = total("400")
    served.get(A, slice="999")
    assert total("400") == before + 1
    assert served.metrics().total("w4dx_requests_total") > 5


def test_request_ids_differ(served: Gateway) -> None:
    ids = [served.get(p).headers["x-amz-request-id"] for p in (A, A, "/data/missing", "/-/health", "/data")]
    assert len(set(ids)) == 5 and all(re.fullmatch(r"[\w-]{8,}", i) for i in ids)


def test_describe(served: Gateway) -> None:
    got = served.get("/data/g.zarr/video", describe="")
    assert got.headers["Content-Type"].startswith("application/json")
    body = got.json()
    assert body["v"] == 1 and body["shape"] == [4, 6, 5] and body["dtype"] == "uint8"
    assert body["dims"] == ["time", "y", "x"]
    listing = json.dumps(served.get("/data/g.zarr", describe="").json())
    assert "video" in listing and "deep" in listing
    tensors = json.dumps(served.get("/data/m.safetensors", describe="").json())
    assert "wte" in tensors and "block/0" in tensors
    page = served.get("/data/m.safetensors", describe="", limit="1").json()
    assert len(json.dumps(page)) < len(tensors), "limit pages the list"
    refused(served, "/data/nothing", 404, "NoSuchKey", describe="")


def test_keys_with_odd_names(served: Gateway, folder: Path) -> None:
    odd = "spaced name/größe+plus/100%/a&b=c?.npy"
    dense = npy(folder, odd, noise((3, 4), "int32"))
    got = served.request("GET", "/data/" + quote(odd), params={"slice": "1:", "format": "raw"})
    assert got.status_code == 200, got.text
    assert np.array_equal(wire.from_raw(got.content, dense.dtype, (2, 4)), dense[1:])
    inkey = served.request("GET", "/data/" + quote(odd) + "/@slice=1:.raw")
    assert inkey.content == got.content


ALPHABET = list("0123456789-:,.()[]~ ") + [
    "...",
    "::",
    "None",
    "%",
    "é",
    "\x00",
    "=",
    ";",
    "&",
    "+",
    "99999999999999999999",
    "@",
]


def test_any_text_is_answered_by_a_slice_or_a_named_error(served: Gateway, rng: random.Random, soak: bool) -> None:
    """Whatever stands in a parameter: never a 5xx, never an answer without a shape, never an end of the server."""
    named = {"InvalidSelection", "AmbiguousSelection", "IndexOutOfRange", "InvalidParameter", "SliceTooLarge"}
    for _ in range(10_000 if soak else 500):
        text = "".join(rng.choice(ALPHABET) for _ in range(rng.randrange(12)))
        name = rng.choice(["slice", "slice", "slice", "isel", "fill", "oob", "expect_shape", "keepdims", "format"])
        value = {"isel": f"y={text}", "fill": text}.get(name, text)
        params = {name: value} if name == "slice" else {"slice": "0", name: value}
        params |= {"oob": "fill"} if name == "fill" else {}
        got = served.get("/data/g.zarr/video", **params)
        if got.status_code == 200:
            assert slice_headers(got)[1] == "uint8"
        elif got.status_code == 412:
            assert name == "expect_shape"
        else:
            assert got.status_code in (400, 406), (params, got.text[:300])
            assert error_code(got) in named | {"FormatNotPossible", "ShapeMismatch"}, (params, got.text[:300])
        inkey = served.request("GET", "/data/g.zarr/video/@slice=" + quote(text))
        assert inkey.status_code < 500, (text, inkey.text[:300])
    assert served.alive()
