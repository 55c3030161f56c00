"""Self-speculation as a drafter of a package: graphs over the target's own weights and K/V."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from export.chain_runner import ChainRunner
from export.drafter_parity import first_difference, shown
from export.drafter_site import Site
from export.layer_agreement import Agreement
from export.layer_search import LayerSearch, choose_layers, costs_of
from export.options import NO_SELF_SPECULATION, invalid
from export.parity import failed
from export.progress import Progress
from export.runner import GraphRunner, RowStep
from export.self_speculative import LayerChoice, keep_layers
from export.unroll import unroll
from export.wanted import SELF_SPECULATIVE
from export.writer import save_graph
from models.package import DrafterSpec

KIND = "self-speculative"
STEPS = (1, 2, 4)
"""Every graph that is loaded keeps a copy of the weights of the layers kept."""
_LISTED = 64
_ROOM = 16


@dataclass(frozen=True, slots=True)
class SkippingPlan:
    """`text` is what was asked for, `choice` what it means for this target."""

    text: str
    choice: LayerChoice
    kind: str = KIND
    reads: str | None = None
    tap_layers: tuple[int, ...] = ()

    @property
    def describe(self) -> str:
        return f"self-speculation with {self.text} of its layers"

    def write(self, site: Site, progress: Progress) -> DrafterSpec:
        target = site.target
        if target.device == "tensorrt":
            raise invalid(SELF_SPECULATIVE, f"{SELF_SPECULATIVE} {NO_SELF_SPECULATION}")
        with progress.steps() as report:
            report("answering prompts to judge layers by")
            judge = Agreement(site.stored, site.answers)
            costs = costs_of(site.single, target.weight_type)
            search = choose_layers(self.choice, judge, costs, report)
            report("measuring the layers kept")
            survival = judge.survival(search.chosen.kept, max(STEPS))
        for line in search.lines():
            progress.line(line)
        del judge
        kept = search.chosen.kept
        with progress.step("making the graphs of self-speculation"):
            graphs = _write_graphs(site, kept)
            _check_graphs(site, kept, site.directory / graphs[str(max(STEPS))])
        progress.line(shown({}, survival))
        return DrafterSpec(
            kind=KIND,
            checkpoint=target.checkpoint,
            revision=target.revision,
            sha256=target.sha256,
            longest=max(STEPS),
            draft_vocab=target.vocab_size,
            top_k=min(_LISTED, target.vocab_size),
            graphs=graphs,
            weights=(target.weights,),
            kept_layers=kept,
            survival=survival,
            parity=_figures(search),
        )


def _write_graphs(site: Site, kept: tuple[int, ...]) -> dict[str, str]:
    step = keep_layers(site.single, kept)
    graphs = {}
    for count in STEPS:
        graphs[str(count)] = f"{KIND}.k{count}.onnx"
        save_graph(unroll(step, count), site.directory / graphs[str(count)])
    return graphs


def _check_graphs(site: Site, kept: tuple[int, ...], path: Path) -> None:
    """One run of several steps drafts what as many runs of one step do."""
    stored = site.stored
    layers = range(site.target.layers)
    longest = max(map(len, site.prompts))
    whole = stored.runner(layers, 1, longest + _ROOM)
    shared = {
        f"past.{number}.0.{part}": whole.buffers[f"past.{layer}.0.{part}"]
        for number, layer in enumerate(kept)
        for part in ("key", "value")
    }
    single = stored.runner(kept, 1, longest + _ROOM, shared)
    several = ChainRunner(path, capacity=longest + _ROOM, device=site.device, buffers=shared)
    for ids in site.prompts:
        # Behind all but the last token, as in a round: the last is the draft's first entry.
        whole.run([RowStep(ids[:-1])], [])
        drafts = several.draft(ids[-1:], past=len(ids) - 1)
        if first_difference(_one_by_one(single, ids, len(drafts)), drafts) is not None:
            raise failed("several steps in one graph draft other tokens than one by one", {})


def _one_by_one(runner: GraphRunner, ids: tuple[int, ...], count: int) -> list[int]:
    drafts: list[int] = []
    for step in range(count):
        token = drafts[-1] if drafts else ids[-1]
        logits = runner.run([RowStep((token,), len(ids) - 1 + step)])["logits"]
        drafts.append(int(logits[-1].argmax()))
    return drafts


def _figures(search: LayerSearch) -> dict[str, float]:
    chosen = search.chosen
    return {
        "layers_kept": float(len(chosen.kept)),
        "agreement": chosen.agreement,
        "expected_speedup": chosen.speedup,
        "complete_search": float(search.complete),
    }
