"""The tokenizer and its streaming decoder."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from models.errors import UserError
from models.tokenizer import StreamDecoder, Tokenizer

TEXTS = (
    "Hello, world!\n",
    "  two leading spaces, and a tab\t.",
    "naïve façade Übergröße",
    "日本語のテキストと中文字符",
    "한국어 텍스트",
    "emoji 😀 family 👩‍👩‍👧‍👦 flag 🇩🇪 tone 👍🏽",
    "combining e\u0301 a\u0308\u0323 z̸̢͗",
    "العربية עברית हिन्दी",
    "math ∑∫√ and box ┌─┐",
    "",
)


@pytest.fixture(scope="session")
def demo(demo_package: Path) -> Tokenizer:
    return Tokenizer.load(demo_package / "tokenizer.json")


@pytest.fixture(scope="session")
def demo_library(demo_package: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(demo_package / "tokenizer.json"))


def sentencepiece(tmp_path: Path) -> Tokenizer:
    """A vocabulary in Llama 2's form: byte fallback, `▁` for a space, one leading space off."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "▁Hello", "▁world", "lo", "▁▁", "é", "!"]
    library = tokenizers.Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    library.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    library.add_special_tokens([AddedToken(text, special=True) for text in pieces[:3]])
    path = tmp_path / "tokenizer.json"
    library.save(str(path))
    return Tokenizer.load(path)


def byte_level(tmp_path: Path, added: tuple[AddedToken, ...] = ()) -> Tokenizer:
    """Byte-level BPE without merges: every byte is a token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = tokenizers.Tokenizer(
        models.BPE(vocab={piece: index for index, piece in enumerate(alphabet)}, merges=[])
    )
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_tokens(list(added))
    path = tmp_path / "tokenizer.json"
    library.save(str(path))
    return Tokenizer.load(path)


def ids_of(tokenizer: Tokenizer, *pieces: str) -> list[int]:
    ids = [tokenizer.token_id(piece) for piece in pieces]
    assert None not in ids
    return [token_id for token_id in ids if token_id is not None]


def pushed_one_by_one(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """Whole characters at once, as an answer's transcript does, and always as bytes."""
    stream, quick = StreamDecoder(tokenizer), StreamDecoder(tokenizer)
    pieces = []
    for token_id in ids:
        pieces.append(stream.push([token_id]))
        whole = quick.push_whole(token_id)
        assert (quick.push([token_id]) if whole is None else whole) == pieces[-1]
        assert quick.unfinished == stream.unfinished
    pieces.append(stream.finish())
    assert quick.finish() == pieces[-1]
    return pieces


@pytest.mark.parametrize("text", TEXTS)
def test_demo_text_survives_the_round_trip_whole_and_streamed(demo: Tokenizer, text: str) -> None:
    ids = demo.encode(text)
    parts = pushed_one_by_one(demo, ids)
    assert demo.decode(ids) == text
    assert "".join(parts) == text
    assert not any("\N{REPLACEMENT CHARACTER}" in part for part in parts)


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_any_ids_decode_as_the_library_decodes_them(
    demo: Tokenizer, demo_library: tokenizers.Tokenizer, data: st.DataObject
) -> None:
    # Low ids are the single bytes, so half of these sequences are invalid UTF-8 in places.
    token = st.one_of(st.integers(0, 300), st.integers(0, demo.vocab_size - 1))
    ids = data.draw(st.lists(token, max_size=40))
    stream = StreamDecoder(demo)
    parts = []
    rest = list(ids)
    while rest:
        width = data.draw(st.integers(1, 5))
        parts.append(stream.push(rest[:width]))
        rest = rest[width:]
    parts.append(stream.finish())
    assert "".join(parts) == demo_library.decode(ids, skip_special_tokens=True)
    assert demo.decode(ids) == demo_library.decode(ids, skip_special_tokens=False)


def test_special_tokens_in_text_are_recognised_and_left_out_of_the_stream(demo: Tokenizer) -> None:
    ids = demo.encode("<|im_start|>user\nHi<|im_end|>")
    start, end = ids_of(demo, "<|im_start|>", "<|im_end|>")
    assert (ids[0], ids[-1]) == (start, end)
    assert demo.decode(ids) == "<|im_start|>user\nHi<|im_end|>"
    assert demo.decode(ids, skip_special_tokens=True) == "user\nHi"
    assert "".join(pushed_one_by_one(demo, ids)) == "user\nHi"


def test_encode_adds_nothing(demo: Tokenizer) -> None:
    assert demo.encode("") == []
    assert demo.token_id("<|im_start|>") not in demo.encode("Hi")


def test_ids_without_a_token_are_worth_nothing(demo: Tokenizer) -> None:
    ids = demo.encode("ab")
    assert demo.decode([*ids, demo.vocab_size + 7]) == "ab"


