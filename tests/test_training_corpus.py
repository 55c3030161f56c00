from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.training.corpus import (
    Conversation,
    Corpus,
    Count,
    ShardWriter,
    count,
    describe,
    read_shard,
)


def conversation(seed: int, kind: str = "chat", *, held: bool = False) -> Conversation:
    draw = np.random.default_rng(seed)
    length = int(draw.integers(5, 50))
    ids = draw.integers(0, 49_152, length).astype(np.int32)
    return Conversation(ids, (np.arange(length) > 3).astype(np.uint8), kind, held)


def as_values(found: Conversation) -> tuple[Any, ...]:
    return found.ids.tolist(), found.mask.tolist(), found.kind, found.held


def test_a_shard_gives_back_what_was_put_in(tmp_path: Path) -> None:
    put = [conversation(1), conversation(2, "retrieval", held=True), conversation(3, "facts")]
    path = ShardWriter(tmp_path, 7).append(put)
    assert path.name == "shard-00007-000000.npz"
    found = read_shard(path)
    assert [as_values(one) for one in found] == [as_values(one) for one in put]
    assert found[0].ids.dtype == np.int32
    assert found[0].mask.dtype == np.uint8


def test_one_conversation_alone_is_a_shard(tmp_path: Path) -> None:
    ShardWriter(tmp_path, 0).append([conversation(4)])
    assert [as_values(one) for one in Corpus(tmp_path)] == [as_values(conversation(4))]


def test_a_writer_goes_on_behind_its_own_shards_only(tmp_path: Path) -> None:
    first = ShardWriter(tmp_path, 1)
    first.append([conversation(1)])
    first.append([conversation(2)])
    ShardWriter(tmp_path, 2).append([conversation(3)])
    again = ShardWriter(tmp_path, 1)
    assert again.first == 2
    assert ShardWriter(tmp_path, 3).first == 0
    again.append([conversation(4)])
    names = [path.name for path in Corpus(tmp_path).shards]
    assert names == [
        "shard-00001-000000.npz",
        "shard-00001-000001.npz",
        "shard-00001-000002.npz",
        "shard-00002-000000.npz",
    ]
    expected = [conversation(seed) for seed in (1, 2, 4, 3)]
    assert [as_values(one) for one in Corpus(tmp_path)] == [as_values(one) for one in expected]


def test_a_writer_that_is_killed_leaves_no_part_of_a_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = ShardWriter(tmp_path, 1)
    writer.append([conversation(1)])

    def die(stream: Any, **arrays: Any) -> None:
        stream.write(b"PK\x03\x04 half of it")
        stream.flush()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("export.training.corpus.np.savez", die)
        with pytest.raises(KeyboardInterrupt):
            writer.append([conversation(2)])
    assert [as_values(one) for one in Corpus(tmp_path)] == [as_values(conversation(1))]
    ShardWriter(tmp_path, 1).append([conversation(3)])
    expected = [as_values(conversation(1)), as_values(conversation(3))]
    assert [as_values(one) for one in Corpus(tmp_path)] == expected


def test_counts_are_by_kind(tmp_path: Path) -> None:
    put = [conversation(1), conversation(2), conversation(3, "maths")]
    ShardWriter(tmp_path, 1).append(put[:1])
    ShardWriter(tmp_path, 2).append(put[1:])
    lengths = [len(one.ids) for one in put]
    corpus = Corpus(tmp_path)
    assert corpus.counts() == {
        "chat": Count(2, lengths[0] + lengths[1], lengths[0] + lengths[1] - 8),
        "maths": Count(1, lengths[2], lengths[2] - 4),
    }
    assert corpus.tokens == sum(lengths)
    assert corpus.answer_tokens == sum(lengths) - 12
    assert describe({"chat": Count(1, 9000, 1234), "a": count(put[0])}) == (
        f"a {lengths[0] - 4:,}, chat 1,234"
    )


def test_a_directory_that_is_not_there_is_an_empty_corpus(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "none")
    assert list(corpus) == []
    assert corpus.tokens == corpus.answer_tokens == 0
