"""The OpenAPI document: that it is valid, that the source agrees with it, and that a running gateway does.

Runs in its own environment (requirements-openapi.txt): `tests/run openapi`.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
import yaml
from conftest import SEED, SOAK
from gateway import Server, error_code
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "openapi/examples").glob("*.json"))
SPEC: dict[str, Any] = yaml.safe_load((ROOT / "openapi/w4dx.yaml").read_text(encoding="utf-8"))
METHODS = ("get", "head", "put", "post", "delete", "options", "patch")

# What may go wrong on the server's side with a healthy store: a reserved feature, and overload.
HARMLESS = (501, 503)


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    """Path, method and description of each operation."""
    return [(path, m, item[m]) for path, item in SPEC["paths"].items() for m in METHODS if m in item]


def source(path: str) -> str:
    """Rust source without its tests and comments."""
    text = (ROOT / path).read_text(encoding="utf-8").split("#[cfg(test)]")[0]
    return re.sub(r"^\s*//[/!].*$", "", text, flags=re.M)


def constant(path: str, name: str) -> list[str]:
    """The strings of a `const NAME: &[&str]`."""
    found = re.search(rf"const {name}: &\[&str\] =\s*&\[(.*?)\];", source(path), re.S)
    assert found, f"{path} has no {name}"
    return re.findall(r'"([^"]+)"', found[1])


def error_kinds() -> dict[str, str]:
    """Variant and code of every `ErrorKind`."""
    body = re.search(r"fn code\(self\).*?\{(.*?)\n    \}", source("src/model/kind.rs"), re.S)
    assert body
    return dict(re.findall(r'Self::(\w+) => "(\w+)"', body[1]))


@pytest.fixture(scope="module")
def demo_server(workdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`w4dx demo`: the bucket that the examples are about."""
    data = tmp_path_factory.mktemp("demo")
    with Server(["demo", "--listen", "127.0.0.1:0", "--data", str(data)], workdir) as server:
        yield server


# -- the document by itself, and beside the source --


def test_the_document_is_valid_openapi() -> None:
    validate(SPEC)
    assert SPEC["openapi"].startswith("3.1.")


def test_the_schemas_accept_the_examples_beside_them() -> None:
    for name, schema in (
        ("array", "ArrayDescription"),
        ("group", "GroupDescription"),
        ("explanation", "Explanation"),
        ("prefetched", "Prefetched"),
    ):
        check_schema(SPEC["components"]["examples"][name]["value"], schema)
    body = SPEC["paths"]["/{bucket}/{key}"]["post"]["requestBody"]["content"]["application/json"]
    for example in body["examples"].values():
        check_schema(example["value"], "Batch")
    check_schema(SPEC["components"]["schemas"]["Problem"]["example"], "Problem")
    for path in ("/-/health", "/-/ready"):
        for response in SPEC["paths"][path]["get"]["responses"].values():
            content = response.get("content", {}).get("application/json")
            if content:
                check_schema(content["example"], content["schema"]["$ref"].rsplit("/", 1)[-1])


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids)) >= 10


def test_error_codes_agree_with_the_source() -> None:
    kinds = error_kinds()
    assert len(kinds) >= 29, "the pattern that reads the source has lost its way"
    all_list = re.search(r"const ALL: &'static \[ErrorKind\] = &\[(.*?)\];", source("src/model/kind.rs"), re.S)
    assert all_list
    order = re.findall(r"Self::(\w+)", all_list[1])
    assert sorted(order) == sorted(kinds), "ErrorKind::ALL lists every kind"
    assert SPEC["components"]["schemas"]["ErrorCode"]["enum"] == [kinds[kind] for kind in order]
    told = " ".join(response["description"] for response in SPEC["components"]["responses"].values())
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", told)) - {"Content-Range"}
    assert set(kinds.values()) <= named, "every code stands at a status"


