"""TensorRT's way, played by the processor: a session a shape, profiles, what others run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from export.kept_features import keep_features
from export.standard import to_standard
from export.writer import save_graph
from gateway.engine.loading import load
from gateway.engine.options import EngineOptions
from models.assignment import elsewhere
from models.capture import total
from models.device_binding import DeviceBinding
from models.errors import UserError
from models.gpu_memory import engine_count
from models.package import Package, file_entry, load_package, write_manifest
from models.providers import DeviceOptions, Provider, cache_options, options_of
from models.rows import Row
from models.session import Session
from models.slots import Slot
from models.target import Target
from models.tensorrt import WIDEST, EngineSessions, profile, shapes
from tests.device_support import played
from tests.engine_support import make_prompt
from tests.features_support import featured

CONTEXT = 64
PROMPT = make_prompt(40)


def engines() -> Provider:
    return Provider("tensorrt", ("CPUExecutionProvider",), "cpu")


@pytest.fixture(scope="module", params=[True, False], ids=["fused", "apart"])
def standard(
    request: pytest.FixtureRequest, package: Package, tmp_path_factory: pytest.TempPathFactory
) -> Package:
    directory = tmp_path_factory.mktemp("standard")
    contrib = featured(package, directory / "featured")
    place = directory / "package"
    place.mkdir()
    target = contrib.manifest.target
    gone = set(target.tree_graphs.values()) | {target.compact_graph}
    for name in contrib.manifest.files.keys() - gone - set(target.graphs.values()):
        (place / name).hardlink_to(contrib.file(name))
    for name in target.graphs.values():
        model = onnx.load(str(contrib.file(name)), load_external_data=False)
        save_graph(to_standard(keep_features(model), fused=request.param), place / name)
    manifest = dataclasses.replace(
        contrib.manifest,
        target=dataclasses.replace(target, tree_graphs={}, compact_graph=None, device="tensorrt"),
        files={path.name: file_entry(path) for path in sorted(place.iterdir())},
    )
    write_manifest(place, manifest)
    return load_package(place)


def test_it_says_what_the_contrib_graphs_say(
    standard: Package, package: Package, tmp_path: Path
) -> None:
    expected = Target(featured(package, tmp_path / "featured"), played())
    found = Target(standard, engines())
    for target in (expected, found):
        assert target.provider.fixes
    (own,), (other,) = found.make_slots(1, CONTEXT), expected.make_slots(1, CONTEXT)
    for begin, end in ((0, 20), (20, 21), (21, 25), (25, 28), (28, 40)):
        results = [
            target.run([Row(slot, PROMPT[begin:end], logits=end - begin)])[0]
            for target, slot in ((found, own), (expected, other))
        ]
        for slot in (own, other):
            slot.commit(PROMPT[begin:end])
        assert np.abs(results[0].top_values - results[1].top_values).max() < 1e-3
        assert results[0].greedy == results[1].greedy
    for name, value in own.features.items():
        assert np.allclose(value.numpy()[:40], other.features[name].numpy()[:40], atol=1e-3), name


def test_every_shape_has_a_session_of_its_own(standard: Package) -> None:
    target = Target(standard, engines())
    slots = target.make_slots(2, CONTEXT)
    assert target._engines is not None
    assert target._engines.loaded == [], "none before it is wanted"
    for slot in slots:
        target.run([Row(slot, PROMPT[:20], logits=0)])
        slot.commit(PROMPT[:20])
    assert len(target._engines.loaded) == 1
    for width in (2, 4, 4):
        target.run([Row(slots[0], PROMPT[20 : 20 + width], logits=width)])
    assert len(target._engines.loaded) == 3
    target.run([Row(slots[1], PROMPT[20:24], logits=4)])
    assert len(target._engines.loaded) == 3, "another slot of the same size has the same shape"
    target.run([Row(slot, PROMPT[20:24], logits=4) for slot in slots])
    assert len(target._engines.loaded) == 4
    assert total(target.graph_counts).eager == {"wide": 2, "fixed": 5}


def test_every_engine_is_built_before_anything_is_served(
    standard: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those for several rows, for rows fewer than a graph has, and for prompts beside them."""
    target = Target(standard, engines())
    assert standard.row_counts == (1, 2, 4)
    slots = target.make_slots(4, CONTEXT)
    said: list[str] = []
    count = target.warm_up(slots, 32, said.append)
    assert target._engines is not None
    built = len(target._engines.loaded)
    assert built == count == engine_count(standard.row_counts, 4, engines().use)
    assert len(said) == count
    assert said[0] == f"TensorRT engine 1 of {count}: 1 x 2 tokens"
    assert said[-1] == f"TensorRT engine {count} of {count}: 4 x 32 tokens"
    assert [slot.length for slot in slots] == [0] * 4

    def building(*arguments: object) -> None:
        raise AssertionError("an engine is built while something is served")

    monkeypatch.setattr(EngineSessions, "_load", building)
    serve_everything(target, slots)
    assert len(target._engines.loaded) == built


