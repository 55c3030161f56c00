"""Log-probabilities of the target itself: at temperature 1, before all processing."""

from __future__ import annotations

from models.sampling.distribution import TargetRow


def token_logprob(
    row: TargetRow, token: int, top: int
) -> tuple[float, tuple[tuple[int, float], ...]]:
    """That of `token`, and those of the `top` most likely tokens as (id, log-probability)."""
    ids, values = row.ids.tolist(), row.values.tolist()
    logit = values[ids.index(token)] if token in ids else float(row.whole()[token])
    best = zip(ids[:top], values[:top], strict=True)
    return logit - row.logsumexp, tuple((i, value - row.logsumexp) for i, value in best)
