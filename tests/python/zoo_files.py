"""The zoo's single files: `.npy` of every version and order, and `.safetensors`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from zoo import SMALL, Case, values, zarr_name

SAFETENSORS = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
"""Names of the safetensors format by those of numpy and ml_dtypes."""


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> None:
    """Writes the format by its definition: length, JSON header, little-endian C-order data."""
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    body = b""
    for name, tensor in tensors.items():
        raw = np.ascontiguousarray(tensor).tobytes()
        header[name] = {
            "dtype": SAFETENSORS[tensor.dtype.name],
            "shape": list(tensor.shape),
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def build(folder: Path) -> list[Case]:
    """Writes them all."""
    cases = []
    (folder / "files").mkdir()

    def npy(name: str, dense: np.ndarray, version: tuple[int, int] = (1, 0)) -> None:
        path = f"files/{name}.npy"
        with open(folder / path, "wb") as out:
            np.lib.format.write_array(out, dense, version=version, allow_pickle=False)
        read = np.load(folder / path, allow_pickle=False)
        cases.append(Case(path, read, zarr_name(read.dtype)))

    for version in ((1, 0), (2, 0), (3, 0)):
        npy(f"version-{version[0]}", values(str(version), np.dtype("f4"), (11, 6, 5)), version)
    npy("fortran", np.asfortranarray(values("fortran", np.dtype("i4"), (11, 6, 5))))
    npy("fortran-big", np.asfortranarray(values("fortran-big", np.dtype(">f8"), (11, 6))))
    npy("big-endian", values("npy-big", np.dtype(">u2"), (300, 7)))
    npy("scalar", np.array(42, "i8"))
    npy("empty", np.zeros((4, 0), "f4"))
    npy("bool", values("npy-bool", np.dtype(bool), (13, 5)))
    npy("complex", values("npy-complex", np.dtype("c16"), (13, 5)))
    npy("datetime", values("npy-datetime", np.dtype("M8[ns]"), (13, 5)))
    npy("image", values("npy-image", np.dtype("u1"), (40, 30, 3)))

    tensors = {f"layer.{n}": values(n, SMALL[n] if n in SMALL else np.dtype(n), (6, 5)) for n in SAFETENSORS}
    tensors |= {
        "scalar": np.array(2.5, "f4"),
        "empty": np.zeros((0, 3), "i4"),
        "w t/e%": values("wte", np.dtype("f4"), (9, 4)),
    }
    write_safetensors(folder / "files/model.safetensors", tensors, {"maker": "tests"})
    cases += [Case("files/model.safetensors", t, zarr_name(t.dtype), array=name) for name, t in tensors.items()]
    single = values("single", np.dtype("f4"), (8, 8))
    write_safetensors(folder / "files/single.safetensors", {"only": single})
    cases.append(Case("files/single.safetensors", single, "float32", array="only"))
    return cases