def test_a_start_tells_of_each_engine_before_it_is_built(
    standard: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for the start is asked for more time with each line."""
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path))
    lines: list[str] = []
    built: list[int] = []
    real = EngineSessions._load

    def build(self: EngineSessions, rows: int, options: Mapping[str, str]) -> Session:
        built.append(sum(line.startswith("TensorRT engine") for line in lines))
        return real(self, rows, options)

    monkeypatch.setattr(EngineSessions, "_load", build)
    options = EngineOptions(context=CONTEXT, slots=2)
    load(standard, options, lines.append, provider=engines())
    assert built == list(range(1, 1 + engine_count(standard.row_counts, 2, options.device_use)))
    assert f"{len(built)} shapes made ready" in lines


def test_strict_width_has_one_engine_for_what_is_verified(standard: Package) -> None:
    use = DeviceOptions(strict_width=6)
    target = Target(standard, dataclasses.replace(engines(), use=use))
    slots = target.make_slots(2, CONTEXT)
    count = target.warm_up(slots, 32)
    assert count == engine_count(standard.row_counts, 2, use) == 3, "and two for prompts"
    serve_everything(target, slots)
    assert target._engines is not None
    assert len(target._engines.loaded) == count


def test_whatever_runs_is_in_the_profile_of_its_engine(
    standard: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is out of it an engine refuses, or builds itself anew for."""
    target = Target(standard, engines())
    slots = target.make_slots(4, CONTEXT)
    target.warm_up(slots, 32)
    assert target._engines is not None
    profiles = {id(session._session): session._options for session in target._engines.loaded}
    real = DeviceBinding.run
    looked = []

    def run(binding: DeviceBinding, why: str = "") -> None:
        ends = [
            dict(part.split(":") for part in profiles[id(binding._session)][name].split(","))
            for name in ("trt_profile_min_shapes", "trt_profile_max_shapes")
        ]
        for name, (shape, _) in binding._places.items():
            least, most = ([int(size) for size in end[name].split("x")] for end in ends)
            assert len(shape) == len(least), name
            inside = zip(least, shape, most, strict=True)
            assert all(low <= size <= high for low, size, high in inside), (name, shape)
            looked.append(name)
        real(binding, why)

    monkeypatch.setattr(DeviceBinding, "run", run)
    serve_everything(target, slots)
    assert {"input_ids", "logits_index", "unpack_index", "row_index.3"} <= set(looked)


def serve_everything(target: Target, slots: Sequence[Slot]) -> None:
    """Prompts in parts, alone and beside others, decoding to the very end of the context."""
    for count in range(1, 1 + len(slots)):
        for slot in slots:
            slot.truncate(0)
        chosen = slots[:count]
        for logits in (0, 1):
            target.run([Row(slot, PROMPT[:17], logits=logits) for slot in chosen])
        target.run([Row(slot, PROMPT[:17], logits=0) for slot in chosen])
        for slot in chosen:
            slot.commit(PROMPT[:17])
        first, *others = chosen
        target.run([Row(first, PROMPT[17:40], logits=0), *[row_of(each, 1) for each in others]])
        for width in range(1, 17):
            target.run([row_of(slot, width if slot is first else 1) for slot in chosen])
        for slot in chosen:
            slot.commit(PROMPT[:40])
        while slots[0].room:
            target.run([row_of(slot, 1) for slot in chosen])
            for slot in chosen:
                slot.commit((5,))


def row_of(slot: Slot, width: int) -> Row:
    return Row(slot, (5,) * width, logits=width)


def test_a_run_without_logits_says_what_the_others_say(standard: Package) -> None:
    """No engine is built for none, so that some are made which nobody reads."""
    target = Target(standard, engines())
    slots = target.make_slots(2, CONTEXT)
    said = []
    for slot, logits in zip(slots, (0, 1), strict=True):
        (result,) = target.run([Row(slot, PROMPT[:20], logits=logits)])
        assert len(result.top_ids) == logits
        slot.commit(PROMPT[:20])
        said += target.run([Row(slot, PROMPT[20:24], logits=4)])
    assert said[0].greedy == said[1].greedy
    assert said[0].top_values.tobytes() == said[1].top_values.tobytes()


def test_a_profile_names_every_input(standard: Package) -> None:
    spec = standard.manifest.target
    for rows in standard.row_counts:
        model = onnx.load(str(standard.file(spec.graphs[str(rows)])), load_external_data=False)
        wanted = {value.name: value.type.tensor_type.shape.dim for value in model.graph.input}
        found = shapes(spec, rows, 4, [66] * rows)
        assert found.keys() == wanted.keys()
        for name, dims in wanted.items():
            assert len(found[name]) == len(dims), name
            for size, dim in zip(found[name], dims, strict=True):
                assert dim.dim_value in (0, size), name


def test_profiles_are_written_as_the_provider_reads_them() -> None:
    small, usual, large = ({"a": (1, n), "b": (n,)} for n in (2, 8, 16))
    assert profile(small, usual, large) == {
        "trt_profile_min_shapes": "a:1x2,b:2",
        "trt_profile_opt_shapes": "a:1x8,b:8",
        "trt_profile_max_shapes": "a:1x16,b:16",
    }
    assert WIDEST == 1024


def test_engines_and_timings_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path / "cache"))
    kept = cache_options(tmp_path)
    assert kept["trt_engine_cache_enable"] == kept["trt_timing_cache_enable"] == "1"
    assert kept["trt_engine_cache_path"] == kept["trt_timing_cache_path"] == str(tmp_path)
    assert options_of("tensorrt", engines().use).keys() == kept.keys()


