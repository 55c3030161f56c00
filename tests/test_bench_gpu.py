"""The GPU check: what it builds, how it runs parts, what it carries; the whole of it on the CPU."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bench.gpu import chosen, packing
from bench.gpu.join import DamagedError, join
from bench.gpu.join import main as join_main
from bench.gpu.packages import DRAFT_KIND, FUSED, package_of, tokenizer_of
from bench.gpu.packing import INDEX, cut, write_index
from bench.gpu.parts import PARTS
from bench.gpu.report import as_json, as_markdown
from bench.gpu.running import PartReport, run_part, run_parts, write_outcome
from bench.gpu.shapes import SHAPES, drafter_shape, shape_of
from bench.gpu.site import Outcome, Part, Site
from bench.report import Promise, Table
from models.errors import UserError
from models.rows import Row
from models.target import Target
from models.tokenizer import Tokenizer

ROOT = Path(__file__).parent.parent
TINY = SHAPES["tiny"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site("cpu", tmp_path_factory.mktemp("check"), quick=True)


def part(name: str) -> Part:
    return Part(name, f"what {name} is", 30, lambda site: Outcome({}))


@pytest.mark.parametrize("kind", ["fp32", "fp16", "int8", "int4"])
def test_a_package_of_random_weights_says_something(site: Site, kind: str) -> None:
    package = site.package("tiny", kind)
    spec = package.manifest.target
    assert (spec.device, spec.weight_type, package.row_counts) == ("cuda", kind, (1, 2, 4))
    target = Target(package, site.provider())
    (slot,) = target.make_slots(1, 64)
    (result,) = target.run([Row(slot, tuple(range(10, 26)), logits=16)])
    assert np.isfinite(result.logsumexp).all()
    assert len(set(result.greedy)) > 3, "it says more than one thing"
    spread = result.top_values[:, 0] - result.top_values[:, -1]
    assert (spread > 0.5).all()
    assert (spread < 50).all()
    assert package.manifest.drafters[0].kind == DRAFT_KIND


def test_a_package_is_made_once(site: Site) -> None:
    first = site.package("tiny", "fp16")
    made = (first.path / "package.json").stat().st_mtime_ns
    assert (site.package("tiny", "fp16").path / "package.json").stat().st_mtime_ns == made


def test_the_large_shapes_are_those_they_stand_for() -> None:
    millions = {name: round(shape.parameters / 1e6) for name, shape in SHAPES.items()}
    # SmolLM2 and Llama 3.2 share the embedding with the head; here each has its own.
    assert millions == {"tiny": 0, "135m": 163, "1b": 1498, "8b": 8030}
    assert shape_of("8b", on_cpu=True, quick=False).layers == 2
    assert shape_of("8b", on_cpu=False, quick=False) == SHAPES["8b"]
    assert shape_of("8b", on_cpu=False, quick=True).hidden == TINY.hidden
    for shape in SHAPES.values():
        assert drafter_shape(shape).vocabulary == shape.vocabulary


def test_a_processor_is_given_what_it_gets_through() -> None:
    """Its kernels for half precision take a hundred times what others take: 1.8 s for a run of two
    layers of the 1B shape in int8."""
    for name, shape in SHAPES.items():
        cut_down = shape_of(name, on_cpu=True, quick=False)
        assert cut_down.parameters < 10e6
        assert cut_down.head_dim == shape.head_dim
        assert cut_down.heads / cut_down.kv_heads == shape.heads / shape.kv_heads


def test_ids_of_the_tokenizer_are_all_known(tmp_path: Path) -> None:
    tokenizer_of(512).save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    ids = tokenizer.encode("Ü a\n")
    assert len(ids) == 5
    assert max(ids) < 512


def test_the_standard_form_is_tensorrts(site: Site) -> None:
    package = package_of(site.directory / "standard", TINY, "fp16", (1,), FUSED)
    assert package.manifest.target.device == "tensorrt"


def finished(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_part_that_crashes_hangs_or_says_nothing_hides_no_other(tmp_path: Path) -> None:
    good = Outcome({"n": 1}, [Promise("n", 1.0, ">=", 1.0)], [Table("t", ("a",), [("1",)])], ["so"])
    written = tmp_path / "prepared.json"
    write_outcome(written, good)
    codes = {
        "crashes": "import os; print('before'); os.kill(os.getpid(), 11)",
        "fails": "raise SystemExit('the device is lost')",
        "hangs": "import time; time.sleep(600)",
        "says nothing": "pass",
        "is good": f"import shutil; shutil.copy({str(written)!r}, FILE)",
    }
    parts = [Part(name, name, 2 if name == "hangs" else 30, part("x").run) for name in codes]

    def command(each: Part, file: Path) -> list[str]:
        return finished(codes[each.name].replace("FILE", repr(str(file))))

    reports = {each.name: each for each in run_parts(parts, 100, command, tmp_path)}
    assert {name: each.status for name, each in reports.items()} == {
        "crashes": "failed",
        "fails": "failed",
        "hangs": "timed out",
        "says nothing": "failed",
        "is good": "done",
    }
    assert "signal 11" in reports["crashes"].problem
    assert "before" in reports["crashes"].problem
    assert "the device is lost" in reports["fails"].problem
    assert "cannot be read" in reports["says nothing"].problem
    assert reports["is good"].figures == {"n": 1}
    assert reports["is good"].checks == [Promise("n", 1.0, ">=", 1.0)]
    assert [name for name, each in reports.items() if each.held] == ["is good"]


def test_no_part_begins_when_the_time_is_over(tmp_path: Path) -> None:
    now = iter([0.0, 1.0, 99.0, 120.0])
    asked: list[str] = []

    def command(each: Part, file: Path) -> list[str]:
        asked.append(each.name)
        return finished("pass")

    parts = [part("first"), part("second"), part("third")]
    reports = run_parts(parts, 100, command, tmp_path, clock=lambda: next(now))
    assert asked == ["first"]
    assert [each.status for each in reports[1:]] == ["not run", "not run"]
    assert all(each.held for each in reports[1:]), "what had no time decides nothing"


def test_a_part_gets_no_more_than_is_left(tmp_path: Path) -> None:
    started = time.monotonic()
    slow = run_part(part("slow"), finished("import time; time.sleep(60)"), tmp_path / "x", 1.0)
    assert slow.status == "timed out"
    assert time.monotonic() - started < 20


def test_reports_say_what_ran_on_what() -> None:
    reports = [
        PartReport(
            "hardware",
            "What is here.",
            "done",
            1.0,
            figures={
                "gpu": [{"name": "H", "driver_version": "1"}],
                "machine": {"system": "Linux", "processor": "P"},
                "versions": {"onnxruntime": "1.31"},
                "providers": ["CUDAExecutionProvider"],
            },
            checks=[Promise("runs", 1.0, ">=", 1.0)],
        ),
        PartReport("cost", "Times.", "failed", 2.0, "ended with signal 11: a line"),
    ]
    text = as_markdown(reports, {"device": "cuda"}, "2026-01-01", 3.0)
    for wanted in (
        "name H",
        "onnxruntime | 1.31",
        "1 of 1",
        "signal 11",
        "| cost | Times. | failed",
    ):
        assert wanted in text
    assert "No GPU was used" not in text
    assert "No GPU was used" in as_markdown(reports, {"device": "cpu"}, "2026-01-01", 3.0)
    document = as_json(reports, {"device": "cuda"}, "2026-01-01", 3.0)
    assert document["held"] is False
    assert [each["name"] for each in document["parts"]] == ["hardware", "cost"]
    json.dumps(document, allow_nan=False)


def test_parts_are_chosen_by_name_in_their_own_order() -> None:
    assert [each.name for each in chosen("cost,hardware")] == ["hardware", "cost"]
    assert chosen(None) == list(PARTS)
    with pytest.raises(UserError, match="'speed'"):
        chosen("speed")


def carried(directory: Path) -> dict[str, bytes]:
    """Two files in parts, as they would be packed."""
    contents = {"a-1.whl": bytes(range(256)) * 10, "b-1.whl": b"short"}
    source = directory / "source"
    source.mkdir()
    files = []
    for name, content in contents.items():
        (source / name).write_bytes(content)
        files.append(cut(source / name, directory, 1000))
    assert [len(each.parts) for each in files] == [3, 1]
    assert files[0].sha256 == hashlib.sha256(contents["a-1.whl"]).hexdigest()
    write_index(directory, "3.12", files)
    return contents


def test_what_was_cut_is_joined(tmp_path: Path) -> None:
    contents = carried(tmp_path)
    for _ in range(2):  # the second time it is there already
        wheels = join(tmp_path, tmp_path / "wheels")
        assert {path.name: path.read_bytes() for path in wheels} == contents


@pytest.mark.parametrize("damage", ["changed", "missing", "of another packing"])
def test_damage_on_the_way_is_named(tmp_path: Path, damage: str) -> None:
    carried(tmp_path)
    first = tmp_path / "a-1.whl.001"
    if damage == "changed":
        first.write_bytes(first.read_bytes()[::-1])
    elif damage == "missing":
        first.unlink()
    else:
        document = json.loads((tmp_path / INDEX).read_text())
        document["files"][0]["sha256"] = "0" * 64
        (tmp_path / INDEX).write_text(json.dumps(document))
    with pytest.raises(DamagedError, match=r"a-1\.whl"):
        join(tmp_path, tmp_path / "wheels")


def test_joining_needs_python_alone(tmp_path: Path) -> None:
    """It is run where nothing is installed yet."""
    script = ROOT / "bench" / "gpu" / "join.py"
    command = [sys.executable, "-I", "-S", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "join.py PARTS VENV" in done.stderr
    carried(tmp_path)
    (tmp_path / "b-1.whl.000").unlink()
    command += [str(tmp_path), str(tmp_path / "venv")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "join: b-1.whl.000 is missing: carry it again\n")
    assert join_main([]) == 2


def test_packing_says_why_nothing_was_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 1, "", "no matching distribution\n")

    monkeypatch.setattr(packing.subprocess, "run", run)
    with pytest.raises(UserError, match="no matching distribution"):
        packing.pack(tmp_path / "parts", "3.13", ["nvidia-cudnn-cu13"])
    (command,) = asked
    assert "--only-binary=:all:" in command
    assert command[command.index("--python-version") + 1] == "3.13"
    assert command[-1] == "nvidia-cudnn-cu13"
    assert packing.ONNXRUNTIME in command


def test_packing_cuts_what_was_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(directory: Path, python: str, names: list[str]) -> None:
        (directory / "onnxruntime_gpu-1.whl").write_bytes(b"x" * 100)

    monkeypatch.setattr(packing, "download", download)
    (found,) = packing.pack(tmp_path / "parts", "3.12")
    assert found.bytes == 100
    names = {path.name for path in (tmp_path / "parts").iterdir()}
    assert names == {"onnxruntime_gpu-1.whl.000", INDEX, "join.py"}


def test_the_whole_check_runs_with_the_device_played(tmp_path: Path) -> None:
    """Every part, in processes of their own, on tiny shapes."""
    command = [sys.executable, "-m", "bench", "gpu", "--device", "cpu", "--quick"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "check")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    document = json.loads((tmp_path / "check" / "report.json").read_text())
    parts = {each["name"]: each for each in document["parts"]}
    problems = {name: each["problem"] for name, each in parts.items() if each["status"] != "done"}
    assert problems == {}, done.stderr
    broken = [
        (name, check["name"], check["measured"])
        for name, each in parts.items()
        for check in each["checks"]
        if check["applies"] and not (check["measured"] is not None and _held(check))
    ]
    assert broken == []
    assert list(parts) == [each.name for each in PARTS]
    assert parts["replay"]["figures"]["replayed"] > 10
    assert parts["overhead"]["figures"]["tiny"]["replays"] > 100
    assert parts["exactness"]["figures"]["fp16"]["strict_exact"] is True
    assert "played by the processor" in (tmp_path / "check" / "report.md").read_text()


def _held(check: dict[str, object]) -> bool:
    measured, bound = float(check["measured"]), float(check["bound"])  # type: ignore[arg-type]
    return measured <= bound if check["relation"] == "<=" else measured >= bound


def test_it_needs_nothing_that_is_not_carried() -> None:
    """Neither torch nor whatever else is installed where this runs."""
    code = (
        "import sys, bench.__main__, bench.gpu.parts\n"
        "names = {name.partition('.')[0] for name, module in sys.modules.items()"
        " if 'site-packages' in (getattr(module, '__file__', None) or '')}\n"
        "print(*sorted(names))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    carried_by = {name.partition(">")[0].replace("-", "_") for name in packing.NEEDED}
    brought = {
        *("_cffi_backend", "aiohappyeyeballs", "aiosignal", "attr", "attrs", "brotli", "dateutil"),
        *("flatbuffers", "frozenlist", "google", "idna", "jsonschema_specifications", "markupsafe"),
        *("ml_dtypes", "mpmath", "multidict", "onnxruntime", "packaging", "propcache", "pygments"),
        *("referencing", "rpds", "sympy", "typing_extensions", "yarl"),
    }
    # What pip itself brings is no module of ours.
    by_pip = ("mypyc", "_distutils_hack", "__editable__")
    loaded = {name for name in done.stdout.split() if not any(each in name for each in by_pip)}
    assert loaded <= carried_by | brought
