"""Signatures, keys and prefixes: access is decided on the resolved array, before anything else is told."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import requests

from arrays import group, noise, npy, save
from conftest import GatewayMaker
from gateway import ACCESS_KEY, SECRET_KEY, Bucket, Config, Gateway, error_code, local_store
from sigv4 import UNSIGNED, presigned, signed

FULL = (ACCESS_KEY, SECRET_KEY)
NARROW = ("NARROWKEY", "narrow-secret")
READER = ("READERKEY", "reader-secret")
SECRET = b"the value nobody may see"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("access")
    for top in ("public", "private"):
        group(path, f"{top}/g.zarr")
        save(path, f"{top}/g.zarr/video", noise((4, 4), "uint8"))
        npy(path, f"{top}/a.npy", noise((4,), "int32"))
    save(path, "g.zarr/video", noise((3,), "uint8"))
    save(path, "g.zarr/hidden", noise((3,), "uint8"))
    (path / "private/text").write_bytes(SECRET)
    (path / "publicity").write_bytes(SECRET)
    return path


@pytest.fixture(scope="module")
def served(folder: Path, module_gateway: GatewayMaker) -> Gateway:
    def key(pair: tuple[str, str], **more: list[str]) -> dict:
        return {"access_key": pair[0], "secret_key": pair[1]} | more

    return module_gateway(
        Config(
            stores={"disk": local_store(folder)},
            buckets={"shut": Bucket("disk", anonymous=None), "other": Bucket("disk", anonymous=None)},
            keys=[
                key(FULL),
                key(NARROW, read=["shut/public/", "shut/g.zarr/video/"], write=["shut/public/in/"]),
                key(READER, read=["shut"]),
            ],
        )
    )


def ask(
    served: Gateway,
    path: str,
    pair: tuple[str, str] | None,
    method: str = "GET",
    body: bytes | None = None,
    **params: str,
) -> requests.Response:
    """A request signed in its headers."""
    if pair is None:
        return served.request(method, path, params=params, data=body)
    url, headers = signed(method, served.url, path, list(params.items()), *pair)
    return served.session.request(method, url, headers=headers, data=body, allow_redirects=False, timeout=60)


def code(got: requests.Response) -> tuple[int, str]:
    return got.status_code, "" if got.ok else error_code(got)


def test_anonymous_requests_are_refused_before_existence_is_told(served: Gateway) -> None:
    for path in ("/shut/public/a.npy", "/shut/missing", "/shut/missing.npy"):
        for params in ({}, {"slice": "0"}, {"describe": ""}, {"slice": "0", "explain": ""}):
            assert code(ask(served, path, None, **params)) == (403, "AccessDenied"), (path, params)


def test_only_those_who_may_list_are_told_what_is_not_there(served: Gateway) -> None:
    assert code(ask(served, "/nobucket/x", FULL, slice="0")) == (404, "NoSuchBucket")
    assert code(ask(served, "/nobucket/x", None, slice="0")) == (403, "AccessDenied")
    assert code(ask(served, "/shut/nothing", FULL, slice="0")) == (404, "NoSuchKey")
    assert code(ask(served, "/shut/nothing", READER)) == (404, "NoSuchKey")


def test_signed_slices(served: Gateway) -> None:
    got = ask(served, "/shut/public/a.npy", FULL, slice="1:3,...", format="raw")
    assert got.status_code == 200, got.text
    assert got.headers["Cache-Control"].startswith("private")
    assert ask(served, "/shut/public/g.zarr", FULL, array="video", slice="(0,2),::-1").status_code == 200
    assert ask(served, "/shut/public/g.zarr", FULL, **{"x-array": "video", "x-slice": "0"}).status_code == 200
    assert ask(served, "/shut/public/g.zarr/video/@slice=0,:.npy", FULL).status_code == 200


def test_a_read_may_leave_its_payload_unsigned(served: Gateway) -> None:
    """As some clients do over TLS. A GET has no Content-Length."""
    for method, path, params in (
        ("GET", "/shut/public/a.npy", [("slice", "0")]),
        ("GET", "/shut/public/a.npy", []),
        ("HEAD", "/shut/public/a.npy", []),
        ("GET", "/shut", [("list-type", "2")]),
    ):
        url, headers = signed(method, served.url, path, params, *FULL, payload_hash=UNSIGNED)
        assert served.session.request(method, url, headers=headers).status_code == 200, (method, path, params)


def test_wrong_signatures(served: Gateway) -> None:
    assert code(ask(served, "/shut/public/a.npy", (ACCESS_KEY, "wrong"), slice="0")) == (403, "SignatureDoesNotMatch")
    assert ask(served, "/shut/public/a.npy", ("NOSUCHKEY", "wrong"), slice="0").status_code == 403
    late = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=20)
    url, headers = signed("GET", served.url, "/shut/public/a.npy", [("slice", "0")], *FULL, when=late)
    assert code(served.session.get(url, headers=headers)) == (403, "RequestTimeTooSkewed")
    url, headers = signed("GET", served.url, "/shut/public/a.npy", [("slice", "0:2")], *FULL)
    for changed in (url.replace("0%3A2", "0%3A3"), url + "&format=raw", url.replace("a.npy", "b.npy")):
        assert code(served.session.get(changed, headers=headers)) == (403, "SignatureDoesNotMatch"), changed
    assert served.session.get(url, headers=headers).status_code == 200


def test_an_unencoded_slice_is_refused_with_a_hint(served: Gateway) -> None:
    """Signed as `slice=0:2` where SigV4 signs `slice=0%3A2`: the error says so."""
    path = "/shut/public/a.npy"
    url, headers = signed("GET", served.url, path, [("slice", "0:2")], *FULL)
    headers["authorization"] = headers["authorization"][:-8] + "deadbeef"
    got = served.session.get(url, headers=headers)
    assert code(got) == (403, "SignatureDoesNotMatch")
    assert "encode" in got.text.lower()


def test_presigned_slices(served: Gateway) -> None:
    url = presigned("GET", served.url, "/shut/public/a.npy", [("slice", "0:2"), ("format", "raw")], *FULL)
    assert len(served.session.get(url).content) == 8
    assert served.session.head(url).status_code == 403, "signed for GET"
    for changed in (url + "&slice=0:4", url + "&x-oob=error", url.replace("0%3A2", "0%3A4"), url + "&describe="):
        assert served.session.get(changed).status_code in (400, 403), changed
    plain = presigned("GET", served.url, "/shut/public/a.npy", [], *FULL)
    assert served.session.get(plain).status_code == 200
    assert served.session.get(plain + "&slice=0").status_code == 403, "a slice that was not signed"
    assert served.session.get(plain, headers={"x-amz-copy-source": "shut/private/text"}).status_code == 403
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    old = presigned("GET", served.url, "/shut/public/a.npy", [("slice", "0")], *FULL, expires=60, when=past)
    assert code(served.session.get(old)) == (403, "AccessDenied")
    long = presigned("GET", served.url, "/shut/public/a.npy", [], *FULL, expires=604801)
    assert served.session.get(long).status_code in (400, 403)


def test_unsigned_amz_headers_are_refused(served: Gateway) -> None:
    url, headers = signed("GET", served.url, "/shut/public/a.npy", [("slice", "0")], *FULL)
    assert served.session.get(url, headers=headers | {"x-amz-meta-extra": "1"}).status_code == 403
    put, headers = signed("PUT", served.url, "/shut/public/in/copy", [], *FULL)
    got = served.session.put(put, headers=headers | {"x-amz-copy-source": "shut/private/text"}, data=b"")
    assert got.status_code == 403


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/shut/public/a.npy", {"slice": "0"}),
        ("/shut/public/a.npy", {}),
        ("/shut/public/g.zarr", {"array": "video", "slice": "0"}),
        ("/shut/public/g.zarr/video", {"describe": ""}),
        ("/shut/public/g.zarr/video/@slice=0.npy", {}),
        ("/shut/g.zarr", {"array": "video", "slice": "0"}),
        ("/shut/g.zarr/video", {"slice": "0"}),
    ],
)
def test_a_prefix_opens_what_lies_beneath(served: Gateway, path: str, params: dict[str, str]) -> None:
    assert ask(served, path, NARROW, **params).status_code == 200


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/shut/private/a.npy", {"slice": "0"}),
        ("/shut/private/text", {}),
        ("/shut/private/missing", {}),
        ("/shut/private/missing", {"slice": "0"}),
        ("/shut/publicity", {}),
        ("/shut/g.zarr", {"array": "hidden", "slice": "0"}),
        ("/shut/g.zarr", {"array": "missing", "slice": "0"}),
        ("/shut/g.zarr/hidden/@slice=0.npy", {}),
        ("/shut/g.zarr/@array=hidden;slice=0.npy", {}),
        ("/shut/g.zarr", {"describe": ""}),
        ("/shut/private/g.zarr/video", {"explain": "", "slice": "0"}),
        ("/other/public/a.npy", {"slice": "0"}),
    ],
)
def test_and_nothing_else(served: Gateway, path: str, params: dict[str, str]) -> None:
    got = ask(served, path, NARROW, **params)
    assert code(got) == (403, "AccessDenied"), got.text[:300]
    assert SECRET not in got.content


@pytest.mark.parametrize("array", ["../private/g.zarr/video", "../../private/a.npy", "video/../../../private/a.npy"])
def test_array_cannot_climb_out_of_a_prefix(served: Gateway, array: str) -> None:
    got = ask(served, "/shut/public/g.zarr", NARROW, array=array, slice="0")
    assert got.status_code in (400, 403)
    inkey = "/shut/public/g.zarr/@array=" + array.replace("/", "%2F") + ";slice=0.npy"
    assert ask(served, inkey, NARROW).status_code in (400, 403)


def test_a_cached_answer_is_authorised_again(served: Gateway) -> None:
    params = {"slice": "0:3", "format": "raw"}
    first = ask(served, "/shut/private/a.npy", FULL, **params)
    assert first.status_code == 200
    assert ask(served, "/shut/private/a.npy", NARROW, **params).status_code == 403
    url, headers = signed("GET", served.url, "/shut/private/a.npy", list(params.items()), *NARROW)
    conditional = served.session.get(url, headers=headers | {"If-None-Match": first.headers["ETag"]})
    assert conditional.status_code == 403


def test_writes_follow_their_own_list(served: Gateway, folder: Path) -> None:
    assert ask(served, "/shut/public/in/new", NARROW, "PUT", b"x").status_code == 200
    assert ask(served, "/shut/public/new", NARROW, "PUT", b"x").status_code == 403
    assert ask(served, "/shut/public/in/new", READER, "PUT", b"y").status_code == 403
    assert ask(served, "/shut/public/in/new", READER, "DELETE").status_code == 403
    assert (folder / "public/in/new").read_bytes() == b"x"
    assert ask(served, "/shut/public/in/new", NARROW, "DELETE").status_code == 204


def test_lists_are_narrowed_to_what_may_be_read(served: Gateway) -> None:
    inside = ask(served, "/shut", NARROW, **{"list-type": "2", "prefix": "public/"})
    assert inside.status_code == 200 and "public/a.npy" in inside.text
    for prefix in ("", "private/", "pub"):
        got = ask(served, "/shut", NARROW, **{"list-type": "2", "prefix": prefix})
        assert got.status_code == 403 or "private/text" not in got.text
    assert ask(served, "/other", NARROW, **{"list-type": "2"}).status_code == 403
