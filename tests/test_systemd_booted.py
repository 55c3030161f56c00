"""The installed service under a real systemd, which is booted in namespaces of its own.

Where a machine lets nobody do that, these tests say so and are left out; what the service tells
systemd, and what units say, is tested without it as well.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.gateway_process import free_port
from tests.patience import PATIENCE
from tests.systemd_support import HOME, Instance, booted, isolated, until, why_not

REFUSED = why_not()
pytestmark = pytest.mark.skipif(REFUSED is not None, reason=REFUSED or "")

PACKAGE = "/opt/outpace/package"
ANOTHER = "/opt/outpace/packages/another"
KEYS = "/etc/outpace/keys"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def instance(
    tiny_package: Path, tmp_path_factory: pytest.TempPathFactory, port: int
) -> Iterator[Instance]:
    """Where the service has been installed, and runs."""
    log = tmp_path_factory.mktemp("booted") / "log"
    with booted(log, tiny_package) as running:
        told = running.outpace(
            *("install-service", "--package", PACKAGE, "--port", str(port), "--yes")
        )
        assert "run    systemctl enable --now outpace.socket outpace.service" in told
        yield running


def key(instance: Instance) -> str:
    last = instance.run("cat", KEYS).strip().splitlines()[-1]
    return last.partition(":")[2]


def asked(port: int, secret: str, seconds: float = 60) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    body = json.dumps({"input": "the one", "max_output_tokens": 3})
    connection.request("POST", "/v1/responses", body, headers)
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def main_pid(instance: Instance) -> int:
    return int(instance.shown("outpace.service", "MainPID"))


def test_what_runs_in_the_namespaces_cannot_write_to_the_machine(
    tiny_package: Path, tmp_path: Path
) -> None:
    """A systemd empties directories for temporary files when it starts."""
    canary = tmp_path / "canary"
    canary.write_text("alive")
    program = f"""
        rm -rf {tmp_path}
        mkdir -p {tmp_path} && echo dead > {canary} && test -s {canary}
        ! touch /opt/outpace/source/written 2>/dev/null
        ! echo 1 2>/dev/null > /proc/sys/kernel/printk_ratelimit
        echo everything was tried
    """
    with isolated(program, tmp_path / "log", tiny_package) as process:
        assert process.wait(PATIENCE) == 0
    assert (tmp_path / "log").read_text() == "everything was tried\n"
    assert canary.read_text() == "alive"


def test_it_is_installed_and_ready(instance: Instance, port: int) -> None:
    shown = instance.shown
    assert shown("outpace.service", "ActiveState") == "active"
    assert shown("outpace.service", "StatusText") == f"ready on http://127.0.0.1:{port}/v1"
    assert shown("outpace.socket", "ActiveState") == "active"
    assert instance.run("stat", "-c", "%U %G %a", KEYS).split() == ["root", "outpace", "640"]
    assert instance.run("stat", "-c", "%U %a", "/var/lib/outpace").split() == ["outpace", "700"]
    status, answer = asked(port, key(instance))
    assert (status, answer["status"]) == (200, "incomplete")
    assert asked(port, "another")[0] == 401
    # The calibration was kept, in the service's own cache.
    assert instance.run("ls", "/var/cache/outpace/calibration").strip().endswith(".json")


def test_it_runs_confined_as_its_own_user(instance: Instance) -> None:
    status = instance.run("cat", f"/proc/{main_pid(instance)}/status")
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert lines["NoNewPrivs"] == "1"
    assert lines["Seccomp"] == "2"
    assert lines["CapEff"] == lines["CapBnd"] == "0" * 16
    uid = instance.run("id", "-u", "outpace").strip()
    assert set(lines["Uid"].split()) == {uid}
    said = instance.said()
    assert "loaded tiny in" in said
    assert "Operation not permitted" not in said, "the sandbox forbids nothing that serve does"


def test_verify_and_security_of_what_was_installed(instance: Instance) -> None:
    units = [f"/etc/systemd/system/outpace.{kind}" for kind in ("service", "socket")]
    assert instance.run("systemd-analyze", "verify", *units) == ""
    instance.run("systemd-analyze", "security", "--offline=true", "--threshold=15", units[0])


def test_a_reload_takes_new_keys(instance: Instance, port: int) -> None:
    before, pid = key(instance), main_pid(instance)
    instance.run("sh", "-c", f"echo second:another-long-key >> {KEYS}")
    assert asked(port, "another-long-key")[0] == 401
    instance.run("systemctl", "reload", "outpace.service")
    until(lambda: asked(port, "another-long-key")[0] == 200)
    assert asked(port, before)[0] == 200
    assert main_pid(instance) == pid
    until(lambda: instance.shown("outpace.service", "ActiveState") == "active")


def test_a_second_package_as_the_manual_says(instance: Instance, port: int) -> None:
    """The settings' own lines, taken in; the key from the file of keys."""
    config = "/etc/outpace/outpace.toml"
    add = f"""
import dataclasses, pathlib, shutil
from models.package import load_package, write_manifest
first, second = load_package(pathlib.Path("{PACKAGE}")), pathlib.Path("{ANOTHER}")
second.mkdir(parents=True)
for file in first.manifest.files:
    shutil.copyfile(first.file(file), second / file)
write_manifest(second, dataclasses.replace(first.manifest, name="another"))
"""
    python = ("env", f"PYTHONPATH={HOME}/source", f"{HOME}/venv/bin/python")
    instance.run(*python, "-c", add)
    instance.run("chmod", "-R", "o+rX", ANOTHER)
    asking = ("--api-key-file", KEYS, "--url", f"http://127.0.0.1:{port}")
    changes = (
        f's|^# packages = .*|packages = ["{ANOTHER}"]|',
        "s|^# admins = |admins = |",
    )
    instance.run("sed", "-i", "-e", changes[1], config)
    assert "may not load and unload" in instance.outpace("unload", "tiny", *asking, check=False)
    instance.run("systemctl", "reload", "outpace.service")
    until(lambda: "tiny: " in instance.outpace("load", "tiny", *asking, check=False))
    instance.run("sed", "-i", "-e", changes[0], config)
    checked = instance.outpace("check", "--config", config, check=False)
    assert f"ok    package   another in {ANOTHER}" in checked
    assert "ok    watchdog  180 s in /etc/systemd/system/outpace.service" in checked
    instance.run("systemctl", "restart", "outpace.service")
    assert "another" in instance.outpace("ps", *asking)
    assert "another: loaded" in instance.outpace("load", "another", *asking)
    assert instance.outpace("switch", "another", *asking) == "another: loaded, the default\n"
    assert asked(port, key(instance))[0] == 200


