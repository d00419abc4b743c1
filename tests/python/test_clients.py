"""boto3, the AWS CLI, obstore and s3fs, unmodified, each in an environment of its own, against a gateway."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
import pytest

from arrays import CHECKED, noise, npy, save
from conftest import GatewayMaker, Upstream
from gateway import ACCESS_KEY, SECRET_KEY, Bucket, Config, Gateway, local_store
from sigv4 import signed

BIG = (30, 1024, 1024)
"""30 MiB: the clients HEAD, then read ranges in parallel."""
IN_KEY = "big.zarr/@slice=1:29,...,::-1.npy"
ODD = "odd names/größe + 100%.npy"
PREFIX = "clients/"


@pytest.fixture(scope="module")
def dense() -> np.ndarray:
    return noise(BIG)


@pytest.fixture(scope="module", params=["local", "seaweed"])
def served(
    request: pytest.FixtureRequest,
    dense: np.ndarray,
    tmp_path_factory: pytest.TempPathFactory,
    module_gateway: GatewayMaker,
    upstream: Upstream,
) -> Gateway:
    folder = tmp_path_factory.mktemp("clients")
    save(folder, "big.zarr", dense, chunks=(1, 512, 1024), shards=(10, 1024, 1024), compressors=CHECKED)
    npy(folder, "small.npy", noise((40, 6), "int16"))
    npy(folder, ODD, noise((5, 4), "int32"))
    for i in range(1100):
        (folder / "many").mkdir(exist_ok=True)
        (folder / f"many/{i:04}").write_bytes(b"x")
    buckets = {"data": Bucket("disk", anonymous=None)}
    stores = {"disk": local_store(folder)}
    if request.param == "seaweed":
        for where in ("big.zarr", "odd names", "many"):
            upstream.upload(folder / where, f"{PREFIX}{where}/")
        upstream.put(PREFIX + "small.npy", (folder / "small.npy").read_bytes())
        stores = {"up": upstream.store()}
        buckets = {"data": Bucket("up", prefix=PREFIX, anonymous=None)}
    gateway = module_gateway(Config(stores=stores, buckets=buckets))
    gateway.folder = folder  # type: ignore[attr-defined]
    return gateway


def environment(served: Gateway, home: Path) -> dict[str, str]:
    """What an S3 client of a user would see, and nothing of this machine's own configuration."""
    # botocore presigns with version 2 of the signature unless told; the gateway refuses that version.
    (home / "config").write_text("[default]\ns3 =\n    signature_version = s3v4\n    addressing_style = path\n")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("AWS_") and not k.lower().endswith("_proxy")}
    return kept | {
        "HOME": str(home),
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": served.url,
        "AWS_CONFIG_FILE": str(home / "config"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_PAGER": "",
    }


def run(served: Gateway, home: Path, command: list[str]) -> str:
    """A client's standard output; its failure is the test's."""
    done = subprocess.run(command, env=environment(served, home), cwd=home, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, (
        f"{command[-1][:2000]}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}\n{served.log_text()[-1500:]}"
    )
    return done.stdout


def tool(variable: str, name: str) -> str:
    """A program in an environment that tests/run made."""
    folder = os.environ.get(variable)
    assert folder, f"{variable} is not set: run these tests through tests/run python"
    return str(Path(folder) / name)


def script(served: Gateway, home: Path, environment_of: str, text: str) -> dict:
    """Runs a Python script in a client's environment; its last line of output is JSON."""
    out = run(served, home, [tool(environment_of, "python"), "-c", text])
    return json.loads(out.strip().splitlines()[-1])


def sliced(dense: np.ndarray) -> np.ndarray:
    return dense[1:29, ..., ::-1]


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


BOTO3 = f"""
import boto3, hashlib, json, urllib.request
from botocore.config import Config
s3 = boto3.client("s3", config=Config(signature_version="s3v4", s3={{"addressing_style": "path"}}))
out = {{}}
out["buckets"] = [b["Name"] for b in s3.list_buckets()["Buckets"]]
s3.head_bucket(Bucket="data")
pages = s3.get_paginator("list_objects_v2").paginate(Bucket="data", Prefix="many/")
out["many"] = sum(len(p["Contents"]) for p in pages)
pages = s3.get_paginator("list_objects").paginate(Bucket="data", Prefix="many/", PaginationConfig={{"PageSize": 300}})
out["many_v1"] = sum(len(p["Contents"]) for p in pages)
top = s3.list_objects_v2(Bucket="data", Delimiter="/")
out["folders"] = [p["Prefix"] for p in top["CommonPrefixes"]]
out["files"] = [c["Key"] for c in top["Contents"]]
out["odd"] = [c["Key"] for c in s3.list_objects_v2(Bucket="data", Prefix="odd names/")["Contents"]]
head = s3.head_object(Bucket="data", Key={IN_KEY!r})
out["metadata"] = head["Metadata"]
out["length"] = head["ContentLength"]
s3.download_file("data", {IN_KEY!r}, "boto3.npy")
got = s3.get_object(Bucket="data", Key={ODD!r} + "/@slice=1:3,0.raw")
out["odd_slice"] = got["Body"].read().hex()
out["whole"] = hashlib.sha256(s3.get_object(Bucket="data", Key={ODD!r})["Body"].read()).hexdigest()
part = s3.get_object(Bucket="data", Key="small.npy", Range="bytes=-12")
out["range"] = part["ContentRange"]
url = s3.generate_presigned_url("get_object", Params={{"Bucket": "data", "Key": "small.npy/@slice=0:2;format=raw"}})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
out["presigned"] = opener.open(url).read().hex()
try:
    s3.get_object(Bucket="data", Key="small.npy/@slice=99.npy")
except s3.exceptions.ClientError as error:
    out["error"] = error.response["Error"]["Code"]
try:
    s3.get_object(Bucket="data", Key="nothing")
except s3.exceptions.NoSuchKey:
    out["missing"] = True
out["location"] = s3.get_bucket_location(Bucket="data").get("LocationConstraint")

def add(request, **_):
    request.params = {{"x-slice": "0:2", "x-format": "raw"}}

s3.meta.events.register("before-sign.s3.GetObject", add)
out["x_slice"] = s3.get_object(Bucket="data", Key="small.npy")["Body"].read().hex()
print(json.dumps(out))
"""


def test_boto3(served: Gateway, dense: np.ndarray, tmp_path: Path) -> None:
    out = script(served, tmp_path, "W4DX_CLIENTS_BIN", BOTO3)
    small = np.load(served.folder / "small.npy")  # type: ignore[attr-defined]
    odd = np.load(served.folder / ODD)  # type: ignore[attr-defined]
    assert "data" in out["buckets"]
    assert (out["many"], out["many_v1"]) == (1100, 1100)
    assert out["folders"] == ["big.zarr/", "many/", "odd names/"] and out["files"] == ["small.npy"]
    assert out["odd"] == [ODD]
    assert json.loads(out["metadata"]["w4dx-shape"]) == [28, 1024, 1024] and out["metadata"]["w4dx-dtype"] == "uint8"
    assert out["length"] == (tmp_path / "boto3.npy").stat().st_size > 20 << 20
    assert np.array_equal(np.load(tmp_path / "boto3.npy"), sliced(dense))
    assert out["odd_slice"] == odd[1:3, 0].tobytes().hex()
    assert out["whole"] == digest((served.folder / ODD).read_bytes())  # type: ignore[attr-defined]
    size = (served.folder / "small.npy").stat().st_size  # type: ignore[attr-defined]
    assert out["range"] == f"bytes {size - 12}-{size - 1}/{size}"
    assert out["presigned"] == out["x_slice"] == small[:2].tobytes().hex()
    assert (out["error"], out["missing"]) == ("IndexOutOfRange", True)


def test_aws_cli(served: Gateway, dense: np.ndarray, tmp_path: Path) -> None:
    aws = [tool("W4DX_CLIENTS_BIN", "python"), tool("W4DX_CLIENTS_BIN", "aws")]
    assert "data" in run(served, tmp_path, [*aws, "s3", "ls"])
    listing = run(served, tmp_path, [*aws, "s3", "ls", "s3://data/"])
    assert "PRE big.zarr/" in listing and "small.npy" in listing
    assert len(run(served, tmp_path, [*aws, "s3", "ls", "s3://data/many/"]).splitlines()) == 1100
    run(served, tmp_path, [*aws, "s3", "cp", f"s3://data/{IN_KEY}", "cli.npy"])
    assert np.array_equal(np.load(tmp_path / "cli.npy"), sliced(dense))
    run(served, tmp_path, [*aws, "s3", "cp", f"s3://data/{ODD}/@slice=::2.npy", "odd.npy"])
    odd = np.load(served.folder / ODD)  # type: ignore[attr-defined]
    assert np.array_equal(np.load(tmp_path / "odd.npy"), odd[::2])
    head = json.loads(
        run(served, tmp_path, [*aws, "s3api", "head-object", "--bucket", "data", "--key", "small.npy/@slice=0.npy"])
    )
    assert head["Metadata"]["w4dx-shape"] == "[6]"
    url = run(served, tmp_path, [*aws, "s3", "presign", "s3://data/small.npy/@slice=0:2.raw"]).strip()
    small = np.load(served.folder / "small.npy")  # type: ignore[attr-defined]
    assert served.session.get(url).content == small[:2].tobytes()
    run(served, tmp_path, [*aws, "s3", "sync", "s3://data/odd names", "synced"])
    assert (tmp_path / "synced" / ODD.split("/")[1]).read_bytes() == (served.folder / ODD).read_bytes()  # type: ignore[attr-defined]


OBSTORE = f"""
import hashlib, json, os, urllib.request
from datetime import timedelta
import obstore
from obstore.store import S3Store
store = S3Store("data", endpoint=os.environ["AWS_ENDPOINT_URL"], client_options={{"allow_http": True}}, virtual_hosted_style_request=False)
out = {{}}
out["many"] = sum(len(batch) for batch in obstore.list(store, "many"))
delimited = obstore.list_with_delimiter(store)
out["folders"] = sorted(delimited["common_prefixes"])
head = obstore.head(store, {IN_KEY!r})
out["size"], out["etag"] = head["size"], head["e_tag"]
got = bytes(obstore.get(store, {IN_KEY!r}).bytes())
out["slice"] = hashlib.sha256(got).hexdigest()
out["range"] = bytes(obstore.get_range(store, {IN_KEY!r}, start=1000, end=9000)).hex()
out["ranges"] = [bytes(r).hex() for r in obstore.get_ranges(store, "small.npy/@slice=:.raw", starts=[0, 100], ends=[10, 120])]
out["odd"] = bytes(obstore.get(store, {ODD!r}).bytes()).hex()
out["odd_slice"] = bytes(obstore.get(store, {ODD!r} + "/@slice=-1.raw").bytes()).hex()
url = obstore.sign(store, "GET", "small.npy/@slice=0:2.raw", timedelta(seconds=60))
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
out["presigned"] = opener.open(url).read().hex()
try:
    obstore.get(store, "nothing")
except FileNotFoundError:
    out["missing"] = True
print(json.dumps(out))
"""


def test_obstore(served: Gateway, dense: np.ndarray, tmp_path: Path) -> None:
    out = script(served, tmp_path, "W4DX_CLIENTS_BIN", OBSTORE)
    url = "/data/" + quote(IN_KEY)
    whole = signed_get(served, url)
    assert whole.endswith(sliced(dense).tobytes())
    assert out["many"] == 1100 and out["folders"] == ["big.zarr", "many", "odd names"]
    assert out["size"] == len(whole) and out["etag"]
    assert out["slice"] == digest(whole) and out["range"] == whole[1000:9000].hex()
    small = np.load(served.folder / "small.npy").tobytes()  # type: ignore[attr-defined]
    assert out["ranges"] == [small[:10].hex(), small[100:120].hex()]
    assert out["odd"] == (served.folder / ODD).read_bytes().hex()  # type: ignore[attr-defined]
    assert out["odd_slice"] == np.load(served.folder / ODD)[-1].tobytes().hex()  # type: ignore[attr-defined]
    assert out["presigned"] == small[:24].hex() and out["missing"]


def signed_get(served: Gateway, path: str) -> bytes:
    """A signed GET of an encoded path."""
    url, headers = signed("GET", served.url, unquote(path), [], ACCESS_KEY, SECRET_KEY)
    got = served.session.get(url, headers=headers)
    assert got.status_code == 200, got.text[:500]
    return got.content


S3FS = f"""
import hashlib, json, os, io
import numpy as np, s3fs, zarr
fs = s3fs.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"], config_kwargs={{"signature_version": "s3v4", "s3": {{"addressing_style": "path"}}}})
out = {{}}
out["many"] = len(fs.ls("data/many"))
out["top"] = sorted(fs.ls("data"))
out["info"] = fs.info({"data/" + IN_KEY!r})["size"]
out["slice"] = hashlib.sha256(fs.cat({"data/" + IN_KEY!r})).hexdigest()
fs.get({"data/" + IN_KEY!r}, "s3fs.npy")
with fs.open({"data/" + IN_KEY!r}, block_size=1 << 20) as f:
    f.seek(5000)
    out["seek"] = f.read(3000).hex()
out["tail"] = fs.cat_file({"data/" + IN_KEY!r}, start=-100).hex()
out["tilde"] = hashlib.sha256(fs.cat("data/small.npy/@slice=~:~:-1.raw")).hexdigest()
out["odd"] = fs.cat({"data/" + ODD!r}).hex()
import urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
out["presigned"] = opener.open(fs.sign("data/small.npy/@slice=0:2.raw", expiration=60)).read().hex()
out["missing"] = not fs.exists("data/nothing")
z = zarr.open_array(zarr.storage.FsspecStore(s3fs.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"], asynchronous=True, config_kwargs={{"s3": {{"addressing_style": "path"}}}}), path="data/big.zarr"), mode="r")
out["zarr"] = hashlib.sha256(np.ascontiguousarray(z[3, 100:200]).tobytes()).hexdigest()
print(json.dumps(out))
"""


def test_s3fs(served: Gateway, dense: np.ndarray, tmp_path: Path) -> None:
    out = script(served, tmp_path, "W4DX_S3FS_BIN", S3FS)
    whole = signed_get(served, "/data/" + quote(IN_KEY))
    small = np.load(served.folder / "small.npy")  # type: ignore[attr-defined]
    assert out["many"] == 1100
    assert out["top"] == ["data/big.zarr", "data/many", "data/odd names", "data/small.npy"]
    assert out["info"] == len(whole) and out["slice"] == digest(whole)
    assert np.array_equal(np.load(tmp_path / "s3fs.npy"), sliced(dense))
    assert out["seek"] == whole[5000:8000].hex() and out["tail"] == whole[-100:].hex()
    assert out["tilde"] == digest(small[::-1].tobytes())
    assert out["odd"] == (served.folder / ODD).read_bytes().hex()  # type: ignore[attr-defined]
    assert out["presigned"] == small[:2].tobytes().hex() and out["missing"]
    assert out["zarr"] == digest(dense[3, 100:200].tobytes())
