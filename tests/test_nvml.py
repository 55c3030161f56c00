"""What the driver says is free, with a driver that is played: as ctypes calls it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from models import nvml
from models.nvml import FreeMemory, free_memory

UUID = "GPU-5e3f"
FREE = 11 << 30


class Driver:
    """Of `count` GPUs; those of the names in `refused` answer with an error, those of `missing` are
    not there."""

    def __init__(
        self,
        count: int = 1,
        *,
        divided: bool = False,
        refused: tuple[str, ...] = (),
        missing: tuple[str, ...] = (),
    ) -> None:
        self.count = count
        self.divided = divided
        self.refused = refused
        self.missing = missing
        self.asked: list[object] = []

    def __getattr__(self, name: str) -> Any:
        if name in self.missing or not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *arguments: 999 if name in self.refused else self._answer(name, *arguments)

    def _answer(self, name: str, *arguments: Any) -> int:
        if name == "nvmlDeviceGetCount_v2":
            arguments[0]._obj.value = self.count
        elif name == "nvmlDeviceGetHandleByIndex_v2":
            if arguments[0].value >= self.count:
                return 2
            self.asked.append(arguments[0].value)
            arguments[1]._obj.value = 77
        elif name == "nvmlDeviceGetHandleByUUID":
            self.asked.append(arguments[0].decode())
            arguments[1]._obj.value = 77
        elif name == "nvmlDeviceGetMigMode":
            arguments[1]._obj.value = int(self.divided)
        elif name == "nvmlDeviceGetMemoryInfo":
            assert arguments[0].value == 77
            memory = arguments[1]._obj
            assert ctypes.sizeof(memory) == 24
            memory.total, memory.free, memory.used = 16 << 30, FREE, 5 << 30
        return 0


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    nvml._library.cache_clear()
    yield
    nvml._library.cache_clear()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(driver: Driver) -> Driver:
        def load(name: str) -> Driver:
            assert name == "libnvidia-ml.so.1"
            return driver

        monkeypatch.setattr(nvml.ctypes, "CDLL", load)
        return driver

    return install


@pytest.mark.parametrize(
    ("count", "environment", "asked"),
    [
        (1, {}, 0),
        (1, {"CUDA_VISIBLE_DEVICES": "0"}, 0),
        (4, {"CUDA_VISIBLE_DEVICES": "2,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, 2),
        (4, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, 0),
        (4, {"CUDA_VISIBLE_DEVICES": f"{UUID},0"}, UUID),
        (1, {"CUDA_VISIBLE_DEVICES": "MIG-1"}, "MIG-1"),
    ],
)
def test_it_is_that_of_cudas_first_device(
    here: Any, count: int, environment: dict[str, str], asked: object
) -> None:
    driver = here(Driver(count))
    assert free_memory(environment) == FreeMemory(FREE)
    assert driver.asked == [asked]


@pytest.mark.parametrize(
    ("driver", "environment", "why"),
    [
        (Driver(2), {}, "there are 2 GPUs; set CUDA_DEVICE_ORDER=PCI_BUS_ID"),
        (Driver(2), {"CUDA_VISIBLE_DEVICES": "1"}, "there are 2 GPUs"),
        (Driver(1), {"CUDA_VISIBLE_DEVICES": "3"}, "nvmlDeviceGetHandleByIndex_v2 with error 2"),
        (Driver(1), {"CUDA_VISIBLE_DEVICES": ""}, "names no GPU first"),
        (Driver(1), {"CUDA_VISIBLE_DEVICES": "-1"}, "names no GPU first"),
        (Driver(1, divided=True), {}, "divided (MIG)"),
        (Driver(1, refused=("nvmlInit_v2",)), {}, "nvmlInit_v2 with error 999"),
        (Driver(1, refused=("nvmlDeviceGetMemoryInfo",)), {}, "nvmlDeviceGetMemoryInfo with error"),
        (Driver(1, missing=("nvmlDeviceGetMemoryInfo",)), {}, "has no nvmlDeviceGetMemoryInfo"),
    ],
)
def test_what_is_not_known_is_not_guessed(
    here: Any, driver: Driver, environment: dict[str, str], why: str
) -> None:
    here(driver)
    found = free_memory(environment)
    assert found.bytes is None
    assert why in found.why


@pytest.mark.parametrize("how", ["missing", "refused"])
def test_a_gpu_that_cannot_be_divided_is_whole(here: Any, how: str) -> None:
    here(Driver(1, **{how: ("nvmlDeviceGetMigMode",)}))  # type: ignore[arg-type]
    assert free_memory({}) == FreeMemory(FREE)


def test_without_a_driver_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(nvml.ctypes, "CDLL", fail)
    found = free_memory({})
    assert (found.bytes, "libnvidia-ml.so.1, which comes with the driver" in found.why) == (
        None,
        True,
    )


def test_the_driver_is_initialised_once(here: Any) -> None:
    driver = here(Driver(1))
    initialised = []
    real = driver._answer
    driver._answer = lambda name, *rest: (
        (initialised.append(name) if name == "nvmlInit_v2" else None) or real(name, *rest)
    )
    assert free_memory({}) == free_memory({}) == FreeMemory(FREE)
    assert initialised == ["nvmlInit_v2"]
