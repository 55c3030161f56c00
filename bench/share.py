"""The host's share of a round: processing and acceptance against drafting, verifying and itself.

On prompts, through an engine, one at a time, with n-gram drafts of fixed length. Then `accept`
alone on random logits of two vocabularies, against a measured run of the package's target of that
width. Whole rows that had to be looked at are counted: those are what costs.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.answers import Answer, first_prompt, generate
from bench.prompts import spread
from bench.random_rows import AcceptTime, Mode, Shape, measure, profile
from bench.report import Findings, Promise, Table, number, unjudged
from bench.scoring import Scorer
from bench.setup import Setup, progress
from bench.texts import Texts
from bench.whole_rows import CountingService
from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from gateway.engine.requests import GenerationRequest, Speculation
from models.errors import UserError
from models.sampling.parameters import Sampling
from models.target import Row

SHARE = 3.0
"""Percent of a round that processing and acceptance may take."""

VOCABULARIES = (49_152, 151_936)
PROMISED_SCALE = 6.0
"""Times standard normal: such rows are opened as often as a model's on prompts, or more often."""

SCALES = (1.0, 3.0, PROMISED_SCALE)
"""The others are flatter than a model's logits, for comparison: their share is not promised."""

LONGEST_PROMPT = 1024
_SEED = 7
_PAST = 44
_RUNS = 15
_QUICK_PROMPTS = 3
_QUICK_TOKENS = 64
_QUICK_REPEATS = 3
FEWEST_ROUNDS = 20
"""Fewer say more about the first of them, which are slower, than about the others."""

