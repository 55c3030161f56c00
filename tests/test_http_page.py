"""The page's files: what they are sent with, and that nothing else is."""

from __future__ import annotations

import asyncio
import tomllib
from importlib import resources
from pathlib import Path

import aiohttp
import pytest

from gateway.http.page import page_files
from tests.fake_engine import FakeEngine
from tests.http_serving import Served, serving

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "gateway" / "page"


async def ask(
    served: Served, path: str, method: str = "GET", **headers: str
) -> tuple[aiohttp.ClientResponse, bytes]:
    """`headers` have underscores for dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, served.url + path, headers=named) as response,
    ):
        return response, await response.read()


async def test_the_page_and_what_it_is_made_of_are_served_as_they_are() -> None:
    async with serving(FakeEngine()) as served:
        for path, name, kind in (
            ("/", "index.html", "text/html"),
            ("/page/main.js", "main.js", "text/javascript"),
            ("/page/colours.css", "colours.css", "text/css"),
            ("/page/icon.svg", "icon.svg", "image/svg+xml"),
        ):
            response, body = await ask(served, path)
            assert response.status == 200
            assert response.headers["Content-Type"] == f"{kind}; charset=utf-8"
            assert body == (PAGE / name).read_bytes()


async def test_nothing_from_elsewhere_may_run_or_be_reached() -> None:
    async with serving(FakeEngine()) as served:
        for path in ("/", "/page/main.js"):
            headers = (await ask(served, path))[0].headers
            parts = headers["Content-Security-Policy"].split("; ")
            policy = dict(part.split(" ", 1) for part in parts)
            assert policy["default-src"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
            for name in ("frame-ancestors", "base-uri", "form-action"):
                assert policy[name] == "'none'"
            assert "unsafe" not in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["Cache-Control"] == "no-cache"


def test_the_page_names_no_other_host() -> None:
    for path in PAGE.iterdir():
        if path.suffix in (".html", ".css", ".js"):
            text = path.read_text().replace("http://www.w3.org/2000/svg", "")
            assert "http://" not in text, path.name
            assert "https://" not in text, path.name


async def test_a_file_that_is_known_is_not_sent_again() -> None:
    async with serving(FakeEngine()) as served:
        first, _ = await ask(served, "/")
        tag = first.headers["ETag"]
        assert tag != (await ask(served, "/page/main.js"))[0].headers["ETag"]
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again, body = await ask(served, "/", If_None_Match=known)
            assert (again.status, body, again.headers["ETag"]) == (304, b"", tag)
            assert "Content-Security-Policy" in again.headers
        for unknown in ('"other"', "broken"):
            assert (await ask(served, "/", If_None_Match=unknown))[0].status == 200


async def test_head_tells_the_same_without_a_body() -> None:
    async with serving(FakeEngine()) as served:
        whole, body = await ask(served, "/")
        head, nothing = await ask(served, "/", "HEAD")
    assert (head.status, nothing) == (200, b"")
    assert head.headers["Content-Length"] == str(len(body))
    assert head.headers["ETag"] == whole.headers["ETag"]


@pytest.mark.parametrize(
    "path",
    [
        "/page",
        "/page/",
        "/page/nothing.js",
        "/page/index.html",
        "/page/package.json",
        "/page/__init__.py",
        "/page/../http/page.py",
        "/page/%2e%2e/http/page.py",
        "/page/..%2fhttp%2fpage.py",
        "/page//etc/passwd",
        "/page/main.js/",
        "/page/main.js%00.css",
        "/page/MAIN.JS",
        "/index.html",
        "/main.js",
    ],
)
async def test_there_is_nothing_beside_the_page(path: str) -> None:
    async with serving(FakeEngine()) as served:
        host, port = served.url.removeprefix("http://").split(":")
        assert await raw_status(host, int(port), path) == 404


async def raw_status(host: str, port: int, path: str) -> int:
    """Of a path that no client library has tidied up."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


async def test_only_reading_is_allowed() -> None:
    async with serving(FakeEngine()) as served:
        response, _ = await ask(served, "/", "POST")
        assert response.status == 405


async def test_the_page_needs_no_key_and_no_model() -> None:
    async with serving(None, api_keys=("right",)) as served:
        assert (await ask(served, "/"))[0].status == 200
        assert (await ask(served, "/page/main.js"))[0].status == 200
        assert (await ask(served, "/v1/status"))[0].status == 401


async def test_other_names_of_this_machine_are_refused_here_too() -> None:
    async with serving(FakeEngine()) as served:
        assert (await ask(served, "/", Host="evil.example"))[0].status == 403


def test_a_directory_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("1")
    (tmp_path / "b.py").write_text("2")
    files = page_files(tmp_path)
    assert list(files) == ["a.js"]
    assert (files["a.js"].body, files["a.js"].content_type) == (b"1", "text/javascript")
    (tmp_path / "a.js").write_text("3")
    assert page_files(tmp_path)["a.js"].digest != files["a.js"].digest


def test_all_of_it_is_package_data() -> None:
    """What `pip install` copies is what is served."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["*"]
    for name in page_files():
        assert f"*.{name.rpartition('.')[2]}" in patterns
    assert {entry.name for entry in resources.files("gateway.page").iterdir()} >= set(page_files())
