"""Texts are made of the tokens whose bytes they are, whatever the tokenizer does to them."""

from __future__ import annotations

from models.constraints.vocabulary import Tokens, make_vocabulary
from models.package import Package
from tests.constraints_support import tokenizer_of

PIECES = [b"<eos>", b" ", b"a", b"b", b" a", b"ab", b"\x02", b""]
EOS, SPACE, A, B, SPACE_A, AB, BEFORE, _ = range(len(PIECES))


class Encoder:
    """Eight tokens; a text is encoded behind `prefix` unless it begins with a control character."""

    special_ids = frozenset({EOS})
    special_tokens = ("<eos>",)

    def __init__(self, prefix: str = "", lower: bool = False) -> None:
        self.prefix = prefix
        self.lower = lower

    def encode(self, text: str) -> list[int]:
        if not text:
            return []
        text = self.prefix + (text.lower() if self.lower else text)
        ids, raw = [], text.encode()
        while raw:
            token = max((t for t, p in enumerate(PIECES) if p and raw.startswith(p)),
                        key=lambda t: len(PIECES[t]), default=None)  # fmt: skip
            if token is not None:
                ids.append(token)
            raw = raw[len(PIECES[token]) if token is not None else 1 :]
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        return PIECES[token_id]


def tokens(encoder: Encoder) -> Tokens:
    return Tokens(encoder, len(PIECES), (EOS,))


def test_as_the_tokenizer_does_it() -> None:
    assert tokens(Encoder())("ab a") == [AB, SPACE_A]
    assert tokens(Encoder())("") == []


def test_a_space_put_before_a_beginning_is_left_out() -> None:
    """SentencePiece: what is forced stands inside a text."""
    assert Encoder(" ").encode("ab") == [SPACE_A, B]
    assert tokens(Encoder(" "))("ab") == [AB]


def test_a_special_token_that_is_spelled_out_is_text() -> None:
    assert EOS in Encoder().encode("<eos>")
    assert EOS not in tokens(Encoder())("a<eos>b")


def test_a_tokenizer_that_changes_the_text_is_not_asked() -> None:
    assert tokens(Encoder(lower=True))("ab") == [AB]
    made = tokens(Encoder(lower=True))("aB")
    assert made == [A], "bytes that no token has cannot come"


def test_llguidance_reads_it(package: Package) -> None:
    tokenizer, target = tokenizer_of(package), package.manifest.target
    made = make_vocabulary(tokenizer, target.vocab_size, target.eos_ids)
    assert made.vocab_size == target.vocab_size
    assert made.is_canonical
    assert made.eos_tokens == sorted(target.eos_ids)
    assert all(made.is_special_token(token) for token in tokenizer.special_ids)
    text = "in the other and <|im_end|> é"
    assert made.decode_bytes(made.tokenize_str(text)) == text.encode()
