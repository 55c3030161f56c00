"""Sockets that a service manager passes on."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.service_manager.activation import Passed, passed_sockets
from models.errors import UserError

FIRST = 200
"""Where the tests put descriptors: from 3 on pytest has its own."""


@pytest.fixture
def place() -> Iterator[list[int]]:
    """Descriptors from FIRST on, closed afterwards."""
    used: list[int] = []
    yield used
    for descriptor in used:
        try:
            os.close(descriptor)
        except OSError:
            continue


def put(place: list[int], *sockets: socket.socket) -> None:
    for index, each in enumerate(sockets):
        os.dup2(each.fileno(), FIRST + index, inheritable=True)
        place.append(FIRST + index)


def passed(count: int | str, names: str | None = None, pid: str | None = None) -> list[Passed]:
    environment = {"LISTEN_PID": pid or str(os.getpid()), "LISTEN_FDS": str(count), "HOME": "/"}
    if names is not None:
        environment["LISTEN_FDNAMES"] = names
    found = passed_sockets(environment, first=FIRST)
    assert environment == {"HOME": "/"}, "no child is to take them for its own"
    return found


def listener(family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.bind(("127.0.0.1" if family is socket.AF_INET else "::1", 0))
    made.listen()
    return made


def test_they_come_in_order_with_their_names(place: list[int]) -> None:
    with listener() as one, listener() as two:
        put(place, one, two)
        found = passed(2, "main:other")
        assert [each.name for each in found] == ["main", "other"]
        for each, original in zip(found, (one, two), strict=True):
            assert each.socket.getsockname() == original.getsockname()
            assert not os.get_inheritable(each.socket.fileno())
            each.socket.close()


def test_a_client_can_connect_through_one(place: list[int]) -> None:
    with listener() as one:
        put(place, one)
        (found,) = passed(1)
        assert found.name == "unknown"
        with socket.create_connection(one.getsockname(), 5):
            found.socket.setblocking(True)
            accepted, _ = found.socket.accept()
            accepted.close()
        found.socket.close()


def test_without_them_there_are_none() -> None:
    assert passed_sockets({}, first=FIRST) == []
    assert passed_sockets({"LISTEN_FDS": "1"}, first=FIRST) == []
    assert passed(0) == []


def test_those_of_another_process_are_left_alone(place: list[int]) -> None:
    with listener() as one:
        put(place, one)
        assert passed(1, pid=str(os.getpid() + 1)) == []


def test_what_cannot_be_listened_on_is_named(place: list[int]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        put(place, datagrams)
        with pytest.raises(UserError, match=r"descriptor 200 \(web\) is no TCP socket"):
            passed(1, "web")
    with socket.socket() as silent:
        put(place, silent)
        with pytest.raises(UserError, match="does not listen; the socket unit needs Accept=no"):
            passed(1)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), FIRST + 1)
    place.append(FIRST + 1)
    with pytest.raises(UserError, match=r"descriptor 201 \(unknown\) is no socket"):
        passed_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}, first=FIRST + 1)


def test_numbers_must_be_numbers() -> None:
    with pytest.raises(UserError, match="LISTEN_FDS is 'many', which is no number"):
        passed("many")
    with pytest.raises(UserError, match=r"LISTEN_PID is '1\.5', which is no number"):
        passed(1, pid="1.5")
