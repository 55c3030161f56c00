"""Provider selection: what was asked for, or an error that says why not."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace

import pytest

from models import providers
from models.errors import UserError
from models.providers import DeviceOptions, load_onnxruntime, select_provider

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"


preloaded: list[int] = []


def install(
    monkeypatch: pytest.MonkeyPatch, available: Sequence[str], gpus: Sequence[str] = ()
) -> None:
    module = SimpleNamespace(
        get_available_providers=lambda: list(available), preload_dlls=lambda: preloaded.append(1)
    )
    monkeypatch.setattr(providers, "load_onnxruntime", lambda: module)
    monkeypatch.setattr(providers, "nvidia_devices", lambda: tuple(gpus))


def refusal(device: str, package_device: str) -> UserError:
    with pytest.raises(UserError) as refused:
        select_provider(device, package_device)
    return refused.value


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_a_package_for_the_cpu_runs_on_the_cpu_even_beside_a_gpu(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, [TENSORRT, CUDA, CPU], ["/dev/nvidia0"])
    provider = select_provider(device, "cpu")
    assert (provider.device, provider.memory) == ("cpu", "cpu")
    assert provider.session_providers() == [(CPU, {})]


def test_a_package_for_the_gpu_runs_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [CUDA, CPU], ["/dev/nvidia0"])
    provider = select_provider("auto", "cuda")
    assert (provider.device, provider.memory) == ("cuda", "cuda")
    assert provider.captures
    assert not provider.on_host
    plain = {"device_id": "0", "arena_extend_strategy": "kSameAsRequested", "use_tf32": "0"}
    assert provider.session_providers() == [(CUDA, plain)]
    assert provider.session_providers(capture=True) == [(CUDA, plain | {"enable_cuda_graph": "1"})]


def test_the_libraries_of_a_gpu_are_loaded_before_any_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preloaded.clear()
    install(monkeypatch, [CUDA, CPU], ["/dev/nvidia0"])
    select_provider("cpu", "cpu")
    assert preloaded == []
    select_provider("cuda", "cuda")
    assert preloaded == [1]


def test_options_reach_the_provider_and_say_what_runs_depend_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, [CUDA, CPU], ["/dev/nvidia0"])
    use = DeviceOptions(memory_mib=512, graphs=False, strict_width=8, gemm="fpa-intb")
    provider = select_provider("cuda", "cuda", use)
    assert provider.options["gpu_mem_limit"] == str(512 << 20)
    assert not provider.captures
    assert provider.session_entries() == {"ep.cuda.fpa_intb_gemm": "1"}
    assert provider.described == f"{CUDA} (gemm fpa-intb, no graphs, strict 8)"
    host = select_provider("cpu", "cpu", use)
    assert (host.described, host.options, host.session_entries()) == (CPU, {}, {})
    assert not host.captures


def test_tensorrt_leaves_what_it_cannot_take_to_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [TENSORRT, CUDA, CPU], ["/dev/nvidia0"])
    provider = select_provider("tensorrt", "tensorrt")
    names = [name for name, _ in provider.session_providers()]
    assert names == [TENSORRT, CUDA]
    assert not provider.captures, "its own graphs are captured by its engines"


@pytest.mark.parametrize(
    ("device", "remedy"),
    [("cuda", "with --device cuda."), ("tensorrt", "with --device tensorrt.")],
)
def test_a_package_for_the_cpu_is_not_run_elsewhere(
    device: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, [TENSORRT, CUDA, CPU], ["/dev/nvidia0"])
    error = refusal(device, "cpu")
    assert (error.code, error.param) == ("provider_unavailable", "device")
    assert "built for cpu" in error.message
    assert error.message.endswith(remedy)


def test_an_unavailable_provider_is_no_silent_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [CPU], ["/dev/nvidia0"])
    error = refusal("auto", "cuda")
    assert error.code == "provider_unavailable"
    assert f"has only {CPU}" in error.message
    assert "outpace[gpu]" in error.message


def test_a_gpu_build_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [CUDA, CPU])
    error = refusal("cuda", "cuda")
    assert error.code == "device_unavailable"
    assert "no /dev/nvidia*" in error.message


def test_an_unknown_device_is_refused_with_the_known_ones() -> None:
    error = refusal("rocm", "cpu")
    assert error.code == "unknown_device"
    assert "auto, cpu, cuda, tensorrt" in error.message


def test_a_missing_onnxruntime_names_the_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> ModuleType:
        if name == "onnxruntime":
            raise ImportError("No module named 'onnxruntime'")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(UserError) as refused:
        load_onnxruntime()
    assert refused.value.code == "onnxruntime_missing"
    assert "outpace[cpu]" in refused.value.message
    assert "outpace[gpu]" in refused.value.message


def test_the_runtime_is_not_imported_with_the_module() -> None:
    """So that a missing one is an error message and no traceback."""
    assert "onnxruntime" not in vars(providers)
    assert load_onnxruntime() is sys.modules["onnxruntime"]
