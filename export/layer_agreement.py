"""How often some of the target's layers say what the whole target says, on its own answers.

Measured as the drafter will run: the text's K/V are the whole target's, and only the drafted
tokens' own are made by the layers kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

from export.quantization.answers import Answer, Sampling, prompt_ids, write_answers
from export.quantization.context import CalibrationContext
from export.rows import derive_rows, narrowest_window
from export.runner import GraphRunner, Layout, RowStep
from export.self_speculative import keep_layers, layer_count
from export.writer import save_graph
from models.errors import UserError

ANSWERS = 16
TOKENS = 768
_MOST_PROMPT = 512
_MOST_ANSWER = 256
_DRAFTS = 256
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class StoredTarget:
    """The target's graph for one row, as stored; its weights lie in `directory`, with room for one
    more file."""

    single: onnx.ModelProto
    directory: Path
    context_length: int
    device: str = "cpu"

    @property
    def layers(self) -> int:
        return layer_count(self.single)

    def runner(
        self,
        kept: Sequence[int],
        rows: int,
        capacity: int,
        buffers: Mapping[str, ort.OrtValue] | None = None,
    ) -> GraphRunner:
        model = derive_rows(keep_layers(self.single, kept).model, rows, trees=True)
        # Beside its weights: ONNX Runtime looks for them nowhere else.
        with tempfile.NamedTemporaryFile(dir=self.directory, suffix=".onnx") as file:
            path = Path(file.name)
            save_graph(model, path)
            return GraphRunner(path, capacity=capacity, device=self.device, buffers=buffers)


def write_drafted(
    target: StoredTarget, questions: Sequence[str], context: CalibrationContext
) -> list[Answer]:
    """The target's greedy answers to up to 16 of the questions, 768 tokens in all at most.

    Of a long prompt only the end is used.
    """
    count = min(ANSWERS, len(questions))
    chosen = [questions[place * len(questions) // count] for place in range(count)]
    most = min(TOKENS // count, _MOST_ANSWER, target.context_length // 4)
    # Half of the context is for what is drafted behind the texts.
    longest = min(_MOST_PROMPT, max(target.context_length // 2 - most, 1))
    prompts = [ids[-longest:] for ids in prompt_ids(context, chosen)]
    capacity = max(map(len, prompts)) + most
    runner = target.runner(range(target.layers), count, capacity)
    return write_answers(runner, prompts, Sampling(max_tokens=most), context)


class Agreement:
    """Judges sets of layers on `answers`, which the whole target wrote greedily.

    Every token of an answer begins a draft. Those of a run lie side by side behind the text in
    their row's buffers: each sees the text before it, and what was drafted behind it.
    """

    def __init__(self, target: StoredTarget, answers: Sequence[Answer]) -> None:
        self._target = target
        self._answers = answers
        longest = max(len(answer.all_ids) for answer in answers)
        # No rotary table reaches beyond the context.
        room = (target.context_length - longest) // _DEEPEST
        self._width = max(min(_DRAFTS // len(answers), room), 2)
        self._capacity = longest + _DEEPEST * self._width
        _refuse_windows(target.single, self._capacity)
        whole = target.runner(range(target.layers), len(answers), self._capacity)
        whole.run([RowStep(answer.all_ids) for answer in answers], [])
        self.buffers = whole.buffers

    def __call__(self, kept: tuple[int, ...]) -> float:
        """Share of tokens that the layers `kept` predict as the whole target does."""
        return self.survival(kept, 1)[0]

    def survival(self, kept: Sequence[int], depth: int) -> tuple[float, ...]:
        """Per depth, the share of drafts whose tokens were right so far; at most 8 deep."""
        assert 1 <= depth <= _DEEPEST
        shared = {
            f"past.{number}.{row}.{part}": self.buffers[f"past.{layer}.{row}.{part}"]
            for number, layer in enumerate(kept)
            for row in range(len(self._answers))
            for part in ("key", "value")
        }
        runner = self._target.runner(kept, len(self._answers), self._capacity, shared)
        right, drafts = np.zeros(depth), 0
        most = max(len(answer.ids) for answer in self._answers)
        for begin in range(0, most - depth + 1, self._width):
            rows = [_Drafts(answer, begin, self._width, depth) for answer in self._answers]
            drafts += sum(row.count for row in rows)
            for step in range(depth):
                logits = runner.run([row.step(step) for row in rows])["logits"]
                chosen = logits.argmax(-1).reshape(len(rows), self._width)
                for row, tokens in zip(rows, chosen, strict=True):
                    right[step] += row.learn(step, tokens)
        return tuple(float(share) for share in right / max(drafts, 1))


class _Drafts:
    """Drafts of one row that begin at `width` tokens of an answer, from its `begin`-th on.

    Those too near the answer's end to be judged `depth` deep are there, and not counted.
    """

    def __init__(self, answer: Answer, begin: int, width: int, depth: int) -> None:
        self._text = np.array(answer.all_ids)
        places = answer.predicting.start + begin + np.arange(width)
        self._alive = places + depth < len(self._text)
        self._places = np.minimum(places, len(self._text) - 1)
        self._tokens = self._text[self._places]
        self.count = int(self._alive.sum())

    def step(self, step: int) -> RowStep:
        text, width = len(self._text), len(self._places)
        before = np.arange(text) < self._places[:, None]
        own = np.tile(np.eye(width, dtype=np.bool_), step + 1)
        layout = Layout(self._places + step, np.concatenate([before, own], axis=1))
        return RowStep(self._tokens.tolist(), text + step * width, layout=layout)

    def learn(self, step: int, tokens: NDArray[np.int64]) -> int:
        """How many drafts are right up to the tokens that this step chose."""
        truth = self._text[np.minimum(self._places + step + 1, len(self._text) - 1)]
        self._alive &= truth == tokens
        self._tokens = tokens
        return int(self._alive.sum())


def _refuse_windows(single: onnx.ModelProto, capacity: int) -> None:
    """What lies side by side would push the text out of a sliding window."""
    window = narrowest_window(single)
    if window is not None and window < capacity:
        raise UserError(
            f"layers cannot be judged behind a sliding window of {window} tokens ({capacity} are"
            " needed): name the layers to keep, as in --self-speculative 0-11,15-29.",
            code="unsupported_architecture",
            param="--self-speculative",
        )
