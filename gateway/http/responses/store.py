"""Finished turns by the key of their response, bounded."""

from __future__ import annotations

from collections import OrderedDict

from gateway.engine.conversation import Turn
from gateway.http.fields import short
from models.errors import UserError


class TurnStore:
    """Keeps the turns used last, at most `capacity` of them and `characters` of text in all."""

    def __init__(self, capacity: int, characters: int = 16 << 20) -> None:
        self._capacity = capacity
        self._characters = characters
        self._held = 0
        self._turns: OrderedDict[str, Turn] = OrderedDict()

    def __len__(self) -> int:
        return len(self._turns)

    def put(self, key: str, turn: Turn) -> None:
        self.evict(key)
        self._turns[key] = turn
        self._held += len(turn.text)
        while len(self._turns) > self._capacity or (
            self._held > self._characters and len(self._turns) > 1
        ):
            self.evict(next(iter(self._turns)))

    def get(self, key: str) -> Turn | None:
        turn = self._turns.get(key)
        if turn is not None:
            self._turns.move_to_end(key)
        return turn

    def evict(self, key: str) -> None:
        turn = self._turns.pop(key, None)
        if turn is not None:
            self._held -= len(turn.text)


class Conversations:
    """Where a connection finds `previous_response_id`.

    The newest response of each lane is kept with the connection, whatever its `store` says (of
    the `lanes` used last); a stored response is also in the gateway's `shared` store, which other
    connections of the same `owner` see.
    """

    def __init__(self, shared: TurnStore, lanes: int, owner: str | None = None) -> None:
        self._shared = shared
        self._owner = owner
        self._lanes = lanes
        self._newest: OrderedDict[str | None, tuple[str, Turn]] = OrderedDict()

    def find(self, response_id: str) -> Turn:
        """Raises `UserError` `previous_response_not_found`."""
        for kept_id, turn in self._newest.values():
            if kept_id == response_id:
                return turn
        stored = self._shared.get(turn_key(self._owner, response_id))
        if stored is None:
            raise UserError(
                f"Previous response {short(response_id)!r} not found.",
                code="previous_response_not_found",
                param="previous_response_id",
            )
        return stored

    def keep(self, lane: str | None, response_id: str, turn: Turn, store: bool) -> None:
        self._newest[lane] = (response_id, turn)
        self._newest.move_to_end(lane)
        if len(self._newest) > self._lanes:
            self._newest.popitem(last=False)
        if store:
            self._shared.put(turn_key(self._owner, response_id), turn)

    def evict(self, response_id: str) -> None:
        """Forget what this connection kept under the id: its continuation failed."""
        for lane, (kept_id, _) in list(self._newest.items()):
            if kept_id == response_id:
                del self._newest[lane]


def turn_key(owner: str | None, response_id: str) -> str:
    """What is stored is found by its owner alone, who is named by no text with a slash."""
    return f"{owner or ''}/{response_id}"
