"""Stores on disk, and batches of what they hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from export.training.batches import Store, groups
from tests.trainer_support import HIDDEN, VOCABULARY, packed, write_store

LENGTHS = (9, 12, 15, 6)


def test_a_batch_is_what_was_stored(tmp_path: Path) -> None:
    store = Store(*write_store(tmp_path, LENGTHS))
    whole = packed(LENGTHS, 4 * HIDDEN)
    batch = store.batch([store.items[2], store.items[0]], slice(HIDDEN, 2 * HIDDEN))
    assert batch.segments == [(0, 15), (15, 24)]
    assert batch.positions.tolist() == [*range(15), *range(9)]
    expected = torch.cat([whole.features[21:36], whole.features[:9]])[:, HIDDEN : 2 * HIDDEN]
    torch.testing.assert_close(batch.features, expected, rtol=1e-3, atol=1e-3)
    for place, source in ((3, 24), (17, 2)):
        row, original = batch.row_of[place], whole.row_of[source]
        assert batch.top_ids[row].tolist() == whole.top_ids[original].tolist()
        torch.testing.assert_close(
            batch.top_logs[row], whole.top_logs[original], rtol=1e-2, atol=1e-2
        )
    assert batch.row_of[14] == batch.row_of[23] == -1


def test_answers_are_marked_by_the_token_that_follows(tmp_path: Path) -> None:
    store = Store(*write_store(tmp_path, LENGTHS))
    batch = store.batch([store.items[0]], slice(0, 1))
    assert batch.answers.tolist() == [place + 1 >= 3 for place in range(8)]


def test_places_behind_stay_in_their_text(tmp_path: Path) -> None:
    store = Store(*write_store(tmp_path, LENGTHS))
    batch = store.batch(store.items[:2], slice(0, 1))
    places, inside = batch.behind(torch.tensor([6, 8, 9, 20]), 2)
    assert places.tolist() == [8, 8, 11, 20]
    assert inside.tolist() == [True, False, True, False]


def test_held_texts_are_told_apart(tmp_path: Path) -> None:
    corpus, features = write_store(tmp_path, LENGTHS)
    store = Store(corpus, features)
    assert [item.held for item in store.items] == [False, False, False, True]
    held = store.frequencies(VOCABULARY, held=True, prompts=0.0)
    assert held.sum() == 4, "the answer of the last text"
    assert store.frequencies(VOCABULARY, prompts=0.0).sum() == 6 + 8 + 10


def test_what_comes_later_is_found(tmp_path: Path) -> None:
    corpus, features = write_store(tmp_path, LENGTHS)
    store = Store(corpus, features)
    write_store(tmp_path, (7, 8), seed=1)
    store.refresh()
    store.refresh()
    assert len(store.items) == len(LENGTHS) + 2


def test_every_item_is_in_one_group(tmp_path: Path) -> None:
    store = Store(*write_store(tmp_path, LENGTHS))
    found = list(groups(store.items, 15, np.random.default_rng(0)))
    assert sorted(item.begin for group in found for item in group) == [0, 9, 21, 36]
    assert all(sum(item.known for item in group[:-1]) < 15 for group in found)
    again = list(groups(store.items, 15, np.random.default_rng(0)))
    assert again == found
