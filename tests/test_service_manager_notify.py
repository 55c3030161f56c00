"""The notification protocol, against a datagram socket."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.service_manager.notify import MOST_STATUS, Notifier
from tests.notify_support import Listener, listening


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listener]:
    path = tmp_path / "notify"
    address = str(path) if request.param == "path" else f"@outpace-tests-{os.getpid()}"
    with listening(address) as listening_there:
        yield listening_there


def test_every_message(listener: Listener) -> None:
    notifier = Notifier.of({"NOTIFY_SOCKET": listener.address})
    assert notifier.heard
    notifier.status("loading")
    assert listener.read() == ["STATUS=loading"]
    notifier.status("loading more", extend=1.5)
    assert listener.read() == ["STATUS=loading more", "EXTEND_TIMEOUT_USEC=1500000"]
    notifier.ready("ready on http://127.0.0.1:1/v1")
    assert listener.read() == ["READY=1", "STATUS=ready on http://127.0.0.1:1/v1"]
    notifier.alive()
    assert listener.read() == ["WATCHDOG=1"]
    notifier.stopping("draining", extend=50)
    assert listener.read() == ["STOPPING=1", "STATUS=draining", "EXTEND_TIMEOUT_USEC=50000000"]
    notifier.close()
    notifier.alive()
    assert listener.empty()


def test_reloading_carries_the_clock_of_the_manager(listener: Listener) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    Notifier(listener.address).reloading()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    first, clock, status = listener.read()
    assert (first, status) == ("RELOADING=1", "STATUS=reloading")
    name, _, value = clock.partition("=")
    assert name == "MONOTONIC_USEC"
    assert before <= int(value) <= after


def test_a_status_is_one_line_of_bounded_length(listener: Listener) -> None:
    notifier = Notifier(listener.address)
    notifier.status("a line\nREADY=1\n and more")
    assert listener.read() == ["STATUS=a line READY=1 and more"]
    notifier.status("x" * 10_000)
    assert listener.read() == ["STATUS=" + "x" * MOST_STATUS]
    notifier.status("half a character: \ud800")
    assert listener.read() == ["STATUS=half a character: ?"]


def test_without_a_manager_nothing_happens() -> None:
    for environment in ({}, {"NOTIFY_SOCKET": ""}):
        notifier = Notifier.of(environment)
        assert not notifier.heard
        notifier.ready("ready")
        notifier.close()


def test_an_address_that_is_no_unix_socket_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        notifier = Notifier("vsock:2:1234")
    assert not notifier.heard
    assert "NOTIFY_SOCKET is 'vsock:2:1234'" in caplog.text
    notifier.ready("ready")


def test_a_manager_that_has_gone_costs_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "notify")
    with listening(path) as listener:
        notifier = Notifier(path)
        notifier.alive()
        assert listener.read() == ["WATCHDOG=1"]
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            notifier.alive()
    assert [record.getMessage() for record in caplog.records] == [
        "the service manager cannot be told: Connection refused"
    ]
    Path(path).unlink()
    with listening(path) as again:
        notifier.alive()
        assert again.read() == ["WATCHDOG=1"]


def test_a_manager_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with listening(path):
        notifier = Notifier(path)
        started = time.monotonic()
        for _ in range(10_000):
            notifier.alive()
        assert time.monotonic() - started < 5
