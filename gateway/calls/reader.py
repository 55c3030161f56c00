"""An answer's text as it arrives: what is said, what is thought, and which functions are called.

Nothing is held back but what may be the beginning of a mark, whitespace that may precede one, and a
call until its function is known. What looks like a call and turns out to be none is text, unless
the answer's form says that it can be nothing else than a call that was cut. Whitespace around
thoughts and calls belongs to neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from gateway.calls.dialects import (
    CALL,
    CALLED,
    CALLS,
    PYTHON,
    THINK,
    THOUGHT,
    Manner,
    new_call_id,
)
from gateway.calls.members import CallScanner, NamedCallScanner, Scanner
from gateway.calls.parts import CallBegun, CallDelta, CallEnded, Part, Text, Thought
from gateway.calls.spoken import Spoken, split_at

_MARKS = {"hermes": CALL, "llama3": PYTHON, "mistral": CALLS}
_BETWEEN = " \t\r\n"
_SEPARATORS = {"hermes": "", "llama3": ";", "mistral": ","}

Form = Literal["free", "calls", "either"]
"""Of an answer: anything, calls and nothing else, or either calls or text without any, which its
beginning says."""


class AnswerReader:
    """Reads one answer of a model of this `manner`.

    Without `calls` functions are not called, whatever the text looks like; with `single` the answer
    is over behind the first call, and what follows is not read. `thinking`: the prompt ends inside
    a thought.
    """

    def __init__(
        self,
        manner: Manner,
        *,
        calls: bool,
        form: Form = "free",
        thinking: bool = False,
        single: bool = False,
    ) -> None:
        self._manner = manner
        self._single = single
        self._spare: int | None = None
        self._either = form == "either"
        self._only_calls = form == "calls"
        self._mark = _MARKS[manner.dialect] if calls else ""
        self._step: Callable[[], bool] = self._think if thinking else self._begin
        self._may_think = manner.thinks
        self._pending = ""
        self._spoken = Spoken(fresh=thinking)
        self._listed = False
        self._opening = ""
        self._call: Scanner = CallScanner()
        self._begun = False
        self._calls = 0
        self._cut = False

    @property
    def thinking(self) -> bool:
        """Whether what came last is part of a thought."""
        return self._step == self._think

    @property
    def calls(self) -> int:
        """How many calls have begun."""
        return self._calls

    @property
    def whole(self) -> bool:
        """Whether no call broke off."""
        return not self._cut

    @property
    def spare(self) -> int | None:
        """How many of the characters of the last push are behind the answer's only call and its
        marks, when it is over."""
        return self._spare

    @property
    def calling(self) -> bool:
        """Whether what comes next would be part of a call, or of what looks like one."""
        return self._only_calls or self._step in (
            self._open,
            self._inside,
            self._behind,
            self._skip,
        )

    @property
    def undecided(self) -> int:
        """How many of the last characters, at most, may turn out to be text as well as a call."""
        if self._called:
            return 0
        if self.calling:
            return len(self._opening) + len(self._call.raw) + len(self._pending)
        return len(self._pending)

    @property
    def called(self) -> bool:
        """Whether what came last is part of a call for certain: so are its marks, and whitespace
        behind it."""
        behind = self._step == self._say and self._spoken.fresh and self._calls > 0
        return self._called or (behind and not self._pending)

    @property
    def _called(self) -> bool:
        begun = self._step == self._inside and self._begun
        return self._only_calls or begun or self._step in (self._behind, self._skip)

    def push(self, text: str) -> list[Part]:
        self._pending += text
        while self._pending and self._step():
            pass
        return self._spoken.take()

    def finish(self) -> list[Part]:
        """The answer has ended: what is left."""
        if self._step == self._inside:
            self._break_off()
        elif self._step == self._open:
            self._say_all(self._opening + self._pending)
        elif self._step == self._think:
            self._add(Thought, self._pending)
            self._spoken.blank = ""
        elif self._either and self._pending.strip() != "[":
            pass  # the beginning of a mark: what is of another form begins otherwise
        elif self._step in (self._begin, self._say):
            self._say_all(self._pending)
        self._pending = ""
        return self._spoken.take()

    # Each step reads of what is pending, and says whether another can follow before more arrives.

    def _begin(self) -> bool:
        """Nothing was said yet: a thought, a call without a mark, or text."""
        text = self._pending.lstrip()
        if self._may_think and text.startswith(THINK):
            self._go(self._think, text[len(THINK) :], fresh=True)
            return True
        if not text or (self._may_think and THINK.startswith(text)):
            return False
        self._may_think = False
        if self._either:
            if len(text) < len(self._mark) and self._mark.startswith(text):
                return False
            self._either = False
            self._only_calls = text.startswith(self._mark)
            self._mark = self._mark if self._only_calls else ""
        elif self._mark == PYTHON and text.startswith("{"):
            self._opening = self._pending[: -len(text)]
            self._enter(text)
        else:
            self._step = self._say
        return True

    def _think(self) -> bool:
        thought, mark, rest = split_at(THOUGHT, self._pending)
        self._add(Thought, thought)
        if mark:
            self._spoken.blank, self._may_think = "", False
            self._go(self._begin, rest.lstrip(), fresh=True)
        else:
            self._pending = rest
        return bool(mark)

    def _say(self) -> bool:
        if not self._mark:
            self._say_all(self._pending)
            self._pending = ""
            return False
        text, mark, rest = split_at(self._mark, self._pending)
        self._add(Text, text)
        if mark:
            self._spoken.blank, self._opening = "", self._spoken.blank + mark
            self._go(self._open, rest)
        else:
            self._pending = rest
        return bool(mark)

    def _open(self) -> bool:
        """A mark was read: what begins here should be a call."""
        text = self._pending.lstrip()
        if not text:
            return False
        if self._manner.dialect == "mistral" and text.startswith("[") and not self._listed:
            self._listed = True
            self._opening += self._pending[: -len(text)] + "["
            self._pending = text[1:]
        elif text.startswith("{"):
            self._opening += self._pending[: -len(text)]
            self._enter(text)
        elif self._manner.dialect == "mistral" and not self._listed:
            self._enter(text, NamedCallScanner())
        else:
            self._add(Text, self._opening)
            self._step, self._listed = self._say, False
        return True

    def _inside(self) -> bool:
        call = self._call
        arguments, read = call.push(self._pending)
        self._pending = self._pending[read:]
        if not self._begun and call.name is not None:
            self._spoken.parts.append(CallBegun(self._calls, new_call_id(self._manner), call.name))
            self._begun = True
            self._calls += 1
        if arguments:
            self._spoken.parts.append(CallDelta(self._calls - 1, arguments))
        if call.broken:
            self._break_off()
        elif call.done:
            self._spoken.parts.append(CallEnded(self._calls - 1))
            self._go(self._behind, self._pending)
            if self._single and not self._closing:
                self._end(self._pending)
        return call.done or call.broken

    @property
    def _closing(self) -> str:
        """The mark behind a call, where there is one."""
        return "]" if self._listed else CALLED if self._mark == CALL else ""

    def _behind(self) -> bool:
        """A call has ended: its closing mark, another one, or text."""
        closing = self._closing
        between = _BETWEEN if self._single else _BETWEEN + _SEPARATORS[self._manner.dialect]
        text = self._pending.lstrip(between)
        if not text or (len(text) < len(closing) and closing.startswith(text)):
            return False
        if self._single:
            self._end(text.removeprefix(closing))
        elif text.startswith("{") and (self._listed or self._mark == PYTHON):
            self._opening = ""
            self._enter(text)
        else:
            self._listed = False
            self._go(self._say, text.removeprefix(closing), fresh=True)
        return True

    def _skip(self) -> bool:
        """What is left of a call that broke off, up to its closing mark."""
        _, mark, rest = split_at(CALLED, self._pending)
        if mark:
            self._go(self._say, rest, fresh=True)
        else:
            self._pending = rest
        return bool(mark)

    def _end(self, rest: str) -> None:
        """The answer is over before `rest`."""
        self._spare = len(rest)
        self._go(self._pass, rest)

    def _pass(self) -> bool:
        """Behind the answer's end."""
        self._pending = ""
        return False

    def _enter(self, text: str, scanner: Scanner | None = None) -> None:
        self._call = CallScanner() if scanner is None else scanner
        self._begun = False
        self._go(self._inside, text)

    def _break_off(self) -> None:
        """What is inside is no call, or not to its end. What is left of one that had begun is not
        said."""
        self._listed = False
        if not self._begun:
            self._say_all(self._opening + self._call.raw)
            self._go(self._say, "")
        else:
            self._spoken.parts.append(CallEnded(self._calls - 1, whole=False))
            self._cut = True
            self._go(self._skip, self._pending if self._mark == CALL else "")
            if self._single:
                self._end(self._pending)

    def _go(self, step: Callable[[], bool], text: str, *, fresh: bool = False) -> None:
        self._step, self._pending, self._spoken.fresh = step, text, fresh

    def _add(self, kind: type[Text] | type[Thought], text: str) -> None:
        if not self._only_calls:
            self._spoken.add(kind, text)

    def _say_all(self, text: str) -> None:
        self._add(Text, text)
        self._spoken.release()
