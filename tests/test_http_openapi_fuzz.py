"""Schemathesis asks what the document allows and forbids: no 5xx, no answer of another form.

The engine is scripted: what is under test is everything between the wire and it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway.http.openapi.document import document
from tests.fake_engine import FakeEngine
from tests.http_serving import serving
from tests.patience import PATIENCE

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 20

schema = schemathesis.openapi.from_dict(document("0"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A gateway in a thread of its own: the tests wait for its answers."""
    found: list[str] = []
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with serving(FakeEngine("Hello, world")) as served:
            found.append(served.url)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="gateway")
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield found[0]
    finally:
        done.set()
        thread.join(PATIENCE)


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_keeps_to_the_document(case: schemathesis.Case, url: str) -> None:
    response = case.call(base_url=url, timeout=10)
    case.validate_response(response, checks=CHECKS)
