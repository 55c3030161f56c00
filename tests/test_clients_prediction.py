"""openai-node with predicted outputs, unmodified; openai-python's are in test_http_prediction."""

from __future__ import annotations

import shutil
from pathlib import Path

from gateway.engine.requests import Prediction
from tests.clients_support import CLIENTS, KEY, node_modules, require_node, run_client
from tests.fake_engine import MODEL, FakeEngine
from tests.http_serving import serving

SAID = "Hello, world"


async def test_openai_node(tmp_path: Path) -> None:
    require_node()
    script = tmp_path / "run_prediction.js"
    shutil.copy(CLIENTS / "node" / script.name, script)
    shutil.copy(CLIENTS / "node" / "package.json", tmp_path)
    (tmp_path / "node_modules").symlink_to(node_modules() / "node_modules")
    engine = FakeEngine(SAID)
    async with serving(engine, api_keys=(KEY,)) as served:
        found = await run_client(["node", script, served.base, MODEL, KEY], directory=tmp_path)
    assert found["texts"] == [SAID, SAID]
    assert [request.prediction for request in engine.requests] == [Prediction(SAID)] * 3
    counts = {
        "reasoning_tokens": 0,
        "accepted_prediction_tokens": 4,
        "rejected_prediction_tokens": 1,
    }
    assert found["usages"] == [counts] * 3
    assert found["refused"] == {
        "status": 400,
        "code": "unsupported_value",
        "param": "prediction.type",
    }
