from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from gateway.engine.options import EngineOptions
from gateway.engine.requests import Speculation
from gateway.limits import Limits
from gateway.settings import Settings, flag_fields, written
from gateway.settings_sources import load_settings
from models.errors import UserError
from models.locations import default_package_path


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults() -> None:
    settings = load_settings({}, {})
    assert settings == Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8765)
    assert settings.package == default_package_path()
    assert settings.engine_options == EngineOptions()
    assert settings.speculation == Speculation()


def test_the_file_then_the_environment_then_flags(tmp_path: Path) -> None:
    config = write(
        tmp_path / "outpace.toml",
        'port = 1\nslots = 1\nqueue = 1\nlog_level = "debug"\n'
        '[speculation]\npolicy = "fixed"\nlength = 3\n',
    )
    environment = {"OUTPACE_SLOTS": "2", "OUTPACE_QUEUE": "2", "HOME": "/x"}
    settings = load_settings(environment, {"queue": "3"}, config)
    assert (settings.port, settings.slots, settings.queue) == (1, 2, 3)
    assert settings.log_level == "debug"
    assert settings.speculation == Speculation("auto", "fixed", 3)


def test_the_file_is_named_by_the_flag_or_else_by_the_environment(tmp_path: Path) -> None:
    named = write(tmp_path / "a.toml", "port = 1")
    flag = write(tmp_path / "b.toml", "port = 2")
    environment = {"OUTPACE_CONFIG": str(named), "OUTPACE_CACHE": "/x", "OUTPACE_API_KEY": "k"}
    assert load_settings(environment, {}).port == 1
    assert load_settings(environment, {}, flag).port == 2


def test_all_kinds_of_values_from_all_sources(tmp_path: Path) -> None:
    config = write(
        tmp_path / "outpace.toml",
        'package = "pack"\napi_keys = ["a", "b"]\ninsecure = true\n'
        "drain_seconds = 3\nthreads = 2\ntemperature = 1",
    )
    settings = load_settings({}, {}, config)
    assert settings.package == tmp_path / "pack"
    assert settings.api_keys == ("a", "b")
    assert settings.insecure is True
    assert settings.drain_seconds == 3.0
    assert settings.threads == 2
    assert settings.temperature == 1.0
    environment = {
        "OUTPACE_PACKAGE": "/other",
        "OUTPACE_API_KEYS": "c, d,",
        "OUTPACE_INSECURE": "no",
        "OUTPACE_DRAIN_SECONDS": "0.5",
        "OUTPACE_THREADS": "auto",
        "OUTPACE_SPECULATION_POLICY": "off",
    }
    settings = load_settings(environment, {}, config)
    assert settings.package == Path("/other")
    assert settings.api_keys == ("c", "d")
    assert settings.insecure is False
    assert settings.drain_seconds == 0.5
    assert settings.threads is None
    assert settings.speculation.policy == "off"


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("prot = 1", "'port'"),
        ("slot = 1", "'slots'"),
        ("[speculation]\nlenght = 1", "'speculation.length'"),
        ("speculation_length = 1", "'speculation.length'"),
    ],
)
def test_an_unknown_key_names_the_nearest(tmp_path: Path, text: str, near: str) -> None:
    config = write(tmp_path / "outpace.toml", text)
    with pytest.raises(UserError, match=f"Did you mean {near}") as caught:
        load_settings({}, {}, config)
    assert caught.value.code == "unknown_setting"
    assert str(config) in caught.value.message


def test_an_unknown_variable_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'OUTPACE_SLOT'\. Did you mean 'OUTPACE_SLOTS'"):
        load_settings({"OUTPACE_SLOT": "1"}, {})
    with pytest.raises(UserError, match=r"'OUTPACE_CACH'\. Did you mean 'OUTPACE_CACHE'"):
        load_settings({"OUTPACE_CACH": "/tmp"}, {})


