"""API keys: their file, their digests, and reading them again."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from gateway.http import keys as keys_module
from gateway.http.keys import ApiKey, KeyRing, key_ring, read_keys
from gateway.settings import Settings
from models.errors import UserError
from tests.fake_engine import FakeEngine
from tests.http_serving import ask, serving, socket_to
from tests.test_http_guard import get

FILE = """
# of the people here
first-key
ann: annas-key
bob:bobs-key

  # an old one of Ann's, until she has changed it everywhere
ann:annas-old-key
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(FILE)
    return path


def test_a_file_has_keys_names_and_comments(path: Path) -> None:
    assert read_keys(path) == [
        ApiKey.of("first-key"),
        ApiKey.of("annas-key", "ann"),
        ApiKey.of("bobs-key", "bob"),
        ApiKey.of("annas-old-key", "ann"),
    ]


def test_keys_of_one_name_have_one_owner_and_others_have_others(path: Path) -> None:
    first, ann, bob, old = read_keys(path)
    assert ann.owner == old.owner
    assert ann.digest != old.digest
    assert len({first.owner, ann.owner, bob.owner, ApiKey.of("ann").owner}) == 4
    assert ann.label == ann.owner[:12]


def test_what_is_held_tells_no_key(path: Path) -> None:
    ring = KeyRing(lambda: read_keys(path))
    held = repr(vars(ring)) + repr(ring.match(["annas-key"]))
    for word in ("first-key", "annas-key", "bobs-key", "ann"):
        assert word not in held
    known = ApiKey.of("first-key")
    assert known.digest.hex() not in known.owner


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "has no keys"),
        ("# nothing\n\n", "has no keys"),
        ("good\n:nameless", "has no name before the colon in line 2"),
        ("good\nann:", "has no key in line 2"),
        ("a b", "has in line 1 a key that no client could send"),
        ("ann:a b", "has in line 1 a key that no client could send"),
        ("a\x07b", "has in line 1 a key that no client could send"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (
            "# people\nann:one-secret\n\nbob:one-secret",
            "has in lines 2 and 4 the same key for two names; remove one of them",
        ),
        (
            "one-secret\nann:one-secret",
            "has in lines 1 and 2 the same key for two names; remove one of them",
        ),
        ("x" * (1 << 20) + "y", "is larger than 1 MiB"),
        ("\n".join(map(str, range(1001))), "has 1001 keys; at most 1000 are read"),
    ],
)
def test_a_bad_file_is_named_without_its_keys(
    tmp_path: Path, content: str | bytes, problem: str
) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as error:
        read_keys(path)
    assert error.value.message == f"the file of API keys {path} {problem}."
    assert (error.value.code, error.value.param) == ("invalid_setting", "api_keys_file")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys")
    with pytest.raises(UserError, match="is no regular file"):
        read_keys(tmp_path / "keys")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file or directory"):
        read_keys(tmp_path / "none")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_keys(tmp_path)


