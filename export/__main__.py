"""`python -m export`: the command line. Heavy imports wait until there is something to build."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from export.recipe import recipe
from export.sources import expanded
from models.errors import UserError
from models.locations import DEMO_NAME, default_package_path
from models.package import WEIGHT_TYPES, Package, load_package
from models.processor import integer_form

ROW_COUNTS = (1, 2, 4, 8)
_INTERRUPTED = 130
_NOT_ON = {
    "cpu": {"fp16": "the CPU kernels compute in fp32, so it would only be slower"},
    "cuda": {
        "w8a8": "CUDA has no kernels for it; use fp16, int8 or int4",
        "fp32": "attention on CUDA needs fp16; use fp16, int8 or int4",
    },
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _export(options)
    except UserError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: nothing was written.", file=sys.stderr)
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m export", description="Build the package that the gateway serves."
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--target", metavar="SOURCE", help="hub id, directory or .gguf file")
    source.add_argument("--demo", action="store_true", help="SmolLM2-135M-Instruct")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the package (default with --demo)")
    parser.add_argument("--dtype", choices=WEIGHT_TYPES, help="weights (cpu: w8a8, cuda: fp16)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rows", default="1,2,4", metavar="1,2,4", help="row counts, with 1")
    parser.add_argument("--context", type=int, metavar="N", help="tokens (at most 8192 by default)")
    parser.add_argument("--name", help="the model's name on the wire")
    parser.add_argument("--force", action="store_true", help="replace an existing package")
    return parser


def _export(options: argparse.Namespace) -> int:
    rows = _rows(options.rows)
    weight_type = options.dtype or ("fp16" if options.device == "cuda" else "w8a8")
    if weight_type in _NOT_ON[options.device]:
        reason = _NOT_ON[options.device][weight_type]
        raise _invalid("--dtype", f"--dtype {weight_type} --device {options.device}: {reason}.")
    out = options.out or (default_package_path() if options.demo else None)
    if out is None:
        raise _invalid("--out", "--target needs --out DIR.")
    out = expanded(Path(out), "--out").absolute()
    replace = options.force
    # Unlike Path.exists, false where the name is too long for a file system: said when written.
    if os.path.exists(out) and not replace:  # noqa: PTH110
        if options.demo and _kept(out, weight_type, options.device, rows):
            return 0
        # The default place is ours to renew; any other directory is the user's.
        if not options.demo or options.out is not None:
            raise UserError(
                f"{out} exists already. Give another --out, or --force to replace it.",
                code="output_exists",
                param="--out",
            )
        replace = True
    return _build(options, out, weight_type, rows, replace)


def _build(
    options: argparse.Namespace,
    out: Path,
    weight_type: str,
    rows: tuple[int, ...],
    replace: bool,
) -> int:
    _quieten()
    from export.progress import Progress
    from export.sources import demo, locate

    progress = Progress(lambda text: print(text, end="", flush=True))
    with progress.step("fetching the checkpoint"):
        source = demo() if options.demo else locate(options.target)
    with progress.step("importing torch and transformers"):
        from export.pipeline import ExportRequest, build_package
    default_name = DEMO_NAME if options.demo else source.name.rsplit("/", 1)[-1].lower()
    request = ExportRequest(
        source=source,
        out=out,
        name=options.name or default_name,
        weight_type=weight_type,
        device=options.device,
        rows=rows,
        context=options.context,
        replace=replace,
    )
    manifest = build_package(request, progress, recipe())
    size = sum(entry.bytes for entry in manifest.files.values())
    progress.line(f"wrote {out} ({size / 2**20:.0f} MiB, {weight_type}, rows {options.rows})")
    return 0


def _kept(out: Path, weight_type: str, device: str, rows: tuple[int, ...]) -> bool:
    """Whether the demo package in `out` is valid and what would be built again."""
    try:
        package = load_package(out)
    except UserError as error:
        print(f"{out} is no valid package: {error.message}")
        return False
    if not _same(package, weight_type, device, rows):
        print(f"{out} was made from another checkpoint, with other settings or by other code.")
        return False
    print(f"{out} is valid and up to date; --force builds it again.")
    return True


def _same(package: Package, weight_type: str, device: str, rows: tuple[int, ...]) -> bool:
    from export.sources import DEMO_CHECKPOINT

    target = package.manifest.target
    return (
        target.checkpoint == DEMO_CHECKPOINT
        and target.weight_type == weight_type
        and target.device == device
        and package.row_counts == rows
        and target.integer_form in (None, integer_form())
        and package.manifest.settings.get("recipe") == recipe()
    )


def _rows(text: str) -> tuple[int, ...]:
    try:
        rows = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        rows = ()
    if 1 not in rows or not set(rows) <= set(ROW_COUNTS):
        raise _invalid("--rows", f"--rows {text}: a list of {ROW_COUNTS} that contains 1.")
    return rows


def _invalid(option: str, message: str) -> UserError:
    return UserError(message, code="invalid_option", param=option)


def _quieten() -> None:
    """Tracing warns about every constant it meets; the checks on the result say what matters."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TQDM_DISABLE", "1")
    warnings.filterwarnings("ignore")


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
