"""Stored bytes that are broken or hostile: a named error and a living server, never a wrong value."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import shutil
import struct
import time
from pathlib import Path

import numcodecs
import numpy as np
import pytest
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, ZstdCodec

import wire
from arrays import CHECKED, group, noise, save
from conftest import GatewayMaker
from gateway import Bucket, Config, Gateway, error_code, local_store

MEMORY = 1 << 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "served"


@pytest.fixture(scope="module")
def served(folder: Path, module_gateway: GatewayMaker) -> Gateway:
    folder.mkdir()
    (folder.parent / "secret.npy").write_bytes(b"\x93NUMPY secret")
    save(folder.parent, "outside.zarr", noise((2,), "uint8"))
    return module_gateway(Config(stores={"disk": local_store(folder)}, buckets={"data": Bucket("disk")}))


@pytest.fixture(autouse=True)
def the_server_lives(served: Gateway) -> object:
    """After each test the server answers and has not swallowed the machine's memory."""
    yield
    assert served.alive(), served.log_text()[-2000:]
    assert served.get("/-/health").status_code == 200
    status = Path(f"/proc/{served.process.pid}/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        assert int(peak.split()[1]) * 1024 < MEMORY, peak


def corrupt(served: Gateway, key: str, code: str = "CorruptData", **params: str) -> str | None:
    """None when the answer is the named error, else what it was."""
    got = served.get(f"/data/{key}", slice=params.pop("slice", ""), **params)
    if got.status_code == 500 and error_code(got) == code:
        return None
    return f"{key}: {got.status_code} {got.text[:200] if got.status_code != 200 else got.content[:64]!r}"


def copies(folder: Path, key: str, chunk: str, changes: dict[str, bytes]) -> list[str]:
    """The array at `key` once more for each change, with that body in place of the object `chunk`."""
    keys = []
    for name, body in changes.items():
        copy = f"{key}-{name}"
        shutil.copytree(folder / key, folder / copy)
        (folder / copy / chunk).write_bytes(body)
        keys.append(copy)
    return keys


def flips(body: bytes) -> dict[str, bytes]:
    """Each byte flipped in one bit, a different bit each."""
    return {f"flip{i}": body[:i] + bytes([body[i] ^ 1 << (i % 8)]) + body[i + 1 :] for i in range(len(body))}


@pytest.mark.parametrize(
    ("name", "codecs"),
    [
        ("crc", [Crc32cCodec()]),
        ("zstd-crc", CHECKED),
        ("crc-zstd", [Crc32cCodec(), ZstdCodec(level=1)]),
        ("blosc-crc", [BloscCodec(typesize=1, cname="lz4"), Crc32cCodec()]),
        ("gzip-crc", [GzipCodec(level=1), Crc32cCodec()]),
    ],
)
def test_one_flipped_bit_anywhere_in_a_checksummed_chunk(
    served: Gateway, folder: Path, name: str, codecs: list
) -> None:
    dense = save(folder, name, noise((4, 5), "uint8"), chunks=(4, 5), compressors=codecs)
    keys = copies(folder, name, "c/0/0", flips((folder / name / "c/0/0").read_bytes()))
    assert len(keys) >= 24
    whole = [corrupt(served, key) for key in keys]
    one = [corrupt(served, key, slice="1,2") for key in keys]
    # Inside a compressed frame a bit may be unused: then the checksum within holds, and so do the values.
    bad = [w for w in whole + one if w]
    if name == "crc-zstd":
        allowed = {f"{k}: 200" for k in keys if wire_equal(served, k, dense)}
        bad = [b for b in bad if not any(b.startswith(a) for a in allowed)]
    assert not bad, "\n".join(bad)


def wire_equal(served: Gateway, key: str, dense: np.ndarray) -> bool:
    """Whether the answer is right after all."""
    got = served.get(f"/data/{key}", slice="", format="raw")
    return got.status_code == 200 and got.content == dense.tobytes()


@pytest.mark.parametrize("where", ["start", "end"])
def test_one_flipped_bit_anywhere_in_a_shard(served: Gateway, folder: Path, where: str) -> None:
    inner = [BytesCodec(), ZstdCodec(level=1), Crc32cCodec()]
    codec = ShardingCodec(chunk_shape=(2, 3), codecs=inner, index_location=where)
    name = f"shard-{where}"
    save(folder, name, noise((4, 6), "uint8"), chunks=(4, 6), serializer=codec, compressors=None, filters=None)
    body = (folder / name / "c/0/0").read_bytes()
    assert corrupt(served, name) is not None, "the array is whole to begin with"
    bad = [corrupt(served, key) for key in copies(folder, name, "c/0/0", flips(body))]
    assert not any(bad), "\n".join(b for b in bad if b)
    cut = {f"cut{n}": body[:n] for n in range(len(body))}
    bad = [corrupt(served, key) for key in copies(folder, name, "c/0/0", cut)]
    assert not any(bad), "\n".join(b for b in bad if b)


def test_an_untouched_chunk_of_a_broken_shard_is_still_read(served: Gateway, folder: Path) -> None:
    dense = save(folder, "half", noise((2, 4), "uint8"), chunks=(1, 4), shards=(2, 4), compressors=CHECKED)
    body = (folder / "half/c/0/0").read_bytes()
    (key,) = copies(folder, "half", "c/0/0", {"first": bytes([body[0] ^ 255]) + body[1:]})
    assert corrupt(served, key, slice="0") is None
    assert served.get(f"/data/{key}", slice="1", format="raw").content == dense[1].tobytes()


def test_a_bare_index_that_points_outside(served: Gateway, folder: Path) -> None:
    """Without a checksum over the index only arithmetic protects."""
    codec = ShardingCodec(chunk_shape=(4,), codecs=[BytesCodec(), Crc32cCodec()], index_codecs=[BytesCodec()])
    save(folder, "bare", noise((8,), "uint8"), chunks=(8,), serializer=codec, compressors=None, filters=None)
    body = (folder / "bare/c/0").read_bytes()
    data, size, top = body[:-32], len(body), 2**64 - 1
    rows = {
        "past-the-end": (size, 8),
        "over-the-end": (size - 2, 8),
        "into-the-index": (size - 32, 8),
        "overflow": (top - 3, 8),
        "overflow-length": (8, top - 3),
        "huge": (0, 2**62),
        "half-absent": (top, 8),
        "absent-length": (0, top),
        "too-short": (0, 3),
        "nothing": (0, 0),
        "too-long": (0, 16),
    }
    changes = {n: data + struct.pack("<4Q", offset, length, 8, 8) for n, (offset, length) in rows.items()}
    bad = [corrupt(served, key) for key in copies(folder, "bare", "c/0", changes)]
    assert not any(bad), "\n".join(b for b in bad if b)


def zstd_frame_claiming(size: int) -> bytes:
    """A frame whose header claims `size` bytes and whose one raw block holds a single byte."""
    return struct.pack("<IBQ", 0xFD2FB528, 0xE0, size) + (1 | 1 << 3).to_bytes(3, "little") + b"x"


def test_decompressors_are_capped_at_the_size_of_the_chunk(served: Gateway, folder: Path) -> None:
    dense = noise((4, 4), "uint8")
    bomb = b"\0" * (64 << 20)
    blosc_header = struct.pack("<BBBBIII", 2, 1, 0x21, 1, 2**31 - 1, 2**31 - 1, 64) + b"\0" * 48
    cases = {
        "zstd": (
            {"compressors": ZstdCodec(level=1)},
            {
                "claims-2-46": zstd_frame_claiming(2**46),
                "claims-2-63": zstd_frame_claiming(2**63 - 1),
                "bomb": bytes(numcodecs.Zstd(19).encode(bomb)),
                "longer": bytes(numcodecs.Zstd(1).encode(b"a" * 17)),
                "shorter": bytes(numcodecs.Zstd(1).encode(b"a" * 15)),
                "empty": b"",
                "zeros": b"\0" * 40,
            },
        ),
        "gzip": (
            {"compressors": GzipCodec()},
            {
                "bomb": gzip.compress(bomb),
                "longer": gzip.compress(b"a" * 17),
                "cut": gzip.compress(dense.tobytes())[:-9],
            },
        ),
        "blosc": (
            {"compressors": BloscCodec(typesize=1)},
            {"claims": blosc_header, "empty": b"", "longer": bytes(numcodecs.Blosc().encode(b"a" * 17))},
        ),
        "plain": ({"compressors": None}, {"longer": b"a" * 17, "shorter": b"a" * 15, "empty": b""}),
    }
    v2 = {"zarr_format": 2}
    cases |= {
        "v2-lz4": (
            v2 | {"compressors": numcodecs.LZ4()},
            {
                "claims": struct.pack("<i", 2**31 - 1) + b"\x10a",
                "negative": struct.pack("<i", -5) + b"\x10a",
                "bomb": bytes(numcodecs.LZ4().encode(bomb)),
            },
        ),
        "v2-zlib": (v2 | {"compressors": numcodecs.Zlib(9)}, {"bomb": bytes(numcodecs.Zlib(9).encode(bomb))}),
        "v2-bz2": (v2 | {"compressors": numcodecs.BZ2(9)}, {"bomb": bytes(numcodecs.BZ2(9).encode(bomb))}),
    }
    bad = []
    for name, (options, bodies) in cases.items():
        save(folder, f"cap-{name}", dense, chunks=(4, 4), **options)
        chunk = "0.0" if "v2" in name else "c/0/0"
        assert (folder / f"cap-{name}" / chunk).exists()
        start = time.monotonic()
        bad += [corrupt(served, key) for key in copies(folder, f"cap-{name}", chunk, bodies)]
        assert time.monotonic() - start < 20, f"{name} took too long"
    assert not any(bad), "\n".join(b for b in bad if b)


def test_absurd_metadata(served: Gateway, folder: Path) -> None:
    save(folder, "absurd", noise((4, 4), "uint8"), chunks=(2, 2))
    good = json.loads((folder / "absurd/zarr.json").read_text())

    def changed(**changes: object) -> str:
        return json.dumps(good | changes)

    def grid(*shape: object) -> dict:
        return {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(shape)}}}

    shard = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [1, 1],
            "codecs": [{"name": "bytes"}],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        },
    }
    texts = {
        "shape-2-63": changed(shape=[2**63, 4]),
        "shape-2-64": changed(shape=[2**64, 4]),
        "shape-product": changed(shape=[2**62, 2**62], **grid(2**61, 2**61)),
        "shape-negative": changed(shape=[-1, 4]),
        "shape-text": changed(shape=["4", 4]),
        "shape-float": changed(shape=[4.5, 4]),
        "rank-differs": changed(shape=[4]),
        "rank-1000": changed(shape=[1] * 1000, **grid(*[1] * 1000)),
        "chunk-zero": changed(**grid(0, 2)),
        "chunk-huge": changed(**grid(2**62, 2)),
        "no-codecs": changed(codecs=[]),
        "codecs-null": changed(codecs=None),
        "many-codecs": changed(codecs=[{"name": "bytes"}] + [{"name": "crc32c"}] * 5000),
        "transpose-wrong": changed(
            codecs=[{"name": "transpose", "configuration": {"order": [0, 0]}}, {"name": "bytes"}]
        ),
        "shard-tiny": changed(shape=[2**40, 2**20], codecs=[shard], **grid(2**30, 2**20)),
        "shard-uneven": changed(
            codecs=[shard | {"configuration": shard["configuration"] | {"chunk_shape": [3, 2]}}], **grid(4, 4)
        ),
        "unknown-codec": changed(codecs=[{"name": "bytes"}, {"name": "wonderzip"}]),
        "unknown-dtype": changed(data_type="float99"),
        "dtype-object": changed(data_type={"name": "r2147483648", "configuration": {}}),
        "fill-wrong": changed(fill_value="not a number"),
        "names-short": changed(dimension_names=["a"]),
        "version-9": changed(zarr_format=9),
        "not-json": "{",
        "empty": "",
        "a-number": "7",
        "deep": '{"zarr_format":3,"node_type":"array","attributes":' + "[" * 200_000 + "]" * 200_000 + "}",
        "deep-codecs": changed(codecs="HERE").replace('"HERE"', nested_shards(3000)),
        "binary": "\x00\x01\x02",
    }
    bad = []
    for name, text in texts.items():
        shutil.copytree(folder / "absurd", folder / f"absurd-{name}")
        (folder / f"absurd-{name}/zarr.json").write_text(text)
        for params in ({"slice": ""}, {"slice": "0,0"}, {"describe": ""}, {"explain": "", "slice": ""}):
            start = time.monotonic()
            got = served.get(f"/data/absurd-{name}", **params)
            took = time.monotonic() - start
            named = got.status_code == 200 or error_code(got) in {
                "CorruptData", "SliceTooLarge", "UnsupportedCodec", "UnsupportedDtype", "NotImplemented",
            }  # fmt: skip
            # What one chunk of no data needs is cheap; a shape alone may be described, and `0,0` of it read.
            huge = name.startswith(
                ("shape-2-63", "shape-product", "chunk-huge", "shard-tiny", "many-codecs", "rank-1000")
            )
            allowed = (200, 400, 500, 501) if huge or "describe" in params else (400, 500, 501)
            if got.status_code not in allowed or not named or took > 10:
                bad.append(f"{name} {params}: {got.status_code} in {took:.1f} s {got.text[:150]}")
    assert not bad, "\n".join(bad)
    for name, code in (("unknown-codec", "UnsupportedCodec"), ("unknown-dtype", "UnsupportedDtype")):
        got = served.get(f"/data/absurd-{name}", slice="")
        assert (got.status_code, error_code(got)) == (501, code)
        assert {"unknown-codec": "wonderzip", "unknown-dtype": "float99"}[name] in got.text