def test_what_others_read_is_no_setting() -> None:
    read = ("CACHE", "CONFIG", "API_KEY", "URL", "ARTEFACTS", "CHROMIUM", "FUZZ")
    environment = {f"OUTPACE_{name}": "" for name in read}
    assert load_settings(environment, {}) == Settings()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('port = "1"', "port"),
        ("port = 1.5", "port"),
        ("port = true", "port"),
        ("port = 70000", "port"),
        ("slots = 0", "slots"),
        ("host = 1", "host"),
        ("insecure = 1", "insecure"),
        ('api_keys = "a"', "api_keys"),
        ("api_keys = [1]", "api_keys"),
        ('api_keys = [""]', "api_keys"),
        ('allowed_origins = ["page.example"]', "allowed_origins"),
        ('allowed_origins = ["https://page.example/"]', "allowed_origins"),
        ('device = "tpu"', "device"),
        ('log_level = "loud"', "log_level"),
        ("drain_seconds = nan", "drain_seconds"),
        ("temperature = -1", "temperature"),
        ("temperature = nan", "temperature"),
        ('temperature = "warm"', "temperature"),
        ("package = 7", "package"),
        ('package = "~nobody-of-this-name/x"', "package"),
        ('api_keys = ["a\\u0007"]', "api_keys"),
        ('[speculation]\npolicy = "best"', "speculation.policy"),
        ('[speculation]\npolicy = "fixed"', "speculation.length"),
        ('[speculation]\ndrafter = "meduza"', "speculation.drafter"),
        ("[speculation]\nlength = 99", "speculation.length"),
        ("speculation = 1", "speculation"),
        ("[port]\na = 1", "port"),
    ],
)
def test_a_bad_value_in_a_file_is_named(tmp_path: Path, text: str, where: str) -> None:
    config = write(tmp_path / "outpace.toml", text)
    with pytest.raises(UserError, match=where) as caught:
        load_settings({}, {}, config)
    assert caught.value.code in ("invalid_setting", "unknown_setting")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OUTPACE_PORT", "http"),
        ("OUTPACE_PORT", ""),
        ("OUTPACE_INSECURE", "maybe"),
        ("OUTPACE_DRAIN_SECONDS", "soon"),
        ("OUTPACE_PACKAGE", "~nobody-of-this-name/x"),
    ],
)
def test_a_bad_variable_is_named(variable: str, value: str) -> None:
    with pytest.raises(UserError, match=variable) as caught:
        load_settings({variable: value}, {})
    assert caught.value.code == "invalid_setting"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("OUTPACE_PORT", "70000", "OUTPACE_PORT must be from 0 to 65535, not 70000."),
        (
            "OUTPACE_DEVICE",
            "tpu",
            "OUTPACE_DEVICE must be one of auto, cpu, cuda, tensorrt, not 'tpu'.",
        ),
        ("OUTPACE_TEMPERATURE", "2.5", "OUTPACE_TEMPERATURE must be from 0 to 2, not 2.5."),
        ("OUTPACE_TEMPERATURE", "nan", "OUTPACE_TEMPERATURE must be from 0 to 2, not nan."),
        (
            "OUTPACE_SPECULATION_LENGTH",
            "99",
            "OUTPACE_SPECULATION_LENGTH must be from 1 to 31, not 99.",
        ),
        (
            "OUTPACE_ALLOWED_ORIGINS",
            "x",
            "OUTPACE_ALLOWED_ORIGINS must hold origins like https://host:port, not 'x'.",
        ),
    ],
)
def test_a_value_out_of_range_is_said_of_its_variable(
    variable: str, value: str, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        load_settings({variable: value}, {})
    assert caught.value.message == message
    assert (caught.value.code, caught.value.param) == ("invalid_setting", variable)


def test_a_value_out_of_range_is_said_of_what_set_it_last(tmp_path: Path) -> None:
    config = write(tmp_path / "outpace.toml", "port = 70000\nslots = 0\n[speculation]\nlength = 99")
    with pytest.raises(UserError) as caught:
        load_settings({"OUTPACE_PORT": "1", "OUTPACE_SLOTS": "-1"}, {"slots": "1"}, config)
    assert caught.value.message == f"{config}: speculation.length must be from 1 to 31, not 99."
    with pytest.raises(UserError, match=r"^--slots must be from 1 to 64, not 0\.$"):
        load_settings({"OUTPACE_SLOTS": "1"}, {"slots": "0"})
    with pytest.raises(UserError, match=r"^speculation\.length is needed with the policy 'fixed'"):
        load_settings({"OUTPACE_SPECULATION_POLICY": "fixed"}, {})
    with pytest.raises(UserError, match=r"^speculation\.tpot_ms is needed with the policy 'slo'"):
        load_settings({"OUTPACE_SPECULATION_POLICY": "slo"}, {})
    with pytest.raises(UserError, match=r"^--speculation-tpot-ms must be from 0\.01 to 60000"):
        load_settings({}, {"speculation_tpot_ms": "0"})
    with pytest.raises(UserError, match="must be one of none, even, not 'smooth'"):
        load_settings({}, {"speculation_pacing": "smooth"})
    with pytest.raises(UserError, match="must be one of cost, fixed, ema-tiers, confidence, slo, "):
        load_settings({}, {"speculation_policy": "adasd"})


def test_a_policy_may_be_set_by_its_other_name() -> None:
    assert load_settings({}, {"speculation_policy": "auto"}).speculation.policy == "cost"
    paced = load_settings(
        {},
        {"speculation_policy": "slo", "speculation_tpot_ms": "25", "speculation_pacing": "even"},
    )
    assert paced.speculation == Speculation(policy="slo", tpot_ms=25.0, pacing="even")


def test_a_key_in_another_encoding_is_refused() -> None:
    with pytest.raises(UserError, match="OUTPACE_API_KEYS has a key that no client could send"):
        load_settings({"OUTPACE_API_KEYS": os.fsdecode(b"\xff")}, {})


def test_a_file_in_the_home_of_nobody_is_refused() -> None:
    with pytest.raises(UserError, match="config names the home of a user who is not known"):
        load_settings({"OUTPACE_CONFIG": "~nobody-of-this-name/x.toml"}, {})


def test_a_bad_flag_is_named() -> None:
    with pytest.raises(UserError, match="--drain-seconds must be a number, not 'x'"):
        load_settings({}, {"drain_seconds": "x"})


@pytest.mark.parametrize("content", [None, "port = ", b"\xff\xfe", "a = " + "[" * 5000])
def test_an_unreadable_file_is_named(tmp_path: Path, content: str | bytes | None) -> None:
    path = tmp_path / "outpace.toml"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=r"outpace\.toml") as caught:
        load_settings({}, {}, path)
    assert caught.value.code == "config_unreadable"