def test_own_routes_agree_with_the_source() -> None:
    files = [ROOT / "src/server.rs", *sorted((ROOT / "src/http").rglob("*.rs"))]
    text = "\n".join(source(str(file.relative_to(ROOT))) for file in files if file.exists())
    # `/-/` alone is the prefix, `/-/{*rest}` the fallback.
    routes = {re.sub(r"\{\*", "{", route) for route in re.findall(r'"(/-/[^"\s]*)"', text)}
    routes = {route for route in routes if not re.fullmatch(r"/-/(\{\w+\})?", route)}
    assert routes == {path for path in SPEC["paths"] if path.startswith("/-/")}


def test_parameters_agree_with_the_source() -> None:
    names = constant("src/query/parameters.rs", "NAMES")
    # A batch has its selections in the body, and is answered in forms of its own.
    of_batches, not_beside = {"batch", "stack", "on_error"}, {"slice", "isel", "format", "describe", "limit", "token"} | {"subset", "bbox", "datetime", "sel", "count", "fields", "filter", "select", "values"}
    for method, others in (("get", of_batches), ("head", of_batches), ("post", not_beside)):
        refs = [p["$ref"].rsplit("/", 1)[-1] for p in SPEC["paths"]["/{bucket}/{key}"][method]["parameters"]]
        parameters = [SPEC["components"]["parameters"][ref] for ref in refs]
        assert [p["name"] for p in parameters if p["in"] == "query"] == [n for n in names if n not in others]
    reserved = SPEC["paths"]["/{bucket}/{key}"]["get"]["x-w4dx-reserved-parameters"]
    assert reserved == constant("src/query/parameters.rs", "RESERVED")


def test_every_operation_has_examples_and_every_example_an_operation() -> None:
    used = []
    for path, method, operation in operations():
        assert operation.get("x-w4dx-examples"), f"{method} {path} has no example"
        for name in operation["x-w4dx-examples"]:
            request = load(ROOT / f"openapi/examples/{name}.json")["request"]
            assert (request["method"].lower(), template_of(request["path"])) == (method, path), name
            used.append(name)
    assert sorted(used) == sorted(path.stem for path in EXAMPLES)


def load(path: Path) -> dict[str, Any]:
    """One example."""
    return json.loads(path.read_text(encoding="utf-8"))


def template_of(path: str) -> str:
    """The path of the document that a request's path belongs to: a literal one, else the first template that fits."""
    if path in SPEC["paths"]:
        return path
    if path.startswith("/-/docs/"):
        return "/-/docs/{file}"
    return "/{bucket}/{key}" if "/" in path[1:] else "/{bucket}"