def nested_shards(depth: int) -> str:
    """The JSON of a codec chain of `depth` shards within shards, deeper than `json.dumps` would go."""
    index = '"index_codecs":[{"name":"bytes","configuration":{"endian":"little"}}]'
    head = f'[{{"name":"sharding_indexed","configuration":{{"chunk_shape":[2,2],{index},"codecs":'
    return head * depth + '[{"name":"bytes"}]' + "}}]" * depth


def test_an_unknown_codec_is_named_before_any_chunk_is_read(served: Gateway, folder: Path) -> None:
    save(folder, "lzma", noise((4, 4), "uint8"), zarr_format=2, compressors=numcodecs.LZMA(preset=1))
    (folder / "lzma/0.0").write_bytes(b"broken")
    for params in ({"slice": ""}, {"slice": "0:0"}, {"slice": "", "explain": ""}):
        got = served.get("/data/lzma", **params)
        assert (got.status_code, error_code(got)) == (501, "UnsupportedCodec") and "lzma" in got.text


@pytest.mark.parametrize("name", ["structured", "object"])
def test_pickles_and_structured_types_are_never_opened(served: Gateway, folder: Path, name: str) -> None:
    dense = np.zeros(3, [("a", "i4"), ("b", "f4")]) if name == "structured" else np.array([{}, 1, "x"], dtype=object)
    np.save(folder / f"{name}.npy", dense, allow_pickle=True)
    got = served.get(f"/data/{name}.npy", slice="")
    assert (got.status_code, error_code(got)) == (501, "UnsupportedDtype"), got.text


