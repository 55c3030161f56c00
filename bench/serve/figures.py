"""The figures of one policy under one load, from its windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.run.schema import Absent, Interval, Metric, Quantity
from bench.run.statistics import CONFIDENCE, percentiles, ratio_interval, ratio_of_means
from bench.serve.plan import Load, Policy, Targets
from bench.serve.requests import Request
from bench.serve.schema import LoadCell
from bench.serve.windows import Window

SHARES = (50, 90, 99)
MS, SHARE, RATE, GOOD_RATE, TIMES = "ms", "share", "tokens/s", "requests/s", "of off"
PER_ROUND = "tokens/round"

INTERRUPTED = Absent("missing", "the run was interrupted before this")
_ITSELF = Absent("not_comparable", "this is plain decoding")
_ONE_WINDOW = Absent("missing", "one window has no spread")
_NO_ANSWER = Absent("failed", "no request was answered")
_NO_ROUND = Absent("missing", "no round was run")
_TOO_SHORT = Absent("missing", "no answer came in more than one piece")


def cell_of(
    load: Load,
    policy: Policy,
    windows: Sequence[Window],
    plain: Sequence[Window],
    targets: Targets,
    seed: int,
    absent: Absent | None = None,
) -> LoadCell:
    """`plain` are the windows of plain decoding under the same load, in the same order."""
    requests = [request for window in windows for request in window.requests]
    answers = [request for request in requests if request.ending == "answered"]
    absent = absent or (INTERRUPTED if not windows else None)
    if absent is None and not answers:
        absent = Absent(_NO_ANSWER.absent, _why(requests))
    seconds = sum(window.seconds for window in windows)
    good = sum(request.good(targets) for request in requests)
    ratio, interval = ratio_to(
        [window.tokens / window.seconds for window in windows],
        None if windows is plain else [window.tokens / window.seconds for window in plain],
        seed,
    )
    rounds = sum(request.rounds for request in answers)
    prompts = sum(request.prompt_tokens for request in answers)
    return LoadCell(
        load=load.label,
        policy=policy.label,
        windows=len(windows),
        goodput=absent or Quantity(good / seconds, GOOD_RATE),
        good=absent or Quantity(good / len(requests), SHARE),
        answered=len(answers),
        refused=sum(request.ending == "refused" for request in requests),
        failed=sum(request.ending == "failed" for request in requests),
        throughput=absent or Quantity(sum(window.tokens for window in windows) / seconds, RATE),
        ratio=absent or ratio,
        interval=absent or interval,
        ttft=_spread([one.ttft_ms for one in answers], absent),
        tpot=_spread([one.tpot_ms for one in answers], absent),
        queue=_spread([one.queue_ms for one in answers], absent),
        cached=absent or Quantity(_share(sum(a.cached_tokens for a in answers), prompts), SHARE),
        verified=absent or _per_round(sum(one.verified for one in answers), rounds),
        tau=absent or _per_round(sum(one.accepted for one in answers) + rounds, rounds),
    )


def ratio_to(
    own: Sequence[float], off: Sequence[float] | None, seed: int
) -> tuple[Metric, Interval | Absent]:
    """Of rates, paired in order; `off` None: `own` are those of plain decoding themselves."""
    if off is None:
        return _ITSELF, _ITSELF
    pairs = list(zip(own, off, strict=False))
    if not pairs or not all(rate > 0 for _, rate in pairs):
        return INTERRUPTED, INTERRUPTED
    ratio = Quantity(ratio_of_means(pairs), TIMES)
    if len(pairs) == 1:
        return ratio, _ONE_WINDOW
    low, high = ratio_interval(pairs, seed)
    return ratio, Interval(low, high, TIMES, CONFIDENCE, len(pairs))


def _spread(values: Sequence[float | None], absent: Absent | None) -> Mapping[str, Metric]:
    known = [value for value in values if value is not None]
    if absent is not None or not known:
        return {f"p{share}": absent or _TOO_SHORT for share in SHARES}
    found = percentiles(known, SHARES)
    return {f"p{share}": Quantity(value, MS) for share, value in zip(SHARES, found, strict=True)}


def _per_round(tokens: int, rounds: int) -> Metric:
    return Quantity(tokens / rounds, PER_ROUND) if rounds else _NO_ROUND


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _why(requests: Sequence[Request]) -> str:
    return requests[0].why if requests else _NO_ANSWER.why
