"""Prompts of a package: its tokenizer and chat template, without an engine."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.engine.conversation import Message, build_prompt
from models.chat_template import ChatTemplate
from models.package import Package
from models.tokenizer import Tokenizer


class Texts:
    """Renders and counts as the gateway does."""

    def __init__(self, package: Package) -> None:
        manifest = package.manifest
        self.tokenizer = Tokenizer.load(package.file(manifest.tokenizer))
        self.template: ChatTemplate | None = None
        if manifest.chat_template is not None:
            source = package.file(manifest.chat_template).read_text(encoding="utf-8")
            self.template = ChatTemplate(source, **manifest.special_tokens)

    def ids(self, *user_turns: str) -> tuple[int, ...]:
        """The prompt ids of these turns, with nothing said between them."""
        messages: list[Message] = []
        for turn in user_turns:
            if messages:
                messages.append(Message("assistant", ""))
            messages.append(Message("user", turn))
        return build_prompt(self.tokenizer, self.template, messages).ids

    def of_length(self, instruction: str, material: Sequence[str], tokens: int) -> str:
        """`instruction`, then as much of `material` as makes a prompt of about `tokens` tokens.

        The material is repeated where there is too little of it; never longer than `tokens`
        unless the instruction alone is.
        """
        words: list[str] = []
        while len(words) < tokens:
            words += " ".join(material).split()
        least, most = 0, tokens
        while least < most:
            middle = (least + most + 1) // 2
            if len(self.ids(_joined(instruction, words[:middle]))) <= tokens:
                least = middle
            else:
                most = middle - 1
        return _joined(instruction, words[:least])


def _joined(instruction: str, words: Sequence[str]) -> str:
    return f"{instruction}\n\n{' '.join(words)}" if words else instruction
