"""A random checkpoint whose tokens are a few letters: its short answers can all be listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.checkpoints import CHAT_TEMPLATE, make_checkpoint

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_LETTERS = " abcdefgh"
LETTERS_VOCABULARY = len(_SPECIAL) + len(_LETTERS)


def make_letters_checkpoint(directory: Path) -> Path:
    """Save a seeded random Llama over the letters in `directory`."""
    path = make_checkpoint(directory, "llama", vocab_size=LETTERS_VOCABULARY)
    _tokenizer().save_pretrained(path)
    return path


def _tokenizer() -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    tokens = {token: index for index, token in enumerate([*_SPECIAL, *_LETTERS])}
    tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in _SPECIAL])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast
