"""What a gateway's life comes to in messages."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.service_manager.manager import STEP_SECONDS, STOP_MARGIN, ServiceManager
from gateway.service_manager.notify import Notifier
from tests.notify_support import listening
from tests.patience import PATIENCE


def test_a_life(tmp_path: Path) -> None:
    with listening(str(tmp_path / "notify")) as listener:
        manager = ServiceManager.of({"NOTIFY_SOCKET": listener.address})
        assert manager.watchdog is None
        manager.loading("checking the package")
        step = f"EXTEND_TIMEOUT_USEC={STEP_SECONDS * 1e6:.0f}"
        assert listener.read() == ["STATUS=checking the package", step]
        with manager.reloading():
            # `READY=1` behind this would say that loading has ended.
            assert listener.empty()
        assert listener.empty()
        manager.ready("ready on here")
        assert listener.read() == ["READY=1", "STATUS=ready on here"]
        with manager.reloading():
            assert listener.read()[0] == "RELOADING=1"
            assert listener.empty()
        assert listener.read() == ["READY=1", "STATUS=ready on here"]
        manager.stopping(2, 20)
        stop = f"EXTEND_TIMEOUT_USEC={(20 + STOP_MARGIN) * 1e6:.0f}"
        told = "STATUS=draining: 2 answers running, 20 s at most"
        assert listener.read() == ["STOPPING=1", told, stop]
        with manager.reloading():
            pass
        assert listener.empty(), "what stops is not ready again"


async def test_the_watchdog_is_fed_within_the_block_only(tmp_path: Path) -> None:
    with listening(str(tmp_path / "notify")) as listener:
        environment = {"NOTIFY_SOCKET": listener.address, "WATCHDOG_USEC": "40000"}
        manager = ServiceManager.of(environment)
        assert manager.watchdog == 0.04
        async with manager.watching(lambda now: None):
            for _ in range(3):
                assert await listener.until_line("WATCHDOG=1")
        while not listener.empty():
            pass
        looked = asyncio.Event()

        def hanging(now: float) -> float:
            looked.set()
            return 1.0

        async with manager.watching(hanging):
            await asyncio.wait_for(looked.wait(), PATIENCE)
        assert listener.empty()


async def test_without_a_manager_nothing_runs() -> None:
    manager = ServiceManager(Notifier(None), 1.0)
    manager.loading("x")
    manager.ready("x")
    async with manager.watching(lambda now: None):
        with manager.reloading():
            manager.stopping(0, 1)
