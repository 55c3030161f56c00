"""Reported elsewhere: limits, vocabularies and log-probabilities that speculation got wrong.

That tokenizers of a target and a drafter differ (sglang#24051) cannot happen yet: no package has
a drafter with a vocabulary of its own. Here a drafter that means other tokens changes nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export import __main__ as export_command
from gateway.engine.requests import Speculation
from models.draft import Draft
from models.errors import UserError
from models.package import Package
from models.sampling.parameters import Sampling
from models.tokenizer import StreamDecoder
from tests.chat_requests import post, stream
from tests.checkpoints import VOCABULARY, make_checkpoint
from tests.engine_support import (
    OFF,
    Reference,
    ScriptedDrafter,
    ask,
    make_prompt,
    running,
)
from tests.http_serving import serving

PROMPT = make_prompt(30)
EIGHT = Speculation(policy="fixed", length=8)
COUNT = 40
PADDING = 80
HOTTEST = Sampling(temperature=2.0, seed=4)


@pytest.fixture(scope="module")
def answer(reference: Reference) -> list[int]:
    return reference.answer(PROMPT, COUNT)


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with more embeddings than its tokenizer has ids, and a sliding window."""
    directory = tmp_path_factory.mktemp("padded")
    return make_checkpoint(directory, "mistral", vocab_size=VOCABULARY + PADDING)


