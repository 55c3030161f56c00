"""The rules that leave the target's distribution as it is, and the one for benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.sampling.distribution import Distribution
from models.verification.lossy import AdaSD, Typical
from models.verification.rule import Candidate, Choice, Randomness, Rule, Untrimmed


class Coupled(Untrimmed):
    """The target's own draw decides; a candidate is accepted when it is that token.

    The draw is Gumbel-max with noise keyed by (seed, position, token), so the answer is what
    sampling without drafts gives for that seed, whatever was drafted. At temperature 0 it is greedy
    verification. A drafter that shares the noise and has q agrees with probability
    sum_x 1 / sum_y max(p(y)/p(x), q(y)/q(x)), between (1 - TV) / (1 + TV) and 1 - TV
    (Daliri, Musco and Suresh, "Coupling without communication and drafter-invariant speculative
    decoding", arXiv 2408.07978); a one-hot draft x is accepted with probability p(x).
    """

    def choose(
        self, target: Distribution, candidates: Sequence[Candidate], randomness: Randomness
    ) -> Choice:
        token = target.draw(randomness.token())
        for candidate in candidates:
            if candidate.token == token:
                return Choice(candidate.place, token)
        return Choice(None, token)


class Classic(Untrimmed):
    """Rejection sampling (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318).

    Accept x ~ q with probability min(1, p(x) / q(x)), else go on with p' = max(0, p - q)
    normalised. Several siblings are tried in turn, each against what the ones before it left of p
    (recursive rejection: Miao et al., SpecInfer, arXiv 2305.09781; Jeon et al., arXiv 2402.14160);
    q of each is that given its earlier siblings. The token is then distributed as p: by induction,
    q(x) min(1, p(x) / q(x)) + P(rejected) p'(x) = p(x). A one-hot q leaves p without that token.
    """

    def choose(
        self, target: Distribution, candidates: Sequence[Candidate], randomness: Randomness
    ) -> Choice:
        left = target
        for sibling, (place, token, proposal) in enumerate(candidates):
            q = 1.0 if proposal is None else proposal.of(token)
            if left.accepts(token, randomness.accept(sibling), q):
                return Choice(place, token)
            left = left.without(token) if proposal is None else left.minus(proposal)
        return Choice(None, left.draw(randomness.residual()))


@dataclass(frozen=True, slots=True)
class Synthetic(Untrimmed):
    """Accepts the first candidate with probability `acceptance`, whatever it is.

    For benchmarks of speed against acceptance alone: the text means nothing.
    """

    acceptance: float

    def choose(
        self, target: Distribution, candidates: Sequence[Candidate], randomness: Randomness
    ) -> Choice:
        if candidates and randomness.accept(0) <= self.acceptance:
            return Choice(candidates[0].place, candidates[0].token)
        return Choice(None, target.draw(randomness.token()))


def make_rule(
    name: str, *, acceptance: float = 0.7, epsilon: float = 0.09, delta: float = 0.3
) -> Rule:
    """The rule called `name`, for one request. The numbers are those of the rule that has them."""
    if name == "typical":
        return Typical(epsilon, delta)
    if name == "synthetic":
        return Synthetic(acceptance)
    rules: dict[str, type[Coupled | Classic | AdaSD]] = {
        "coupled": Coupled,
        "classic": Classic,
        "adasd": AdaSD,
    }
    return rules[name]()
