"""`timings` on the wire: rounded to what can be measured."""

from __future__ import annotations

import dataclasses

from gateway.engine.requests import DrafterTimings, GenerationRequest
from gateway.http.timings import timings_object
from tests.fake_engine import timings


def test_numbers_are_rounded_and_the_rest_is_as_it_is() -> None:
    measured = dataclasses.replace(
        timings(3, GenerationRequest((1,))),
        draft_n=1234567,
        tau=1.23456789,
        alpha=2 / 3,
        queue_ms=0.00012,
        prefill_ms=12.34567,
        ttft_ms=1234.56789,
        tpot_ms=None,
        by_drafter={"ngram": DrafterTimings(draft_n=3, draft_n_accepted=2, rounds=1)},
    )
    written = timings_object(measured)
    assert set(written) == {field.name for field in dataclasses.fields(measured)}
    assert (written["tau"], written["alpha"], written["draft_n"]) == (1.2346, 0.6667, 1234567)
    assert (written["queue_ms"], written["prefill_ms"]) == (0.0, 12.346)
    assert (written["ttft_ms"], written["tpot_ms"]) == (1234.568, None)
    assert written["by_drafter"] == {"ngram": {"draft_n": 3, "draft_n_accepted": 2, "rounds": 1}}
    assert (written["rule"], written["lossless"], written["exact"]) == ("coupled", True, True)