_NUCLEUS = Sampling(temperature=0.8, top_p=0.95, seed=_SEED)
MODES = (
    Mode("greedy", Sampling(seed=_SEED)),
    Mode("temperature 0.8, top-p 0.95", _NUCLEUS),
    Mode("temperature 1", Sampling(temperature=1.0, seed=_SEED)),
    Mode(
        "the same nucleus, penalties",
        Sampling(
            temperature=0.8,
            top_p=0.95,
            repetition_penalty=1.1,
            presence_penalty=0.5,
            frequency_penalty=0.2,
            seed=_SEED,
        ),
    ),
    Mode("the same nucleus, classic", _NUCLEUS, "classic"),
)
TREES = Mode("the same nucleus, trees of 3 branches", _NUCLEUS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--length", type=int, default=7, metavar="N", help="of drafts; default: 7")
    parser.add_argument(
        "--max-tokens",
        type=int,
        default=96,
        metavar="N",
        help=f"of each answer; default: 96, with --quick at most {_QUICK_TOKENS}",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=20,
        metavar="N",
        help=f"on random logits; default: 20, with --quick at most {_QUICK_REPEATS}",
    )
    parser.add_argument("--profile", action="store_true", help="what the accept path is made of")


def run(parsed: argparse.Namespace, setup: Setup) -> Findings:
    if min(parsed.length, parsed.max_tokens, parsed.repeats) < 1:
        raise UserError("every count must be at least 1.", code="usage")
    repeats = min(_QUICK_REPEATS, parsed.repeats) if setup.quick else parsed.repeats
    max_tokens = min(_QUICK_TOKENS, parsed.max_tokens) if setup.quick else parsed.max_tokens
    decoded = asyncio.run(_decode(setup, parsed.length, max_tokens))
    width = parsed.length + 1
    run_ms = _run_ms(setup, width)
    top_k = setup.package.manifest.target.top_k
    times: list[AcceptTime] = []
    for vocabulary in VOCABULARIES:
        for scale in SCALES:
            times += measure(MODES, Shape(vocabulary, scale, width, top_k), repeats)
            progress(f"share: vocabulary {vocabulary}, scale {scale:g}")
    settings = {
        "length": parsed.length,
        "max_tokens": max_tokens,
        "repeats": repeats,
        "seed": _SEED,
    }
    tables = [_decoded_table(decoded), _random_table(times, run_ms, width)]
    if parsed.profile:
        shape = Shape(setup.package.manifest.target.vocab_size, SCALES[-1], width, top_k)
        lines = profile(MODES, shape, repeats).splitlines()
        title = f"Profile: {shape.vocabulary} logits, scale {shape.scale:g}, every mode"
        tables.append(Table(title, ("",), [(line,) for line in lines]))
    return Findings(
        settings, _figures(decoded, times, run_ms), _promises(decoded, times, run_ms), tables
    )


@dataclass(frozen=True, slots=True)
class Decoded:
    """All answers of one mode: clocks in milliseconds, and whole rows looked at."""

    mode: str
    rounds: int
    drafted: int
    accepted: int
    accept_ms: float
    draft_ms: float
    verify_ms: float
    whole_rows: int

    @property
    def share(self) -> float | None:
        """Percent of the rounds' time that acceptance took; None where there was no round."""
        spent = self.accept_ms + self.draft_ms + self.verify_ms
        return 100 * self.accept_ms / spent if self.rounds else None


async def _decode(setup: Setup, length: int, max_tokens: int) -> list[Decoded]:
    texts = Texts(setup.package)
    target = setup.package.manifest.target
    most = min(LONGEST_PROMPT, target.context_length - max_tokens)
    few = spread(setup.questions, _QUICK_PROMPTS) if setup.quick else setup.questions
    turns = [question.turns[0] for question in few]
    fitting = [text for text in turns if len(texts.ids(text)) <= most]
    if not fitting:
        raise UserError(f"no prompt has at most {most} tokens.", code="usage", param="prompts")
    context = max(16, max(len(texts.ids(text)) for text in fitting) + max_tokens)
    options = EngineOptions(slots=1, threads=setup.threads, context=context)
    engine = await Engine.start(setup.package, options, progress)
    service = CountingService(engine.service)
    engine.service = service
    # Their graphs take longer to load than a quick look may last.
    trees = bool(target.tree_graphs) and not setup.quick
    modes = [(mode, 1) for mode in MODES] + ([(TREES, 3)] if trees else [])
    answers: dict[str, list[Answer]] = {mode.name: [] for mode, _ in modes}
    whole_rows = dict.fromkeys(answers, 0)
    try:
        for done, text in enumerate(fitting, start=1):
            prompt = first_prompt(engine, text).ids
            for mode, branches in modes:
                before = service.whole_rows
                speculation = _speculation(mode, length, branches)
                request = GenerationRequest(
                    prompt, max_tokens=max_tokens, sampling=mode.sampling, speculation=speculation
                )
                answers[mode.name].append(await generate(engine, request))
                whole_rows[mode.name] += service.whole_rows - before
            progress(f"share: {done} of {len(fitting)} prompts in {len(modes)} modes")
    finally:
        await engine.close()
    return [_sum(name, given, whole_rows[name]) for name, given in answers.items()]


def _speculation(mode: Mode, length: int, branches: int) -> Speculation:
    return Speculation("ngram", "fixed", length, branches, rule=mode.rule)


def _sum(name: str, answers: Sequence[Answer], whole_rows: int) -> Decoded:
    timings = [answer.timings for answer in answers]
    return Decoded(
        mode=name,
        rounds=sum(item.rounds for item in timings),
        drafted=sum(item.draft_n for item in timings),
        accepted=sum(item.draft_n_accepted for item in timings),
        accept_ms=sum(item.accept_ms for item in timings),
        draft_ms=sum(item.draft_ms for item in timings),
        verify_ms=sum(item.verify_ms for item in timings),
        whole_rows=whole_rows,
    )


def _run_ms(setup: Setup, width: int) -> float:
    """A run of one row of `width` tokens, the median of several."""
    target = setup.package.manifest.target
    scorer = Scorer(setup.package, setup.threads, min(target.context_length, _PAST + width))
    slot = scorer.slots[0]
    past = tuple(range(slot.context - width))
    if past:
        scorer.target.run([Row(slot, past, logits=0)])
        slot.commit(past)
    times = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        scorer.target.run([Row(slot, (0,) * width, logits=width)])
        times.append((time.perf_counter() - started) * 1e3)
    return median(times)


def _share_of(item: AcceptTime, run_ms: float) -> float:
    """Percent of `accept` and a run together."""
    return 100 * item.median_us / (item.median_us + run_ms * 1e3)


def _promises(
    decoded: Sequence[Decoded], times: Sequence[AcceptTime], run_ms: float
) -> list[Promise]:
    promises = [_share_of_rounds(item) for item in decoded]
    for vocabulary in VOCABULARIES:
        group = [
            item for item in times if (item.vocabulary, item.scale) == (vocabulary, PROMISED_SCALE)
        ]
        worst = max(group, key=lambda item: item.median_us)
        name = f"share on random logits, {vocabulary}, scale {PROMISED_SCALE:g}"
        note = f"{worst.mode}; of a run of {run_ms:.1f} ms"
        promises.append(Promise(name, _share_of(worst, run_ms), "<=", SHARE, "%", note))
    return promises


def _share_of_rounds(item: Decoded) -> Promise:
    promise = Promise(f"share of a round, {item.mode}", item.share, "<=", SHARE, "%")
    if item.rounds < FEWEST_ROUNDS:
        return unjudged(promise, f"{item.rounds} rounds; it takes {FEWEST_ROUNDS}")
    return promise


def _figures(
    decoded: Sequence[Decoded], times: Sequence[AcceptTime], run_ms: float
) -> dict[str, Any]:
    return {
        "decoded": [{**asdict(item), "share": item.share} for item in decoded],
        "run_ms": run_ms,
        "random": [{**asdict(item), "share": _share_of(item, run_ms)} for item in times],
    }


def _decoded_table(decoded: Sequence[Decoded]) -> Table:
    rows = []
    for item in decoded:
        rounds = max(item.rounds, 1)
        rows.append(
            (
                item.mode,
                str(item.rounds),
                number(1 + item.drafted / rounds, 1),
                number(item.accept_ms / rounds, 3),
                number(item.draft_ms / rounds, 3),
                number(item.verify_ms / rounds, 2),
                number(item.share, 2),
                number(item.whole_rows / rounds, 3),
            )
        )
    header = ("", "rounds", "width", "accept ms", "draft ms", "verify ms", "share %", "whole rows")
    return Table("On prompts, per round", header, rows)


def _random_table(times: Sequence[AcceptTime], run_ms: float, width: int) -> Table:
    rows = [
        (
            item.mode,
            str(item.vocabulary),
            f"{item.scale:g}",
            number(item.median_us, 0),
            number(_share_of(item, run_ms), 1),
            number(item.rows, 1),
            number(item.opened, 2),
        )
        for item in times
    ]
    header = ("", "vocabulary", "scale", "accept us", "share %", "rows", "whole rows")
    title = f"On random logits, width {width}, against a run of {run_ms:.2f} ms"
    return Table(title, header, rows)
