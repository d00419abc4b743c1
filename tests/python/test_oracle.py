"""The oracle itself, held against numpy's own indexing and QUERY.md's own examples."""

from __future__ import annotations

import json
import random
import zlib

import numpy as np
import pytest

import wire
import zoo
from oracle import ALL, Dots, Index, Many, Refused, Selection, Span, answer, answer_names, random_selection, same, spell

CUBE = np.arange(5 * 4 * 3).reshape(5, 4, 3)
NAMES = ["t", "y", "x"]


def test_clip_agrees_with_numpy_indexing() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        spans = [
            Span(*(rng.choice([None, rng.randint(-8, 8)]) for _ in range(2)), rng.choice([None, 1, 2, -1, -3]))
            for _ in range(3)
        ]
        want = CUBE[tuple(slice(s.start, s.stop, s.step) for s in spans)]
        assert np.array_equal(answer(CUBE, NAMES, Selection(list(spans))), want)


def test_integers_lists_and_ellipsis_agree_with_numpy() -> None:
    assert np.array_equal(
        answer(CUBE, NAMES, Selection([Index(-1), Dots(), Many((2, 0, 2))])), CUBE[-1][..., [2, 0, 2]]
    )
    assert np.array_equal(
        answer(CUBE, NAMES, Selection([Many((1, -1)), ALL, Many((0, 2))])), CUBE[np.ix_([1, 4], range(4), [0, 2])]
    )
    assert answer(CUBE, NAMES, Selection([Index(0)], keepdims=True)).shape == (1, 4, 3)
    assert answer(CUBE, NAMES, Selection(None, {"y": Index(2)})).tolist() == CUBE[:, 2].tolist()
    assert answer_names(NAMES, Selection([Dots(), Index(0)])) == ["t", "y"]


def test_fill_takes_literal_positions() -> None:
    row = np.array([10, 11, 12, 13, 14])

    def fill(span: Span) -> list[int]:
        return answer(row, ["x"], Selection([span], oob="fill", fill=-1)).tolist()

    assert fill(Span(-3, 5)) == [-1, -1, -1, 10, 11, 12, 13, 14]
    assert fill(Span(3, 7)) == [13, 14, -1, -1]
    assert fill(Span(None, None, -1)) == [14, 13, 12, 11, 10]
    assert fill(Span(6, None, -2)) == [-1, 14, 12, 10]
    assert fill(Span(2, -2, -1)) == [12, 11, 10, -1]
    assert fill(Span(9, 12)) == [-1, -1, -1]
    assert answer(np.zeros((0, 2)), ["a", "b"], Selection([Span(0, 2)], oob="fill", fill=7)).tolist() == [
        [7, 7],
        [7, 7],
    ]


@pytest.mark.parametrize(
    ("selection", "code"),
    [
        (Selection([Index(5)]), "IndexOutOfRange"),
        (Selection([Index(-6)], oob="fill", fill=0), "IndexOutOfRange"),
        (Selection([Many((0, 5))]), "IndexOutOfRange"),
        (Selection([Span(0, 6)], oob="error"), "IndexOutOfRange"),
        (Selection([Span(-6, None)], oob="error"), "IndexOutOfRange"),
        (Selection([Span(None, None, 0)]), "InvalidSelection"),
        (Selection([Index(9), Span(None, None, 0)]), "InvalidSelection"),
        (Selection([Dots(), Dots()]), "InvalidSelection"),
        (Selection([ALL, ALL, ALL, ALL]), "InvalidSelection"),
    ],
)
def test_refusals(selection: Selection, code: str) -> None:
    with pytest.raises(Refused) as refused:
        answer(CUBE, NAMES, selection)
    assert refused.value.code == code


def test_bounds_at_both_ends_are_inside() -> None:
    assert answer(CUBE, NAMES, Selection([Span(5, 5)], oob="error")).shape == (0, 4, 3)
    assert answer(CUBE, NAMES, Selection([Span(-5, 5)], oob="error")).shape == (5, 4, 3)


