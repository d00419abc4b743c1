"""What does a cold crop of a local folder cost, without HTTP, beside bare zstd decoding of the same chunks?

A bench of the crate measures both, with a reused decoder, and prints them as Criterion does; its command is given by
--decode-bench. The figure whose name ends in `bare_zstd` is what the others are divided by.
"""

from __future__ import annotations

from bench import Bench, Unavailable

RUNS = 3
"""Each is a whole Criterion run, with its own rounds."""


def run(bench: Bench) -> None:
    """A row for each figure beside the bare one."""
    command = bench.options.decode_bench
    if not command:
        raise Unavailable("give --decode-bench CMD")
    ratios: dict[str, list[float]] = {}
    for _ in range(RUNS):
        figures = bench.external(command)
        bare = next((name for name in figures if name.endswith("/bare_zstd")), None)
        if bare is None:
            raise RuntimeError(f"`{command}` names no bare_zstd: {figures}")
        group = bare.removesuffix("bare_zstd")
        for name in figures:
            if name != bare and name.startswith(group):
                ratios.setdefault(name, []).append(figures[name] / figures[bare])
    for name, values in ratios.items():
        bench.row(f"{name} / bare zstd", values)
