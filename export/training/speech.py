"""Ids of conversations whose answers keep the tokens they were written in.

Rendering a conversation anew would tokenise its answers anew, perhaps otherwise. So a template is
rendered with a mark where an answer stands, and only what lies around the mark is tokenised.
"""

from __future__ import annotations

from collections.abc import Sequence

from export.training.prompts import Message
from models.chat_template import ChatTemplate
from models.package import Package
from models.tokenizer import Tokenizer

_MARK = "\N{OBJECT REPLACEMENT CHARACTER}answer\N{OBJECT REPLACEMENT CHARACTER}"
Ids = tuple[int, ...]


class Speech:
    """A package's tokenizer and chat template, without which it can only continue texts."""

    def __init__(self, package: Package) -> None:
        manifest = package.manifest
        self._tokenizer = Tokenizer.load(package.file(manifest.tokenizer))
        self._template: ChatTemplate | None = None
        if manifest.chat_template is not None:
            source = package.file(manifest.chat_template).read_text(encoding="utf-8")
            self._template = ChatTemplate(source, **manifest.special_tokens)

    @property
    def chats(self) -> bool:
        return self._template is not None

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` without special tokens."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)

    def encode(self, text: str) -> Ids:
        return tuple(self._tokenizer.encode(text))

    def is_plain(self, text: str) -> bool:
        """Whether `text` says something and has no special tokens, which would end a turn."""
        special = self._tokenizer.special_tokens
        return bool(text.strip()) and not any(token in text for token in (_MARK, *special))

    def question(self, messages: Sequence[Message]) -> Ids:
        """`messages` up to where the answer begins."""
        return self.encode(self._render(messages, True))

    def turn_begun(self, beginning: str) -> Ids:
        """A first user turn that is still being written."""
        before = self._render([_user(_MARK)], False).partition(_MARK)[0]
        return self.encode(before + beginning)

    def answer_begun(self, turn: str, beginning: str) -> Ids:
        """A first user turn and the beginning of its answer."""
        return self.encode(self._render([_user(turn)], True) + beginning)

    def next_turn(self, answered: Ids, turn: str) -> Ids:
        """`answered`, a conversation up to the end of an answer, with another user turn."""
        messages = [_user("-"), _assistant(_MARK), _user(turn)]
        return self._behind(answered, self._render(messages, True).partition(_MARK)[2])

    def next_turn_begun(self, answered: Ids) -> Ids:
        """The same where the turn is still to be written."""
        messages = [_user("-"), _assistant(_MARK), _user(_MARK)]
        return self._behind(answered, self._render(messages, False).split(_MARK)[1])

    def _behind(self, answered: Ids, text: str) -> Ids:
        ids = self.encode(text)
        # An answer that ended by itself has the end that the template would add.
        return answered + (ids[1:] if ids[:1] == answered[-1:] else ids)

    def _render(self, messages: Sequence[Message], generation: bool) -> str:
        assert self._template is not None, "only packages with a template chat"
        return self._template.render(messages, add_generation_prompt=generation)


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}
