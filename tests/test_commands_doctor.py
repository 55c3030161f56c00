from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.__main__ import main
from gateway.commands import doctor
from gateway.commands.doctor import Section, examine
from gateway.settings import Settings
from models.memory import MemoryNeed
from models.providers import Provider


def diagnose(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    status = main(["doctor", "--json", *arguments])
    return status, json.loads(capsys.readouterr().out)


def test_a_machine_that_can_serve(capsys: pytest.CaptureFixture[str], tiny_package: Path) -> None:
    status, found = diagnose(capsys, "--package", str(tiny_package), "--port", "0")
    assert (status, found["ok"], found["problems"]) == (0, True, [])
    assert found["versions"]["aiohttp"].startswith("3.")
    assert "CPUExecutionProvider" in found["versions"]["providers"]
    assert found["processor"]["usable processors"] >= 1
    assert found["package"]["name"] == "tiny"
    assert found["package"]["rows"] == [1, 2, 4]
    assert found["package"]["files"]["target.weights"] > 0
    assert found["use"]["provider"] == "CPUExecutionProvider"
    assert found["use"]["why"] == "the package was built for cpu"
    assert "K/V" in found["memory"]["needed"]


def test_the_same_in_words(capsys: pytest.CaptureFixture[str], tiny_package: Path) -> None:
    assert main(["doctor", "--package", str(tiny_package), "--port", "0"]) == 0
    out = capsys.readouterr().out
    assert "serve would run" in out
    assert "PROBLEM" not in out
    assert "CPUExecutionProvider" in out


def test_no_line_is_longer_than_the_terminal_is_wide(
    capsys: pytest.CaptureFixture[str], tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["doctor", "--package", str(tiny_package), "--port", "0"]
    files = json.loads(diagnosed(capsys, *arguments, "--json"))["package"]["files"]
    monkeypatch.setattr("sys.__stdout__", None)  # no terminal, wherever the tests run
    for columns in (None, "80", "140"):
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns is not None:
            monkeypatch.setenv("COLUMNS", columns)
        lines = diagnosed(capsys, *arguments).splitlines()
        wide = [line for line in lines if len(line) > int(columns or 100)]
        # Only what has no place to break, a path for example, sticks out.
        assert not [line for line in wide if ", " in line or "; " in line]
        for name, size in files.items():
            assert sum(f"{name} {size}" in line for line in lines) == 1


def diagnosed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_no_package(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, found = diagnose(capsys, "--package", str(tmp_path), "--port", "0")
    assert (status, found["ok"]) == (1, False)
    assert len(found["problems"]) == 1
    assert str(tmp_path) in found["problems"][0]
    assert main(["doctor", "--package", str(tmp_path), "--port", "0"]) == 1
    assert "1 problem(s) would stop serve" in capsys.readouterr().out


def test_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str], tiny_package: Path) -> None:
    options = ("--package", str(tiny_package), "--port", "0", "--device", "cuda")
    status, found = diagnose(capsys, *options)
    assert status == 1
    assert "cuda" in found["problems"][0]


def test_no_onnxruntime(
    capsys: pytest.CaptureFixture[str], tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    status, found = diagnose(capsys, "--package", str(tiny_package), "--port", "0")
    assert status == 1
    assert found["versions"]["onnxruntime"] is None
    assert "outpace[cpu]" in found["problems"][0]


def test_a_port_in_use_and_an_open_address(
    capsys: pytest.CaptureFixture[str], tiny_package: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        status, found = diagnose(capsys, "--package", str(tiny_package), "--port", port)
    assert status == 1
    assert found["problems"] == [
        f"port {port} is in use: 127.0.0.1:{port}. Choose another with --port."
    ]
    options = ("--package", str(tiny_package), "--port", "0", "--host", "0.0.0.0")
    status, found = diagnose(capsys, *options)
    assert status == 1
    assert "--insecure" in found["problems"][0]


def test_too_little_memory(tiny_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enormous = MemoryNeed(weights=1 << 60, kv=0, work=0)
    monkeypatch.setattr(doctor, "memory_need", lambda *ignored: enormous)
    problems = problems_of(examine(Settings(package=tiny_package, port=0)))
    assert len(problems) == 1
    assert "memory" in problems[0]


def test_integer_products_that_overflow_here(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = doctor.load_package(tiny_package)
    object.__setattr__(package.manifest.target, "integer_form", "u8s8")
    monkeypatch.setattr(doctor, "load_package", lambda path: package)
    for has, count in ((True, 0), (False, 1)):
        monkeypatch.setattr(doctor, "has_integer_dot_product", lambda has=has: has)
        problems = problems_of(examine(Settings(package=tiny_package, port=0)))
        assert len(problems) == count
        assert all("VNNI" in problem for problem in problems)


def test_a_gpu_that_is_there(tiny_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "nvidia_devices", lambda: ("/dev/nvidia0",))
    monkeypatch.setattr(doctor, "_nvidia_smi", lambda: ["NVIDIA T4, 595.1, 16 GiB, 15 GiB"])
    cuda = Provider(device="cuda", onnxruntime_names=("CUDAExecutionProvider",), memory="cuda")
    monkeypatch.setattr(doctor, "select_provider", lambda device, built_for: cuda)
    sections = {
        section.title: section.found
        for section in examine(Settings(package=tiny_package, port=0, device="cuda"))
    }
    assert sections["gpu"]["device nodes"] == ["/dev/nvidia0"]
    assert sections["use"]["provider"] == "CUDAExecutionProvider"
    assert sections["use"]["why"] == "asked for by --device"


def test_an_idle_gpu_is_pointed_out(tiny_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for nodes in ((), ("/dev/nvidia0",)):
        monkeypatch.setattr(doctor, "nvidia_devices", lambda nodes=nodes: nodes)
        sections = examine(Settings(package=tiny_package, port=0, device="cpu"))
        use = next(section.found for section in sections if section.title == "use")
        assert ("hint" in use) == bool(nodes)
        assert use["provider"] == "CPUExecutionProvider"


def problems_of(sections: list[Section]) -> list[str]:
    return [problem for section in sections for problem in section.problems]
