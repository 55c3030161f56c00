"""The templates, and the files that they become."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.commands.statuses import MISCONFIGURED
from gateway.http.keys import ApiKey, read_keys
from gateway.installing.machine import Machine, device_groups, hidden, package_path
from gateway.installing.plan import Wish, Write, new_keys, system_plan, user_plan
from gateway.installing.units import HEAD, is_ours, plain, render, signed
from gateway.settings_sources import load_settings
from models.errors import UserError
from models.package import Package, load_package
from models.usage import USAGE
from tests.systemd_support import tool

MACHINE = Machine(
    version=252,
    python=Path("/usr/bin/python3"),
    prefixes=(Path("/usr"),),
    source=None,
    groups=(),
    modprobe=None,
    root=True,
)
MOST_EXPOSED = 1.5
"""Of `systemd-analyze security`; 10 is no sandbox at all."""


@pytest.fixture
def wish(tiny_package: Path) -> Wish:
    return Wish(load_package(tiny_package), ("127.0.0.1", 8765))


def on_gpu(wish: Wish) -> Wish:
    manifest = wish.package.manifest
    target = replace(manifest.target, device="cuda")
    package = Package(wish.package.path, replace(manifest, target=target))
    return replace(wish, package=package)


def written(steps: object, root: Path) -> dict[str, Path]:
    """The files of a plan, below `root`, by their names."""
    assert isinstance(steps, list)
    found = {}
    for step in steps:
        if isinstance(step, Write):
            path = root / step.path.relative_to("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.content)
            found[f"{step.path.parent.name}/{step.path.name}"] = path
    return found


def unit(steps: object, root: Path, name: str = "system/outpace.service") -> str:
    return written(steps, root)[name].read_text()


def test_conditions_and_values() -> None:
    text = "a\n@if x@b @name@\n@unless x@c\nd @name@ @name@\n"
    assert render(text, {"x": "", "name": "N"}) == "a\nb N\nd N N\n"
    assert render(text, {"x": None, "name": "N"}) == "a\nc\nd N N\n"
    with pytest.raises(KeyError, match="name"):
        render(text, {"x": None})


def test_what_was_written_is_known_again_until_it_is_changed() -> None:
    text = signed("[Unit]\nDescription=x\n")
    assert text.startswith(HEAD)
    assert is_ours(text)
    assert not is_ours(text + "Nice=1\n")
    assert not is_ours("[Unit]\n")
    assert not is_ours("")


def test_a_path_that_needs_escapes_is_refused() -> None:
    assert plain(Path("/home/ann/out-pace_1.0+x@y")) == "/home/ann/out-pace_1.0+x@y"
    for bad in ("/a b", "/a%h", "/a$b", '/a"b', "/a\nb", "relative"):
        with pytest.raises(UserError, match="cannot stand in a unit file"):
            plain(Path(bad))


@pytest.mark.parametrize("version", [249, 252, 253, 254, 257])
def test_what_a_version_does_not_know_is_left_out(wish: Wish, tmp_path: Path, version: int) -> None:
    machine = replace(MACHINE, version=version)
    for text in (
        unit(system_plan(machine, wish), tmp_path),
        unit(user_plan(machine, wish, Path("/cfg")), tmp_path, "user/outpace.service"),
    ):
        lines = text.splitlines()
        assert ("Type=notify-reload" in lines) == (version >= 253)
        assert ("Type=notify" in lines) == (version < 253)
        assert ("ExecReload=/bin/kill -HUP $MAINPID" in lines) == (version < 253)
        assert ("RestartSteps=8" in lines) == (version >= 254)
        assert ("RestartMaxDelaySec=5min" in lines) == (version >= 254)
        assert ("StartLimitBurst=20" in lines) == (version < 254)
        assert ("StartLimitBurst=10" in lines) == (version >= 254)
        assert f"RestartPreventExitStatus={USAGE} {MISCONFIGURED}" in lines
        assert not re.search(r"^@|@\w+@", text, re.MULTILINE)


def variants(wish: Wish) -> dict[str, tuple[Machine, Wish]]:
    nvidia = replace(MACHINE, groups=("video",), modprobe=Path("/usr/bin/true"))
    certificate = replace(wish, tls_certificate=Path("/etc/c.pem"), tls_key=Path("/etc/k.pem"))
    return {
        "cpu": (MACHINE, wish),
        "gpu": (nvidia, on_gpu(wish)),
        "tls": (MACHINE, certificate),
        "source": (replace(MACHINE, source=Path("/opt/outpace")), wish),
    }


@pytest.mark.parametrize("name", ["cpu", "gpu", "tls", "source"])
def test_systemd_finds_nothing_to_say(wish: Wish, tmp_path: Path, name: str) -> None:
    """As this systemd understands them: with what its version knows."""
    analyze = tool("systemd-analyze")
    told = subprocess.run([analyze, "--version"], capture_output=True, text=True, check=True)
    version = int(told.stdout.split()[1])
    machine, wanted = variants(wish)[name]
    machine = replace(machine, version=version)
    files = written(system_plan(machine, wanted), tmp_path)
    units = [str(files[f"system/{kind}"]) for kind in ("outpace.service", "outpace.socket")]
    done = subprocess.run(
        [analyze, "verify", *units], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    users = written(user_plan(machine, replace(wanted, tls_certificate=None), tmp_path), tmp_path)
    units = [str(users[f"user/{kind}"]) for kind in ("outpace.service", "outpace.socket")]
    done = subprocess.run(
        [analyze, "--user", "verify", *units],
        env={"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["cpu", "gpu", "tls"])
def test_the_sandbox_leaves_little(wish: Wish, tmp_path: Path, name: str) -> None:
    machine, wanted = variants(wish)[name]
    files = written(system_plan(machine, wanted), tmp_path)
    done = subprocess.run(
        [
            *(tool("systemd-analyze"), "security", "--offline=true", "--no-pager"),
            *(f"--threshold={MOST_EXPOSED * 10:.0f}", str(files["system/outpace.service"])),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    exposure = re.search(r"Overall exposure level for outpace.service: ([\d.]+)", done.stdout)
    assert exposure is not None, done.stdout
    assert float(exposure[1]) <= MOST_EXPOSED


def test_a_gpu_is_allowed_and_nothing_else_is(wish: Wish, tmp_path: Path) -> None:
    machine, wanted = variants(wish)["gpu"]
    lines = unit(system_plan(machine, wanted), tmp_path).splitlines()
    assert [line for line in lines if line.startswith("DeviceAllow=")] == [
        "DeviceAllow=char-nvidia* rw"
    ]
    assert {"DevicePolicy=closed", "PrivateDevices=no", "SupplementaryGroups=video"} <= set(lines)
    assert "ExecStartPre=+-/usr/bin/true -c 0 -u" in lines
    assert not any(line.startswith("MemoryDenyWriteExecute") for line in lines)
    plain_lines = unit(system_plan(MACHINE, wish), tmp_path).splitlines()
    assert {"PrivateDevices=yes", "MemoryDenyWriteExecute=yes"} <= set(plain_lines)
    assert not any(line.startswith(("DeviceAllow", "ExecStartPre")) for line in plain_lines)


def test_what_the_sandbox_hides_is_bound_in(wish: Wish, tmp_path: Path) -> None:
    home = Path("/home/ann/outpace")
    machine = replace(MACHINE, prefixes=(home / ".venv", home, Path("/usr")))
    assert hidden([*machine.prefixes, home / "models"]) == [home]
    assert hidden([Path("/usr"), Path("/opt/x")]) == []
    with pytest.raises(UserError, match="in a directory for temporary files"):
        hidden([Path("/tmp/outpace")])
    text = unit(system_plan(MACHINE, wish), tmp_path)
    root = Path("/root")
    if wish.package.path.is_relative_to(root):
        assert f"BindReadOnlyPaths={wish.package.path}\n" in text
        assert "ProtectHome=tmpfs" in text
    else:
        assert "ProtectHome=yes" in text


def test_a_package_that_the_service_could_not_read_is_refused(wish: Wish, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")
    tmp_path.chmod(0o755)
    (tmp_path / "package.json").chmod(0o600)
    package = Package(tmp_path, wish.package.manifest)
    with pytest.raises(UserError, match=r"could not read .*package\.json.*chmod -R o\+rX"):
        system_plan(MACHINE, replace(wish, package=package))


def test_the_settings_are_settings(wish: Wish, tmp_path: Path) -> None:
    files = written(system_plan(MACHINE, wish), tmp_path)
    settings = load_settings({}, {}, files["outpace/outpace.toml"])
    assert settings.package == wish.package.path
    assert settings.api_keys_file == Path("/etc/outpace/keys")
    assert (settings.packages, settings.admins) == ((), ())
    # What is commented out is valid as well.
    path = tmp_path / "all.toml"
    path.write_text(
        re.sub(r"^# (\w+ = )", r"\1", files["outpace/outpace.toml"].read_text(), flags=re.MULTILINE)
    )
    everything = load_settings({}, {}, path)
    assert everything.limits.requests == 4
    assert everything.ngram_store == Path("/var/lib/outpace/ngrams")
    assert everything.packages == (Path("/opt/outpace/packages/another"),)
    # The key that comes with it may administer, if that line is taken in.
    (key,) = read_keys(files["outpace/keys"])
    assert [ApiKey.of("", name).owner for name in everything.admins] == [key.owner]


def test_a_user_s_settings_have_no_keys_to_speak_of(wish: Wish, tmp_path: Path) -> None:
    text = written(user_plan(MACHINE, wish, Path("/cfg")), tmp_path)["outpace/outpace.toml"]
    assert "# packages = [" in text.read_text()
    assert "admins = " not in text.read_text()
    assert "`systemctl --user reload outpace`" in text.read_text()


def test_a_new_key_is_one_and_each_time_another(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(new_keys())
    (key,) = read_keys(path)
    path.write_text(new_keys())
    (other,) = read_keys(path)
    assert key.owner == other.owner
    assert key.digest != other.digest


def test_a_user_s_service_has_no_keys_and_stays_on_the_machine(wish: Wish) -> None:
    with pytest.raises(UserError, match="can be reached from other machines"):
        user_plan(MACHINE, replace(wish, address=("0.0.0.0", 8765)), Path("/cfg"))


def test_addresses(wish: Wish, tmp_path: Path) -> None:
    for address, expected in ((("0.0.0.0", 80), "0.0.0.0:80"), (("::1", 90), "[::1]:90")):
        steps = system_plan(MACHINE, replace(wish, address=address))
        text = unit(steps, tmp_path, "system/outpace.socket")
        assert f"\nListenStream={expected}\n" in text


def test_groups_of_devices(tmp_path: Path) -> None:
    device = tmp_path / "nvidia0"
    device.write_text("")
    device.chmod(0o666)
    assert device_groups([device, tmp_path / "missing"]) == []


def test_the_demo_is_that_of_whoever_called_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path))
    assert package_path(Path("/p/../q"), {}) == Path("/q")
    named = {"SUDO_USER": "root", "OUTPACE_CACHE": str(tmp_path)}
    assert package_path(None, named).is_relative_to(tmp_path)


def test_every_template_is_installed_with_the_package() -> None:
    root = Path(__file__).parent.parent
    names = {str(path.relative_to(root / "systemd")) for path in (root / "systemd").rglob("*.in")}
    assert names == {
        "outpace.service.in",
        "outpace.socket.in",
        "outpace.toml.in",
        "sysusers.conf.in",
        "tmpfiles.conf.in",
        "user/outpace.service.in",
        "user/outpace.socket.in",
    }
    project = (root / "pyproject.toml").read_text()
    assert '"share/outpace/systemd" = ["systemd/*.in"]' in project
    assert '"share/outpace/systemd/user" = ["systemd/user/*.in"]' in project
