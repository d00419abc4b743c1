"""The peers that read the same objects in the client's own process, each set up as its authors advise."""

from __future__ import annotations

import os
from typing import Any

import workload
from seaweed import Seaweed


def tensorstore(server: Seaweed, cache_bytes: int, key: str = workload.COMPRESSED) -> Any:
    """tensorstore on SeaweedFS; with a cache it trusts what it holds.

    Its chunks and its shard indexes share one cache: without room for chunks it reads a shard's index again each time.
    """
    import tensorstore as ts

    os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"] = server.access_key, server.secret_key
    spec = {
        "driver": "zarr3",
        "kvstore": {
            "driver": "s3",
            "bucket": server.bucket,
            "path": key + "/",
            "endpoint": server.endpoint,
            "aws_region": "us-east-1",
            "aws_credentials": {"type": "environment"},
        },
        "recheck_cached_data": cache_bytes == 0,
    }
    context = ts.Context({"cache_pool": {"total_bytes_limit": cache_bytes}})
    return ts.open(spec, context=context, open=True, read=True).result()


def zarr_python(server: Seaweed, key: str = workload.COMPRESSED) -> Any:
    """zarr-python on SeaweedFS through obstore, the faster of its two S3 stores."""
    import obstore
    import zarr

    store = obstore.store.S3Store(
        server.bucket,
        prefix=key,
        endpoint=server.endpoint,
        region="us-east-1",
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    return zarr.open_array(zarr.storage.ObjectStore(store, read_only=True), mode="r")