def test_an_unreadable_file_is_named_once(tmp_path: Path) -> None:
    path = tmp_path / "outpace.toml"
    with pytest.raises(UserError) as caught:
        load_settings({}, {}, path)
    assert caught.value.message == f"cannot read {path}: No such file or directory."
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError) as caught:
        load_settings({}, {}, path)
    assert caught.value.message == f"cannot read {path}: it is not text in UTF-8."


def test_keys_are_in_no_flag_and_in_no_text() -> None:
    assert "api_keys" not in flag_fields()
    assert "hunter2" not in repr(Settings(api_keys=("hunter2",)))


def test_limits_have_a_table_of_their_own(tmp_path: Path) -> None:
    config = write(
        tmp_path / "outpace.toml",
        "[limits]\nmessage_bytes = 4096\nrequests = 2\ntokens_per_minute = 1000\n",
    )
    settings = load_settings({"OUTPACE_LIMITS_REQUESTS": "3"}, {"limits_nesting": "20"}, config)
    assert settings.limits == Limits(
        message_bytes=4096, requests=3, tokens_per_minute=1000, nesting=20
    )
    assert load_settings({}, {}).limits == Limits()
    with pytest.raises(UserError, match=r"Did you mean 'limits\.requests'"):
        load_settings({}, {}, write(config, "[limits]\nrequest = 2"))
    with pytest.raises(UserError, match=r"limits\.nesting must be from 8 to 250, not 251"):
        load_settings({}, {}, write(config, "[limits]\nnesting = 251"))
    with pytest.raises(UserError, match=r"--limits-requests must be from 1 to "):
        load_settings({}, {"limits_requests": "0"})


