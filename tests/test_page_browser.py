"""The page in a real browser, on an engine whose tokens are known."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from gateway.fleet.terms import Source
from gateway.http.responses.websocket import Connection
from tests.browser_support import PHONE, Reader, browsing, reading
from tests.fleet_support import named, source
from tests.http_serving import serving, until
from tests.page_engine import ANSWER, PageEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORDS = "one two three four five six seven eight nine ten eleven twelve. " * 12


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as running:
        yield running


async def title(reader: Reader) -> str:
    return await reader.page.locator("#title").inner_text()


async def facts(reader: Reader) -> dict[str, str]:
    """What the card of the token says."""
    card = reader.page.locator("#card")
    await expect(card).to_be_visible()
    names = await card.locator("dt").all_inner_texts()
    return dict(zip(names, await card.locator("dd").all_inner_texts(), strict=True))


async def test_an_answer_is_read_as_markdown_with_the_source_of_every_token(
    browser: Browser,
) -> None:
    engine = PageEngine()
    async with serving(engine) as served, reading(browser, served.url) as reader:
        await reader.is_ready()
        await reader.picture("empty")
        await reader.page.get_by_role("button", name="Free prose").click()
        await expect(reader.question).to_have_value(
            "Why is the sky blue? Answer in three sentences."
        )
        await reader.ask("Why is the sky blue?", until=None)
        await expect(reader.page.locator(".bubble")).to_have_text("Why is the sky blue?")
        await reader.picture("asked")
        await reader.comes_to("completed")
        answer = reader.answer
        await expect(answer.get_by_role("heading", name="The sky")).to_be_visible()
        await expect(answer.get_by_role("row")).to_have_count(3)
        await expect(answer.locator("ol > li > ul > li")).to_have_count(2)
        await expect(answer.locator("pre")).to_contain_text("return wavelength ** -4")
        link = answer.get_by_role("link", name="Rayleigh")
        assert await link.get_attribute("rel") == "noopener noreferrer"
        # Whoever drafted is seen in the text, and is named in the legend with all its tokens.
        for place in ("place-1", "place-2", "place-3"):
            assert await answer.locator(f".token.{place}").count() > 3
        legend = await reader.page.locator(".legend li").all_inner_texts()
        assert [line.split("\n")[1] for line in legend] == [
            "Model",
            "N-grams",
            "N-gram store",
            "EAGLE-3",
        ]
        told = sum(int(line.split("\n")[2].split(" ")[0]) for line in legend)
        assert f"{told} tokens" in await answer.locator(".figures").inner_text()
        assert engine.prompt() == "<user>Why is the sky blue?</><assistant>"
        await reader.picture("answer")
        await reader.page.get_by_label("Colour tokens by source").uncheck()
        await reader.picture("uncoloured")


async def test_the_meters_follow_the_answer(browser: Browser) -> None:
    async with (
        serving(PageEngine(WORDS, pace=0.06)) as served,
        reading(browser, served.url) as reader,
    ):
        await reader.ask("Count.", until="streaming")
        meters = reader.page.locator(".meter-value")
        await expect(meters.nth(0)).not_to_have_text("–")
        await expect(meters.nth(3)).not_to_have_text("–")
        await reader.picture("streaming")
        assert await reader.answer.locator(".run").get_attribute("aria-busy") == "true"
        await reader.comes_to("completed")
        assert await reader.answer.locator(".run").get_attribute("aria-busy") == "false"
        tau, alpha, tpot, speed = await meters.all_inner_texts()
        assert 2.3 < float(tau) < 3.1
        assert 50 < float(alpha.removesuffix(" %")) < 65
        assert 4 < float(tpot.removesuffix(" ms")) < 6
        assert 1.7 < float(speed.removesuffix("×")) < 2.8
        assert "estimated from run costs" in await reader.page.locator("#meters").inner_text()
        picture = reader.page.get_by_role("img", name="tokens per round").first
        assert "drafted tokens accepted" in str(await picture.get_attribute("aria-label"))
        await expect(reader.page.locator("#polite")).to_contain_text("Answer: one two three")


async def test_stop_keeps_what_was_said_and_the_conversation_goes_on(browser: Browser) -> None:
    engine = PageEngine(WORDS, pace=0.1)
    async with serving(engine) as served, reading(browser, served.url) as reader:
        await reader.ask("Count.", until="streaming")
        await expect(reader.page.get_by_role("button", name="Send")).to_be_hidden()
        await reader.page.get_by_role("button", name="Stop").click()
        await reader.comes_to("cancelled")
        await expect(reader.answer).to_contain_text("Stopped.")
        await reader.picture("stopped")
        await expect(reader.question).to_be_focused()
        said = await reader.answer.locator(".markdown").inner_text()
        assert 0 < len(said) < len(WORDS)
        engine.pace = 0
        await reader.ask("Go on.")
        assert engine.prompt().startswith(f"<user>Count.</><assistant>{said}")
        # The key does it too.
        engine.pace = 0.1
        await reader.ask("Again.", until="streaming")
        await reader.page.keyboard.press("Escape")
        await reader.comes_to("cancelled")
        await until(lambda: engine.running == 0)


async def test_a_token_tells_its_source_round_probability_and_time(browser: Browser) -> None:
    async with serving(PageEngine()) as served, reading(browser, served.url) as reader:
        await reader.ask("Why?")
        await reader.answer.locator(".token.place-1").first.hover()
        assert await facts(reader) == {
            "Source": "N-grams, drafted and accepted",
            "Round": "2, 4 tokens drafted, 4 accepted",
            "Probability": "77.9 %",
            "Time": "68.0 ms after the question, its round took 14.0 ms",
        }
        await reader.picture("token")
        await reader.question.hover()
        await expect(reader.page.locator("#card")).to_be_hidden()


async def test_tokens_can_be_inspected_with_the_keyboard(browser: Browser) -> None:
    async with (
        serving(PageEngine("one two three")) as served,
        reading(browser, served.url) as reader,
    ):
        await reader.ask("Count.")
        inspect = reader.page.get_by_role("button", name="Inspect tokens")
        await inspect.press("Enter")
        assert (await facts(reader))["Round"] == "0, with the prompt"
        await inspect.press("ArrowRight")
        assert (await facts(reader))["Source"] == "EAGLE-3, drafted and accepted"
        quick = reader.page.locator("#quick")
        await expect(quick).to_contain_text("Token 2 of 3, ␣two: source EAGLE-3")
        await inspect.press("End")
        await inspect.press("ArrowRight")
        await expect(quick).to_contain_text("Token 3 of 3")
        await expect(reader.answer.locator(".inspected")).to_have_text(" three")
        await inspect.press("Escape")
        await expect(reader.page.locator("#card")).to_be_hidden()


async def test_a_finger_on_a_token_is_enough(browser: Browser) -> None:
    async with (
        serving(PageEngine()) as served,
        reading(browser, served.url, viewport=PHONE, has_touch=True, is_mobile=True) as reader,
    ):
        await reader.ask("Why?")
        await reader.answer.locator(".token.place-3").first.tap()
        assert (await facts(reader))["Source"].startswith("EAGLE-3")
        await reader.picture("phone-token")
        await reader.answer.locator(".who").tap()
        await expect(reader.page.locator("#card")).to_be_hidden()


async def test_side_by_side_the_same_question_is_asked_twice(browser: Browser) -> None:
    engine = PageEngine(pace=0.002)
    async with serving(engine) as served, reading(browser, served.url) as reader:
        await reader.page.get_by_label("Compare with plain").select_option("one after another")
        await reader.ask("Why is the sky blue?")
        one, other = engine.requests
        assert one.prompt == other.prompt
        assert one.sampling.seed == other.sampling.seed is not None
        assert [each.speculation.drafts for each in (one, other)] == [True, False]
        assert engine.most_running == 1
        verdict = reader.answer.locator(".verdict")
        await expect(verdict).to_contain_text("Identical text")
        await expect(verdict).to_contain_text("asked one after another")
        assert await reader.answer.locator(".run.plain .drafted").count() == 0
        await expect(reader.page.locator("#meters")).to_contain_text("measured beside it")
        await reader.picture("compare")
        await reader.page.get_by_label("Compare with plain").select_option("at once")
        await reader.ask("And at night?")
        assert engine.most_running == 2
        await expect(reader.answer.locator(".verdict")).to_contain_text("asked at once")
        # What was said by the plain run is no part of the conversation.
        assert engine.prompt().count("<assistant>") == 2


async def test_answers_that_part_are_told_so(browser: Browser) -> None:
    engine = PageEngine("the sky is blue", plain_answer="the sky is grey")
    async with serving(engine) as served, reading(browser, served.url) as reader:
        await reader.page.get_by_label("Compare with plain").select_option("one after another")
        await reader.ask("Why?")
        verdict = reader.answer.locator(".verdict")
        await expect(verdict).to_contain_text("The texts part at character 12.")
        await expect(verdict).to_have_attribute("data-same", "false")


async def test_a_conversation_is_there_after_a_reload(browser: Browser) -> None:
    engine = PageEngine()
    async with serving(engine) as served, reading(browser, served.url) as reader:
        await reader.ask("Why is the sky blue?")
        drafted = await reader.answer.locator(".drafted").count()
        await reader.page.reload()
        await reader.is_ready()
        assert await title(reader) == "Why is the sky blue?"
        await expect(reader.answer.locator(".drafted")).to_have_count(drafted)
        await reader.answer.locator(".token.place-2").first.hover()
        assert (await facts(reader))["Source"].startswith("N-gram store")
        await reader.ask("And at night?")
        assert ANSWER.strip()[:30] in engine.prompt()
        await reader.picture("reloaded")


async def test_conversations_are_listed_renamed_exported_and_deleted(browser: Browser) -> None:
    async with serving(PageEngine("ok")) as served, reading(browser, served.url) as reader:
        page = reader.page
        await reader.ask("First question")
        await page.get_by_role("button", name="New conversation").click()
        await expect(page.get_by_role("heading", name="See where every token")).to_be_visible()
        await reader.ask("Second question")
        titles = page.locator(".chat-title")
        await expect(titles).to_have_text(["Second question", "First question"])
        await page.get_by_role("button", name="Rename Second question").click()
        await page.get_by_label("Title").fill("Mine")
        await page.keyboard.press("Enter")
        await expect(titles).to_have_text(["Mine", "First question"])

        await page.get_by_role("button", name="Export Mine").click()
        async with page.expect_download() as waiting:
            await page.get_by_role("button", name="JSON").click()
        download = await waiting.value
        assert download.suggested_filename == "mine.json"
        written = json.loads((await download.path()).read_text())
        assert written["messages"][1]["runs"][0]["text"] == "ok"

        await reader.picture("conversations")
        await page.get_by_role("button", name="Delete Mine").click()
        await expect(titles).to_have_text(["First question"])
        await page.get_by_role("button", name="Undo").click()
        await expect(titles).to_have_text(["Mine", "First question"])
        await titles.nth(1).click()
        await expect(reader.page.locator(".bubble")).to_have_text("First question")


async def test_a_question_can_be_changed_and_an_answer_asked_again(browser: Browser) -> None:
    engine = PageEngine("ok")
    async with serving(engine) as served, reading(browser, served.url) as reader:
        page = reader.page
        await reader.ask("one")
        await reader.ask("two")
        await page.get_by_role("button", name="Change the question").first.click()
        await page.get_by_role("textbox", name="Change the question").fill("changed")
        await page.keyboard.press("Enter")
        await reader.comes_to("completed")
        await expect(page.locator(".bubble")).to_have_text(["changed"])
        assert engine.prompt() == "<user>changed</><assistant>"
        await page.get_by_role("button", name="Undo").click()
        await expect(page.locator(".bubble")).to_have_text(["one", "two"])
        await page.get_by_role("button", name="Ask again").last.click()
        await until(lambda: len(engine.requests) == 4)
        await reader.comes_to("completed")
        assert engine.prompt() == "<user>one</><assistant>ok</><user>two</><assistant>"


async def test_parameters_and_the_system_prompt_reach_the_gateway(browser: Browser) -> None:
    engine = PageEngine("ok")
    async with serving(engine) as served, reading(browser, served.url) as reader:
        page = reader.page
        await reader.is_ready()
        await page.get_by_label("System prompt").fill("Be brief.")
        for label, value in (("Temperature", "0.8"), ("Top-p", "0.9"), ("Most tokens", "50")):
            await page.get_by_label(label, exact=True).fill(value)
        await page.get_by_label("Seed").fill("123")
        await page.get_by_label("Drafter").select_option("N-grams + EAGLE-3")
        await page.get_by_label("Policy").select_option("fixed")
        await reader.question.fill("Hi")
        await reader.question.press("Enter")
        await expect(page.get_by_text("The policy fixed needs a draft length.")).to_be_visible()
        await expect(page.get_by_label("Draft length")).to_be_focused()
        assert engine.requests == []
        await page.get_by_label("Draft length").fill("4")
        await reader.question.press("Enter")
        await reader.comes_to("completed")
        asked = engine.requests[-1]
        assert engine.prompt() == "<system>Be brief.</><user>Hi</><assistant>"
        assert (asked.sampling.temperature, asked.sampling.top_p) == (0.8, 0.9)
        assert (asked.max_tokens, asked.sampling.seed, asked.top_logprobs) == (50, 123, 0)
        assert (asked.speculation.drafter, asked.speculation.length) == ("ngram+eagle3", 4)
        await page.get_by_label("Ask for probabilities").uncheck()
        await page.get_by_label("Policy").select_option("off")
        await page.reload()
        await reader.ask("Hi")
        assert engine.requests[-1].top_logprobs is None
        assert not engine.requests[-1].speculation.drafts


async def test_a_refusal_is_told_and_can_be_asked_again(browser: Browser) -> None:
    engine = PageEngine("ok")
    async with serving(engine) as served, reading(browser, served.url) as reader:
        engine.capacity = 0
        await reader.ask("Hi", until="failed")
        await expect(reader.answer).to_contain_text("the queue is full.")
        engine.capacity = 8
        await reader.page.get_by_role("button", name="Ask again").click()
        await reader.comes_to("completed")


async def test_a_key_is_asked_for_and_kept_in_the_tab(browser: Browser) -> None:
    # Browsers report every 401 themselves.
    async with (
        serving(PageEngine("ok"), api_keys=("right",)) as served,
        reading(browser, served.url, complaints=True) as reader,
    ):
        page = reader.page
        for key, told in (("wrong", "asks for an API key"), ("right", "refused this key")):
            await expect(page.get_by_role("dialog")).to_contain_text(told)
            await page.get_by_label("Key", exact=True).fill(key)
            await page.get_by_role("button", name="Use it").click()
        await reader.is_ready()
        await reader.ask("Hi")
        await page.reload()
        await reader.is_ready()
        assert await page.evaluate("Object.values(localStorage).join().includes('right')") is False


@pytest.mark.parametrize("key", ["a/b=", "schl\u00fcssel(neu)", "\u043a\u043b\u044e\u0447@:"])
async def test_any_key_can_be_used(browser: Browser, key: str) -> None:
    async with (
        serving(PageEngine("ok"), api_keys=(key,)) as served,
        reading(browser, served.url, complaints=True) as reader,
    ):
        await reader.page.get_by_label("Key", exact=True).fill(f"{key} ")
        await reader.page.get_by_role("button", name="Use it").click()
        await reader.is_ready()
        await reader.ask("Hi")
        await expect(reader.answer).to_contain_text("ok")


async def test_one_of_several_models_is_chosen(browser: Browser) -> None:
    engines: dict[str, PageEngine] = {}

    async def start(asked: Source) -> PageEngine:
        engine = engines[asked.name] = PageEngine("ok")
        engine.package = named(asked.name)
        return engine

    async with serving(None) as served:
        for name in "ab":
            served.gateway.fleet.add(source(name), start)
        await served.gateway.fleet.start()
        async with reading(browser, served.url) as reader:
            model = reader.page.get_by_label("Model", exact=True)
            await expect(model).to_have_value("")
            await expect(model.locator("option")).to_have_text(["As set: a", "a", "b"])
            await reader.ask("Hi")
            await model.select_option("b")
            await reader.ask("Hi")
            assert [len(engines[name].requests) for name in "ab"] == [1, 1]
    async with serving(PageEngine("ok")) as served, reading(browser, served.url) as reader:
        await expect(reader.page.get_by_label("Model", exact=True)).to_be_hidden()


async def test_a_page_that_comes_before_the_model_waits_for_it(browser: Browser) -> None:
    async with (
        serving(None) as served,
        reading(browser, served.url, complaints=True) as reader,
    ):
        await expect(reader.page.locator("#state")).to_have_text("The model is loading")
        await reader.question.fill("Hi")
        await reader.question.press("Enter")
        served.gateway.engine = PageEngine("ok")
        await reader.is_ready()
        await reader.comes_to("completed")


async def test_a_lost_connection_comes_back_and_the_answer_with_it(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[Connection] = []
    serve = Connection.serve

    async def noted(connection: Connection) -> None:
        connections.append(connection)
        await serve(connection)

    monkeypatch.setattr(Connection, "serve", noted)
    engine = PageEngine(WORDS, pace=0.03)
    async with (
        serving(engine) as served,
        reading(browser, served.url, complaints=True) as reader,
    ):
        await reader.ask("Count.", until="streaming")
        assert connections
        for connection in connections:
            connection.abort()
        await reader.comes_to("lost")
        await reader.comes_to("completed")
        await reader.is_ready()
        said = await reader.answer.locator(".markdown").inner_text()
        assert said == WORDS.strip()
        first, second = engine.requests
        assert first.sampling.seed == second.sampling.seed


async def test_what_a_model_says_never_becomes_a_part_of_the_page(browser: Browser) -> None:
    said = (
        "<img src=x onerror=alert(1)> <script>alert(2)</script> [a](javascript:alert(3)) "
        "![b](https://pictures.example/b.png)\n\n<iframe src='https://frames.example'></iframe>"
    )
    async with serving(PageEngine(said)) as served, reading(browser, served.url) as reader:
        await reader.ask("<b>Hi</b>")
        markdown = reader.answer.locator(".markdown")
        assert await markdown.locator("img, script, iframe").count() == 0
        # Both lead to the web, and only when they are followed.
        assert await markdown.locator("a").count() == 2
        assert "<script>alert(2)</script>" in await markdown.inner_text()
        await expect(reader.page.locator(".bubble")).to_have_text("<b>Hi</b>")


async def test_code_is_copied_as_it_was_said(browser: Browser) -> None:
    code = "def f(x):\n\n    return x  # two\n\n\nf(1)"
    async with (
        serving(PageEngine(f"```python\n{code}\n```\nDone.")) as served,
        reading(browser, served.url, permissions=["clipboard-read", "clipboard-write"]) as reader,
    ):
        await reader.ask("Hi")
        await expect(reader.answer.locator(".code-line")).to_have_count(6)
        selected = await reader.answer.locator("pre").evaluate(
            "pre => { getSelection().selectAllChildren(pre); return getSelection().toString(); }"
        )
        assert selected.rstrip("\n") == code
        await reader.answer.get_by_role("button", name="Copy code").click()
        await expect(reader.answer.get_by_role("button", name="Copied")).to_be_visible()
        copied = await reader.page.evaluate("navigator.clipboard.readText()")
        assert copied.rstrip("\n") == code


async def test_shortcuts_and_themes(browser: Browser) -> None:
    async with serving(PageEngine("one two")) as served, reading(browser, served.url) as reader:
        page = reader.page
        await reader.ask("Count.")
        await reader.question.evaluate("node => node.blur()")
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog")).to_contain_text("New conversation")
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.keyboard.press("c")
        await expect(page.get_by_label("Colour tokens by source")).not_to_be_checked()
        await page.keyboard.press("x")
        await expect(page.get_by_label("Compare with plain")).to_have_value("one after another")
        await page.keyboard.press("e")
        changing = page.get_by_role("textbox", name="Change the question")
        await expect(changing).to_be_focused()
        await page.keyboard.press("Escape")
        await page.keyboard.press("p")
        await expect(page.locator("#panel")).to_be_hidden()
        for theme in ("light", "dark"):
            await page.keyboard.press("d")
            assert await page.evaluate("document.documentElement.dataset.theme") == theme
        await page.reload()
        assert await page.evaluate("document.documentElement.dataset.theme") == "dark"
        await reader.question.evaluate("node => node.blur()")
        await page.keyboard.press("n")
        await expect(page.locator("#welcome")).to_be_visible()
        await expect(reader.question).to_be_focused()


async def test_it_fits_a_phone(browser: Browser) -> None:
    async with (
        serving(PageEngine()) as served,
        reading(browser, served.url, viewport=PHONE, has_touch=True, is_mobile=True) as reader,
    ):
        page = reader.page
        await reader.is_ready()
        await reader.picture("phone-empty")
        await reader.ask("Why is the sky blue?")
        await reader.picture("phone-answer")
        await page.locator("#toggle-panel").tap()
        await reader.picture("phone-panel")
        await page.get_by_label("Compare with plain").select_option("one after another")
        await page.keyboard.press("Escape")
        await expect(page.locator("#panel")).to_be_hidden()
        await reader.ask("And at night?")
        await reader.picture("phone-compare")
        await page.locator("#toggle-chats").tap()
        await reader.picture("phone-conversations")
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"]
        await page.locator(".chat-open").first.tap()
        await expect(page.locator("#chats")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(browser: Browser, scheme: str) -> None:
    async with (
        serving(PageEngine(pace=0.001)) as served,
        reading(browser, served.url, color_scheme=scheme, reduced_motion="reduce") as reader,
    ):
        page = reader.page
        await reader.is_ready()
        assert await reader.violations() == []
        await page.get_by_label("Compare with plain").select_option("one after another")
        await reader.ask("Why is the sky blue?")
        await page.get_by_role("button", name="Inspect tokens").press("Enter")
        await page.locator("summary").click()
        assert await reader.violations() == []
        await reader.picture(scheme)
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="Change the question").click()
        await page.get_by_label("Policy").select_option("fixed")
        assert await reader.violations() == []
        await page.get_by_role("button", name="Shortcuts").click()
        assert await reader.violations() == []
        await page.keyboard.press("Escape")
        await page.set_viewport_size(PHONE)
        assert await reader.violations() == []
        await page.locator("#toggle-panel").click()
        assert await reader.violations() == []


async def test_nothing_moves_for_who_does_not_want_it(browser: Browser) -> None:
    async with (
        serving(PageEngine(WORDS, pace=0.05)) as served,
        reading(browser, served.url, reduced_motion="reduce") as reader,
    ):
        await reader.ask("Count.", until="streaming")
        moving = await reader.page.evaluate("document.getAnimations({subtree: true}).length")
        assert moving == 0
