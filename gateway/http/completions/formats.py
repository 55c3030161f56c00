"""The objects of the two endpoints: whole answers, and the chunks of a stream."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from gateway.engine.names import PREDICTION
from gateway.engine.requests import Finished, Timings
from gateway.http.backend import Vocabulary
from gateway.http.completions.calls import chat_delta, chat_extras
from gateway.http.completions.logprobs import chat_logprobs, text_logprobs
from gateway.http.completions.pieces import Piece
from gateway.http.timings import timings_object
from models.package import Manifest


class Format(Protocol):
    """How an endpoint writes the choices of an answer."""

    prefix: str
    whole_object: str
    chunk_object: str

    def opening(self, index: int) -> dict[str, Any] | None:
        """The choice of the first chunk, where there is one before any text."""

    def part(self, piece: Piece) -> dict[str, Any]:
        """The choice of a chunk with text."""

    def end(self, piece: Piece) -> dict[str, Any]:
        """The choice of the last chunk, without what says how it ended."""

    def whole(self, piece: Piece) -> dict[str, Any]:
        """A choice of a whole answer, without what says how it ended."""


class ChatFormat:
    prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, vocabulary: Vocabulary, logprobs: bool) -> None:
        self._vocabulary = vocabulary
        self._logprobs = logprobs

    def opening(self, index: int) -> dict[str, Any]:
        return _delta(index, {"role": "assistant", "content": ""}, None)

    def part(self, piece: Piece) -> dict[str, Any]:
        logprobs = chat_logprobs(piece.tokens, self._vocabulary) if piece.tokens else None
        delta = chat_delta(piece.parts) if piece.parts else {"content": piece.text}
        return _delta(piece.index, delta, logprobs)

    def end(self, piece: Piece) -> dict[str, Any]:
        return _delta(piece.index, {}, None)

    def whole(self, piece: Piece) -> dict[str, Any]:
        extras = chat_extras(piece.parts)
        silent = "tool_calls" in extras and not piece.text
        return {
            "index": piece.index,
            "message": {
                "role": "assistant",
                "content": None if silent else piece.text,
                "refusal": None,
                **extras,
            },
            "logprobs": chat_logprobs(piece.tokens, self._vocabulary) if self._logprobs else None,
        }


class TextFormat:
    prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, vocabulary: Vocabulary, logprobs: bool) -> None:
        self._vocabulary = vocabulary
        self._logprobs = logprobs

    def opening(self, index: int) -> None:
        return None

    def part(self, piece: Piece) -> dict[str, Any]:
        logprobs = text_logprobs(piece.tokens, self._vocabulary) if piece.tokens else None
        return {**_text(piece, logprobs), "finish_reason": None}

    def end(self, piece: Piece) -> dict[str, Any]:
        return _text(piece, None)

    def whole(self, piece: Piece) -> dict[str, Any]:
        logprobs = text_logprobs(piece.tokens, self._vocabulary) if self._logprobs else None
        return _text(piece, logprobs)


class Writer:
    """Writes one answer of `seeds` choices, `n` for each prompt, in the format of its endpoint."""

    def __init__(
        self, form: Format, manifest: Manifest, seeds: Sequence[int | None], n: int
    ) -> None:
        self._form = form
        self._seeds = tuple(seeds)
        self._n = n
        self._head = {
            "id": form.prefix + secrets.token_hex(16),
            "created": int(time.time()),
            "model": manifest.name,
            "system_fingerprint": fingerprint(manifest),
        }
        self._finished: dict[int, Finished] = {}
        self._thought = 0

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """The answer of `pieces`, one per choice."""
        choices = [{**self._form.whole(piece), **self._ending(piece)} for piece in pieces]
        head = {**self._head, "object": self._form.whole_object}
        return {**head, "choices": choices, "usage": self._usage()}

    def opening(self) -> Iterator[dict[str, Any]]:
        for index in range(len(self._seeds)):
            choice = self._form.opening(index)
            if choice is not None:
                yield self._chunk([choice])

    def chunk(self, piece: Piece) -> dict[str, Any]:
        if piece.finished is None:
            return self._chunk([self._form.part(piece)])
        return self._chunk([{**self._form.end(piece), **self._ending(piece)}])

    def usage_chunk(self) -> dict[str, Any]:
        """The last chunk where usage was asked for."""
        return {**self._chunk([]), "usage": self._usage()}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head, "object": self._form.chunk_object, "choices": choices}

    def _ending(self, piece: Piece) -> dict[str, Any]:
        finished = piece.finished
        assert finished is not None, "an answer's last piece says how it ended"
        self._finished[piece.index] = finished
        self._thought += piece.thought_tokens
        calls = piece.called and finished.reason == "stop"
        return {
            "finish_reason": "tool_calls" if calls else finished.reason,
            "stop_reason": finished.stop,
            "seed": self._seeds[piece.index],
            "timings": timings_object(finished.timings),
        }

    def _usage(self) -> dict[str, Any]:
        """Every prompt counts once, however many choices it has."""
        usages = [self._finished[index].usage for index in range(len(self._seeds))]
        prompt = sum(usage.prompt_tokens for usage in usages[:: self._n])
        cached = sum(usage.cached_tokens for usage in usages[:: self._n])
        completion = sum(usage.completion_tokens for usage in usages)
        return {
            "prompt_tokens": prompt,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens": completion,
            "completion_tokens_details": {
                "reasoning_tokens": self._thought,
                **predicted_tokens([each.timings for each in self._finished.values()]),
            },
            "total_tokens": prompt + completion,
        }


def predicted_tokens(answers: Sequence[Timings]) -> dict[str, int]:
    """Tokens of the prediction that were verified: those that stand in the answers, and those that
    do not, which count nowhere else."""
    parts = [each.by_drafter[PREDICTION] for each in answers if PREDICTION in each.by_drafter]
    accepted = sum(part.draft_n_accepted for part in parts)
    return {
        "accepted_prediction_tokens": accepted,
        "rejected_prediction_tokens": sum(part.draft_n for part in parts) - accepted,
    }


def fingerprint(manifest: Manifest) -> str:
    """Of every byte of the package: where it is equal, a seeded answer is the same again."""
    digest = hashlib.sha256()
    for name, entry in sorted(manifest.files.items()):
        digest.update(f"{name} {entry.sha256}\n".encode())
    return "fp_" + digest.hexdigest()[:12]


def _delta(index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}


def _text(piece: Piece, logprobs: dict[str, Any] | None) -> dict[str, Any]:
    return {"index": piece.index, "text": piece.text, "logprobs": logprobs}
