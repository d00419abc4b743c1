"""The command line: get, inspect, serve's complaints, and the demonstration a newcomer starts with."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

from arrays import CHECKED, noise, npy, save
from conftest import GatewayMaker, Upstream
from gateway import ACCESS_KEY, SECRET_KEY, Bucket, Config, Server, binary, local_store, wait_until
from sigv4 import signed


def w4dx(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the program to its end."""
    kept = {k: v for k, v in os.environ.items() if not re.match(r"(AWS|W4DX)_|.*_proxy$", k, re.I)}
    return subprocess.run(
        [binary(), *arguments],
        cwd=cwd,
        env=kept | {"AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "us-east-1"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


DENSE = noise((8, 6, 10), "int32")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    save(
        folder,
        "a.zarr",
        DENSE,
        chunks=(2, 3, 5),
        shards=(4, 6, 10),
        compressors=CHECKED,
        dimension_names=("t", "y", "x"),
    )
    npy(folder, "a.npy", DENSE)
    return folder


@pytest.fixture(scope="module", params=["path", "gateway", "s3"])
def places(
    request: pytest.FixtureRequest, stored: Path, module_gateway: GatewayMaker, upstream: Upstream
) -> tuple[Callable[[str], str], dict[str, str]]:
    """How an array is addressed, and the environment that it takes."""
    if request.param == "path":
        return lambda key: str(stored / key), {}
    if request.param == "gateway":
        served = module_gateway(Config(stores={"disk": local_store(stored)}, buckets={"data": Bucket("disk")}))
        return lambda key: f"{served.url}/data/{key}", {}
    upstream.upload(stored, "cli/")
    keys = {"AWS_ACCESS_KEY_ID": upstream.access_key, "AWS_SECRET_ACCESS_KEY": upstream.secret_key}
    return lambda key: f"s3://{upstream.bucket}/cli/{key}", keys | {"AWS_ENDPOINT_URL": upstream.endpoint}


def test_get(places: tuple, tmp_path: Path) -> None:
    uri, environment = places
    for key in ("a.zarr", "a.npy"):
        done = w4dx("get", uri(key), "--slice", "1:7:2,...,(0,3,3)", "-o", "out.npy", cwd=tmp_path, **environment)
        assert done.returncode == 0, done.stderr
        assert np.array_equal(np.load(tmp_path / "out.npy"), DENSE[1:7:2][..., [0, 3, 3]])
        raw = w4dx("get", uri(key), "--slice", "-1", "-o", "out.raw", cwd=tmp_path, **environment)
        assert raw.returncode == 0, raw.stderr
        assert (tmp_path / "out.raw").read_bytes() == DENSE[-1].tobytes()


def test_get_says_what_is_wrong_and_leaves_no_file(places: tuple, tmp_path: Path) -> None:
    uri, environment = places
    for arguments, words in (
        (("get", uri("a.zarr"), "--slice", "99", "-o", "out.npy"), "99"),
        (("get", uri("a.zarr"), "--slice", "1,,", "-o", "out.npy"), "slice"),
        (("get", uri("nothing.zarr"), "--slice", "0", "-o", "out.npy"), "nothing.zarr"),
    ):
        done = w4dx(*arguments, cwd=tmp_path, **environment)
        assert done.returncode != 0 and words in done.stderr, done
        assert "panicked" not in done.stderr and not (tmp_path / "out.npy").exists()


def test_inspect(places: tuple, tmp_path: Path) -> None:
    uri, environment = places
    text = w4dx("inspect", uri("a.zarr"), cwd=tmp_path, **environment)
    assert text.returncode == 0, text.stderr
    for word in ("int32", "zstd", "crc32c", "8", "10"):
        assert word in text.stdout, text.stdout
    done = w4dx("inspect", uri("a.zarr"), "--json", cwd=tmp_path, **environment)
    body = json.loads(done.stdout)
    assert (body["v"], body["shape"], body["dtype"], body["dims"]) == (1, [8, 6, 10], "int32", ["t", "y", "x"])
    assert body["chunk_shape"] == [2, 3, 5] and body["shard_shape"] == [4, 6, 10]


def serve(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Starts `serve` with a configuration that must be refused."""
    (folder / "w4dx.toml").write_text(text)
    return w4dx("serve", "--config", "w4dx.toml", cwd=folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[server]", "[servr]"), ["servr", "server"]),
        (("listen =", "lisen ="), ["lisen", "listen"]),
        (("freshness =", "freshnes ="), ["freshnes", "freshness"]),
        (("kind =", "knd ="), ["knd", "kind"]),
        (('"local"', '"locl"'), ["locl", "local"]),
        (('store = "disk"', 'store = "dsk"'), ["dsk", "disk"]),
        (('freshness = "0s"', 'freshness = "soon"'), ["soon"]),
        (("access_key =", "acess_key ="), ["acess_key", "access_key"]),
        (('"127.0.0.1:0"', '"nowhere"'), ["nowhere"]),
        (("/served", "/not-there"), ["not-there"]),
        (("[server]", "[server"), ["w4dx.toml"]),
    ],
)
def test_serve_refuses_a_wrong_configuration_in_one_line(
    tmp_path: Path, change: tuple[str, str], words: list[str]
) -> None:
    (tmp_path / "served").mkdir()
    good = Config(stores={"disk": local_store(tmp_path / "served")}, buckets={"data": Bucket("disk")}).text()
    assert change[0] in good
    done = serve(good.replace(*change, 1), tmp_path)
    assert done.returncode not in (0, 101), done
    complaint = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(complaint) == 1, done.stderr
    for word in words:
        assert word in complaint[0], complaint


def test_serve_without_a_configuration_says_so(tmp_path: Path) -> None:
    done = w4dx("serve", "--config", "missing.toml", cwd=tmp_path)
    assert done.returncode not in (0, 101) and "missing.toml" in done.stderr


def test_flags_and_environment_override_the_file(tmp_path: Path, gateway: GatewayMaker, stored: Path) -> None:
    config = Config(stores={"disk": local_store(stored)}, buckets={"data": Bucket("disk", anonymous=None)}, keys=[])
    (tmp_path / "w4dx.toml").write_text(config.text().replace('"127.0.0.1:0"', '"127.0.0.1:1"'))
    keys = {"W4DX_ACCESS_KEY": ACCESS_KEY, "W4DX_SECRET_KEY": SECRET_KEY}
    with Server(["serve", "--config", "w4dx.toml", "--listen", "127.0.0.1:0"], tmp_path, keys) as served:
        url, headers = signed("GET", served.url, "/data/a.npy", [("slice", "0")], ACCESS_KEY, SECRET_KEY)
        assert served.session.get(url, headers=headers).status_code == 200


def test_a_port_that_is_taken_is_one_clear_line(tmp_path: Path, gateway: GatewayMaker, stored: Path) -> None:
    config = Config(stores={"disk": local_store(stored)}, buckets={"data": Bucket("disk")})
    first = gateway(config)
    port = first.url.rsplit(":", 1)[1]
    done = serve(config.text().replace("127.0.0.1:0", f"127.0.0.1:{port}"), tmp_path)
    assert done.returncode not in (0, 101) and port in done.stderr


def test_help_and_version(tmp_path: Path) -> None:
    assert re.match(r"w4dx \d+\.\d+\.\d+", w4dx("--version", cwd=tmp_path).stdout)
    text = w4dx("--help", cwd=tmp_path).stdout
    for command in ("demo", "serve", "get", "inspect"):
        assert command in text


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demonstration's data, written once."""
    folder = tmp_path_factory.mktemp("demo")
    with Server(["demo", "--listen", "127.0.0.1:0", "--data", "bucket"], folder):
        pass
    return folder


def start_demo(folder: Path, *more: str) -> Server:
    return Server(["demo", "--listen", "127.0.0.1:0", "--data", "bucket", *more], folder)


def test_the_second_start_takes_under_a_second(demo: Path) -> None:
    start = time.monotonic()
    with start_demo(demo):
        assert time.monotonic() - start < 1.0


def test_the_demonstration_opens_in_zarr_python(demo: Path) -> None:
    group = zarr.open_group(next((demo / "bucket").rglob("clips.zarr")), mode="r")
    video, audio, tokens, points = (group[n] for n in ("video", "audio", "tokens", "points"))
    assert video.dtype == "uint8" and video.ndim == 5 and video.shards and video.shape[4] == 3
    assert video.metadata.dimension_names == ("sample", "time", "y", "x", "channel")
    assert audio.dtype == "float32" and audio.metadata.dimension_names == ("sample", "time")
    assert points.dtype == "float32" and points.metadata.dimension_names == ("point", "column")
    assert tokens.dtype == "int32" if hasattr(tokens, "dtype") else tokens["values"].dtype == "int32"
    assert video.attrs["fps"] > 0 and audio.attrs["sample_rate"] > 0
    frames = np.asarray(video[0])
    # Something to look at: neither flat nor noise, and it moves.
    assert frames.std() > 5 and np.abs(np.diff(frames.astype(int), axis=2)).mean() < 30
    assert not np.array_equal(frames[0], frames[-1])
    with start_demo(demo) as served:
        got = served.get("/demo/clips.zarr/video", slice="0,0", format="raw")
        assert got.content == frames[0].tobytes()
        for key in ("frame.npy", "weights.safetensors"):
            assert served.get(f"/demo/{key}", describe="").status_code == 200


def test_the_keys_of_the_demonstration(demo: Path) -> None:
    with start_demo(demo, "--access-key", "DEMOKEY", "--secret-key", "demo-secret") as served:

        def ask(method: str, body: bytes | None = None) -> int:
            url, headers = signed(method, served.url, "/demo/mine", [], "DEMOKEY", "demo-secret")
            return served.session.request(method, url, headers=headers, data=body).status_code

        assert ask("PUT", b"x") == 200
        assert served.get("/demo/mine").content == b"x"
        assert served.request("PUT", "/demo/other", data=b"x").status_code == 403
        assert ask("DELETE") == 204


def printed_examples(served: Server) -> list[str]:
    """The commands that the demonstration prints, as a user would paste them."""
    said = lambda: all(tool in served.log_text() for tool in ("curl ", "aws ", "python", "/-/docs"))  # noqa: E731
    wait_until(said, 5, "the examples are printed")
    text = re.sub(r"\x1b\[[0-9;]*m", "", served.log_text())
    commands, joined = [], ""
    for line in text.splitlines():
        joined += line.strip().removesuffix("\\")
        if line.rstrip().endswith("\\"):
            continue
        if re.match(r"(\$ )?(export |[A-Z_]+=\S+ )*(curl|aws|python3?)\s", joined) or joined.startswith("export "):
            commands.append(joined.removeprefix("$ "))
        joined = ""
    return commands


def test_the_printed_examples_run_when_pasted(demo: Path, tmp_path: Path) -> None:
    clients = os.environ.get("W4DX_CLIENTS_BIN")
    assert clients, "run these tests through tests/run python"
    with start_demo(demo) as served:
        commands = printed_examples(served)
        for tool in ("curl", "aws", "python"):
            assert any(tool in c for c in commands), (tool, served.log_text())
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        # python with numpy is this one; aws comes from the clients' environment.
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), clients, environment["PATH"]])
        script = "set -e\n" + "\n".join(commands)
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{script}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
        made = [p for p in tmp_path.rglob("*") if p.suffix == ".npy"]
        assert made and all(np.load(p).size for p in made)


def test_an_interrupted_first_start_is_finished_by_the_next(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [binary(), "demo", "--listen", "127.0.0.1:0", "--data", "bucket"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while not list(tmp_path.rglob("*.zarr*")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with start_demo(tmp_path) as served:
        assert served.get("/demo/clips.zarr/video", slice="-1,-1", format="raw").status_code == 200
        assert served.get("/demo/weights.safetensors", describe="").status_code == 200
