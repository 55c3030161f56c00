from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from export.training.corpus import Conversation, Corpus
from export.training.generation import Goal, write_corpus
from export.training.prompts import Prompt
from export.training.speech import Speech
from models.errors import UserError
from models.package import Package
from tests.engine_support import CONTEXT, Reference
from tests.training_support import END

HEADER = "<|im_start|>assistant\n"
PROMPTS = tuple(
    Prompt(({"role": "user", "content": f"Say {name}."},)) for name in "abcdefghijklmnopqrst"
)


def write(package: Package, path: Path, tokens: int, seed: int = 1, **options: object) -> Corpus:
    lines: list[str] = []
    write_corpus(
        package,
        path,
        Goal(tokens),
        seed=seed,
        rows=4,
        context=CONTEXT,
        report=lines.append,
        **options,  # type: ignore[arg-type]
    )
    assert "answer tokens" in lines[-1]
    return Corpus(path)


def values(corpus: Corpus) -> list[tuple[list[int], list[int], str, bool]]:
    return [(one.ids.tolist(), one.mask.tolist(), one.kind, one.held) for one in corpus]


def spans(conversation: Conversation) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], conversation.mask, [0]])))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def test_answers_are_marked_and_nothing_else(package: Package, tmp_path: Path) -> None:
    corpus = write(package, tmp_path, 800)
    header = list(Speech(package).encode(HEADER))
    found = list(corpus)
    assert corpus.answer_tokens >= 800
    assert {one.kind for one in found} > {"translation", "facts", "maths"}
    for one in found:
        ids = one.ids.tolist()
        assert spans(one), "something was written"
        for start, end in spans(one):
            if one.kind not in ("article", "passage"):
                assert ids[start - len(header) : start] == header
            assert END not in ids[start : end - 1]
            assert ids[end - 1] == END or end - start >= 16, "cut"
        assert spans(one)[-1][1] == len(ids), "nothing behind the last answer"


def test_greedy_answers_are_the_target_s_own(
    package: Package, reference: Reference, tmp_path: Path
) -> None:
    """Six of ten answers to prompts of the user."""
    corpus = write(package, tmp_path, 2500, prompts=PROMPTS, inventing=False)
    greedy = total = 0
    for one in corpus:
        total += 1
        ((start, end),) = spans(one)
        ids = one.ids.tolist()
        expected = reference.answer(ids[:start], end - start)
        greedy += expected == ids[start:end]
    assert total > 10
    assert 0.4 < greedy / total < 0.85


def test_the_same_seed_gives_the_same_corpus(package: Package, tmp_path: Path) -> None:
    first, again, other = (
        values(write(package, tmp_path / name, 300, seed))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == again
    assert not {str(one[0]) for one in first} & {str(one[0]) for one in other}


def test_a_second_run_goes_on_with_other_conversations(package: Package, tmp_path: Path) -> None:
    first = values(write(package, tmp_path, 300))
    both = values(write(package, tmp_path, 300))
    assert both[: len(first)] == first
    assert len(both) > len(first)
    prompts = [str(one[0]) for one in both]
    assert len(set(prompts)) == len(prompts)


def test_what_was_written_before_a_break_is_kept(package: Package, tmp_path: Path) -> None:
    def interrupt(_line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_corpus(
            package, tmp_path, Goal(300), seed=1, rows=4, context=CONTEXT, report=interrupt
        )
    corpus = Corpus(tmp_path)
    assert len(corpus.shards) == 1
    assert corpus.answer_tokens >= 300
    assert [path.name for path in tmp_path.iterdir()] == [corpus.shards[0].name]


def test_time_ends_the_writing_too(package: Package, tmp_path: Path) -> None:
    counts = write_corpus(
        package, tmp_path, Goal(10**9, minutes=0), seed=1, rows=4, report=lambda _: None
    )
    assert sum(found.answer_tokens for found in counts.values()) < 1000


def test_prompts_of_the_user_can_be_all_or_half(package: Package, tmp_path: Path) -> None:
    only = write(package, tmp_path / "only", 3500, prompts=PROMPTS, inventing=False)
    assert only.counts().keys() == {"given"}
    asked = [Speech(package).decode(one.ids[: spans(one)[0][0]].tolist()) for one in only]
    assert {text.split("Say ")[1][:2] for text in asked} == {
        f"{name}." for name in "abcdefghijklmnopqrst"
    }
    beside = write(package, tmp_path / "beside", 1500, prompts=PROMPTS).counts()
    given = beside.pop("given").answer_tokens
    asides = beside.pop("article", None), beside.pop("passage", None)
    invented = sum(found.answer_tokens for found in beside.values())
    assert 0.3 < given / (given + invented) < 0.7, asides


def test_a_package_without_template_continues_texts(package: Package, tmp_path: Path) -> None:
    plain = dataclasses.replace(
        package, manifest=dataclasses.replace(package.manifest, chat_template=None)
    )
    corpus = write(plain, tmp_path / "free", 400)
    assert corpus.counts().keys() == {"text"}
    for one in corpus:
        assert one.mask[0] == 0
        assert 1 not in one.ids[: spans(one)[0][0]], "no turns begin"
    given = list(write(plain, tmp_path / "given", 300, prompts=PROMPTS, inventing=False))
    beginnings = {Speech(plain).encode(prompt.text) for prompt in PROMPTS}
    assert given
    assert {tuple(one.ids[: spans(one)[0][0]].tolist()) for one in given} < beginnings


def test_a_context_without_room_is_refused(package: Package, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="24 tokens") as caught:
        write_corpus(package, tmp_path, Goal(100), seed=1, rows=4, context=24)
    assert caught.value.code == "context_too_short"
    assert list(tmp_path.iterdir()) == []
