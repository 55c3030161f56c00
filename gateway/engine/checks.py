"""What a request may ask of an engine: everything is refused before anything starts."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Sequence

from gateway.engine.names import resolve
from gateway.engine.requests import (
    MOST_BRANCHES,
    MOST_TOP_LOGPROBS,
    GenerationRequest,
    Rule,
    Speculation,
)
from models.constraints.source import ConstraintSource
from models.errors import UserError


def check_request(
    request: GenerationRequest,
    *,
    vocab_size: int,
    context: int,
    has_trees: bool,
    kinds: Sequence[str] = (),
) -> None:
    """`kinds` are the package's learned drafters.

    Raises `UserError`: `invalid_prompt`, `context_length_exceeded`, `unknown_drafter`, and
    `unsupported_value`, which names the field in `param`."""
    _check_prompt(request.prompt, vocab_size, context)
    _check_numbers(request)
    _check_speculation(request.speculation, has_trees, kinds)
    if request.constraint is not None:
        _check_constraint(request, request.constraint)
    _check_ids("logit_bias", (token for token, _ in request.sampling.logit_bias), vocab_size)
    _check_ids("stop_token_ids", request.stop_ids, vocab_size)
    if not all(request.stop):
        raise _unsupported("stop", "stop strings must have at least one character.")
    least, most = request.sampling.min_tokens, request.max_tokens
    if most is not None and least > most:
        raise _unsupported(
            "min_tokens", f"min_tokens is {least}, but the answer may have {most} tokens at most."
        )


def _check_prompt(prompt: tuple[int, ...], vocab_size: int, context: int) -> None:
    if not prompt:
        raise UserError("the prompt is empty; give at least one token.", code="invalid_prompt")
    if len(prompt) >= context:
        raise UserError(
            f"the prompt has {len(prompt)} tokens; the context holds {context},"
            " one of them for the answer. Shorten the input.",
            code="context_length_exceeded",
            param="input",
        )
    if not 0 <= min(prompt) <= max(prompt) < vocab_size:
        index = next(i for i, token in enumerate(prompt) if not 0 <= token < vocab_size)
        raise UserError(
            f"the prompt has token id {prompt[index]} at place {index}; ids go from 0 to"
            f" {vocab_size - 1}.",
            code="invalid_prompt",
        )


def _check_numbers(request: GenerationRequest) -> None:
    speculation = request.speculation
    _check_range("max_tokens", request.max_tokens, 0)
    _check_range("prefill_chunk", request.prefill_chunk, 1)
    _check_range("top_logprobs", request.top_logprobs, 0, MOST_TOP_LOGPROBS)
    _check_range("speculation.length", speculation.length, 0)
    _check_range("speculation.branches", speculation.branches, 1, MOST_BRANCHES)
    _check_range("speculation.acceptance", speculation.acceptance, 0, 1)
    _check_range("speculation.epsilon", speculation.epsilon, 0, 1)
    _check_range("speculation.delta", speculation.delta, 0, 1)


def _check_speculation(speculation: Speculation, has_trees: bool, kinds: Sequence[str]) -> None:
    resolve(speculation.drafter, kinds)
    rules = typing.get_args(Rule)
    if speculation.rule not in rules:
        raise _unsupported(
            "speculation.rule",
            f"speculation.rule must be one of {', '.join(rules)}, not {speculation.rule!r}.",
        )
    if speculation.branches > 1 and not has_trees:
        raise _unsupported(
            "speculation.branches",
            "the package has no graphs for trees, because a sliding window of its model is narrower"
            " than the context; speculation.branches must be 1.",
        )


def _check_constraint(request: GenerationRequest, constraint: ConstraintSource) -> None:
    """An answer of a given form ends where that says so, and holds nothing else."""
    sampling, speculation = request.sampling, request.speculation
    for param, contradicts in (
        ("min_tokens", sampling.min_tokens > 0),
        ("ignore_eos", request.ignore_eos),
        ("speculation.rule", speculation.rule == "synthetic"),
    ):
        if contradicts:
            raise _unsupported(
                param, f"{param} cannot be honoured together with {constraint.param}."
            )


def _check_range(param: str, value: float | None, least: float, most: float | None = None) -> None:
    if value is None or (least <= value and (most is None or value <= most)):
        return
    bounds = f"at least {least}" if most is None else f"from {least} to {most}"
    raise _unsupported(param, f"{param} must be {bounds}, not {value}.")


def _check_ids(param: str, ids: Iterable[int], vocab_size: int) -> None:
    for token in ids:
        if not 0 <= token < vocab_size:
            raise _unsupported(
                param, f"{param} has token id {token}; ids go from 0 to {vocab_size - 1}."
            )


def _unsupported(param: str, message: str) -> UserError:
    return UserError(message, code="unsupported_value", param=param)