def check_schema(value: Any, name: str) -> None:
    """Fails unless `value` is of the component schema `name`."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": SPEC["components"]}
    Draft202012Validator(schema).validate(value)


# -- a running gateway --


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_what_is_answered(demo_server: Server, path: Path) -> None:
    example = load(path)
    request, expected = example["request"], example["response"]
    answer = demo_server.request(
        request["method"],
        request["path"],
        params=request["query"],
        headers=request["headers"],
        json=request.get("body"),
    )
    assert answer.status_code == expected["status"], answer.text[:500]
    for name, value in expected["headers"].items():
        got = answer.headers.get(name, "")
        # A charset may follow the media type.
        assert (got.split(";")[0] if name == "Content-Type" else got) == value, name
    assert answer.headers["x-amz-request-id"]
    if "bytes" in expected:
        assert len(answer.content) == expected["bytes"]
    if "code" in expected:
        assert error_code(answer) == expected["code"]
    if "json" in expected:
        assert answer.json() == expected["json"]
    if "schema" in expected:
        check_schema(answer.json(), expected["schema"])
    if "includes" in expected:
        assert expected["includes"].items() <= answer.json().items()
    if "layout" in expected:
        layout = json.loads(answer.headers["x-w4dx-layout"])
        check_schema(layout, "Layout")
        for field in layout["fields"]:
            assert field.pop("source_etag", None) or field["name"].endswith("lengths")
        assert layout == expected["layout"]
    if "frames" in expected:
        assert frames(answer.content) == expected["frames"]
    if "statuses" in expected:
        records = json.loads(answer.headers["x-w4dx-layout"])["records"]
        body = answer.content[records["offset"] :]
        assert len(body) == records["len"]
        assert [status for status, _, _ in struct.iter_unpack("<HHI", body)] == expected["statuses"]
    if expected.get("schema") == "Elements":
        assert list(shape_of(answer.json())) == json.loads(answer.headers["x-w4dx-shape"])
    if answer.headers.get("Content-Type") == "application/problem+json":
        body = answer.json()
        assert (body["status"], body["request_id"]) == (answer.status_code, answer.headers["x-amz-request-id"])


def frames(body: bytes) -> list[list[Any]]:
    """Item, field, status and shape of each frame of a batch, which must end as the document says."""
    found: list[list[Any]] = []
    at = 0
    while True:
        magic, version, kind, item, field, status, _, axes, _, length = struct.unpack_from("<4sHHIHHHHIQ", body, at)
        assert (magic, version) == (b"W4DB", 1)
        if kind == 2:
            assert (item, at + 64) == (len(found), len(body))
            return found
        found.append([item, field, status, list(struct.unpack_from(f"<{axes}Q", body, at + 64))])
        if status != 200:
            start = at + 64 + -(-8 * axes // 64) * 64
            check_schema(json.loads(body[start : start + length]), "Problem")
        at += 64 + sum(-(-part // 64) * 64 for part in (8 * axes, length))


def shape_of(value: Any) -> Iterator[int]:
    """Lengths of nested lists, of which none is empty."""
    while isinstance(value, list):
        yield len(value)
        value = value[0]


def test_the_document_is_served(demo_server: Server) -> None:
    assert demo_server.get("/-/openapi.json").json() == SPEC


@pytest.mark.parametrize("name", SPEC["paths"]["/{bucket}/{key}"]["get"]["x-w4dx-reserved-parameters"])
def test_reserved_parameters_are_501(demo_server: Server, name: str) -> None:
    for parameter in (name, f"x-{name}"):
        answer = demo_server.get("/demo/clips.zarr/video", **{parameter: "1"})
        assert (answer.status_code, error_code(answer)) == (501, "NotImplemented")
        assert name in answer.text


# Keys that random ones are replaced by, most of the time: arrays, a group, files, the in-key form, plain objects.
KEYS = [
    "clips.zarr/video",
    "clips.zarr/audio",
    "clips.zarr/tokens",
    "clips.zarr/points",
    "clips.zarr",
    "frame.npy",
    "weights.safetensors",
    "clips.zarr/video/@slice=0,0.png",
    "clips.zarr/@array=video;slice=0,:2,...,0.npy",
    "clips.zarr/zarr.json",
    "clips.zarr/nothing",
]

BOUND = st.one_of(st.just(""), st.just("~"), st.integers(-40, 40).map(str))
RANGE = st.builds(lambda a, b, c: f"{a}:{b}" + (f":{c}" if c else ""), BOUND, BOUND, st.sampled_from(["", "1", "2", "-1", "-3"]))
LIST = st.lists(st.integers(-9, 9), min_size=1, max_size=4).map(lambda ns: f"({','.join(map(str, ns))})")
DIM = st.one_of(RANGE, RANGE, st.integers(-9, 9).map(str), LIST, st.just("..."))
SLICE = st.one_of(st.lists(DIM, max_size=6).map(",".join), st.text(max_size=40))
ISEL = st.builds(lambda name, dim: f"{name}={dim}", st.sampled_from(["sample", "time", "y", "x", "channel", "token", "z"]), DIM)
NUMBER = st.builds(lambda n, unit: f"{n}{unit}", st.one_of(st.integers(-40, 40), st.decimals(-3, 9, places=2)), st.sampled_from(["", "s", "ms", "m", "frames"]))
MARK = st.one_of(NUMBER, NUMBER, NUMBER, st.sampled_from(["*", "2024-01-31", '"2024-01-31T12:00Z"']))
NAME = st.sampled_from(["time", "time", "time", "sample", "x", "z"])
INTERVAL = st.one_of(MARK, st.builds("{}:{}".format, MARK, MARK), st.builds("{};n={}".format, MARK, st.integers(0, 30)))
SUBSET = st.one_of(st.builds("{}({})".format, NAME, INTERVAL), st.text(max_size=30))
BBOX = st.one_of(st.lists(NUMBER, min_size=4, max_size=6).map(",".join), st.text(max_size=30))
DATETIME = st.one_of(st.sampled_from(["2024-01-31T00:00Z/..", "../2024-01-31", "2024-01-31"]), st.text(max_size=30))
SEL = st.one_of(st.builds("{}={}{}".format, NAME, st.sampled_from(["", "nearest::", "ffill::", "bfill::"]), MARK), st.text(max_size=30))
schemathesis.openapi.format("w4dx-subset", SUBSET)
schemathesis.openapi.format("w4dx-bbox", BBOX)
schemathesis.openapi.format("w4dx-datetime", DATETIME)
schemathesis.openapi.format("w4dx-sel", SEL)
schemathesis.openapi.format("w4dx-count", st.builds("{}:{}".format, NAME, st.integers(-1, 40)))
schemathesis.openapi.format("w4dx-pad", st.builds("{}{}".format, st.integers(-1, 90), st.sampled_from(["", ":0", ":x", ":1.5"])))
CONDITION = st.builds("{} {} {}".format, st.sampled_from(["label", "time", "value", "sample", "x", "nothing"]), st.sampled_from(["=", "<>", "<", ">="]), st.sampled_from(["1", "-0.5", "'a'", "TRUE", "NULL"]))
FILTER = st.one_of(CONDITION, st.builds("{} AND NOT ({})".format, CONDITION, CONDITION), st.builds("({} OR {})".format, CONDITION, CONDITION), st.text(max_size=40))
schemathesis.openapi.format("w4dx-filter", FILTER)
schemathesis.openapi.format("w4dx-slice", SLICE)
schemathesis.openapi.format("w4dx-isel", ISEL)

api = schemathesis.openapi.from_dict(SPEC)


@schemathesis.check
def no_unexplained_server_error(ctx: Any, response: Any, case: Any) -> None:
    """A store that is well gives no 5xx but a reserved feature's, and overload's."""
    if response.status_code >= 500 and response.status_code not in HARMLESS:
        raise AssertionError(f"{response.status_code}: {response.text[:300]}")


def answerable(case: schemathesis.Case, choice: int) -> None:
    """Leaves a batch one parameter beside `batch`, and one field at most, of one that is there: most refuse each other."""
    query = dict(case.query or {})
    others = sorted(set(query) - {"batch"})
    case.query = {"batch": "1"} | {name: query[name] for name in others[choice % len(others) :][:1]} if others else query
    fields = case.body.get("fields") if isinstance(case.body, dict) else None
    if fields and isinstance(fields, dict):
        case.path_parameters["key"] = "clips.zarr"
        case.body["fields"] = {"video": next(iter(fields.values()))}


CHECKS = [
    no_unexplained_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """One connection for all generated requests, past any proxy."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


@pytest.mark.timeout(3600 if SOAK else 300)
@api.parametrize()
@seed(SEED)
@settings(
    max_examples=1500 if SOAK else 60,
    deadline=None,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)
def test_generated_requests_are_answered_as_documented(
    case: schemathesis.Case, demo_server: Server, session: requests.Session
) -> None:
    parameters = case.path_parameters
    if parameters and "bucket" in parameters:
        # Random names are rarely there: three quarters of the requests go where something is.
        choice = zlib.crc32(repr((parameters, case.query)).encode())
        if choice % 4:
            parameters["bucket"] = "demo"
            if "key" in parameters:
                parameters["key"] = KEYS[choice // 4 % len(KEYS)]
            if case.method == "POST":
                answerable(case, choice)
    answer = case.call(base_url=demo_server.url, session=session, allow_redirects=False, timeout=60)
    assert demo_server.alive()
    case.validate_response(answer, checks=CHECKS)
