"""Fixtures. Counts grow with W4DX_SOAK=1; W4DX_SEED repeats the random choices of an earlier run."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from gateway import Bucket, Config, Gateway, local_store, s3_store  # noqa: E402

SOAK = os.environ.get("W4DX_SOAK") == "1"
SEED = int(os.environ.get("W4DX_SEED") or random.SystemRandom().randrange(2**32))


def pytest_report_header() -> list[str]:
    return [f"w4dx: {os.environ.get('W4DX_BIN', 'no W4DX_BIN')}; soak={SOAK}; repeat with W4DX_SEED={SEED}"]


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether full counts are wanted."""
    return SOAK


@pytest.fixture
def rng() -> random.Random:
    """Random choices, repeatable by W4DX_SEED (printed in the header)."""
    return random.Random(SEED)


@pytest.fixture(scope="session")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where configurations and logs go."""
    return tmp_path_factory.mktemp("gateways")


GatewayMaker = Callable[..., Gateway]


def _maker(stack: ExitStack, workdir: Path) -> GatewayMaker:
    def make(config: Config, **options: object) -> Gateway:
        return stack.enter_context(Gateway(config, workdir, **options))  # type: ignore[arg-type]

    return make


@pytest.fixture
def gateway(workdir: Path) -> Iterator[GatewayMaker]:
    """Starts gateways that end with the test: `gateway(config)`."""
    with ExitStack() as stack:
        yield _maker(stack, workdir)


@pytest.fixture(scope="module")
def module_gateway(workdir: Path) -> Iterator[GatewayMaker]:
    """Starts gateways that end with the module."""
    with ExitStack() as stack:
        yield _maker(stack, workdir)


@pytest.fixture
def folder_gateway(gateway: GatewayMaker, tmp_path: Path) -> Callable[..., tuple[Gateway, Path]]:
    """Starts a gateway in front of one folder, served as the bucket `data`."""

    def make(limits: dict | None = None, server: dict | None = None, **bucket: object) -> tuple[Gateway, Path]:
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        config = Config(
            stores={"disk": local_store(folder)},
            buckets={"data": Bucket("disk", **bucket)},  # type: ignore[arg-type]
            limits=limits or {},
            server=server or {},
        )
        return gateway(config), folder

    return make


class Upstream:
    """A bucket on a real S3 server, with the client that another program would use."""

    def __init__(self, endpoint: str, bucket: str, access_key: str, secret_key: str) -> None:
        import boto3
        from botocore.config import Config as ClientConfig

        self.endpoint, self.bucket, self.access_key, self.secret_key = endpoint, bucket, access_key, secret_key
        self.client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            config=ClientConfig(s3={"addressing_style": "path"}, proxies={}),
        )

    def store(self) -> dict:
        """The `[stores.NAME]` table of a gateway in front of it."""
        return s3_store(self.endpoint, self.bucket, self.access_key, self.secret_key)

    def put(self, key: str, body: bytes) -> None:
        """Writes an object past the gateway."""
        self.client.put_object(Bucket=self.bucket, Key=key, Body=body)

    def upload(self, folder: Path, prefix: str) -> None:
        """Writes every file beneath `folder` under `prefix`."""
        from concurrent.futures import ThreadPoolExecutor

        files = [p for p in sorted(folder.rglob("*")) if p.is_file()]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda p: self.put(prefix + p.relative_to(folder).as_posix(), p.read_bytes()), files))


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    """The SeaweedFS that `tests/run` started, or one of our own when W4DX_WEED names the binary."""
    e = os.environ
    if "W4DX_TEST_S3_ENDPOINT" in e:
        yield Upstream(
            e["W4DX_TEST_S3_ENDPOINT"],
            e["W4DX_TEST_S3_BUCKET"],
            e["W4DX_TEST_S3_ACCESS_KEY"],
            e["W4DX_TEST_S3_SECRET_KEY"],
        )
    elif "W4DX_WEED" in e:
        from seaweed import Seaweed

        with Seaweed(e["W4DX_WEED"]) as s:
            yield Upstream(s.endpoint, s.bucket, s.access_key, s.secret_key)
    else:
        pytest.fail("no S3 server: run these tests through tests/run python")


@pytest.fixture
def upstream_gateway(gateway: GatewayMaker, upstream: Upstream, request: pytest.FixtureRequest) -> Callable:
    """Starts a gateway in front of a prefix of the upstream bucket that belongs to this test alone."""

    def make(**bucket: object) -> tuple[Gateway, str]:
        prefix = f"{request.node.name}-{os.getpid()}/"
        config = Config(
            stores={"up": upstream.store()},
            buckets={"data": Bucket("up", prefix=prefix, **bucket)},  # type: ignore[arg-type]
        )
        return gateway(config), prefix

    return make
