"""What a selection must answer, worked out from the dense array by numpy alone, following QUERY.md line by line.

A selection is made here as data and only then spelled as text, so the oracle shares no parser with the gateway.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Index:
    """An integer: drops the dimension unless `keepdims`."""

    at: int


@dataclass(frozen=True)
class Span:
    """`start:stop:step`; None is an omitted bound."""

    start: int | None = None
    stop: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class Many:
    """A list of positions, taken orthogonally."""

    at: tuple[int, ...]


@dataclass(frozen=True)
class Dots:
    """`...`"""


Dim = Index | Span | Many | Dots
ALL = Span()


class Refused(Exception):
    """The selection must be refused with this code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Selection:
    """`slice`, `isel` and the modes of one request. `dims` None: no `slice` parameter at all."""

    dims: list[Dim] | None = None
    isel: dict[str, Dim] = field(default_factory=dict)
    oob: str | None = None
    fill: object = None
    keepdims: bool = False


def _counted(at: int, length: int) -> int:
    if not -length <= at < length:
        raise Refused("IndexOutOfRange")
    return at % length


def _span(span: Span, length: int, oob: str) -> range:
    step = 1 if span.step is None else span.step
    if oob == "fill":
        # Literal positions: nothing counts from the end.
        start = span.start if span.start is not None else (0 if step > 0 else length - 1)
        stop = span.stop if span.stop is not None else (length if step > 0 else -1)
        return range(start, stop, step)
    if oob == "error":
        for bound in (span.start, span.stop):
            if bound is not None and not 0 <= (bound + length if bound < 0 else bound) <= length:
                raise Refused("IndexOutOfRange")
    return range(*slice(span.start, span.stop, step).indices(length))


def expanded(selection: Selection, names: list[str | None]) -> list[Dim]:
    """One entry per dimension: the ellipsis and the missing trailing dimensions written out."""
    dims = list(selection.dims or [])
    # What is wrong with the text itself comes before what is wrong with it on this array.
    if any(isinstance(d, Span) and d.step == 0 for d in [*dims, *selection.isel.values()]):
        raise Refused("InvalidSelection")
    dots = [i for i, d in enumerate(dims) if isinstance(d, Dots)]
    if len(dots) > 1 or len(dims) - len(dots) > len(names):
        raise Refused("InvalidSelection")
    missing = [ALL] * (len(names) - (len(dims) - len(dots)))
    full = dims[: dots[0]] + missing + dims[dots[0] + 1 :] if dots else dims + missing
    for name, dim in selection.isel.items():
        full[names.index(name)] = dim
    return full


def answer(dense: np.ndarray, names: list[str | None], selection: Selection) -> np.ndarray:
    """The values that the gateway must send. Raises `Refused` where it must not."""
    oob = selection.oob or "clip"
    out, drop = dense, []
    for axis, dim in enumerate(expanded(selection, names)):
        length = dense.shape[axis]
        if isinstance(dim, Index):
            positions = [_counted(dim.at, length)]
            drop += [] if selection.keepdims else [axis]
        elif isinstance(dim, Many):
            positions = [_counted(at, length) for at in dim.at]
        else:
            positions = list(_span(dim, length, oob))
        where = np.array(positions, dtype=np.int64)
        outside = (where < 0) | (where >= length)
        if length == 0 and len(where):
            shape = list(out.shape)
            shape[axis] = len(where)
            out = np.full(shape, selection.fill, dtype=out.dtype)
            continue
        out = np.take(out, np.where(outside, 0, where), axis=axis)
        if outside.any():
            hole = [slice(None)] * out.ndim
            hole[axis] = outside
            out[tuple(hole)] = np.asarray(selection.fill, dtype=out.dtype)
    return np.asarray(out.reshape([n for i, n in enumerate(out.shape) if i not in drop]))


def answer_names(names: list[str | None], selection: Selection) -> list[str | None]:
    """The dimension names of the answer."""
    dims = expanded(selection, names)
    return [n for n, d in zip(names, dims, strict=False) if selection.keepdims or not isinstance(d, Index)]


def spell_dim(dim: Dim, rng: random.Random | None = None) -> str:
    """Text of one dimension; with `rng`, in any of the spellings that mean the same."""
    if isinstance(dim, Index):
        return str(dim.at)
    if isinstance(dim, Dots):
        return "..."
    if isinstance(dim, Many):
        left, right = ("[", "]") if rng and rng.random() < 0.3 and len(dim.at) else ("(", ")")
        return left + ",".join(map(str, dim.at)) + right
    omitted = "~" if rng and rng.random() < 0.2 else ""
    start = omitted if dim.start is None else str(dim.start)
    stop = omitted if dim.stop is None else str(dim.stop)
    if dim.step is None:
        return f"{start}:{stop}" + (":" if rng and rng.random() < 0.1 else "")
    return f"{start}:{stop}:{dim.step}"