def test_all_sources_count(path: Path, tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "api_keys").write_text("from-systemd\n")
    settings = Settings(api_keys=("from-settings",), api_keys_file=path)
    ring = key_ring(settings, {"CREDENTIALS_DIRECTORY": str(credentials)})
    assert len(ring) == 6
    assert ring.from_files
    for key in ("from-systemd", "from-settings", "bobs-key"):
        assert ring.match([key]) == ApiKey.of(key, "bob" if key == "bobs-key" else None)
    # A directory of credentials without this one is no error.
    ring = key_ring(Settings(), {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert (len(ring), ring.from_files) == (0, False)


def test_any_of_what_is_offered_may_match(path: Path) -> None:
    ring = KeyRing(lambda: read_keys(path))
    assert ring.match([]) is None
    assert ring.match(["wrong", "bobs-key"]) == ApiKey.of("bobs-key", "bob")
    for wrong in ("", "bobs-ke", "bobs-keyy", "BOBS-KEY", "ann", "ann:annas-key", "\udcff"):
        assert ring.match([wrong]) is None


def test_every_key_is_compared_whichever_matches(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []

    def note(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    ring = KeyRing(lambda: read_keys(path))
    monkeypatch.setattr(keys_module.hmac, "compare_digest", note)
    for offered in ("first-key", "annas-old-key", "wrong"):
        compared.clear()
        ring.match([offered])
        assert len(compared) == 4
        assert all(len(one) == len(other) == 32 for one, other in compared)


def test_reloading_takes_new_keys_and_drops_old_ones(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring = KeyRing(lambda: read_keys(path))
    path.write_text("ann:annas-new-key\n")
    assert ring.match(["bobs-key"]) is not None, "nothing is read before it is told to"
    with caplog.at_level(logging.INFO):
        ring.reload()
    assert ring.match(["bobs-key"]) is None
    assert ring.match(["annas-new-key"]) == ApiKey.of("annas-new-key", "ann")
    assert caplog.messages == ["1 API keys are in use"]


def test_a_key_that_is_written_twice_for_one_owner_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("ann:one\nann:one\ntwo\ntwo\nann:three\n")
    assert {key.owner for key in read_keys(path)} == {
        ApiKey.of("one", "ann").owner,
        ApiKey.of("two").owner,
    }


def test_a_key_of_two_names_in_two_places_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("ann:one-secret\n")
    with pytest.raises(UserError) as error:
        key_ring(Settings(api_keys=("one-secret",), api_keys_file=path))
    assert error.value.message == (
        f"api_keys and the file of API keys {path} have the same key for two names;"
        " remove it from one."
    )
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "api_keys").write_text("bob:one-secret\n")
    with pytest.raises(UserError, match="have the same key for two names") as error:
        key_ring(Settings(api_keys_file=path), {"CREDENTIALS_DIRECTORY": str(credentials)})
    assert "one-secret" not in error.value.message


def test_another_source_replaces_the_first_unless_it_has_none(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring = KeyRing(lambda: read_keys(path))
    ring.reload(lambda: [ApiKey.of("another")])
    assert (len(ring), ring.match(["bobs-key"])) == (1, None)
    ring.reload()
    assert ring.match(["another"]) is not None, "the other source is asked from then on"
    ring.reload(list)
    assert ring.match(["another"]) is not None, "no keys at all would let everybody in"
    assert caplog.messages[-1].endswith("those in use stay: there are none any more")
    nobody = KeyRing(list)
    nobody.reload()
    assert len(nobody) == 0


@pytest.mark.parametrize("content", [None, "", "ann:", "a b", "ann:x\nbob:x"])
def test_a_bad_file_keeps_the_old_keys_and_logs_one_line(
    path: Path, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    ring = KeyRing(lambda: read_keys(path))
    path.unlink()
    if content is not None:
        path.write_text(content)
    ring.reload()
    assert len(ring) == 4
    assert ring.match(["bobs-key"]) is not None
    (line,) = caplog.messages
    assert line.startswith("API keys were not reloaded, those in use stay: the file of API keys ")


async def test_a_revoked_key_gets_nothing_more_even_on_an_open_socket() -> None:
    keys = [ApiKey.of("annas-key", "ann"), ApiKey.of("bobs-key", "bob")]
    ring = KeyRing(lambda: keys)
    async with serving(FakeEngine("ok"), keys=ring) as served:
        headers = {"Authorization": "Bearer bobs-key"}
        async with socket_to(served, headers=headers) as socket:
            assert (await ask(socket, input="x"))[-1]["type"] == "response.completed"
            keys = keys[:1]
            ring.reload()
            (event,) = await ask(socket, input="x")
            assert (event["status"], event["error"]["code"]) == (401, "invalid_api_key")
        assert (await get(served, "/v1/models", headers=headers))[0] == 401
        known = {"Authorization": "Bearer annas-key"}
        assert (await get(served, "/v1/models", headers=known))[0] == 200
