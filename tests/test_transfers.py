"""Small arrays in one piece of a device's memory."""

from __future__ import annotations

import ctypes
from itertools import pairwise

import numpy as np

from models.transfers import Piece
from tests.device_support import played

LIKE = {
    "ids": np.zeros((1, 3), dtype=np.int64),
    "length": np.zeros(1, dtype=np.int32),
    "nothing": np.zeros((0, 4), dtype=np.float32),
    "scalar": np.zeros((), dtype=np.int64),
    "values": np.zeros((2, 70), dtype=np.float16),
}


def on_device(piece: Piece, name: str) -> np.ndarray:
    """What lies there, where the device's memory can be read."""
    array = piece.arrays[name]
    raw = ctypes.string_at(piece.addresses[name], array.nbytes)
    return np.frombuffer(raw, dtype=array.dtype).reshape(array.shape)


def filled(piece: Piece) -> None:
    for number, array in enumerate(piece.arrays.values()):
        array[...] = np.arange(array.size).reshape(array.shape) + number


def test_every_array_arrives_where_it_is_bound() -> None:
    piece = Piece(LIKE, played())
    filled(piece)
    before = {name: on_device(piece, name).copy() for name in LIKE}
    assert not any(array.any() for array in before.values()), "nothing is sent by writing"
    piece.send()
    for name, like in LIKE.items():
        assert piece.arrays[name].shape == like.shape
        assert piece.arrays[name].dtype == like.dtype
        np.testing.assert_array_equal(on_device(piece, name), piece.arrays[name])


def test_what_the_device_wrote_is_fetched() -> None:
    piece = Piece(LIKE, played())
    filled(piece)
    piece.send()
    expected = {name: array.copy() for name, array in piece.arrays.items()}
    for array in piece.arrays.values():
        array[...] = 0
    piece.fetch()
    for name, array in expected.items():
        np.testing.assert_array_equal(piece.arrays[name], array)


def test_places_are_apart_and_aligned() -> None:
    piece = Piece(LIKE, played())
    places = sorted((piece.addresses[name], array.nbytes) for name, array in piece.arrays.items())
    first = places[0][0]
    assert all((address - first) % 256 == 0 for address, _ in places)
    for (address, size), (following, _) in pairwise(places):
        assert address + size <= following


def test_there_may_be_nothing_to_move() -> None:
    piece = Piece({}, played())
    piece.send()
    piece.fetch()
    assert piece.arrays == {}
