"""A link of known speed: a network namespace behind a veth pair, and SeaweedFS inside it. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import Unavailable
from seaweed import Seaweed

NEAR_IP, FAR_IP = "10.77.21.1", "10.77.21.2"
BURST, QUEUE = "256kb", "100ms"
"""Of the token bucket: enough for the rate at this kernel's timer, little enough that one megabyte feels it."""


def command(*words: str) -> None:
    """Runs one command; its failure means that there is no link."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"`{' '.join(words)}`: {done.stderr.strip() or done.returncode}")


@contextmanager
def limited(rate: str) -> Iterator[str]:
    """A namespace whose link sends at `rate` both ways; gives its name."""
    if os.geteuid() != 0:
        raise Unavailable("a network namespace needs root")
    for tool in ("ip", "tc"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            raise Unavailable(f"no `{tool}`: install iproute2")
    space, near, far = (f"w4c{kind}{os.getpid()}" for kind in "nab")
    command("ip", "netns", "add", space)
    try:
        command("ip", "link", "add", near, "type", "veth", "peer", "name", far)
        try:
            command("ip", "link", "set", far, "netns", space)
            command("ip", "addr", "add", f"{NEAR_IP}/30", "dev", near)
            command("ip", "link", "set", near, "up")
            command("ip", "-n", space, "addr", "add", f"{FAR_IP}/30", "dev", far)
            command("ip", "-n", space, "link", "set", far, "up")
            command("ip", "-n", space, "link", "set", "lo", "up")
            shape = ("root", "tbf", "rate", rate, "burst", BURST, "latency", QUEUE)
            command("tc", "qdisc", "add", "dev", near, *shape)
            command("ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", far, *shape)
            yield space
        finally:
            subprocess.run(["ip", "link", "del", near], capture_output=True)
    finally:
        subprocess.run(["ip", "netns", "del", space], capture_output=True)


class FarSeaweed(Seaweed):
    """SeaweedFS on the far side of the link."""

    def __init__(self, weed: str, space: str, work: Path) -> None:
        # Of a repeated option the last counts: the servers listen on the link too.
        wrapper = work / "weed-far"
        wrapper.write_text(f'#!/bin/sh\nexec ip netns exec {space} "{weed}" "$@" -ip.bind=0.0.0.0\n')
        wrapper.chmod(0o755)
        super().__init__(wrapper)

    def _start(self) -> None:
        super()._start()
        self.endpoint = self.endpoint.replace("127.0.0.1", FAR_IP)