@pytest.mark.parametrize("inside", [Path(), Path("not/there/yet")])
def test_the_directory_of_engines_is_made(tmp_path: Path, inside: Path) -> None:
    """ONNX Runtime makes the last part of the path alone."""
    cache_options(tmp_path / inside)
    assert (tmp_path / inside).is_dir()
    assert list((tmp_path / inside).iterdir()) == []


def test_where_engines_cannot_be_kept_they_are_built_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no directory")
    assert cache_options(tmp_path / "file" / "tensorrt") == {"trt_fp16_enable": "1"}
    assert caplog.text.count("TensorRT's engines cannot be kept") == 1


class Reader:
    """Loads sessions as TensorRT does that finds a kept file: a broken one is named."""

    def __init__(self, file: Path, problem: str) -> None:
        self.file, self.problem = file, problem
        self.tries = 0

    def __call__(self, graph: Path, *_: object, **__: object) -> SimpleNamespace:
        self.tries += 1
        if self.file.exists():
            raise UserError(
                f"ONNX Runtime cannot load {graph.name} on tensorrt: [ONNXRuntimeError] : 11 :"
                f" EP_FAIL : TensorRT EP could not {self.problem}: {self.file}",
                code="graph_invalid",
            )
        return SimpleNamespace()


@pytest.mark.parametrize("problem", ["deserialize engine from cache", "create timing cache"])
def test_a_kept_file_that_is_cut_off_is_made_again(
    standard: Package,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    problem: str,
) -> None:
    kept = tmp_path / "with a blank.engine"
    kept.write_bytes(b"cut")
    reader = Reader(kept, problem)
    monkeypatch.setattr("models.tensorrt.Session", reader)
    assert EngineSessions(standard, engines(), None)[1] is not None
    assert (reader.tries, kept.exists()) == (2, False)
    assert "is broken and will be made again" in caplog.text


def test_another_failure_of_loading_is_not_tried_again(
    standard: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "an.engine"
    kept.write_bytes(b"whole")
    reader = Reader(kept, "build the engine from")
    monkeypatch.setattr("models.tensorrt.Session", reader)
    with pytest.raises(UserError, match="could not build"):
        EngineSessions(standard, engines(), None)[1]
    assert (reader.tries, kept.exists()) == (1, True)


def test_drafters_run_on_cuda_beside_it() -> None:
    provider = Provider("tensorrt", ("TensorrtExecutionProvider", "CUDAExecutionProvider"), "cuda")
    beside = provider.for_drafters
    assert (beside.device, beside.onnxruntime_names) == ("cuda", ("CUDAExecutionProvider",))
    assert beside.captures
    assert played().for_drafters == played()


def test_what_others_run_is_said_and_counted() -> None:
    def graph(provider: str, *kinds: str) -> SimpleNamespace:
        nodes = [SimpleNamespace(op_type=kind) for kind in kinds]
        return SimpleNamespace(ep_name=provider, get_nodes=lambda: nodes)

    assert elsewhere([graph("A", "MatMul", "Add")], "A") is None
    mixed = [graph("A", "MatMul"), graph("B", "Range", "Range", "Shape"), graph("C", "TopK")]
    assert elsewhere(mixed, "A") == "3 nodes on B (2 Range, 1 Shape); 1 nodes on C (1 TopK)"