def spell(dims: list[Dim], rng: random.Random | None = None) -> str:
    """The value of `slice`."""
    parts = [spell_dim(d, rng) for d in dims]
    if len(dims) == 1 and isinstance(dims[0], Many):
        parts = [spell_dim(dims[0])]  # a lone `[1,3]` can be read in two ways and is refused
    text = ",".join(parts)
    if rng is None:
        return text
    if rng.random() < 0.1:
        text = " , ".join(parts)
    unmistakable = any(isinstance(d, (Dots, Span)) for d in dims)
    if unmistakable and rng.random() < 0.1:
        text = f"[{text}]"
    return text


def random_dim(rng: random.Random, length: int, oob: str) -> Dim:
    """One dimension's selection, sometimes wrong."""
    kind = rng.random()
    if kind < 0.18 and length:
        return Index(rng.randrange(-length, length))
    if kind < 0.21:
        return Index(rng.choice([length, -length - 1, length + 7]))
    if kind < 0.36 and length:
        count = rng.choice([0, 1, 1, 2, 3, 5, min(length + 2, 200)])
        return Many(tuple(rng.randrange(-length, length) for _ in range(count)))
    if kind < 0.38:
        return Many((0, length))
    if kind < 0.50:
        return ALL
    step = rng.choice([None, None, None, 1, 2, 3, -1, -1, -2, -3, length + 1, -length - 1])
    if rng.random() < 0.01:
        step = 0
    if rng.random() < 0.75:
        # Ends in the order of the step, so that most answers hold something.
        over = 2 if oob == "fill" or rng.random() < 0.2 else 0
        ends: list[int | None] = sorted((rng.randint(-over, length + over), rng.randint(-over, length + over)))  # type: ignore[type-var]
        if oob != "fill":
            ends = [e - length if e is not None and length > e > 0 and rng.random() < 0.3 else e for e in ends]
        ends = [None if rng.random() < 0.2 else e for e in ends]
        return Span(*(reversed(ends) if (step or 1) < 0 else ends), step)
    reach = length + 3
    return Span(*(rng.choice([None, rng.randint(-reach, reach), rng.randint(-reach, reach)]) for _ in range(2)), step)


def random_selection(rng: random.Random, shape: tuple[int, ...], names: list[str | None], fill: object) -> Selection:
    """Any selection of an array of this shape. `fill` None: the dtype has no fill value that text can say."""
    oob = rng.choice([None, None, None, "clip", "error", "fill" if fill is not None else "clip"])
    mode = oob or "clip"
    dims: list[Dim] = [random_dim(rng, n, mode) for n in shape]
    named = {n: i for i, n in enumerate(names) if n and names.count(n) == 1}
    isel: dict[str, Dim] = {}
    for name, axis in named.items():
        if rng.random() < 0.12:
            isel[name], dims[axis] = dims[axis], ALL
    form = rng.random()
    if form < 0.12:
        for axis in range(len(dims)):
            if rng.random() < 0.6:
                dims[axis] = ALL
    if isel:
        # A dimension may be constrained once only, so `slice` leaves those of `isel` out or untouched.
        kept: list[Dim] | None = None
        if rng.random() < 0.5 and not any(named[n] == 0 for n in isel):
            kept = dims[: min(named[n] for n in isel)]
        else:
            isel |= {n: dims[i] for n, i in named.items() if dims[i] != ALL and n not in isel}
        return Selection(kept, isel, oob, fill, rng.random() < 0.2)
    if form > 0.9:
        while dims and dims[-1] == ALL:
            dims.pop()
    elif form > 0.75 and dims:
        start = rng.randrange(len(dims) + 1)
        stop = rng.randrange(start, len(dims) + 1)
        dims[start:stop] = [Dots()]
    elif form > 0.74:
        dims += [ALL] if rng.random() < 0.5 else [Dots(), Dots()]
    return Selection(dims, isel, oob, fill, rng.random() < 0.2)


def same(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal shape, dtype and bits, except that every NaN equals every NaN."""
    if got.shape != want.shape or got.dtype.newbyteorder("<") != want.dtype.newbyteorder("<"):
        return False
    if want.dtype.kind == "O":
        return bool(np.all(got == want)) if want.size else True
    order = "<" if want.dtype.itemsize > 1 and want.dtype.kind != "V" else None
    got, want = (np.ascontiguousarray(a.astype(a.dtype.newbyteorder(order)) if order else a) for a in (got, want))
    if got.tobytes() == want.tobytes():
        return True
    if want.dtype.kind in "iub?SUmM":
        return False
    nan = got != got
    if not np.array_equal(nan, want != want):
        return False
    parts = np.dtype(f"V{want.dtype.itemsize}")
    if want.dtype.kind == "c":
        return all(same(a.copy(), b.copy()) for a, b in ((got.real, want.real), (got.imag, want.imag)))
    return got[~nan].view(parts).tobytes() == want[~nan].view(parts).tobytes()
