"""Which gateway a command speaks to, and where its key is from."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from gateway.commands.connecting import DEFAULT_URL, add_gateway, api_key, first_key
from models.errors import UserError


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_gateway(parser)
    return parser.parse_args(arguments)


def test_the_address_is_the_flag_s_then_the_environment_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTPACE_URL", raising=False)
    assert parsed().url == DEFAULT_URL
    monkeypatch.setenv("OUTPACE_URL", "http://there:1")
    assert parsed().url == "http://there:1"
    assert parsed("--url", "http://here:2").url == "http://here:2"


def test_the_key_is_of_the_flag_s_file_then_the_environment_then_the_file_that_it_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("# keys\n\n ann : first \nbob:second\n")
    other.write_text("third\n")
    for name in ("OUTPACE_API_KEY", "OUTPACE_API_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert api_key(parsed()) is None
    monkeypatch.setenv("OUTPACE_API_KEY_FILE", str(other))
    assert api_key(parsed()) == "third"
    monkeypatch.setenv("OUTPACE_API_KEY", "fourth")
    assert api_key(parsed()) == "fourth"
    assert api_key(parsed("--api-key-file", str(one))) == "first"


def test_a_file_without_a_key_says_so_and_nothing_that_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    for content, problem in (
        (None, "cannot be read: No such file or directory"),
        (b"# secret\n\n", "has no key"),
        (b"secret\xff", "is not text in UTF-8"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UserError) as refused:
            first_key(path)
        assert problem in refused.value.message
        assert "secret" not in refused.value.message
