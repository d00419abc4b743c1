"""CPU and memory of a process, from the kernel's own counts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of `pid`, ended ones included.

    The process's CPU clock: what /proc/PID/stat counts in ticks of 10 ms, in nanoseconds.
    """
    return time.clock_gettime((~pid << 3) | 2)


def memory_bytes(pid: int, field: str = "VmRSS") -> int:
    """VmRSS, the resident memory now, or VmHWM, its peak since the start or since `forget_peak`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"process {pid} has no {field}")


def forget_peak(pid: int) -> None:
    """Sets VmHWM back to the memory that is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


@contextmanager
def on_cores(cores: set[int] | None) -> Iterator[None]:
    """Binds what is started inside, and this thread meanwhile, to `cores`; `None` binds nothing.

    A server must be started so: it counts its cores once, at its start.
    """
    before = os.sched_getaffinity(0)
    if cores is not None:
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
