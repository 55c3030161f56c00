"""Writing a corpus: scripts, played through one writer, kept in shards."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from export.training.corpus import Conversation, Count, ShardWriter, count, describe
from export.training.given import GIVEN, GivenPrompts
from export.training.material import load_material
from export.training.prompts import Prompt
from export.training.scripts import SCRIPTS, TEXT, free_text
from export.training.speech import Speech
from export.training.stage import HELD_SHARE, Part, Stage
from export.training.writing import Writer, load_packed_target
from models.package import Package

ROWS = 32
CONTEXT = 2048
SHARD_TOKENS = 12_000
"""Answer tokens of a shard: what a kill can cost."""

_REPORT_SECONDS = 30.0

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Goal:
    """Answer tokens to be written, without those of texts that only serve to be asked about, and
    the most minutes that may take."""

    tokens: int
    minutes: float = float("inf")


def write_corpus(
    package: Package,
    directory: Path,
    goal: Goal,
    *,
    seed: int,
    prompts: Sequence[Prompt] | None = None,
    inventing: bool = True,
    threads: int | None = 1,
    rows: int = ROWS,
    context: int = CONTEXT,
    report: Report = print,
) -> Mapping[str, Count]:
    """Append conversations to the corpus in `directory`; what was added, by kind.

    Given `prompts` have half of the answer tokens, or all unless `inventing`. A second call with
    the same seed goes on with other conversations; other processes may append at the same time,
    each with a seed of its own.
    """
    shards = ShardWriter(directory, seed)
    spec = package.manifest.target
    context = min(context, spec.context_length)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        target = load_packed_target(package, rows, context, Path(scratch), threads)
    writer = Writer(target, context, spec.eos_ids)
    speech, seeds = Speech(package), (seed, shards.first)
    parts = _parts(speech, prompts, inventing, seeds)
    stage = Stage(parts, speech, load_material(), seeds, context)
    with _Keeper(shards, writer, goal, report) as keeper:
        for written in writer.write(stage.jobs()):
            keeper.keep(stage.play(written))
            if keeper.is_reached(stage.answer_tokens):
                break
    return keeper.counts


def _parts(
    speech: Speech, prompts: Sequence[Prompt] | None, inventing: bool, seed: Sequence[int]
) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    if inventing or not prompts:
        scripts = SCRIPTS if speech.chats else {TEXT: free_text}
        parts = {kind: Part(script) for kind, script in scripts.items()}
    if prompts:
        parts[GIVEN] = Part(GivenPrompts(prompts, seed, HELD_SHARE), max(1, len(parts)))
    return parts


@dataclass(slots=True)
class _Keeper:
    """Fills shards, counts, reports, and leaves nothing behind where the writing is broken off."""

    shards: ShardWriter
    writer: Writer
    goal: Goal
    report: Report
    counts: dict[str, Count] = field(default_factory=dict)
    pending: list[Conversation] = field(default_factory=list)
    begin: float = field(default_factory=time.monotonic)
    reported: float = field(default_factory=time.monotonic)

    def __enter__(self) -> _Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()

    def keep(self, conversations: Sequence[Conversation]) -> None:
        for conversation in conversations:
            self.pending.append(conversation)
            known = self.counts.get(conversation.kind, Count())
            self.counts[conversation.kind] = known + count(conversation)
        if sum(conversation.answer_tokens for conversation in self.pending) >= SHARD_TOKENS:
            self._flush()

    def is_reached(self, tokens: int) -> bool:
        """Whether `tokens`, or the time, are what was asked for; reports now and then."""
        now = time.monotonic()
        seconds = now - self.begin
        reached = tokens >= self.goal.tokens or seconds >= 60 * self.goal.minutes
        if reached or now - self.reported >= _REPORT_SECONDS:
            self.reported = now
            self.report(self._line(tokens, max(seconds, 1e-3)))
        return reached

    def _line(self, tokens: int, seconds: float) -> str:
        rate = tokens / seconds
        left = 60 * self.goal.minutes - seconds
        if rate:
            left = min(left, (self.goal.tokens - tokens) / rate)
        written, read = (
            number / seconds for number in (self.writer.written_tokens, self.writer.read_tokens)
        )
        return (
            f"{tokens:,} of {self.goal.tokens:,} answer tokens, {rate:.0f}/s,"
            f" {max(left, 0) / 60:.0f} min left (all text {written:.0f} tokens/s, read {read:.0f});"
            f" {describe(self.counts)}"
        )

    def _flush(self) -> None:
        if self.pending:
            self.shards.append(self.pending)
            self.pending = []
