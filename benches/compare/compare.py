"""The command line: chooses measures, runs each, prints one table."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
import traceback
from pathlib import Path

# The tests' servers and clients serve here too.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "python"))

MEASURES = (
    "hop", "throughput", "tensorstore", "cold", "epochs", "decode", "batch", "pushdown", "objects", "link", "memory",
    "stream",
)  # fmt: skip
LEAST_ROUNDS = 7


def machine() -> dict[str, str]:
    """What the figures depend on."""
    model = next(
        (x.split(":")[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x), ""
    )
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    version = subprocess.run([os.environ["W4DX_BIN"], "--version"], capture_output=True, text=True).stdout.strip()
    return {
        "cpu": f"{len(os.sched_getaffinity(0))} x {model}",
        "kernel": platform.release(),
        "commit": commit,
        "gateway": version,
        "load_at_start": f"{os.getloadavg()[0]:.2f}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="benches/compare/run", description="The gateway beside its peers.")
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"of: {' '.join(MEASURES)}; default all")
    parser.add_argument("--rounds", type=int, default=0, help=f"default 9, with --quick {LEAST_ROUNDS}; never fewer")
    parser.add_argument("--quick", action="store_true", help="short rounds: a first impression")
    parser.add_argument("--json", type=Path, help="writes every figure of every round there")
    parser.add_argument(
        "--copy-bench", help="prints what a bare copy of a crop takes, as Criterion does or a number of ns"
    )
    parser.add_argument("--decode-bench", help="prints a cold crop and bare_zstd as Criterion does")
    parser.add_argument("--list", action="store_true", help="the measures and their questions")
    options = parser.parse_args()
    unknown = set(options.measures) - set(MEASURES)
    if unknown:
        parser.error(f"no measure {', '.join(sorted(unknown))}; there are {' '.join(MEASURES)}")
    chosen = [m for m in MEASURES if m in options.measures] or list(MEASURES)
    modules = {name: importlib.import_module(f"measures.{name}") for name in chosen}
    if options.list:
        for name, module in modules.items():
            print(f"{name:12} {module.__doc__.strip().splitlines()[0]}")
        return 0

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends too
    from bench import Bench, Options, Unavailable
    from rounds import table

    here = machine()
    print("; ".join(f"{k}: {v}" for k, v in here.items()), file=sys.stderr)
    rounds = max(LEAST_ROUNDS, options.rounds or (LEAST_ROUNDS if options.quick else 9))
    failed: dict[str, str] = {}
    with Bench(Options(rounds, options.quick, options.copy_bench, options.decode_bench)) as bench:
        for name, module in modules.items():
            bench.measure = name
            bench.say(module.__doc__.strip().splitlines()[0])
            try:
                module.run(bench)
            except Unavailable as reason:
                failed[name] = f"not possible here: {reason}"
            except Exception as error:  # the other measures still count
                traceback.print_exc()
                failed[name] = f"failed: {error}"
        rows = bench.rows
    print(table(rows) if rows else "no figures")
    for name, reason in failed.items():
        print(f"{name}: {reason}")
    missed = [f"{row.measure} {row.name}" for row in rows if row.verdict == "MISSED"]
    if missed:
        print(f"missed: {'; '.join(missed)}")
    if options.json:
        record = {"machine": here, "rounds": rounds, "quick": options.quick, "failed": failed}
        options.json.write_text(json.dumps(record | {"rows": [row.record() for row in rows]}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
