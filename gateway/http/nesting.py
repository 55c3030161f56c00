"""How deep a JSON text is nested, known before anything is made of it."""

from __future__ import annotations

import numpy as np

_QUOTE = ord('"')
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1


def deeper_than(raw: bytes, most: int) -> bool:
    """Whether arrays and objects are nested deeper than `most` anywhere in `raw`.

    A text that is no JSON gets some answer: whoever parses it will say what it is.
    """
    if raw.count(b"[") + raw.count(b"{") <= most:
        return False
    # Without escapes every quote is one that begins or ends a string.
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    codes = np.frombuffer(plain, np.uint8)
    outside = ~np.logical_xor.accumulate(codes == _QUOTE)
    depths = np.cumsum(_STEPS[codes] * outside, dtype=np.int32)
    return len(depths) > 0 and int(depths.max()) > most