@pytest.fixture(scope="module")
def padded_package(padded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("package") / "padded"
    options = ["--dtype", "fp32", "--rows", "1", "--context", "128"]
    assert export_command.main(["--target", str(padded), "--out", str(out), *options]) == 0
    return out


class Forgetful(ScriptedDrafter):
    """Has a context of its own, which is shorter: it knows nothing past it."""

    def __init__(self, script: list[int], context: int) -> None:
        super().__init__(script, VOCABULARY)
        self._context = context
        self._length = 0

    def reset(self, tokens: Any) -> None:
        super().reset(tokens)
        self._length = len(tokens)

    def commit(self, tokens: Any) -> None:
        super().commit(tokens)
        self._length += len(tokens)

    def propose(self, budget: int) -> Draft:
        room = self._context - self._length
        draft = super().propose(budget)
        return draft.first(max(0, room))


@pytest.mark.parametrize("policy", ["fixed", "auto"])
@pytest.mark.parametrize("room", [-20, 0, 1, 5, 17, 39])
async def test_the_drafters_context_is_shorter_than_the_targets(
    tiny_package: Path, answer: list[int], room: int, policy: Any
) -> None:
    """vllm#57941, #5342: past its end it proposes nothing, and decoding goes on."""
    drafter = Forgetful(answer, len(PROMPT) + room)
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: drafter
        speculation = Speculation(policy=policy, length=8)
        said = await ask(engine, PROMPT, max_tokens=COUNT, speculation=speculation)
        widest = max(len(row.tokens) for run in engine.target.runs[-2:] for row in run)
    assert (said.ids, said.finished.reason) == (answer, "length")
    assert drafter.committed == answer, "it was told all the same"
    drafted = [place for place, source in enumerate(said.sources) if source != "target"]
    assert all(place < max(room, 0) for place in drafted)
    assert bool(drafted) == (room > 1)
    assert widest == 1 or room == 39


@pytest.mark.parametrize("room", [1, 2, 3, 8, 9, 10])
async def test_a_draft_goes_past_the_end_of_the_cache(
    tiny_package: Path, answer: list[int], reference: Reference, room: int
) -> None:
    """exllamav2#274, mlx-lm#1423: over the wire, whole and streamed: the reason is `length`, every
    token that fits is there, and the gateway goes on."""
    asked: dict[str, Any] = {"path": "completions", "prompt": list(PROMPT), "ignore_eos": True}
    asked |= {"logprobs": 0, "max_tokens": 1000, "speculation": {"policy": "fixed", "length": 8}}
    context = len(PROMPT) + room
    async with (
        running(tiny_package, slots=1, context=context) as engine,
        serving(engine) as served,
    ):
        engine.drafter_of = lambda: ScriptedDrafter(answer, VOCABULARY)
        whole = await post(served, **asked)
        events = await stream(served, **asked)
        text = StreamDecoder(engine.tokenizer).push(answer[:room])
        ends = [row.past + len(row.tokens) for run in engine.target.runs for row in run]
        after = await ask(engine, PROMPT[:10], max_tokens=5, speculation=OFF)
    (choice,) = whole["choices"]
    assert (choice["text"], choice["finish_reason"]) == (text, "length")
    assert whole["usage"]["completion_tokens"] == len(choice["logprobs"]["tokens"]) == room
    chunks = [choice for event in events[:-1] for choice in event["choices"]]
    assert "".join(chunk["text"] for chunk in chunks) == text
    assert chunks[-1]["finish_reason"] == "length"
    assert max(ends) <= context
    assert after.ids == reference.answer(PROMPT[:10], 5)


async def test_different_vocabularies_give_garbage(tiny_package: Path, answer: list[int]) -> None:
    """sglang#24051: a drafter whose ids mean other tokens costs acceptance, never the answer."""
    foreign = [(7 * token + 11) % VOCABULARY for token in answer]
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: ScriptedDrafter(foreign, VOCABULARY)
        said = await ask(engine, PROMPT, max_tokens=COUNT, speculation=EIGHT)
    assert said.ids == answer
    assert said.finished.timings.draft_n > 100


async def test_a_padded_vocabulary_is_refused(padded: Path, padded_package: Path) -> None:
    """vllm#7252, #13849: it is taken; padding is never said, at any temperature, drafted or not,
    though the checkpoint itself would say it. Sliding windows are rolled back like the rest."""
    prompt = make_prompt(40)
    answer, wanted = unmasked(padded, prompt, 60)
    assert wanted > 0, "unmasked, padding would have been the most likely"
    async with running(padded_package, slots=1, context=128) as engine:
        assert engine.package.manifest.target.vocab_size == VOCABULARY
        for script in (answer, [token ^ 1 for token in answer]):
            engine.drafter_of = lambda script=script: ScriptedDrafter(script, VOCABULARY)
            for speculation in (OFF, EIGHT):
                said = await ask(engine, prompt, max_tokens=60, speculation=speculation)
                assert said.ids == answer
        hot = [
            await ask(
                engine,
                prompt,
                max_tokens=60,
                sampling=HOTTEST,
                speculation=speculation,
                top_logprobs=20,
            )
            for speculation in (OFF, EIGHT)
        ]
        for padding in (VOCABULARY, VOCABULARY + PADDING - 1):
            with pytest.raises(UserError, match=f"ids go from 0 to {VOCABULARY - 1}") as error:
                await ask(engine, prompt, sampling=Sampling(logit_bias=((padding, 100.0),)))
            assert error.value.param == "logit_bias"
    assert hot[0].ids == hot[1].ids
    assert max(hot[0].ids) < VOCABULARY
    assert all(token < VOCABULARY for entry in hot[0].logprobs for token, _ in entry.top)


def unmasked(checkpoint: Path, prompt: tuple[int, ...], count: int) -> tuple[list[int], int]:
    """The checkpoint's greedy answer without padding, by transformers; and how often padding would
    have been more likely."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, attn_implementation="eager")
    tokens, wanted = list(prompt), 0
    with torch.no_grad():
        for _ in range(count):
            logits = model(torch.tensor([tokens])).logits[0, -1]
            wanted += int(logits.argmax()) >= VOCABULARY
            tokens.append(int(logits[:VOCABULARY].argmax()))
    return tokens[len(prompt) :], wanted


@pytest.mark.parametrize(
    "kind", ["mamba", "mamba2", "jamba", "rwkv", "qwen3_next", "falcon_h1", "lfm2", "zamba2"]
)
def test_rotating_or_recurrent_state_cannot_be_rolled_back(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """mlx-lm#1423, PR 1109: refused before any weight is read, with the reason."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": kind}))
    out = tmp_path / "package"
    code = export_command.main(["--target", str(model), "--out", str(out)])
    said = capsys.readouterr().err
    assert code != 0
    assert f"is a {kind} model: it keeps recurrent or rotating state" in said
    assert "cannot be rolled back when a draft is rejected" in said
    assert not out.exists()


@pytest.mark.parametrize("sampled", [False, True])
async def test_logprobs_are_zero_or_missing(
    tiny_package: Path, package: Package, reference: Reference, sampled: bool
) -> None:
    """llama.cpp#27972, sglang#10660, vllm#17876: on the wire, of tokens that were drafted, that
    replaced a draft, and that followed one: each is the target's own."""
    sampling = Sampling(temperature=1.2, seed=8) if sampled else Sampling()
    answer = reference.answer(PROMPT, COUNT, sampling)
    partly = [token if index % 5 else token ^ 1 for index, token in enumerate(answer)]
    rows = reference.log_probabilities((*PROMPT, *answer))[len(PROMPT) - 1 : -1]
    expected = rows[np.arange(COUNT), answer]
    asked: dict[str, Any] = {"path": "completions", "prompt": list(PROMPT), "max_tokens": COUNT}
    asked |= {"temperature": sampling.temperature, "seed": 8, "logprobs": 2, "ignore_eos": True}
    async with running(tiny_package) as engine, serving(engine) as served:
        for script in (answer, partly):
            engine.drafter_of = lambda script=script: ScriptedDrafter(script, VOCABULARY)
            whole = await post(served, **asked, speculation={"policy": "fixed", "length": 8})
            (choice,) = whole["choices"]
            scores = choice["logprobs"]["token_logprobs"]
            assert scores == pytest.approx(expected.tolist(), abs=1e-4)
            assert all(score < 0 for score in scores)
            assert all(2 <= len(top) <= 3 for top in choice["logprobs"]["top_logprobs"])
