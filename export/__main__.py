"""`python -m export`: the command line. Heavy imports wait until there is something to build."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from export.options import (
    check_together,
    demo_drafters,
    device_of,
    drafters_of,
    invalid,
    parser,
    rows_of,
    weight_type_of,
)
from export.progress import Progress
from export.recipe import changed_parts, recipe
from export.sources import expanded
from models.errors import UserError
from models.locations import DEMO_NAME, default_package_path
from models.package import Manifest, Package, load_package
from models.processor import integer_form

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments[:1]) == ["train"]:
        return _train(arguments[1:])
    options = parser().parse_args(arguments)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        check_together(options)
        if options.into is not None:
            # Where a link leads to: the package takes the place of the old one, not of the link.
            place = os.path.realpath(expanded(options.into, "--into"))
            return _extend(options, Path(place), options.target)
        return _export(options)
    except UserError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: nothing was written.", file=sys.stderr)
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


def _train(arguments: Sequence[str]) -> int:
    _quieten()
    from export.training.command import main as train

    return train(arguments)


def _export(options: argparse.Namespace) -> int:
    rows, weight_type, device = rows_of(options), weight_type_of(options), device_of(options)
    out = options.out or (default_package_path() if options.demo else None)
    if out is None:
        raise invalid("--out", "--target needs --out DIR.")
    out = expanded(Path(out), "--out").absolute()
    replace = options.force
    # Unlike Path.exists, false where the name is too long for a file system: said when written.
    if os.path.exists(out) and not replace:  # noqa: PTH110
        if options.demo and _kept(out, weight_type, device, rows):
            return _extend(options, out, None) if drafters_of(options) else 0
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
    from export.sources import demo, locate

    questions, progress = _questions(options), _progress()
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
        device=device_of(options),
        rows=rows,
        context=options.context,
        replace=replace,
        drafters=(*(demo_drafters() if options.demo else ()), *drafters_of(options)),
        questions=questions,
    )
    manifest = build_package(request, progress, recipe())
    progress.line(f"wrote {out} ({_size(manifest)}, {weight_type}, rows {_listed(rows)})")
    return 0


def _extend(options: argparse.Namespace, package: Path, target: str | None) -> int:
    _quieten()
    questions, progress = _questions(options), _progress()
    with progress.step("importing torch and transformers"):
        from export.extend import ExtendRequest, extend_package
    request = ExtendRequest(package, target, drafters_of(options), questions)
    manifest = extend_package(request, progress)
    kinds = ", ".join(spec.kind for spec in manifest.drafters)
    progress.line(f"wrote {package} ({_size(manifest)}, drafters {kinds})")
    return 0


def _questions(options: argparse.Namespace) -> tuple[str, ...]:
    if options.prompts is None:
        return ()
    from export.training.prompts import read_prompts

    path = expanded(options.prompts, "--prompts")
    return tuple(prompt.text for prompt in read_prompts(path))


def _progress() -> Progress:
    return Progress(lambda text: print(text, end="", flush=True))


def _size(manifest: Manifest) -> str:
    size = sum(entry.bytes for entry in manifest.files.values())
    return f"{size / 2**20:.0f} MiB"


def _listed(rows: Sequence[int]) -> str:
    return ",".join(map(str, rows))


def _kept(out: Path, weight_type: str, device: str, rows: tuple[int, ...]) -> bool:
    """Whether the demo package in `out` is valid and what would be built again."""
    try:
        package = load_package(out)
    except UserError as error:
        print(f"{out} is no valid package: {error.message}")
        return False
    reasons = list(_differences(package, weight_type, device, rows))
    if reasons:
        print(f"{out} is built anew: {'; '.join(reasons)}.")
        _name_lost(package)
        return False
    print(f"{out} is valid and up to date; --force builds it again.")
    return True


def _name_lost(package: Package) -> None:
    """A package that is built again has the drafters that come with it."""
    shipped = {Path(wanted.text).name for wanted in demo_drafters()}
    lost = [spec for spec in package.manifest.drafters if spec.checkpoint not in shipped]
    for spec in lost:
        print(f"  its {spec.kind} drafter {spec.checkpoint} goes; --into adds it again.")


def _differences(
    package: Package, weight_type: str, device: str, rows: tuple[int, ...]
) -> Iterator[str]:
    """Why `package` is not what would be built now, in words."""
    from export.sources import DEMO_CHECKPOINT

    target = package.manifest.target
    for name, found, wanted in (
        ("checkpoint", target.checkpoint, DEMO_CHECKPOINT),
        ("weight type", target.weight_type, weight_type),
        ("device", target.device, device),
        ("row counts", _listed(package.row_counts), _listed(rows)),
    ):
        if found != wanted:
            yield f"its {name}: {found}, not {wanted}"
    if target.integer_form not in (None, integer_form()):
        yield f"its integer products are {target.integer_form}; here {integer_form()} is faster"
    before, now = package.manifest.settings.get("recipe", ""), recipe()
    if before != now:
        yield from changed_parts(before, now)


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
