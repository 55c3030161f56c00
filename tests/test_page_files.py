"""Conversations as files: exported, imported, refused, and never a part of the page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.browser_support import Reader, browsing, reading
from tests.http_serving import serving
from tests.page_engine import PageEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as running:
        yield running


async def exported(reader: Reader) -> dict[str, Any]:
    """The open conversation as the page exports it."""
    await reader.page.locator(".chat.current").get_by_role("button", name="Export").click()
    async with reader.page.expect_download() as waiting:
        await reader.page.get_by_role("button", name="JSON").click()
    path = await (await waiting.value).path()
    written: dict[str, Any] = json.loads(path.read_text())
    return written


async def test_what_a_file_says_never_becomes_a_part_of_the_page(
    browser: Browser, tmp_path: Path
) -> None:
    """Nor is another host asked for anything: `reading` would have seen it."""
    said = (
        "<script>document.title = 'x'</script> <svg onload=alert(1)> [a](javascript:alert(2)) "
        "[b](JaVaScRiPt:alert(3)) [c](data:text/html,x) <javascript:alert(4)> "
        "![d](https://pictures.example/d.png) [e](https://e.example/?q=1)"
    )
    async with serving(PageEngine(said)) as served, reading(browser, served.url) as reader:
        page = reader.page
        await reader.ask("Hi")
        written = await exported(reader)
        written["title"] = "<img src=https://pictures.example/t.png>"
        written["messages"][0]["text"] = said
        written["messages"][1]["runs"][0]["trace"]["names"] = ["<b>n</b>", "x", "y", "z"]
        path = tmp_path / "conversation.json"
        path.write_text(json.dumps(written))
        await page.locator("#import-file").set_input_files(path)
        await expect(page.locator("#title")).to_have_text(written["title"])
        await reader.answer.locator(".token").first.hover()
        await expect(page.locator("#card")).to_be_visible()
        markdown = reader.answer.locator(".markdown")
        assert await page.locator("#main :is(img, script, iframe, object, b)").count() == 0
        assert await markdown.locator("svg").count() == 0
        targets = await markdown.locator("a").evaluate_all("all => all.map((each) => each.href)")
        assert targets == ["https://pictures.example/d.png", "https://e.example/?q=1"]
        assert await page.locator(".bubble").inner_text() == said


async def test_a_conversation_is_imported_as_it_was_exported(
    browser: Browser, tmp_path: Path
) -> None:
    engine = PageEngine()
    async with serving(engine) as served, reading(browser, served.url) as reader:
        page = reader.page
        await reader.ask("Why is the sky blue?")
        written = await exported(reader)
        drafted = await reader.answer.locator(".drafted").count()
        await page.get_by_role("button", name="Delete Why is").click()
        notice = page.locator("#notice")
        for name, text, told in (
            ("notes.txt", "# Notes", "\u201cnotes.txt\u201d was not imported. It is not JSON."),
            ("other.json", '{"a": 1}', "It holds no conversation"),
            ("broken.json", json.dumps(written | {"messages": [7]}), "damaged: message 1 cannot"),
        ):
            (tmp_path / name).write_text(text)
            await page.locator("#import-file").set_input_files(tmp_path / name)
            await expect(notice).to_contain_text(told)
            await expect(page.locator(".run")).to_have_count(0)
        (tmp_path / "good.json").write_text(json.dumps(written))
        async with page.expect_file_chooser() as choosing:
            await page.get_by_role("button", name="Import a conversation").click()
        await (await choosing.value).set_files(tmp_path / "good.json")
        await expect(notice).to_contain_text("was imported.")
        await expect(reader.answer.locator(".drafted")).to_have_count(drafted)
        assert await page.locator("#title").inner_text() == "Why is the sky blue?"
        await reader.picture("imported")
        # It goes on, and it is there after a reload.
        await reader.ask("And at night?")
        assert engine.prompt().startswith("<user>Why is the sky blue?</><assistant>## The sky")
        await page.reload()
        await expect(page.locator(".bubble")).to_have_text(
            ["Why is the sky blue?", "And at night?"]
        )
