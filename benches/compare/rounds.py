"""Interleaved rounds and what is told of them.

Each round runs every contestant once, and the order moves by one each round, so that whatever else the machine does
falls on all of them alike. A ratio is taken within a round; what is reported is the median of the rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

Sample = Mapping[str, float]
"""What one contestant gave in one round: named figures."""


def interleave(
    contestants: Mapping[str, Callable[[], Sample]], rounds: int, say: Callable[[str], None]
) -> dict[str, list[Sample]]:
    """Runs the rounds. The first of all runs is thrown away: it pays for what the later ones find ready."""
    names = list(contestants)
    for name in names:
        contestants[name]()
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            samples[name].append(contestants[name]())
        told = ", ".join(f"{name} {brief(samples[name][-1])}" for name in names)
        say(f"round {number + 1}/{rounds}: {told}")
    return samples


def brief(sample: Sample) -> str:
    """The first figure of a sample, for the progress line."""
    name, value = next(iter(sample.items()))
    return f"{name}={value:.4g}"


def each(function: Callable[..., float], *series: Sequence[Sample]) -> list[float]:
    """`function` of what the contestants gave in one round, for every round."""
    return [function(*row) for row in zip(*series, strict=True)]


@dataclass
class Row:
    """One line of the table."""

    measure: str
    name: str
    values: list[float]
    unit: str = ""
    target: tuple[str, float] | None = None
    """`("<=", 1.8)` or `(">=", 0.55)`; `None` where the figure is only published."""
    note: str = ""
    median: float = field(init=False)

    def __post_init__(self) -> None:
        self.median = statistics.median(self.values)

    @property
    def verdict(self) -> str:
        """Whether the median meets the target."""
        if self.target is None:
            return ""
        how, bound = self.target
        return "met" if (self.median <= bound if how == "<=" else self.median >= bound) else "MISSED"

    def record(self) -> dict:
        """For the JSON file: the values of every round too."""
        return asdict(self) | {"verdict": self.verdict}


def number(value: float) -> str:
    """Three to four digits that tell something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(rows: Sequence[Row]) -> str:
    """The rows as people read them."""
    cells = [("measure", "figure", "median", "min .. max", "unit", "target", "", "note")]
    for row in rows:
        spread = f"{number(min(row.values))} .. {number(max(row.values))}" if len(row.values) > 1 else ""
        target = f"{row.target[0]} {number(row.target[1])}" if row.target else ""
        cells.append((row.measure, row.name, number(row.median), spread, row.unit, target, row.verdict, row.note))
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = []
    for line in cells:
        parts = [
            cell.rjust(w) if i in (2, 3) else cell.ljust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
