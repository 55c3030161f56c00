"""The Autobahn cases, as kosoku runs them, on a server that echoes. Prints verdicts as JSON.

`run_kosoku.py URL CONCURRENCY EXCLUDED`: case ids or globs that are left out, with commas.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from kosoku import FailureError, run_fuzzingclient


async def main(url: str, concurrency: str, excluded: str) -> dict[str, dict[str, object]]:
    left_out = excluded.split(",")
    try:
        results = await run_fuzzingclient(url, None, left_out, concurrency=int(concurrency))
    except FailureError as failure:
        # All of them, those that passed among them.
        results = failure.results
    return {
        result.case_id: {
            "passed": result.passed,
            "behavior": result.behavior.value,
            "close": result.behavior_close.value,
            "why": f"{result.result} {result.result_close}",
        }
        for result in results
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))), flush=True)
    # Its threads may abort the process when the interpreter ends in the usual way.
    os._exit(0)
