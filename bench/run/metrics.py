"""The metrics of the answers of one category under one condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from bench.cells import medians
from bench.run.observed import Observed, Outcome
from bench.run.plan import FEWEST_TOKENS
from bench.run.schema import Absent, Metric, MetricsGroup, Quantity
from bench.run.statistics import PERCENTILES, percentiles

MS, MS_ROUND, TOKENS, MEAN = "ms", "ms/round", "tokens", "tokens/round"
SHARE, RATE = "share", "tokens/s"

_NOTHING_DRAFTED = Absent("unsupported", "speculation is off")
_NEVER_VERIFIED = Absent("missing", "no draft was verified")
_TOO_SHORT = Absent("missing", f"no answer has {FEWEST_TOKENS} tokens")
_CACHED = Absent("missing", "every prompt was mostly in the gateway's cache")
_ONE_ARRIVAL = Absent("missing", "no answer came in more than one piece")
_NO_ROUNDS = Absent("missing", "no round was run")


def metrics_of(outcome: Outcome, category: str | None) -> MetricsGroup:
    """Of `category`, or of all answers. A condition without figures has its reason in each."""
    if outcome.absent is not None:
        return _without(outcome.absent)
    answers = outcome.answers(category)
    drafts = outcome.condition.setting.drafts
    timings = [answer.timings for answer in answers]
    rounds = sum(each["rounds"] for each in timings)
    drafted = sum(each["draft_n"] for each in timings)
    accepted = sum(each["draft_n_accepted"] for each in timings)
    advanced = sum((each["tau"] or 0.0) * each["rounds"] for each in timings)
    undrafted = _NEVER_VERIFIED if drafts else _NOTHING_DRAFTED

    def per_round(total: float, unit: str = MS_ROUND) -> Metric:
        return Quantity(total / rounds, unit) if rounds else _NO_ROUNDS

    return MetricsGroup(
        draft_time=per_round(sum(each["draft_ms"] for each in timings))
        if drafts
        else _NOTHING_DRAFTED,
        verify_time=per_round(sum(each["verify_ms"] for each in timings)),
        overhead_time=_overhead(answers),
        tau=per_round(advanced, MEAN),
        accepted_length=per_round(accepted, MEAN) if drafted else undrafted,
        alpha=Quantity(accepted / drafted, SHARE) if drafted else undrafted,
        survival=_survival(answers) or undrafted,
        ttft=_spread([a.ttft_ms for a in answers if a.ttft_ms is not None], (50, 90), _CACHED),
        tpot=tpot_of(answers),
        inter_token_latency=_spread(
            [gap for answer in answers for gap in answer.gaps_ms], PERCENTILES, _ONE_ARRIVAL
        ),
        throughput=_throughput(outcome, category),
    )


def tpot_by_prompt(answers: Sequence[Observed]) -> dict[str, float]:
    """Milliseconds per token of each prompt that was timed, the median of its repeats."""
    return medians((answer.question, answer.tpot_ms) for answer in answers)


def tpot_of(answers: Sequence[Observed]) -> Metric:
    by_prompt = tpot_by_prompt(answers)
    return Quantity(fmean(by_prompt.values()), MS) if by_prompt else _TOO_SHORT


def _overhead(answers: Sequence[Observed]) -> Metric:
    timed = [(one.overhead_ms, one.timings["rounds"]) for one in answers]
    known = [(over, rounds) for over, rounds in timed if over is not None and rounds]
    if not known:
        return _TOO_SHORT
    return Quantity(sum(over for over, _ in known) / sum(rounds for _, rounds in known), MS_ROUND)


def _survival(answers: Sequence[Observed]) -> tuple[Metric, ...]:
    """Of the rounds that verified a token at a depth, those that accepted one."""
    counts: list[list[int]] = []
    for answer in answers:
        for depth, (verified, accepted) in enumerate(answer.timings["depths"]):
            if depth == len(counts):
                counts.append([0, 0])
            counts[depth][0] += verified
            counts[depth][1] += accepted
    return tuple(Quantity(accepted / verified, SHARE) for verified, accepted in counts)


def _spread(values: Sequence[float], shares: Sequence[int], none: Absent) -> Mapping[str, Metric]:
    if not values:
        return {f"p{share}": none for share in shares}
    found = percentiles(values, shares)
    return {f"p{share}": Quantity(value, MS) for share, value in zip(shares, found, strict=True)}


def _throughput(outcome: Outcome, category: str | None) -> Metric:
    waves = outcome.waves
    if category is not None:
        waves = [
            wave for wave in waves if any(answer.category == category for answer in wave.answers)
        ]
        if any(answer.category != category for wave in waves for answer in wave.answers):
            return Absent("not_comparable", "streams of several categories share the time")
    return Quantity(sum(wave.tokens for wave in waves) / sum(w.seconds for w in waves), RATE)


def _without(why: Absent) -> MetricsGroup:
    return MetricsGroup(
        draft_time=why,
        verify_time=why,
        overhead_time=why,
        tau=why,
        accepted_length=why,
        alpha=why,
        survival=why,
        ttft=_spread([], (50, 90), why),
        tpot=why,
        inter_token_latency=_spread([], PERCENTILES, why),
        throughput=why,
    )