def test_broken_files(served: Gateway, folder: Path) -> None:
    np.save(folder / "ok.npy", noise((3, 3), "int32"))
    body = (folder / "ok.npy").read_bytes()
    head = b"\x93NUMPY\x01\x00"

    def header(text: str) -> bytes:
        return head + struct.pack("<H", len(text)) + text.encode()

    files = {
        "cut.npy": body[:-1],
        "cut-header.npy": body[:40],
        "empty.npy": b"",
        "magic.npy": head,
        "version.npy": body[:6] + b"\x09\x00" + body[8:],
        "huge-header.npy": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{",
        "shape.npy": header(
            "{'descr': '<i4', 'fortran_order': False, 'shape': (4611686018427387904, 4611686018427387904), }\n"
        ),
        "negative.npy": header("{'descr': '<i4', 'fortran_order': False, 'shape': (-3,), }\n"),
        "code.npy": header("{'descr': __import__('os'), 'fortran_order': False, 'shape': (3,), }\n"),
        "nested.npy": header("{'descr': " + "(" * 20000 + ")" * 20000 + ", 'fortran_order': False, 'shape': (3,), }\n"),
        "cut.safetensors": (100).to_bytes(8, "little") + b'{"a":',
        "huge.safetensors": (2**63).to_bytes(8, "little") + b"{}",
        "short.safetensors": b"\x01\x02",
        "outside.safetensors": safetensors('{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}', b"1234"),
        "backwards.safetensors": safetensors('{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}', b"1234"),
        "size.safetensors": safetensors('{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}', b"1234"),
        "product.safetensors": safetensors(
            '{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}', b"1234"
        ),
        "deep.safetensors": safetensors("[" * 100_000 + "]" * 100_000, b""),
    }
    bad = []
    for name, text in files.items():
        (folder / name).write_bytes(text)
        got = served.get(f"/data/{name}", slice="", array="a" if name.endswith("safetensors") else None)
        # A header cut off before it says that it is one is no array; all else is a broken array.
        good = {"CorruptData", "UnsupportedDtype", "NotAnArray", "NotImplemented"}
        if got.status_code not in (400, 500, 501) or error_code(got) not in good:
            bad.append(f"{name}: {got.status_code} {got.text[:200]}")
    assert not bad, "\n".join(bad)


def safetensors(header: str, data: bytes) -> bytes:
    """A file with this header, padded."""
    text = header.encode() + b" " * (-len(header) % 8)
    return len(text).to_bytes(8, "little") + text + data


def test_nothing_outside_the_folder_is_reachable(served: Gateway, folder: Path) -> None:
    group(folder, "inside.zarr")
    save(folder, "inside.zarr/x", noise((2,), "uint8"))
    os.symlink(folder.parent / "secret.npy", folder / "link.npy")
    os.symlink(folder.parent / "outside.zarr", folder / "inside.zarr/link")
    paths = [
        "/data/../secret.npy",
        "/data/..%2fsecret.npy",
        "/data/%2e%2e/secret.npy",
        "/data/inside.zarr/..%2f..%2fsecret.npy",
        "/data/link.npy",
        "/data//etc/passwd",
        "/data/%2fetc%2fpasswd",
        "/data/..%5csecret.npy",
        "/data/x%00/../../secret.npy",
    ]
    for path in paths:
        for query in ("", "?slice=0", "?describe"):
            # The standard library's client sends the path as it is, dots and all.
            connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=30)
            connection.request("GET", path + query)
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            assert answer.status in (400, 403, 404), (path + query, answer.status, body[:100])
            assert b"secret" not in body.replace(b"secret.npy", b"")
    for array in ("../../other/secret", "../outside.zarr", "link"):
        got = served.get("/data/inside.zarr", array=array, slice="0")
        assert got.status_code in (400, 403, 404), (array, got.status_code)
        assert "x-w4dx-shape" not in got.headers
    inkey = served.request("GET", "/data/inside.zarr/@array=..%252F..%252Fother%252Fsecret;slice=0.npy")
    assert inkey.status_code == 400
    assert wire.MEDIA["npy"] not in inkey.headers["Content-Type"]