def test_a_restart_turns_nobody_away(instance: Instance, port: int) -> None:
    """The socket stays: who comes while nobody serves waits, or is told to come again."""
    secret, pid = key(instance), main_pid(instance)
    instance.run("systemctl", "--no-block", "restart", "outpace.service")
    statuses = []

    def back() -> bool:
        statuses.append(asked(port, secret)[0])
        return statuses[-1] == 200 and main_pid(instance) not in (0, pid)

    until(back)
    assert set(statuses) <= {200, 503}


def test_a_killed_gateway_comes_back(instance: Instance, port: int) -> None:
    secret, pid = key(instance), main_pid(instance)
    restarts = int(instance.shown("outpace.service", "NRestarts"))
    instance.run("kill", "-KILL", str(pid))
    until(lambda: int(instance.shown("outpace.service", "NRestarts")) > restarts)
    until(lambda: instance.shown("outpace.service", "ActiveState") == "active", 90)
    assert asked(port, secret)[0] == 200
    assert main_pid(instance) != pid


def test_a_gateway_that_hangs_is_killed_by_the_watchdog(instance: Instance, port: int) -> None:
    drop_in = "/run/systemd/system/outpace.service.d/quick.conf"
    instance.run("mkdir", "-p", str(Path(drop_in).parent))
    instance.run("sh", "-c", f"printf '[Service]\\nWatchdogSec=2\\nRestartSec=0\\n' > {drop_in}")
    instance.run("systemctl", "daemon-reload")
    instance.run("systemctl", "restart", "outpace.service")
    pid = main_pid(instance)
    # Idle for longer than that, and it lives.
    instance.run("sleep", "3")
    assert main_pid(instance) == pid
    instance.run("kill", "-STOP", str(pid))
    until(lambda: main_pid(instance) not in (0, pid), 60)
    until(lambda: instance.shown("outpace.service", "ActiveState") == "active", 60)
    assert "outpace.service: Watchdog timeout" in instance.said()
    instance.run("rm", drop_in)
    instance.run("systemctl", "daemon-reload")


def test_a_stop_lets_an_answer_end(instance: Instance, port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {key(instance)}", "Content-Type": "application/json"}
    body = json.dumps({"input": "the one", "max_output_tokens": 150, "stream": True})
    connection.request("POST", "/v1/responses", body, headers)
    response = connection.getresponse()
    assert response.readline() == b"event: response.created\n"
    instance.run("systemctl", "stop", "outpace.socket", "outpace.service")
    last = [line for line in response.read().splitlines() if line.startswith(b"event: ")][-1]
    connection.close()
    assert last in (b"event: response.completed", b"event: response.incomplete")
    assert instance.shown("outpace.service", "Result") == "success"
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) != 0


def test_a_connection_starts_it(instance: Instance, port: int) -> None:
    instance.run("systemctl", "start", "outpace.socket")
    assert instance.shown("outpace.service", "ActiveState") == "inactive"
    secret = key(instance)
    assert asked(port, secret)[0] in (200, 503)
    until(lambda: asked(port, secret)[0] == 200)
    assert instance.shown("outpace.service", "ActiveState") == "active"


def test_it_is_taken_away_again(instance: Instance) -> None:
    told = instance.outpace("uninstall-service", "--yes")
    assert "left: /etc/outpace, /var/lib/outpace, /var/cache/outpace, the user outpace" in told
    missing = instance.run("systemctl", "status", "outpace.service", check=False)
    assert "could not be found" in missing
    assert instance.run("ls", "/etc/outpace").split() == ["keys", "outpace.toml"]
