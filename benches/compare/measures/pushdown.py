"""How many bytes and requests does a cold crop cost the store, beside the bytes of the chunks that it touches?

Random crops on SeaweedFS with no chunk cache and holes of up to 128 KiB read through. Bytes and requests are those of
/-/metrics, metadata and indexes included; the touched bytes are those that `explain` counts.
"""

from __future__ import annotations

import json

from bench import Bench
from client import Connection, get, slice_path
from workload import COMPRESSED, crops, expect_equal

GAP = "128KiB"
BYTES_TARGET, REQUESTS_TARGET = ("<=", 1.55), ("<=", 4.0)


def run(bench: Bench) -> None:
    """Counts; nothing here depends on the machine's speed."""
    wanted = crops(bench.pick(10_000, 1_000), seed=7)
    limits = {"cache_bytes": 0, "gap_bytes": GAP}
    with bench.gateway(remote=True, limits=limits) as server, Connection(server.url) as line:
        touched = planned = 0
        for crop in wanted:
            plan = json.loads(
                bytes(line.fetch(get(server.url, slice_path(COMPRESSED, crop.text, "warm") + "&explain")))
            )
            if plan["unknown_sizes"]:
                raise RuntimeError(f"explain does not know the sizes of {crop.text}")
            touched += plan["touched_bytes"]
            planned += plan["store_bytes"]
        bench.say(f"explained {len(wanted)} crops")
    # A gateway that knows nothing: what the plans read of metadata and indexes is read, and counted, again.
    with bench.gateway(remote=True, limits=limits) as server, Connection(server.url) as line:
        for number, crop in enumerate(wanted):
            body = line.fetch(get(server.url, slice_path(COMPRESSED, crop.text, "warm")))
            if number % 16 == 0:
                expect_equal("gateway", crop, body, bench.dense)
            if number % 2000 == 1999:
                bench.say(f"{number + 1} crops")
        metrics = server.metrics()
    moved, sent = metrics.store_bytes("warm"), metrics.store_requests("warm")
    note = f"{len(wanted)} crops, gap {GAP}"
    bench.row("store bytes / touched bytes", [moved / touched], "", BYTES_TARGET, note)
    bench.row("store requests a crop", [sent / len(wanted)], "", REQUESTS_TARGET, note)
    bench.row("store bytes / bytes that explain foretold", [moved / planned], "")
    bench.row("store bytes / answer bytes", [moved / sum(c.bytes for c in wanted)], "")
