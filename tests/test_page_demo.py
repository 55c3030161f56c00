"""The page on the demo package: real drafters, and the same text without them."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import expect

from bench.prompts import builtin
from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from models.package import load_package
from tests.browser_support import browsing, reading
from tests.http_serving import serving

(QUESTION,) = (each.turns[0] for each in builtin() if each.id == "edit-4")


async def test_drafted_tokens_are_seen_and_the_plain_answer_is_the_same(demo_package: Path) -> None:
    engine = await Engine.start(load_package(demo_package), EngineOptions(slots=2))
    try:
        async with (
            serving(engine) as served,
            browsing() as browser,
            reading(browser, served.url) as reader,
        ):
            reader.page.set_default_timeout(60_000)
            await reader.is_ready()
            await reader.page.get_by_label("Compare with plain").select_option("one after another")
            await reader.page.get_by_label("Most tokens").fill("160")
            await reader.ask(QUESTION, until=None)
            verdict = reader.answer.locator(".verdict")
            await expect(verdict).to_contain_text("Identical text", timeout=60_000)
            assert await reader.answer.locator(".run:not(.plain) .drafted").count() > 0
            assert await reader.answer.locator(".run.plain .drafted").count() == 0
            assert re.search(r"was \d+\.\d+× as fast", await verdict.inner_text())
            await reader.picture("demo")
    finally:
        await engine.close()
