"""How far answers are those of the fp32 model.

It is given every answer as it stands and says at each place what it would have said there: one run
an answer, whatever the interface of who gave it. And its own greedy answers are compared with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.catalogue import REFERENCE
from bench.peers.checkpoint import Forms
from bench.peers.contestants import Prompt
from bench.peers.environments import python_of
from bench.peers.peer_process import PeerProcess, running_peer
from bench.peers.turns import Record
from bench.setup import progress

_FILE = "reference.json"


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of one answer. `agreed` of its `tokens` are the fp32 model's greedy choice where they stand;
    the first `common` are those of its own answer, which has `reference` tokens."""

    tokens: int
    agreed: int
    common: int
    reference: int
    identical: bool


Agreements = Mapping[tuple[str, str], Agreement]
"""By a record's name and a question's id."""


async def agreements(
    records: Sequence[Record],
    found: dict[tuple[str, str], Agreement],
    prompts: Sequence[Prompt],
    max_tokens: int,
    forms: Forms,
    threads: int,
) -> None:
    """Notes them in `found`. Raises `PeerError` where the fp32 model does not run."""
    ids = {prompt.question.id: prompt.ids for prompt in prompts}
    async with running_peer(REFERENCE, python_of(REFERENCE.peer), forms, threads) as model:
        answers = await _references(model, prompts, max_tokens, forms.directory / _FILE)
        for record in records:
            for turn in record.turns:
                question = turn.question.id
                told = await model.judge(ids[question], turn.answer.ids)
                found[record.name, question] = compared(turn.answer.ids, told, answers[question])


def compared(answer: Sequence[int], told: Sequence[int], reference: Sequence[int]) -> Agreement:
    """`told` is the fp32 model's choice at each place of `answer`."""
    pairs = list(zip(answer, reference, strict=False))
    common = next((at for at, (one, other) in enumerate(pairs) if one != other), len(pairs))
    return Agreement(
        tokens=len(answer),
        agreed=sum(one == other for one, other in zip(answer, told, strict=True)),
        common=common,
        reference=len(reference),
        identical=list(answer) == list(reference),
    )


async def _references(
    model: PeerProcess, prompts: Sequence[Prompt], max_tokens: int, kept: Path
) -> dict[str, list[int]]:
    """The fp32 model's answers by question. They take long, and are kept."""
    known = _read(kept)
    answers: dict[str, list[int]] = {}
    for index, prompt in enumerate(prompts):
        key = hashlib.sha256(json.dumps([prompt.ids, max_tokens]).encode()).hexdigest()
        if key not in known:
            progress(f"peers: the fp32 model's answer {index + 1} of {len(prompts)}")
            known[key] = list((await model.answer(prompt, max_tokens)).ids)
            _write(kept, known)
        answers[prompt.question.id] = known[key]
    return answers


def _read(path: Path) -> dict[str, list[int]]:
    if not path.is_file():
        return {}
    known: dict[str, list[int]] = json.loads(path.read_text(encoding="utf-8"))
    return known


def _write(path: Path, known: Mapping[str, list[int]]) -> None:
    path.write_text(json.dumps(known), encoding="utf-8")
