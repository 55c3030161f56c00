"""`python -m export train`: text, features, training and the head, one after another.

Everything lies in `--work` and is gone on with there: shards of text and of features, a checkpoint
of the training. Each part may take its share of `--minutes`; what it leaves, the next one has.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from export.sources import DEMO_CHECKPOINT, Source, demo, expanded, locate, weights_sha256
from export.training.damage import explained
from models.errors import UserError
from models.package import Package, load_package
from models.usage import Parser

KIND_NAMES = ("eagle3", "mtp", "medusa", "draft")
TEXT_SHARE, FEATURES_SHARE = 0.5, 0.2
_INTERRUPTED = 130
_RANGES: Mapping[str, tuple[float, float]] = {
    "--tokens": (1, 10**12),
    "--minutes": (0.0001, 10**6),
    "--draft-vocab": (64, 10**9),
    "--seed": (0, 2**63 - 1),
    "--threads": (1, 1024),
}
_HEAD_FILES = ("config.json", "model.safetensors", "medusa_lm_head.safetensors", "package.json")


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        _check(options)
        Run(options, shlex.join(["python", "-m", "export", "train", *arguments])).run()
        return 0
    except UserError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here.", file=sys.stderr)
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> Parser:
    parser = Parser(
        prog="python -m export train",
        description="Train a drafter for a package's target on text that the target writes itself.",
    )
    parser.add_argument("--target", required=True, metavar="DIR", help="its package")
    parser.add_argument("--kind", choices=KIND_NAMES, required=True)
    parser.add_argument(
        "--source", metavar="SOURCE", help="the checkpoint the package was made of (demo: known)"
    )
    parser.add_argument("--prompts", metavar="FILE", help="a prompt a line, or .jsonl")
    parser.add_argument("--tokens", type=int, default=1_000_000, metavar="N", help="of answers")
    parser.add_argument("--minutes", type=float, default=480.0, metavar="M", help="in all")
    parser.add_argument("--out", metavar="DIR", help="the head (default: in --work)")
    parser.add_argument("--work", metavar="DIR", help="default: beside the package")
    parser.add_argument("--draft-vocab", type=int, default=24576, metavar="N", help="of eagle3")
    parser.add_argument("--threads", type=int, default=None, metavar="T")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of the training")
    return parser


def _check(options: argparse.Namespace) -> None:
    for option, (low, high) in _RANGES.items():
        value = getattr(options, option[2:].replace("-", "_"))
        if value is not None and not low <= value <= high:
            raise _invalid(option, f"{option} {value}: it must be from {low} to {high}.")
    for option in ("--work", "--out", "--target", "--prompts"):
        if getattr(options, option[2:]) == "":
            raise _invalid(option, f"an empty {option} names nothing.")


@dataclass(slots=True)
class Run:
    """One call of the command."""

    options: argparse.Namespace
    command: str
    package: Package = field(init=False)
    work: Path = field(init=False)
    out: Path = field(init=False)
    begun: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """What can be wrong is said before hours have passed."""
        from export.training.session import torch_device

        options = self.options
        self.package = load_package(expanded(Path(options.target), "--target"))
        source = self._source()
        name = f"{self.package.path.name}.training"
        work = options.work or self.package.path.absolute().parent / name
        self.work = expanded(Path(work), "--work").absolute()
        out = options.out or self.work / f"{options.kind}-head"
        self.out = expanded(Path(out), "--out").absolute()
        torch_device(options.device)
        try:
            self.work.mkdir(parents=True, exist_ok=True)
            self.out.mkdir(parents=True, exist_ok=True)
            if options.out:
                _check_free(self.out)
            self._check_work()
            self._write_text()
            self._write_features()
            self._train(source)
        except OSError as error:
            raise _invalid("--work", f"{error.filename or self.work}: {error.strerror}.") from error

    @property
    def _seconds_left(self) -> float:
        return self.begun + 60 * float(self.options.minutes) - time.monotonic()

    def _source(self) -> Source:
        target = self.package.manifest.target
        if not self.options.source and target.checkpoint != DEMO_CHECKPOINT:
            raise _invalid("--source", f"--source: where is the checkpoint {target.checkpoint}?")
        source = locate(self.options.source) if self.options.source else demo()
        if weights_sha256(source) != target.sha256:
            raise _invalid(
                "--source",
                f"--source {source.name} is not the checkpoint that the package was made of"
                f" ({target.checkpoint}): its weights have another SHA-256.",
            )
        return source

    def _check_work(self) -> None:
        """What lies in `work` is of one target: it says of which."""
        target, place = self.package.manifest.target, self.work / "target.json"
        if not place.exists():
            named = {"checkpoint": target.checkpoint, "sha256": target.sha256}
            place.write_text(json.dumps(named) + "\n", encoding="utf-8")
        with explained(place, "remove it where the directory is this target's"):
            named = json.loads(place.read_text(encoding="utf-8"))
            found, digest = named["checkpoint"], named["sha256"]
        if digest != target.sha256:
            raise _invalid(
                "--work",
                f"--work {self.work} is a training for {found} (SHA-256 {str(digest)[:12]}), not"
                f" for {target.checkpoint} ({target.sha256[:12]}): give another directory.",
            )

    def _write_text(self) -> None:
        from export.training.corpus import Corpus
        from export.training.generation import Goal, write_corpus
        from export.training.prompts import read_prompts

        options = self.options
        prompts = (
            None
            if options.prompts is None
            else read_prompts(expanded(Path(options.prompts), "--prompts"))
        )
        missing = options.tokens - Corpus(self.work / "corpus").answer_tokens
        if missing > 0:
            goal = Goal(missing, TEXT_SHARE * options.minutes)
            write_corpus(
                self.package,
                self.work / "corpus",
                goal,
                seed=options.seed,
                prompts=prompts,
                threads=options.threads,
                report=_report("text"),
            )

    def _write_features(self) -> None:
        from export.training.corpus import Corpus
        from export.training.features import Observer, write_features, write_observing_graph

        shards, store = Corpus(self.work / "corpus").shards, self.work / "features"
        missing = [shard for shard in shards if not (store / shard.stem).is_dir()]
        if not missing:
            return
        spec = self.package.manifest.target
        # Of these very weights: a package that was exported again has others.
        digest = self.package.manifest.files[spec.weights].sha256
        graph = write_observing_graph(self.package, self.work / f"observing-{digest[:12]}")
        observer = Observer(graph, spec, device=spec.device, threads=self.options.threads)
        most = min(FEATURES_SHARE * 60 * self.options.minutes, self._seconds_left / 2)
        begin, report, done = time.monotonic(), _report("features"), 0
        for count, (_, tokens) in enumerate(write_features(observer, missing, store), start=1):
            done += tokens
            passed = time.monotonic() - begin
            report(f"shard {count} of {len(missing)}, {done / max(passed, 1e-3):.0f} tokens/s")
            if passed > most:
                break

    def _train(self, source: Source) -> None:
        from export.training.session import TrainingOptions, TrainingSession

        given = self.options
        options = TrainingOptions(
            given.kind, given.seed, given.draft_vocab, given.threads, given.device
        )
        session = TrainingSession(self.package, source, self.work, options)
        with _stopping() as stopped:
            session.train(max(self._seconds_left, 0.0) / 60, stopped, _report("training"))
            if stopped():
                raise KeyboardInterrupt
        print(session.write(self.out, self.command))
        print(f"wrote {self.out}; `python -m export --into` reads it.")


def _check_free(out: Path) -> None:
    """Refuse to write over what is no head that was trained here."""
    try:
        config = json.loads((out / "config.json").read_text(encoding="utf-8"))
        if isinstance(config["training"], dict) and not (out / "package.json").exists():
            return
    except (OSError, ValueError, LookupError, TypeError):
        pass
    there = [name for name in _HEAD_FILES if (out / name).exists()]
    if there:
        raise _invalid(
            "--out",
            f"--out {out} holds a {there[0]} that is no trained head's: give another directory.",
        )


@contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Whether SIGTERM or SIGINT came: training then ends with a checkpoint."""
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before: dict[int, Any] = {
        number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _report(part: str) -> Callable[[str], None]:
    def report(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {part}: {text}", flush=True)

    return report


def _invalid(option: str, message: str) -> UserError:
    return UserError(message, code="invalid_option", param=option)
