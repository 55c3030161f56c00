"""The watchdog of an installed service, as its unit and the drop-ins of that say.

Read from the files: what runs may still have an older one, and systemd need not run at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

UNIT = "outpace.service"
SYSTEM_PLACES = tuple(
    Path(place) / "systemd" / "system" for place in ("/etc", "/run", "/usr/lib", "/lib")
)
"""Where units of the machine are looked for; what comes first hides a file of the same name."""

_SECONDS: Mapping[str, float] = MappingProxyType(
    {
        **dict.fromkeys(("us", "usec", "µs", "μs"), 1e-6),
        **dict.fromkeys(("ms", "msec"), 1e-3),
        **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
        **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
        **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
        **dict.fromkeys(("d", "day", "days"), 86_400.0),
        **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
    }
)
_PART = re.compile(r"\s*(\d+(?:\.\d*)?)\s*([^\W\d]*)")
_CONFIG = re.compile(r"--config[ =](\S+)")


@dataclass(frozen=True, slots=True)
class Unit:
    """`config` is the file of settings that it serves by; `watchdog` in seconds, None without."""

    path: Path
    config: Path | None
    watchdog: float | None


def user_places(configuration: Path) -> tuple[Path, ...]:
    """`configuration` is `~/.config`."""
    return (
        configuration / "systemd" / "user",
        *(Path(place) / "systemd" / "user" for place in ("/etc", "/run", "/usr/lib")),
    )


def read_unit(places: Sequence[Path], text: str | None = None) -> Unit | None:
    """The service as it is found in `places`; `text` is what its unit file will say. None where
    there is no unit, or it cannot be read."""
    path = next((place / UNIT for place in places if (place / UNIT).is_file()), places[0] / UNIT)
    try:
        texts = [path.read_text(encoding="utf-8") if text is None else text]
        texts += [each.read_text(encoding="utf-8") for each in _drop_ins(places)]
    except (OSError, UnicodeDecodeError):
        return None
    told = dict(_assignments(texts))
    config = _CONFIG.search(told.get("ExecStart", ""))
    return Unit(
        path,
        None if config is None else Path(config[1]),
        seconds(told.get("WatchdogSec", "")),
    )


def seconds(text: str) -> float | None:
    """A time as systemd.time(7) writes it; None for none, without end, or what is no time."""
    total, at = 0.0, 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[2] not in _SECONDS:
            return None
        total += float(part[1]) * _SECONDS[part[2]]
        at = part.end()
    return total or None


def _drop_ins(places: Sequence[Path]) -> list[Path]:
    """In the order in which they are read: by their names, wherever they are."""
    found: dict[str, Path] = {}
    for place in places:
        for path in (place / f"{UNIT}.d").glob("*.conf"):
            found.setdefault(path.name, path)
    return [found[name] for name in sorted(found)]


def _assignments(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Those of `[Service]`; of several the last one counts."""
    for text in texts:
        section = ""
        for line in text.replace("\\\n", " ").splitlines():
            line = line.strip()
            if line.startswith("["):
                section = line
            elif section == "[Service]" and not line.startswith(("#", ";")) and "=" in line:
                name, _, value = line.partition("=")
                yield name.strip(), value.strip()
