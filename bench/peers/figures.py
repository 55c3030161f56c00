"""Figures of what contestants answered: a row for each category, and for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.peers.agreement import Agreement, Agreements
from bench.peers.schema import ContestantGroup, Ratio, Row
from bench.peers.turns import Record, Turn
from bench.run.schema import ALL, Absent, Interval, Metric, Quantity
from bench.run.statistics import CONFIDENCE, RESAMPLES

MS, TOKENS, SHARE, TIMES = "ms", "tokens", "share", "times ours"
_SEED = 0
_EMPTY = Absent("missing", "no token was generated")
_UNTOLD = Absent("unsupported", "its interface does not tell")
_UNJUDGED = Absent("missing", "the fp32 model did not judge it")
_ITSELF = Absent("not_comparable", "this is what ratios are of")
_UNASKED = Absent("missing", "the run ended before")
_ONE_PROMPT = Absent("missing", "one prompt has no spread")


@dataclass(frozen=True, slots=True)
class Field:
    """Everyone's records, what the fp32 model said, and those of `records` that ratios are of."""

    records: Sequence[Record]
    agreements: Agreements
    bases: Sequence[str]

    def rows(self) -> list[Row]:
        turns = [turn for record in self.records for turn in record.turns]
        named = list(dict.fromkeys(turn.question.category for turn in turns))
        categories = [*(named if len(named) > 1 else ()), None]
        return [
            self._row(record, each)
            for record in self.records
            for each in (categories if record.absent is None else [None])
        ]

    def _row(self, record: Record, category: str | None) -> Row:
        turns = _turns(record, category)
        judged = [
            found
            for turn in turns
            if (found := self.agreements.get((record.name, turn.question.id))) is not None
        ]
        answers = [turn.answer for turn in turns]
        tokens = sum(len(answer.ids) for answer in answers)
        behind = sum(len(answer.ids) - 1 for answer in answers if answer.ids)
        timed = sum(answer.ms - answer.ttft_ms for answer in answers)
        ttft = float(np.mean([answer.ttft_ms for answer in answers])) if answers else 0.0
        return Row(
            contestant=record.name,
            category=category or ALL,
            prompts=len(turns),
            tokens=record.absent or (Quantity(tokens, TOKENS) if turns else _UNASKED),
            time_per_token=record.absent or _of(sum(a.ms for a in answers), tokens, MS),
            ttft=record.absent or _of(ttft, 1 if answers else 0, MS),
            tpot=record.absent or _of(timed, behind, MS),
            tau=record.absent or _tau(turns),
            alpha=record.absent or _alpha(turns),
            agreement=record.absent or _agreement(judged),
            common=record.absent or _common(judged),
            identical=record.absent or _identical(judged),
            against={name: self._ratio(record, name, category) for name in self.bases},
        )

    def _ratio(self, record: Record, basis: str, category: str | None) -> Ratio:
        ours = next(one for one in self.records if one.name == basis)
        if ours is record:
            return Ratio(_ITSELF, _ITSELF)
        absent = record.absent or ours.absent
        if absent is not None:
            return Ratio(absent, absent)
        theirs = {turn.question.id: turn.answer for turn in _turns(record, category)}
        pairs = [
            (theirs[turn.question.id], turn.answer)
            for turn in _turns(ours, category)
            if turn.question.id in theirs
        ]
        table = np.array(
            [[own.ms, len(own.ids), our.ms, len(our.ids)] for own, our in pairs], np.float64
        ).reshape(-1, 4)
        if not (table.sum(axis=0) > 0).all():
            return Ratio(_EMPTY, _EMPTY)
        ratio = Quantity(float(ratios(table[None])[0]), TIMES)
        if len(table) == 1:
            return Ratio(ratio, _ONE_PROMPT)
        low, high = interval(table)
        return Ratio(ratio, Interval(low, high, TIMES, CONFIDENCE, len(table)))


def ratios(tables: np.ndarray) -> np.ndarray:
    """Times per token over ours: of `tables` [resamples, prompts, 4] with a peer's milliseconds
    and tokens and ours in the columns."""
    ms, tokens, our_ms, our_tokens = np.moveaxis(tables.sum(axis=1), -1, 0)
    found: np.ndarray = (ms / tokens) / (our_ms / our_tokens)
    return found


def interval(table: np.ndarray) -> tuple[float, float]:
    """Percentile bootstrap over prompts, each drawn with both answers to it."""
    drawn = np.random.default_rng(_SEED).integers(0, len(table), (RESAMPLES, len(table)))
    bounds = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    # A resample without a token of either has no time per token.
    counted = [row for row in table[drawn] if row[:, 1].sum() > 0 and row[:, 3].sum() > 0]
    low, high = np.quantile(ratios(np.stack(counted)), bounds).tolist()
    return low, high


def contestant_of(record: Record, ours: bool) -> ContestantGroup:
    absent = record.absent or _EMPTY
    memory = record.memory_bytes
    taken = sum(turn.answer.ms for turn in record.turns)
    others = sum(turn.others_ms for turn in record.turns)
    return ContestantGroup(
        name=record.name,
        ours=ours,
        settings=record.settings,
        versions=record.versions,
        memory=absent if memory is None else Quantity(memory / 2**20, "MiB"),
        waiting_use=Quantity(others / taken, SHARE) if taken else absent,
    )


def _turns(record: Record, category: str | None) -> list[Turn]:
    return [turn for turn in record.turns if category in (None, turn.question.category)]


def _of(total: float, count: float, unit: str) -> Metric:
    return Quantity(total / count, unit) if count else _EMPTY


def _tau(turns: Sequence[Turn]) -> Metric:
    """Tokens behind the first one over runs of the target."""
    known = [turn.answer for turn in turns if turn.answer.rounds]
    rounds = sum(answer.rounds or 0 for answer in known)
    return _of(sum(len(a.ids) - 1 for a in known), rounds, "tokens/run") if rounds else _UNTOLD


def _alpha(turns: Sequence[Turn]) -> Metric:
    known = [turn.answer for turn in turns if turn.answer.drafted]
    drafted = sum(answer.drafted or 0 for answer in known)
    return _of(sum(a.accepted or 0 for a in known), drafted, SHARE) if drafted else _UNTOLD


def _agreement(judged: Sequence[Agreement]) -> Metric:
    tokens = sum(one.tokens for one in judged)
    return _of(sum(one.agreed for one in judged), tokens, SHARE) if judged else _UNJUDGED


def _common(judged: Sequence[Agreement]) -> Metric:
    tokens = sum(one.reference for one in judged)
    return _of(sum(one.common for one in judged), tokens, SHARE) if judged else _UNJUDGED


def _identical(judged: Sequence[Agreement]) -> Metric:
    return _of(sum(one.identical for one in judged), len(judged), SHARE) if judged else _UNJUDGED
