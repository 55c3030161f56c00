"""The options of `python -m export`: what can be asked for, and what goes together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from export.wanted import DRAFT, EAGLE, MEDUSA, MTP, SELF_SPECULATIVE, Wanted
from models.errors import UserError
from models.package import WEIGHT_TYPES
from models.usage import Parser

ROW_COUNTS = (1, 2, 4, 8)
_ROWS = "1,2,4"
_DEMO_HEADS = Path(__file__).parent / "demo_heads"
_NOT_ON = {
    "cpu": {"fp16": "the CPU kernels compute in fp32, so it would only be slower"},
    "cuda": {
        "w8a8": "CUDA has no kernels for it; use fp16, int8 or int4",
        "fp32": "attention on CUDA needs fp16; use fp16, int8 or int4",
    },
    "tensorrt": dict.fromkeys(
        ("w8a8", "int8", "int4", "fp32"),
        "the graphs for TensorRT are in half precision; use fp16",
    ),
}
NO_SELF_SPECULATION = (
    "needs the target's graph on CUDA or a CPU: for TensorRT it is written in other operators."
)
_OF_NEW_PACKAGES = ("--out", "--dtype", "--device", "--rows", "--context", "--name", "--force")


def parser() -> Parser:
    made = Parser(
        prog="python -m export",
        description="Build the package that the gateway serves, or add drafters to one."
        " `python -m export train` trains a drafter.",
    )
    made.add_argument("--target", metavar="SOURCE", help="hub id, directory or .gguf file")
    made.add_argument("--demo", action="store_true", help="SmolLM2-135M-Instruct")
    made.add_argument("--into", type=Path, metavar="DIR", help="add drafters to this package")
    made.add_argument("--out", type=Path, metavar="DIR", help="the package (default with --demo)")
    made.add_argument("--dtype", choices=WEIGHT_TYPES, help="weights (cpu: w8a8, else fp16)")
    made.add_argument("--device", choices=tuple(_NOT_ON), help="default: cpu")
    made.add_argument("--rows", metavar=_ROWS, help="row counts, with 1")
    made.add_argument("--context", type=int, metavar="N", help="tokens (at most 8192 by default)")
    made.add_argument("--name", help="the model's name on the wire")
    made.add_argument("--force", action="store_true", help="replace an existing package")
    drafters = made.add_argument_group("drafters")
    for option, what in (
        (DRAFT, "a smaller model of the same vocabulary"),
        (MEDUSA, "Medusa heads"),
        (EAGLE, "an EAGLE head (1, 2 or 3)"),
    ):
        drafters.add_argument(option, action="append", default=[], metavar="SOURCE", help=what)
    drafters.add_argument(
        MTP,
        action="append",
        nargs="?",
        const="",
        default=[],
        metavar="SOURCE",
        help="MTP modules (default: those in the target's own checkpoint)",
    )
    drafters.add_argument(
        SELF_SPECULATIVE,
        nargs="?",
        const="auto",
        metavar="LAYERS",
        help="the target with layers left out: auto, how many, or which to keep (0-11,15-29)",
    )
    drafters.add_argument(
        "--prompts", type=Path, metavar="FILE", help="yours: a prompt a line, or .jsonl"
    )
    return made


def check_together(options: argparse.Namespace) -> None:
    """Refuse what cannot be meant together."""
    wanted = drafters_of(options)
    if options.into is not None:
        _check_into(options, wanted)
    elif options.demo and options.target is not None:
        raise invalid("--target", "--demo is a target of its own: leave out --target or --demo.")
    elif not options.demo and options.target is None:
        raise invalid("--target", "nothing to export: give --target SOURCE, --demo, or --into DIR.")
    if options.device == "tensorrt" and options.self_speculative is not None:
        raise invalid(SELF_SPECULATIVE, f"{SELF_SPECULATIVE} {NO_SELF_SPECULATION}")
    if options.prompts is not None and not (wanted or options.demo):
        raise invalid("--prompts", "--prompts are for drafters, and none is asked for.")


def _check_into(options: argparse.Namespace, wanted: Sequence[Wanted]) -> None:
    given = [name for name in _OF_NEW_PACKAGES if getattr(options, name[2:]) not in (None, False)]
    if options.demo:
        given.insert(0, "--demo")
    if given:
        raise invalid(
            given[0],
            f"--into adds drafters to a package as it is; {', '.join(given)}"
            f" {'is' if len(given) == 1 else 'are'} for new ones.",
        )
    if not wanted:
        names = ", ".join((DRAFT, SELF_SPECULATIVE, MEDUSA, EAGLE, MTP))
        raise invalid("--into", f"--into {options.into} adds nothing: give one of {names}.")


def drafters_of(options: argparse.Namespace) -> tuple[Wanted, ...]:
    """Those asked for. Self-speculation comes last: its search takes longest."""
    wanted = [
        Wanted(option, text)
        for option, texts in (
            (DRAFT, options.draft),
            (MEDUSA, options.medusa),
            (EAGLE, options.eagle),
            (MTP, options.mtp),
        )
        for text in texts
    ]
    if options.self_speculative is not None:
        wanted.append(Wanted(SELF_SPECULATIVE, options.self_speculative))
    return tuple(wanted)


def demo_drafters() -> tuple[Wanted, ...]:
    """The heads that come with the demo's target, as far as they are installed."""
    options = {"draft": DRAFT, "medusa": MEDUSA, "eagle3": EAGLE, "mtp": MTP}
    return tuple(
        Wanted(option, str(_DEMO_HEADS / name))
        for name, option in options.items()
        if (_DEMO_HEADS / name).is_dir()
    )


def weight_type_of(options: argparse.Namespace) -> str:
    device = device_of(options)
    weight_type: str = options.dtype or ("w8a8" if device == "cpu" else "fp16")
    if weight_type in _NOT_ON[device]:
        reason = _NOT_ON[device][weight_type]
        raise invalid("--dtype", f"--dtype {weight_type} --device {device}: {reason}.")
    return weight_type


def device_of(options: argparse.Namespace) -> str:
    return options.device or "cpu"


def rows_of(options: argparse.Namespace) -> tuple[int, ...]:
    text = _ROWS if options.rows is None else options.rows
    try:
        rows = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        rows = ()
    if 1 not in rows or not set(rows) <= set(ROW_COUNTS):
        raise invalid("--rows", f"--rows {text}: a list of {ROW_COUNTS} that contains 1.")
    return rows


def invalid(option: str, message: str) -> UserError:
    return UserError(message, code="invalid_option", param=option)
