"""Chromium on the page, as a person uses it."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.async_api import Browser, Locator, Page, async_playwright, expect

from tests.patience import PATIENCE

ROOT = Path(__file__).parent.parent
ARTEFACTS = Path(os.environ.get("OUTPACE_ARTEFACTS") or ROOT / ".ci" / "artefacts")
PICTURES = frozenset(
    {
        *("empty", "asked", "streaming", "stopped", "answer", "uncoloured", "token", "compare"),
        *("reloaded", "conversations", "imported", "long", "light", "dark", "demo"),
        *("phone-empty", "phone-answer", "phone-token", "phone-panel", "phone-compare"),
        "phone-conversations",
    }
)
"""What a run of all tests of the page leaves in `ARTEFACTS`."""

AXE = next(Path(axe_playwright_python.__file__).parent.rglob("axe.min.js"))
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
WIDE = {"width": 1440, "height": 900}
PHONE = {"width": 360, "height": 740}
PATIENCE_MS = 1000 * PATIENCE

expect.set_options(timeout=PATIENCE_MS)


def chromium() -> str:
    found = os.environ.get("OUTPACE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.fail(
            "The page's tests need Chromium, and there is none. `apt-get install chromium` gives"
            " one; OUTPACE_CHROMIUM=/path/to/it names another."
        )
    return found


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    executable = chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable)
        try:
            yield browser
        finally:
            await browser.close()


@dataclass(slots=True)
class Reader:
    """Somebody who reads the page. `complaints` is what the browser had to say about it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def watch(self) -> None:
        self.page.on("console", lambda message: self._heard(message))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    @property
    def question(self) -> Locator:
        return self.page.get_by_role("textbox", name="Question", exact=True)

    @property
    def answer(self) -> Locator:
        """The last one."""
        return self.page.locator(".reply").last

    async def is_ready(self) -> None:
        await expect(self.page.locator("#state")).to_have_text("Ready")

    async def ask(self, text: str, *, until: str | None = "completed") -> None:
        """Ask, and wait until the answer's last run has come to that state."""
        await self.question.fill(text)
        await self.question.press("Enter")
        if until is not None:
            await self.comes_to(until)

    async def comes_to(self, status: str) -> None:
        await expect(self.answer.locator(".run").last).to_have_attribute("data-status", status)

    async def picture(self, name: str) -> None:
        assert name in PICTURES
        await self.page.screenshot(path=ARTEFACTS / f"{name}.png")

    async def panel(self) -> None:
        """Open the panel where it is not open."""
        toggle = self.page.locator("#toggle-panel")
        if await toggle.get_attribute("aria-expanded") == "false":
            await toggle.click()

    async def violations(self) -> list[str]:
        """What axe finds wrong with the page as it is now."""
        await self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = await self.page.evaluate("() => axe.run()")
        return [
            f"{each['id']}: {each['help']}: {node['html']} {node.get('failureSummary', '')}"
            for each in found["violations"]
            for node in each["nodes"]
        ]


@asynccontextmanager
async def reading(
    browser: Browser, url: str, *, complaints: bool = False, **options: Any
) -> AsyncIterator[Reader]:
    """A reader of the page at `url`, in a browser profile of its own. Where no `complaints` are
    expected the browser must have none, and it must have asked this gateway alone."""
    context = await browser.new_context(**{"viewport": WIDE, **options})
    context.set_default_timeout(PATIENCE_MS)
    try:
        reader = Reader(await context.new_page())
        reader.watch()
        await reader.page.goto(url)
        yield reader
        assert complaints or reader.complaints == []
        assert reader.hosts == {url.removeprefix("http://")}
    finally:
        await context.close()
