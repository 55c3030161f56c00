"""A run of peers: environments, selection, and the contest over all prompts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.peers.agreement import Agreement, Agreements, agreements
from bench.peers.catalogue import Configuration, Peer
from bench.peers.checkpoint import Forms
from bench.peers.contestants import PeerError, Prompt
from bench.peers.environments import python_of
from bench.peers.ours import DEFAULT, OFF, name_of, running_ours
from bench.peers.peer_process import running_peer
from bench.peers.plan import Plan
from bench.peers.selection import Tried, agreement_of, best, try_all
from bench.peers.turns import Entrant, Record, contest
from bench.prompts import Question, spread
from bench.setup import Setup, progress
from models.chat_template import ChatTemplate
from models.package import Package
from models.tokenizer import Tokenizer

_WARM_UP = Question("warm-up", "warm-up", ("Count to ten.",))


@dataclass(slots=True)
class Outcome:
    """What is known so far. `ours` are names of our settings, those that speculate by default
    first; `chosen` those of configurations that a selection took."""

    records: list[Record]
    ours: tuple[str, ...]
    agreements: dict[tuple[str, str], Agreement] = field(default_factory=dict)
    tried: list[Tried] = field(default_factory=list)
    chosen: set[str] = field(default_factory=set)


class Run:
    """`setups` are of our packages, the first one that of the command line.

    `outcome` is None until the selection is over.
    """

    outcome: Outcome | None = None

    def __init__(self, setups: Sequence[Setup], plan: Plan, forms: Forms) -> None:
        self._setups, self._plan, self._forms = setups, plan, forms
        package = setups[0].package
        self._prompts = rendered(package, setups[0].questions)
        self._warm_up = rendered(package, [_WARM_UP])[0]
        self._pythons: dict[str, Path] = {}
        self._lost: list[Record] = []

    async def measure(self) -> None:
        plan = self._plan
        await self._install(plan.peers)
        tried = await self._select() if plan.wanted is None else []
        chosen = [one for group in tried for one in group[1]]
        wanted = chosen if plan.wanted is None else list(plan.wanted)
        wanted = [one for one in wanted if one.peer.name in self._pythons]
        ours = [self._ours(setup, mode) for mode in (DEFAULT, OFF) for setup in self._setups]
        entrants = [*ours, *map(self._entrant, wanted)]
        records = [Record(entrant.name) for entrant in entrants]
        self.outcome = Outcome(
            records=[*records, *self._lost],
            ours=tuple(entrant.name for entrant in ours),
            tried=[one for group in tried for one in group[0]],
            chosen={one.name for one in chosen},
        )
        await self._contest(
            entrants, records, self.outcome.agreements, self._prompts, plan.max_tokens
        )

    async def _install(self, peers: Sequence[Peer]) -> None:
        for peer in peers:
            try:
                self._pythons[peer.name] = await asyncio.to_thread(python_of, peer)
            except PeerError as error:
                progress(f"peers: {error.absent.why}")
                self._lost.append(Record(peer.name, absent=error.absent))

    async def _select(self) -> list[tuple[list[Tried], list[Configuration]]]:
        """What was tried of each peer, and which of it is measured on all prompts."""
        questions = spread(
            [prompt.question for prompt in self._prompts], self._plan.selection_prompts
        )
        taken = {question.id for question in questions}
        prompts = [prompt for prompt in self._prompts if prompt.question.id in taken]
        tokens = self._plan.selection_max_tokens
        off = self._ours(self._setups[0], OFF)
        records, agreed = await self._try([off], prompts, tokens)
        least = agreement_of(records[0], agreed) or 0.0

        async def measure(
            members: Sequence[Configuration],
        ) -> tuple[list[Record], Agreements]:
            return await self._try([self._entrant(one) for one in members], prompts, tokens)

        found = []
        for peer in self._plan.peers:
            if peer.name in self._pythons:
                tried = await try_all(peer, measure, least)
                chosen = [one.configuration for one in best(tried, least)]
                if not chosen:
                    absent = next(one.record.absent for one in tried if one.record.absent)
                    self._lost.append(Record(peer.name, absent=absent))
                found.append((tried, chosen))
        return found

    async def _try(
        self, entrants: Sequence[Entrant], prompts: Sequence[Prompt], max_tokens: int
    ) -> tuple[list[Record], Agreements]:
        records = [Record(entrant.name) for entrant in entrants]
        agreed: dict[tuple[str, str], Agreement] = {}
        await self._contest(entrants, records, agreed, prompts, max_tokens)
        return records, agreed

    async def _contest(
        self,
        entrants: Sequence[Entrant],
        records: Sequence[Record],
        agreed: dict[tuple[str, str], Agreement],
        prompts: Sequence[Prompt],
        max_tokens: int,
    ) -> None:
        await contest(entrants, records, self._warm_up, prompts, max_tokens)
        threads = self._plan.threads
        try:
            await agreements(records, agreed, prompts, max_tokens, self._forms, threads)
        except PeerError as error:
            progress(f"peers: no agreement: {error.absent.why}")

    def _entrant(self, one: Configuration) -> Entrant:
        python = self._pythons[one.peer.name]
        return Entrant(
            one.name, partial(running_peer, one, python, self._forms, self._plan.threads)
        )

    def _ours(self, setup: Setup, mode: str) -> Entrant:
        return Entrant(name_of(setup, mode), partial(running_ours, setup, mode))


def rendered(package: Package, questions: Sequence[Question]) -> list[Prompt]:
    """The first turn of each as the package's chat template and tokenizer make it."""
    manifest = package.manifest
    assert manifest.chat_template is not None, "checked by the suite"
    source = package.file(manifest.chat_template).read_text(encoding="utf-8")
    template = ChatTemplate(source, **manifest.special_tokens)
    tokenizer = Tokenizer.load(package.file(manifest.tokenizer))
    prompts = []
    for question in questions:
        text = template.render([{"role": "user", "content": question.turns[0]}])
        prompts.append(Prompt(question, tuple(tokenizer.encode(text))))
    return prompts
