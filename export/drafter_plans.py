"""Reads the sources of drafters into plans, one way for each option."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from export.checkpoint import Checkpoint
from export.draft_model import load_draft
from export.drafters import Plan
from export.head_drafters import HeadPlan, MedusaPlan
from export.heads.facts import TargetFacts, target_facts
from export.heads.layouts import PICKLES, WANTED, read
from export.heads.medusa import Medusa
from export.model_drafter import ModelPlan
from export.self_speculative import parse_layers
from export.skipping_drafter import SkippingPlan
from export.sources import HeadSource, locate, locate_head
from export.tokenizers import NamedTokenizer
from export.wanted import DRAFT, EAGLE, MEDUSA, MTP, SELF_SPECULATIVE, Wanted
from models.errors import UserError


class Reader:
    """`checkpoint` is the target's, its model in memory; heads borrow its embeddings and head."""

    def __init__(self, checkpoint: Checkpoint, context: int) -> None:
        self._checkpoint = checkpoint
        self._context = context
        self._facts: TargetFacts | None = None
        self._ways: Mapping[str, Callable[[str], Plan]] = {
            SELF_SPECULATIVE: self._self_speculative,
            DRAFT: self._draft,
            MEDUSA: lambda text: self._head(MEDUSA, text),
            EAGLE: lambda text: self._head(EAGLE, text),
            MTP: lambda text: self._head(MTP, text),
        }

    def read(self, wanted: Wanted) -> Plan:
        return self._ways[wanted.option](wanted.text)

    def _self_speculative(self, text: str) -> Plan:
        layers = int(self._checkpoint.config.num_hidden_layers)
        return SkippingPlan(text, parse_layers(text, layers))

    def _draft(self, text: str) -> Plan:
        library = self._checkpoint.tokenizer.backend_tokenizer
        tokenizer = NamedTokenizer(self._checkpoint.source.name, library)
        return ModelPlan(load_draft(locate(text, DRAFT), self._known(), tokenizer))

    def _head(self, option: str, text: str) -> Plan:
        own = option == MTP and not text
        source = self._own() if own else _located(option, text)
        module, info = read(
            source.path,
            self._known(),
            name=source.name,
            revision=source.revision,
            wanted=option.removeprefix("--"),
        )
        if isinstance(module, Medusa):
            return MedusaPlan(module, info)
        return HeadPlan(module, info)

    def _own(self) -> HeadSource:
        """MTP modules inside the target's own checkpoint."""
        source = self._checkpoint.source
        if source.gguf is not None:
            raise UserError(
                f"--mtp alone means modules inside the target's checkpoint, and {source.name} is a"
                " GGUF file, which has none. Give --mtp SOURCE.",
                code="head_invalid",
                param=MTP,
            )
        return HeadSource(source.name, source.revision, source.directory)

    def _known(self) -> TargetFacts:
        if self._facts is None:
            self._facts = target_facts(self._checkpoint, self._context)
        return self._facts


def _located(option: str, text: str) -> HeadSource:
    """Of a hub repository the safe files first; pickles where there are no others."""
    source = locate_head(text, option, WANTED)
    if source.path.is_dir() and not any(source.path.glob("*.safetensors")):
        return locate_head(text, option, [*WANTED, *PICKLES])
    return source
