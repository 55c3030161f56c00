"""Wrong usage of all command lines: one sentence, the nearest, where help is, and status 2."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.__main__ import main as bench
from export.__main__ import main as export
from gateway.__main__ import COMMANDS
from gateway.__main__ import main as outpace
from models.usage import USAGE

Main = Callable[[list[str]], int]
NAMES = [command.__name__.rpartition(".")[2].replace("_", "-") for command in COMMANDS]


def said(main: Main, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == USAGE == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    return told.err


@pytest.mark.parametrize("name", NAMES)
def test_no_command_shows_its_whole_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = said(outpace, [name, "--frobnicate"], capsys)
    wrong = f"outpace {name}: there is no flag --frobnicate. Help: outpace {name} --help\n"
    # A name may be missing as well, which argparse says first.
    missing = f"outpace {name}: the following arguments are required: NAME. Help: "
    assert told in (wrong, f"{missing}outpace {name} --help\n")


@pytest.mark.parametrize(
    ("main", "arguments", "told"),
    [
        (outpace, ["srve"], "outpace: 'srve' is no command. Did you mean serve? Help: outpace"),
        (outpace, ["serve", "surplus"], "outpace serve: the argument 'surplus' is not known here."),
        (outpace, ["serve", "--port"], "outpace serve: argument --port: expected one argument."),
        (bench, ["sped"], "python -m bench: 'sped' is no suite. Did you mean speed? Help: "),
        (
            bench,
            ["speed", "--quik"],
            "python -m bench speed: there is no flag --quik. Did you mean --quick? Help: python -m"
            " bench speed --help\n",
        ),
        (bench, ["speed", "--limit", "0"], "python -m bench speed: argument --limit: must be at "),
        (
            export,
            ["--demo", "--frobnicate"],
            "python -m export: there is no flag --frobnicate. Help: python -m export --help\n",
        ),
        (
            export,
            ["--demo", "--dtype", "int9"],
            "python -m export: 'int9' is no value of --dtype: one of ",
        ),
        (export, ["--demo", "--dtype", "int9"], " is. Did you mean int8? Help: "),
        (
            export,
            ["train", "--target", "x", "--kind", "eagle3", "--minuts", "3"],
            "python -m export train: there is no flag --minuts. Did you mean --minutes? Help: ",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(
    main: Main, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in said(main, arguments, capsys)


def test_help_is_the_whole_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        outpace(["serve", "--help"])
    assert left.value.code == 0
    assert "--port N" in capsys.readouterr().out
