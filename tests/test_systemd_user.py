"""The service of a user under a real `systemd --user`, in namespaces of its own.

No session is opened: a unit starts that manager as `user@.service` does, but for PAM and logind.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bench.gateway_process import free_port
from gateway.commands.statuses import MISCONFIGURED
from tests.systemd_support import HOME, SYSTEMD, Instance, booted, until, why_not

REFUSED = why_not()
pytestmark = pytest.mark.skipif(REFUSED is not None, reason=REFUSED or "")

PACKAGE = "/opt/outpace/package"
NAME, UID = "ann", 4711
OWN, RUNTIME = f"/home/{NAME}", f"/run/user/{UID}"

MANAGER = f"""[Service]
Type=notify
User={NAME}
Environment=HOME={OWN} XDG_RUNTIME_DIR={RUNTIME}
ExecStart={SYSTEMD} --user
KillMode=mixed
Delegate=yes
"""


class User:
    """Somebody whose own manager runs."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def run(self, *command: str, check: bool = True) -> str:
        mine = (
            *("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "env", "-C", OWN),
            *(f"HOME={OWN}", f"USER={NAME}", f"XDG_RUNTIME_DIR={RUNTIME}"),
        )
        return self._instance.run(*mine, *command, check=check)

    def outpace(self, *arguments: str) -> str:
        python, path = f"{HOME}/venv/bin/python", f"PYTHONPATH={HOME}/source"
        return self.run("env", path, python, "-m", "gateway", *arguments)

    def systemctl(self, *arguments: str, check: bool = True) -> str:
        return self.run("systemctl", "--user", *arguments, check=check)

    def shown(self, unit: str, name: str) -> str:
        return self.systemctl("show", "-P", name, unit).strip()

    def main_pid(self) -> int:
        return int(self.shown("outpace.service", "MainPID"))


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def instance(tiny_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with booted(tmp_path_factory.mktemp("booted") / "log", tiny_package) as running:
        yield running


@pytest.fixture(scope="module")
def user(instance: Instance, port: int) -> User:
    """One who has installed the service, and for whom it runs."""
    instance.run("systemd-sysusers", "--inline", f'u {NAME} {UID} "Ann" {OWN} /bin/sh')
    for directory in (OWN, RUNTIME):
        instance.run("install", "-d", "-m", "0700", "-o", NAME, "-g", NAME, directory)
    let_through(instance, Path(sys.executable).resolve())
    path = f"/run/systemd/system/{NAME}.service"
    instance.run("sh", "-c", f"cat > {path} <<'end'\n{MANAGER}end\n")
    instance.run("systemctl", "start", f"{NAME}.service")
    user = User(instance)
    told = user.outpace(
        *("install-service", "--user", "--package", PACKAGE, "--port", str(port), "--yes")
    )
    assert "run    systemctl --user enable --now outpace.socket outpace.service" in told
    return user


def let_through(instance: Instance, path: Path) -> None:
    """Have everybody reach `path`, as the interpreter of a user is to that one: in the instance's
    own memory, where its root is."""
    closed = [str(each) for each in path.parents if not each.stat().st_mode & 0o001]
    if closed:
        instance.run("chmod", "o+x", *closed)


def asked(port: int, path: str = "responses", **body: object) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = body or {"input": "the one", "max_output_tokens": 3}
    headers = {"Content-Type": "application/json"}
    connection.request("POST", f"/v1/{path}", json.dumps(body), headers)
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def test_it_is_installed_and_ready(user: User, port: int) -> None:
    assert user.shown("outpace.service", "ActiveState") == "active"
    assert user.shown("outpace.service", "StatusText") == f"ready on http://127.0.0.1:{port}/v1"
    assert user.shown("outpace.socket", "ActiveState") == "active"
    assert user.shown("outpace.service", "WatchdogUSec") == "3min"
    status, answer = asked(port)
    assert (status, answer["status"]) == (200, "incomplete")
    assert user.run("ls", f"{OWN}/.cache/outpace/calibration").strip().endswith(".json")
    assert user.run("stat", "-c", "%a", f"{OWN}/.config/outpace/outpace.toml").strip() == "640"


def test_it_runs_as_that_user_with_what_a_user_can_confine(instance: Instance, user: User) -> None:
    status = instance.run("cat", f"/proc/{user.main_pid()}/status")
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert set(lines["Uid"].split()) == {str(UID)}
    assert (lines["NoNewPrivs"], lines["Seccomp"]) == ("1", "2")
    assert lines["CapEff"] == "0" * 16
    said = instance.said()
    assert "loaded tiny in" in said
    assert "Operation not permitted" not in said, "the sandbox forbids nothing that serve does"


def test_its_packages_need_no_key(user: User, port: int) -> None:
    url = ("--url", f"http://127.0.0.1:{port}")
    assert "loaded" in user.outpace("ps", *url)
    assert user.outpace("unload", "tiny", *url) == "tiny: unloaded\n"
    assert asked(port)[0] == 200


def test_a_reload_takes_new_limits(user: User, port: int) -> None:
    pid, config = user.main_pid(), f"{OWN}/.config/outpace/outpace.toml"
    user.run("sh", "-c", f"echo output_tokens = 2 >> {config}")
    assert asked(port)[0] == 200
    user.systemctl("reload", "outpace.service")
    until(lambda: asked(port)[0] == 400)
    user.run("sed", "-i", "/^output_tokens/d", config)
    user.systemctl("reload", "outpace.service")
    until(lambda: asked(port)[0] == 200)
    assert user.main_pid() == pid


def test_a_killed_gateway_comes_back(user: User, port: int) -> None:
    pid = user.main_pid()
    user.run("kill", "-KILL", str(pid))
    until(lambda: user.main_pid() not in (0, pid))
    until(lambda: user.shown("outpace.service", "ActiveState") == "active", 90)
    assert asked(port)[0] == 200


def settings_of(user: User, change: str) -> None:
    """Their file, edited by sed."""
    user.run("sed", "-i", change, f"{OWN}/.config/outpace/outpace.toml")


def test_a_wrong_setting_is_not_tried_again_until_somebody_comes(user: User, port: int) -> None:
    drop_in = f"{OWN}/.config/systemd/user/outpace.service.d/limit.conf"
    user.run("mkdir", "-p", str(Path(drop_in).parent))
    user.run("sh", "-c", f"printf '[Unit]\\nStartLimitBurst=3\\n' > {drop_in}")
    user.systemctl("daemon-reload")
    user.systemctl("reset-failed", check=False)
    settings_of(user, "1i slots = 0")
    user.systemctl("restart", "outpace.service", check=False)
    until(lambda: user.shown("outpace.service", "ActiveState") == "failed")
    assert user.shown("outpace.service", "Result") == "exit-code"
    assert user.shown("outpace.service", "ExecMainStatus") == str(MISCONFIGURED)
    assert user.shown("outpace.service", "NRestarts") == "0"
    assert user.shown("outpace.socket", "ActiveState") == "active"
    # Each connection starts it once more; not without end, even if they go on waiting.
    with socket.socket() as client:
        client.connect(("127.0.0.1", port))
        until(lambda: user.shown("outpace.socket", "ActiveState") == "failed")
    assert user.shown("outpace.socket", "Result") == "service-start-limit-hit"
    # As docs/OPERATIONS.md says, once the setting is right again.
    settings_of(user, "1d")
    user.run("rm", drop_in)
    user.systemctl("daemon-reload")
    user.systemctl("reset-failed", "outpace.service", "outpace.socket")
    user.systemctl("start", "outpace.socket", "outpace.service")
    assert asked(port)[0] == 200


def test_a_port_in_use_is_tried_again_until_it_is_free(
    user: User, instance: Instance, port: int
) -> None:
    """Without the socket that it is passed: then it has to listen itself, and another has the port,
    which is that of the socket unit here."""
    directory = f"{OWN}/.config/systemd/user/outpace.service.d"
    start = user.shown("outpace.service", "ExecStart").partition("argv[]=")[2].partition(" ;")[0]
    text = (
        f"[Service]\\nExecStart=\\nExecStart=/usr/bin/env -u LISTEN_FDS {start} --port {port}\\n"
        "RestartSec=0\\n"
    )
    user.run("mkdir", "-p", directory)
    user.run("sh", "-c", f"printf '{text}' > {directory}/alone.conf")
    user.systemctl("daemon-reload")
    user.systemctl("restart", "--no-block", "outpace.service")
    until(lambda: int(user.shown("outpace.service", "NRestarts")) >= 2)
    said = instance.said()
    assert f"outpace serve: port {port} is in use" in said
    assert "Main process exited, code=exited, status=1/FAILURE" in said
    user.run("rm", f"{directory}/alone.conf")
    user.systemctl("daemon-reload")
    # Nobody starts it: it comes with its next attempt.
    until(lambda: user.shown("outpace.service", "ActiveState") == "active", 90)
    assert asked(port)[0] == 200
    user.systemctl("reset-failed", check=False)


def test_a_gateway_that_hangs_is_killed_by_the_watchdog(
    instance: Instance, user: User, port: int
) -> None:
    drop_in = f"{OWN}/.config/systemd/user/outpace.service.d/quick.conf"
    user.run("mkdir", "-p", str(Path(drop_in).parent))
    user.run("sh", "-c", f"printf '[Service]\\nWatchdogSec=2\\nRestartSec=0\\n' > {drop_in}")
    user.systemctl("daemon-reload")
    user.systemctl("restart", "outpace.service")
    pid = user.main_pid()
    user.run("kill", "-STOP", str(pid))
    until(lambda: user.main_pid() not in (0, pid))
    until(lambda: user.shown("outpace.service", "ActiveState") == "active")
    assert asked(port)[0] == 200
    said = instance.said()
    assert "outpace.service: Watchdog timeout" in said
    # And that so short a one is no good was said when it started.
    assert "WatchdogSec=2 may kill the gateway" in said
    checked = check_of(user)
    assert "FAIL  watchdog" in checked
    user.run("rm", drop_in)
    user.systemctl("daemon-reload")
    assert "ok    watchdog  180 s in" in check_of(user)


def check_of(user: User) -> str:
    python = (f"PYTHONPATH={HOME}/source", f"{HOME}/venv/bin/python", "-m", "gateway")
    config = ("--config", f"{OWN}/.config/outpace/outpace.toml")
    return user.run("env", *python, "check", *config, check=False)


def test_it_is_started_by_a_connection_and_taken_away(
    user: User, instance: Instance, port: int
) -> None:
    user.systemctl("stop", "outpace.service")
    assert user.shown("outpace.service", "Result") == "success"
    until(lambda: asked(port)[0] == 200)
    told = user.outpace("uninstall-service", "--user", "--yes")
    assert f"left: {OWN}/.config/outpace" in told
    missing = user.systemctl("status", "outpace.service", check=False)
    assert "could not be found" in missing
    assert listed(instance, f"{OWN}/.config/systemd/user") == []
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) != 0


def listed(instance: Instance, directory: str) -> Sequence[str]:
    return instance.run("find", directory, "-type", "f").split()
