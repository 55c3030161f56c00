"""A long answer is as smooth at its end as at its beginning."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, CDPSession, Page

from tests.browser_support import Reader, browsing, reading
from tests.http_serving import serving
from tests.page_engine import ANSWER, PageEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROWING = Path(__file__).parent / "page" / "growing_view.js"
PATCHED = Path(__file__).parent / "page" / "patch_growing.js"
MIXED = """
1. one
2. two
   - inner

   loose now
3. ```python
   x = 1

   y = 2
   ```
text that goes on
a|b
-|-
1|2
3 | 4 | 5

- [ ] to do
- [x] done
* other

> quoted
> - in a list
lazily

``` text
open

code
"""
WORDS = "one two three four five six seven eight nine ten "
SHAPES: Mapping[str, str] = {
    "answers": ANSWER + "\n",
    "paragraphs": WORDS * 3 + "\n\n",
    "code": "    value = compute(value, 3)\n",
    "list": "- one two **three** four\n",
    "table": "| one | two | three |\n",
    "paragraph": WORDS,
}
HEADS: Mapping[str, str] = {"code": "```python\n", "table": "| a | b | c |\n|---|---|---|\n"}
TOKENS = 4000
TOKENS_OF: Mapping[str, int] = {"paragraph": 1000}
"""A paragraph is one piece, which is read and laid out whole: longer ones take long here."""

SHARE = 300


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as running:
        yield running


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_token_changes_as_little_late_as_early(
    browser: Browser, shape: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """Elements and texts that are made or changed, which is what a browser has to draw anew."""
    head, unit = HEADS.get(shape, ""), SHAPES[shape]
    async with serving(PageEngine()) as served, reading(browser, served.url) as reader:
        await reader.is_ready()
        source = GROWING.read_text()
        asked = {"head": head, "unit": unit, "tokens": TOKENS_OF.get(shape, TOKENS)}
        found = await reader.page.evaluate(source, asked)
    early, late = found["early"], found["late"]
    record_testsuite_property(f"{shape}: milliseconds a token", (early["ms"], late["ms"]))
    assert early["changes"] > 0.3
    assert late["changes"] <= 1.5 * early["changes"] + 1


@pytest.mark.parametrize("sizes", [[1], [3, 1, 7, 2], [11, 5, 23]])
async def test_an_answer_that_grew_looks_as_one_that_came_whole(
    browser: Browser, sizes: list[int]
) -> None:
    text = f"{ANSWER}{MIXED}\n\n{ANSWER}"
    async with serving(PageEngine()) as served, reading(browser, served.url) as reader:
        await reader.is_ready()
        wrong = await reader.page.evaluate(PATCHED.read_text(), {"text": text, "sizes": sizes})
        assert wrong == []


async def test_the_time_of_a_token_does_not_grow_with_the_answer(
    browser: Browser, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """Of the page's main thread, in its own processor time: a busy machine does not change it."""
    engine = PageEngine((ANSWER + "\n") * 34, pace=0.01)
    async with serving(engine) as served, reading(browser, served.url) as reader:
        await reader.ask("Count.", until="streaming")
        session = await reader.page.context.new_cdp_session(reader.page)
        await session.send("Performance.enable", {"timeDomain": "threadTicks"})
        early = await milliseconds(reader, session, 100)
        late = await milliseconds(reader, session, TOKENS - SHARE)
        await reader.picture("long")
        record_testsuite_property("main thread, milliseconds a token", (early, late))
        assert late <= 4 * early


async def milliseconds(reader: Reader, session: CDPSession, first: int) -> float:
    """Of the main thread for each of `SHARE` tokens from the one with the number `first` on."""
    begin = await reached(reader.page, first), await busy(session)
    end = await reached(reader.page, begin[0] + SHARE), await busy(session)
    return 1e3 * (end[1] - begin[1]) / (end[0] - begin[0])


async def reached(page: Page, tokens: int) -> int:
    """How many tokens there are, as soon as there are so many."""
    async with asyncio.timeout(120):
        while True:
            count = int(await page.evaluate("document.querySelector('.run').run.trace.length"))
            if count >= tokens:
                return count
            await asyncio.sleep(0.05)


async def busy(session: CDPSession) -> float:
    """Seconds that the main thread has worked so far."""
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))
