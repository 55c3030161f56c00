"""TLS: what is served, what is refused, and a certificate that changes."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import trustme
from aiohttp import web

from gateway.http.app import make_app, make_runner
from gateway.http.gateway import Gateway
from gateway.settings import Settings
from gateway.tls import Tls
from models.errors import UserError
from tests.fake_engine import FakeEngine
from tests.patience import PATIENCE


class Authority:
    """Writes certificates for the loopback and trusts them."""

    def __init__(self, directory: Path) -> None:
        self._authority = trustme.CA()
        self.certificate, self.key = directory / "cert.pem", directory / "key.pem"
        self.issue()

    def issue(self) -> None:
        """A new pair, in the same files."""
        made = self._authority.issue_cert("127.0.0.1", "localhost")
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        self.key.write_bytes(made.private_key_pem.bytes())

    def client(self, most: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self._authority.configure_trust(context)
        context.maximum_version = most
        return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def serving_tls(tls: Tls) -> AsyncIterator[str]:
    """Yields `host:port`."""
    gateway = Gateway(Settings(drain_seconds=0.2), FakeEngine("ok"))
    runner = make_runner(make_app(gateway))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls.context).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def certificate_of(place: str, context: ssl.SSLContext) -> bytes:
    """That which a new connection is shown."""
    host, _, port = place.partition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown


async def test_requests_and_sockets_go_over_tls(authority: Authority) -> None:
    tls = Tls(authority.certificate, authority.key)
    async with (
        serving_tls(tls) as place,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=authority.client())) as session,
    ):
        async with session.get(f"https://{place}/health") as response:
            assert response.status == 200
        async with session.ws_connect(f"wss://{place}/v1/responses") as socket:
            await socket.send_json({"type": "response.create", "input": "x"})
            assert (await socket.receive_json(timeout=PATIENCE))["type"] == "response.created"


async def test_a_page_of_the_same_host_without_tls_is_another_origin(authority: Authority) -> None:
    tls = Tls(authority.certificate, authority.key)
    async with (
        serving_tls(tls) as place,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=authority.client())) as session,
    ):
        for origin, status in ((f"https://{place}", 200), (f"http://{place}", 403)):
            url = f"https://{place}/v1/models"
            async with session.get(url, headers={"Origin": origin}) as response:
                assert response.status == status


async def test_nothing_older_than_1_2_is_spoken(authority: Authority) -> None:
    tls = Tls(authority.certificate, authority.key)
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    async with serving_tls(tls) as place:
        await certificate_of(place, authority.client(ssl.TLSVersion.TLSv1_2))
        old = authority.client()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.minimum_version = ssl.TLSVersion.TLSv1
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await certificate_of(place, old)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key.pem")
    with pytest.raises(UserError, match=r"key\.pem is no regular file"):
        Tls(tmp_path / "key.pem", None)


async def test_a_client_without_tls_gets_nothing(authority: Authority) -> None:
    async with serving_tls(Tls(authority.certificate, authority.key)) as place:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                async with session.get(f"http://{place}/health"):
                    pass
        await certificate_of(place, authority.client())


async def test_a_new_certificate_is_shown_after_reloading(authority: Authority) -> None:
    tls = Tls(authority.certificate, authority.key)
    async with serving_tls(tls) as place:
        first = await certificate_of(place, authority.client())
        authority.issue()
        assert await certificate_of(place, authority.client()) == first
        tls.reload()
        assert await certificate_of(place, authority.client()) != first


@pytest.mark.parametrize("broken", ["certificate", "key"])
async def test_half_of_a_new_pair_is_never_served(
    authority: Authority, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    tls = Tls(authority.certificate, authority.key)
    async with serving_tls(tls) as place:
        first = await certificate_of(place, authority.client())
        kept = getattr(authority, broken).read_bytes()
        authority.issue()
        getattr(authority, broken).write_bytes(kept)
        with caplog.at_level(logging.ERROR, "gateway.tls"):
            tls.reload()
        (line,) = caplog.messages
        assert line.startswith("the certificate was not reloaded, that in use stays: TLS: ")
        assert await certificate_of(place, authority.client()) == first


def test_the_key_may_be_in_the_same_file(authority: Authority) -> None:
    both = authority.certificate.with_name("both.pem")
    both.write_bytes(authority.key.read_bytes() + authority.certificate.read_bytes())
    Tls(both)


def test_what_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"TLS: .*none\.pem cannot be read") as error:
        Tls(tmp_path / "none.pem", authority.key)
    assert error.value.code == "invalid_setting"
    with pytest.raises(UserError, match=r"TLS: .*no-key\.pem cannot be read: No such file"):
        Tls(authority.certificate, tmp_path / "no-key.pem")
    with pytest.raises(UserError, match=r"TLS: .*cert\.pem and its key cannot be used"):
        Tls(authority.certificate)
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    with pytest.raises(UserError, match=r"TLS: .*text\.pem and its key cannot be used"):
        Tls(text, authority.key)


def test_a_key_without_a_certificate_is_refused(authority: Authority) -> None:
    with pytest.raises(UserError, match="tls_key needs tls_certificate"):
        Settings(tls_key=authority.key)