def test_a_character_appears_with_its_last_byte(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path)
    parts = pushed_one_by_one(tokenizer, tokenizer.encode("a😀é"))
    assert parts == ["a", "", "", "", "😀", "", "é", ""]


def test_an_unfinished_character_made_invalid_is_replaced(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path)
    first_half, letter = tokenizer.encode("😀")[:2], tokenizer.encode("x")
    assert pushed_one_by_one(tokenizer, [*first_half, *letter]) == ["", "", "\ufffdx", ""]


def test_an_unfinished_character_at_the_end_is_replaced(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path)
    assert pushed_one_by_one(tokenizer, tokenizer.encode("😀")[:3]) == ["", "", "", "\ufffd"]


def test_an_added_token_outside_the_byte_alphabet_stands_for_itself(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path, (AddedToken("<｜end▁of｜>", special=False),))
    assert tokenizer.decode(tokenizer.encode("a<｜end▁of｜>é")) == "a<｜end▁of｜>é"


def test_byte_fallback_streams_whole_characters(tmp_path: Path) -> None:
    tokenizer = sentencepiece(tmp_path)
    emoji = [f"<0x{byte:02X}>" for byte in "😀".encode()]
    ids = ids_of(tokenizer, "<s>", "▁Hello", *emoji, "▁world", "!", "</s>")
    assert pushed_one_by_one(tokenizer, ids) == [
        "",
        "Hello",
        "",
        "",
        "",
        "😀",
        " world",
        "!",
        "",
        "",
    ]


def test_byte_fallback_keeps_valid_characters_beside_invalid_bytes(tmp_path: Path) -> None:
    tokenizer = sentencepiece(tmp_path)
    ids = ids_of(tokenizer, "<0xE2>", "<0x82>", "<0xAC>", "<0xFF>", "lo")
    assert tokenizer.decode(ids) == "€\ufffdlo"


def test_only_the_first_space_of_a_text_is_taken_off(tmp_path: Path) -> None:
    tokenizer = sentencepiece(tmp_path)
    ids = ids_of(tokenizer, "<s>", "▁", "▁▁", "▁Hello", "▁world")
    assert pushed_one_by_one(tokenizer, ids) == ["", "", "  ", " Hello", " world", ""]


SENTENCEPIECE_IDS = st.lists(st.sampled_from([0, 1, 2, *range(259, 266)]), max_size=20)


@settings(deadline=None, max_examples=200)
@given(ids=SENTENCEPIECE_IDS)
def test_sentencepiece_text_is_the_library_s(
    tmp_path_factory: pytest.TempPathFactory, ids: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("sentencepiece")
    tokenizer = sentencepiece(directory)
    library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert "".join(pushed_one_by_one(tokenizer, ids)) == library.decode(ids)


def test_metaspace_and_plain_decoders(tmp_path: Path) -> None:
    vocabulary = {"▁a": 0, "b": 1, "▁c": 2}
    library = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="b"))
    path = tmp_path / "tokenizer.json"
    for decoder in (decoders.Metaspace(), decoders.Metaspace(prepend_scheme="never"), None):
        if decoder is not None:
            library.decoder = decoder
        definition = json.loads(library.to_str())
        if decoder is None:
            definition["decoder"] = None
        path.write_text(json.dumps(definition))
        expected = tokenizers.Tokenizer.from_file(str(path)).decode([0, 1, 2])
        assert Tokenizer.load(path).decode([0, 1, 2]) == expected


def definition_with(decoder: Any) -> str:
    library = tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    return json.dumps({**json.loads(library.to_str()), "decoder": decoder})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "not a valid tokenizer"),
        ('{"version": "1.0"}', "not a valid tokenizer"),
        (definition_with({"type": "WordPiece", "prefix": "##", "cleanup": True}), "WordPiece"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(UserError, match=expected) as caught:
        Tokenizer.load(path)
    assert (caught.value.code, caught.value.param) == ("tokenizer_invalid", "tokenizer.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tokenizer\.json cannot be read"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_stream_knows_that_it_ends_inside_a_character(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path)
    stream = StreamDecoder(tokenizer)
    seen = []
    for token in tokenizer.encode("a€"):
        stream.push([token])
        seen.append(stream.unfinished)
    assert seen == [False, True, True, False]


def test_a_long_text_holds_up_no_other_thread(demo: Tokenizer) -> None:
    turns = 0
    encoding, encoded = threading.Event(), threading.Event()

    def count() -> None:
        nonlocal turns
        encoding.wait()
        while not encoded.is_set():
            turns += 1
            time.sleep(0)  # lets go of the interpreter

    counting = threading.Thread(target=count)
    counting.start()
    try:
        # No switch between threads but where one lets go of the interpreter.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e3)
        encoding.set()
        ids = demo.encode("word " * 40_000)
        reached = turns
    finally:
        encoded.set()
        sys.setswitchinterval(interval)
        counting.join()
    assert len(ids) > 40_000
    assert reached > 0
