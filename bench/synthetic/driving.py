"""Has a gateway of its own answer every point of the grid, with plain decoding in between.

A block is one draft length under every acceptance, and plain decoding; its order rotates. So what
is compared was measured within moments, and a machine that gets slower gets slower for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer

from bench.client import GatewayError
from bench.gateway_process import running_gateway
from bench.run.driving import rotated, status_of
from bench.run.schema import Absent
from bench.setup import Setup, progress
from bench.synthetic.model import CostModel
from bench.synthetic.plan import PLAIN, Plan, Point
from bench.synthetic.turns import Turn, turn_of
from gateway.engine.names import NGRAM
from gateway.engine.options import EngineOptions

_WARM_UP_TURNS = 2
_APART = Absent("missing", "the streams hardly ran together: --rounds makes answers longer")


@dataclass(frozen=True, slots=True)
class Pair:
    """A point, and plain decoding of the same block."""

    turn: Turn
    plain: Turn


@dataclass(slots=True)
class Kept:
    """Everything seen so far, by (streams, point); `absent` are points without figures."""

    pairs: dict[tuple[int, Point], list[Pair]] = field(default_factory=dict)
    absent: dict[tuple[int, Point], Absent] = field(default_factory=dict)
    status: Mapping[str, Any] | None = None


async def drive(setup: Setup, plan: Plan, kept: Kept) -> None:
    """Raises `GatewayError` where plain decoding fails: then nothing can be compared."""
    token = only_token(setup)
    slots = max(EngineOptions().slots, *plan.concurrency)
    async with running_gateway(setup, slots=slots, speculation_drafter=NGRAM) as gateway:
        block = _Block(gateway.url, plan, kept, token)
        kept.status = await status_of(gateway.url)
        await block.warm_up()
        for streams in plan.concurrency:
            for repeat in range(plan.repeats):
                for length in plan.lengths:
                    await block.measure(streams, repeat, length)
                progress(f"synthetic: {streams} streams, pass {repeat + 1} of {plan.repeats}")


def only_token(setup: Setup) -> int:
    """A token that the target is made to say and nothing else, so that drafts are always found."""
    package = setup.package
    tokenizer = Tokenizer.from_file(str(package.file(package.manifest.tokenizer)))
    token: int = tokenizer.encode(" a", add_special_tokens=False).ids[-1]
    return token


class _Block:
    def __init__(self, url: str, plan: Plan, kept: Kept, token: int) -> None:
        self._url = url
        self._plan = plan
        self._kept = kept
        self._token = token
        self._count = 0
        self._failures = 0

    async def warm_up(self) -> None:
        """The first answers of a process are slower, and tell the cost model of its host."""
        longest = Point(max(self._plan.lengths), max(self._plan.alphas))
        for repeat in range(_WARM_UP_TURNS):
            for point in (PLAIN, longest):
                turn = await self._turn(1, repeat, point)
                if isinstance(turn, Absent) and point is PLAIN:
                    raise GatewayError(turn.why)

    async def measure(self, streams: int, repeat: int, length: int) -> None:
        points = [Point(length, alpha) for alpha in self._plan.alphas]
        alive = [point for point in points if (streams, point) not in self._kept.absent]
        turns: dict[Point, Turn] = {}
        for point in rotated([PLAIN, *alive], self._count):
            turn = await self._turn(streams, repeat, point)
            if not isinstance(turn, Absent):
                turns[point] = turn
            elif point is PLAIN:
                raise GatewayError(turn.why)
            else:
                self._kept.absent[streams, point] = turn
        self._count += 1
        for point in alive:
            if point in turns:
                pairs = self._kept.pairs.setdefault((streams, point), [])
                pairs.append(Pair(turns[point], turns[PLAIN]))

    async def _turn(self, streams: int, repeat: int, point: Point) -> Turn | Absent:
        """What the cost model knows is asked for before: it predicts, it does not look back."""
        model = CostModel.of(await status_of(self._url), self._plan.drafter)
        try:
            turn = await turn_of(self._url, model, self._plan, point, streams, repeat, self._token)
        except GatewayError as error:
            return Absent("failed", str(error))
        problem = await self._new_failures()
        return turn or _APART if problem is None else Absent("failed", problem)

    async def _new_failures(self) -> str | None:
        """Answers go on without a drafter that fails: only the status tells."""
        drafters = (await status_of(self._url))["drafters"]
        failures = sum(each["failures"] for each in drafters)
        if failures <= self._failures:
            return None
        self._failures = failures
        return next(f"{each['name']}: {each['problem']}" for each in drafters if each["failures"])