def test_what_may_be_without_end_can_be_set_to_none(tmp_path: Path) -> None:
    config = write(tmp_path / "outpace.toml", 'queue_seconds = "none"\nrequest_seconds = 5')
    settings = load_settings({}, {}, config)
    assert (settings.queue_seconds, settings.request_seconds) == (None, 5.0)
    assert settings.engine_options.queue_seconds is None
    assert load_settings({"OUTPACE_REQUEST_SECONDS": "none"}, {}).request_seconds is None


def test_files_of_keys_and_certificates_are_beside_the_configuration(tmp_path: Path) -> None:
    config = write(
        tmp_path / "outpace.toml",
        'api_keys_file = "keys"\ntls_certificate = "cert.pem"\ntls_key = "/etc/key.pem"',
    )
    settings = load_settings({}, {}, config)
    assert settings.api_keys_file == tmp_path / "keys"
    assert settings.tls_certificate == tmp_path / "cert.pem"
    assert settings.tls_key == Path("/etc/key.pem")


@pytest.mark.parametrize("host", ["Box.lan", "box.lan:80", "http://box", "a b", ""])
def test_hosts_are_names_without_a_port(host: str) -> None:
    with pytest.raises(UserError, match="allowed_hosts must hold names"):
        Settings(allowed_hosts=(host,))
    Settings(allowed_hosts=("box.lan", "10.0.0.1", "[::1]"))


def test_a_log_has_a_known_form() -> None:
    assert load_settings({}, {"log_format": "json"}).log_format == "json"
    with pytest.raises(UserError, match="--log-format must be one of text, json, not 'xml'"):
        load_settings({}, {"log_format": "xml"})


def test_packages_are_named_from_all_sources(tmp_path: Path) -> None:
    config = write(tmp_path / "outpace.toml", 'packages = ["a", "/b"]\nadmins = ["ann"]')
    settings = load_settings({}, {}, config)
    assert settings.packages == (tmp_path / "a", Path("/b"))
    assert settings.admins == ("ann",)
    settings = load_settings({"OUTPACE_PACKAGES": "/c, ~/d"}, {"keep_alive": "0"}, config)
    assert settings.packages == (Path("/c"), Path.home() / "d")
    assert (settings.keep_alive, settings.terms.keep_alive) == (0.0, 0.0)
    assert load_settings({}, {"stuck_seconds": "none"}).terms.stuck_seconds is None
    with pytest.raises(UserError, match=r"--keep-alive must be from -1 to"):
        load_settings({}, {"keep_alive": "-2"})


def test_prefixes_are_shared_between_keys_where_that_is_said(tmp_path: Path) -> None:
    config = write(tmp_path / "outpace.toml", "share_prefixes = true")
    assert Settings().engine_options.share_prefixes is False
    assert load_settings({}, {}, config).engine_options.share_prefixes is True
    assert load_settings({"OUTPACE_SHARE_PREFIXES": "no"}, {}, config).share_prefixes is False
    assert load_settings({}, {"share_prefixes": "true"}).share_prefixes is True


def test_every_setting_is_documented() -> None:
    """With its flag and its variable, in the table of docs/SETTINGS.md."""
    text = (Path(__file__).parent.parent / "docs" / "SETTINGS.md").read_text(encoding="utf-8")
    flags = flag_fields()
    for item in dataclasses.fields(Settings):
        if item.name.startswith("limits_"):
            continue
        off = "no-" if item.default is True else ""
        flag = f"`--{off}{item.name.replace('_', '-')}`" if item.name in flags else ""
        row = f"| `{written(item.name)}` | {flag} | `OUTPACE_{item.name.upper()}` |"
        assert row.replace("|  |", "| |") in text, row