def test_random_selections_cover_what_they_claim() -> None:
    rng, refused, empty, filled = random.Random(2), 0, 0, 0
    for _ in range(3000):
        selection = random_selection(rng, CUBE.shape, NAMES, 99)
        try:
            got = answer(CUBE, NAMES, selection)
        except Refused:
            refused += 1
            continue
        empty += got.size == 0
        filled += bool((got == 99).any())
        assert len(answer_names(NAMES, selection)) == got.ndim
    assert 150 < refused < 1000 and 100 < empty < 1200 and filled > 150, (refused, empty, filled)


def test_spelling() -> None:
    assert spell([Index(-1), Span(None, 4, -2), Many((1, 3)), Dots()]) == "-1,:4:-2,(1,3),..."
    assert spell([ALL, Many(())]) == ":,()"


def test_same_tells_signed_zeros_apart_and_nans_together() -> None:
    assert same(np.array([np.nan, 1.0]), np.array([-np.nan, 1.0]))
    assert not same(np.array([0.0]), np.array([-0.0]))
    assert not same(np.array([1], "i4"), np.array([1], "i8"))
    assert same(np.array([1], ">i4"), np.array([1], "<i4"))
    assert not same(np.array([1 + 0j, np.nan]), np.array([2 + 0j, np.nan]))


def test_bodies_are_read_back_into_every_type() -> None:
    """`wire` and `same` on types that numpy lacks, and json by its own rules."""
    for name, dtype in zoo.SMALL.items():
        dense = zoo.values(name, dtype, (3, 4))
        assert same(dense, dense.copy()) and not same(dense, np.roll(dense, 1))
        assert same(wire.from_raw(dense.tobytes(), dtype, (3, 4)), dense)
        text = json.dumps(dense.astype(int if "int" in name else float).tolist()).replace("Infinity", '"Infinity"')
        assert same(wire.from_json(text.replace('-"Inf', '"-Inf').encode(), dtype, (3, 4)), dense), name
    times = zoo.values("t", np.dtype("M8[ms]"), (4,))
    text = json.dumps([None if np.isnat(t) else int(t.astype("i8")) for t in times])
    assert same(wire.from_json(text.encode(), times.dtype, (4,)), times)
    got = wire.from_json(b'[[1,"NaN"],["-Infinity",-0.0]]', np.dtype("c8"), (2,))
    assert same(got, np.array([complex(1, np.nan), complex(-np.inf, -0.0)], "c8"))
    with pytest.raises(AssertionError):
        wire.from_json(b"[NaN]", np.dtype("f4"), (1,))
    with pytest.raises(AssertionError):
        wire.from_json(b"[1,2]", np.dtype("i4"), (3,))
    with pytest.raises(AssertionError):
        wire.from_json(b"[1.0]", np.dtype("i4"), (1,))


def test_pngs_of_16_bits_are_read_at_their_depth() -> None:
    """No Python package at hand writes them in colour, so the file is made here, with each filter once."""
    pixels = zoo.values("png", np.dtype("u2"), (5, 4, 3))
    raw = pixels.astype(">u2").reshape(5, -1).view("u1").astype(int)
    lines = b""
    for y, row in enumerate(raw):
        up = raw[y - 1] if y else np.zeros_like(row)
        left, corner = (np.concatenate([np.zeros(6, int), r[:-6]]) for r in (row, up))
        guess = [wire._predicted(y, *(int(v) for v in values)) for values in zip(left, up, corner, strict=True)]
        lines += bytes([y]) + ((row - guess) % 256).astype("u1").tobytes()

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = (4).to_bytes(4, "big") + (5).to_bytes(4, "big") + bytes([16, 2, 0, 0, 0])
    body = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    assert np.array_equal(wire.from_png(body, pixels.dtype, (5, 4, 3)), pixels)
