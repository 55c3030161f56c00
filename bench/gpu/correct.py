"""Parts `parity`, `replay`, `exactness` and `drafts`: is what the device says right?"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from bench.gpu.packages import DRAFT_KIND
from bench.gpu.site import Outcome, Site
from bench.gpu.tokens import (
    PROMPT,
    first_ids,
    in_parts,
    largest_difference,
    margins,
    prefill,
    random_tokens,
)
from bench.report import Promise, Table, none_of, number
from models.capture import total
from models.drafters.learned import LearnedModels
from models.fixed_runs import WIDTHS
from models.providers import DeviceOptions
from models.rows import Row
from models.strict_probe import probe_strict
from models.target import Target

WEIGHTS = ("fp16", "int8", "int4")
STRICT = 8
_SAID = 48
_CONTEXT = 256
_NEAR = 0.02
"""Of the listed logits' spread: 11 bits of mantissa through all layers."""

_CLEAR = 0.1
"""A margin in logits that half precision does not turn."""


def parity(site: Site) -> Outcome:
    """The same graphs on the processor and on the device, whole and in parts."""
    rows, figures, checks = [], dict[str, Any](), []
    for kind in WEIGHTS:
        package = site.package("135m", kind)
        target = Target(package, site.provider())
        reference = Target(package, site.reference())
        tokens = random_tokens(target, PROMPT + _SAID)
        (slot,), (other,) = (each.make_slots(1, _CONTEXT) for each in (target, reference))
        prefill(target, slot, tokens[:PROMPT])
        prefill(reference, other, tokens[:PROMPT])
        found = in_parts(target, slot, tokens[PROMPT:], 6)
        expected = in_parts(reference, other, tokens[PROMPT:], 6)
        off = largest_difference(found, expected)
        ids = first_ids(found) == first_ids(expected)
        wrong = int(((~ids) & (margins(expected) > _CLEAR)).sum())
        agreed = float(ids.mean())
        figures[kind] = {"difference": off, "agreement": agreed, "clear_differences": wrong}
        rows.append((kind, number(off, 5), number(agreed, 4), str(wrong)))
        checks.append(Promise(f"{kind}: difference from the processor", off, "<=", _NEAR))
        checks.append(none_of(f"{kind}: other tokens beyond a margin of {_CLEAR}", wrong))
    header = ("weights", "largest difference", "same first token", "of those apart, clear")
    return Outcome(figures, checks, [Table("Parity with the processor", header, rows)])


def replay(site: Site) -> Outcome:
    """Captured runs against the same runs that are not, in every shape, with changed tokens."""
    package = site.package("135m", "fp16")
    target = Target(package, site.provider())
    eager = Target(package, site.provider(DeviceOptions(graphs=False)))
    worst, compared = 0.0, 0
    for count in range(1, target.most_rows + 1):
        slots, others = (each.make_slots(count, _CONTEXT) for each in (target, eager))
        for width in WIDTHS[:: 3 if site.coarse else 1]:
            for turn in range(3):
                texts = [
                    random_tokens(target, PROMPT + width, 9 * turn + row) for row in range(count)
                ]
                for side, own in ((target, slots), (eager, others)):
                    for slot, text in zip(own, texts, strict=True):
                        prefill(side, slot, text[: PROMPT - turn])
                sides = [
                    side.run(
                        [Row(slot, tuple(text[PROMPT:]), logits=width) for slot, text in pairs]
                    )
                    for side, pairs in (
                        (target, list(zip(slots, texts, strict=True))),
                        (eager, list(zip(others, texts, strict=True))),
                    )
                ]
                worst = max(worst, largest_difference(*sides))
                compared += 1
    status = total(target.graph_counts)
    shapes = compared // 3
    figures = {
        "difference": worst,
        "runs": compared,
        "captured": status.captured,
        "replayed": status.replayed,
        "eager": dict(status.eager),
        "refused": list(status.refused),
    }
    return Outcome(
        figures,
        [
            Promise("captured and eager runs differ", worst, "<=", _NEAR),
            Promise("shapes captured", float(status.captured), ">=", float(shapes)),
            Promise("replays", float(status.replayed), ">=", float(compared - shapes)),
            none_of("graphs that cannot be captured", len(status.refused)),
        ],
    )


def exactness(site: Site) -> Outcome:
    """Strict width: the same bits however many tokens are verified. Without it: how many tokens
    are others, and how near the decision was."""
    figures: dict[str, Any] = {}
    checks, rows = [], []
    for kind in WEIGHTS:
        package = site.package("135m", kind)
        strict = Target(package, site.provider(DeviceOptions(strict_width=STRICT)))
        found = probe_strict(strict, strict.make_slots(4, _CONTEXT), strict.vocab_size)
        flips, places, gaps, bits = _flips(Target(package, site.provider()), site.coarse)
        figures[kind] = {
            "strict_exact": found.exact,
            "strict_differences": list(found.differences),
            "flips": flips,
            "places": places,
            "flip_margins": gaps,
            "widths_with_the_same_bits": bits,
        }
        checks.append(none_of(f"{kind}: strict differences", len(found.differences)))
        checks.append(
            none_of(f"{kind}: flips beyond a margin of {_CLEAR}", sum(gap > _CLEAR for gap in gaps))
        )
        rate = flips / places
        largest = max(gaps, default=0.0)
        shown = "yes" if found.exact else ", ".join(found.differences)
        rows.append((kind, shown, number(rate, 5), number(largest, 4), " ".join(map(str, bits))))
    header = ("weights", f"strict ({STRICT}) exact", "flip rate", "largest margin", "exact widths")
    return Outcome(figures, checks, [Table("Exactness", header, rows)])


def _flips(target: Target, coarse: bool) -> tuple[int, int, list[float], list[int]]:
    """Verifying in other widths against decoding plainly: (tokens that are others, places
    compared, their margins, widths with the same bits). `coarse`: in few widths, of one text."""
    (slot,) = target.make_slots(1, _CONTEXT)
    flips, places, gaps, bits = 0, 0, list[float](), list[int]()
    plain: dict[int, Any] = {}
    for width in (1, 2, 3, 4, 6, 8, 12, 16)[:: 3 if coarse else 1]:
        same = True
        for seed in range(1 if coarse else 3):
            tokens = random_tokens(target, PROMPT + _SAID, seed)
            prefill(target, slot, tokens[:PROMPT])
            found = in_parts(target, slot, tokens[PROMPT:], width)
            expected = plain.setdefault(seed, found)
            other = first_ids(found) != first_ids(expected)
            flips, places = flips + int(other.sum()), places + other.size
            gaps += [float(gap) for gap in margins(expected)[other]]
            one, two = (np.concatenate([r.top_values for r in side]) for side in (found, expected))
            same = same and bool((one == two).all())
        bits += [width] if same else []
    return flips, places, gaps, bits


def drafts(site: Site) -> Outcome:
    """Chains of a draft model, captured and not: the same tokens."""
    package = site.package("135m", "fp16")
    found = []
    counts = []
    for use in (DeviceOptions(), DeviceOptions(graphs=False)):
        target = Target(package, site.provider(use))
        learned = LearnedModels(package, site.provider(use), weights=target.weights)
        learned.load(DRAFT_KIND)
        (slot,) = target.make_slots(1, _CONTEXT)
        drafter = learned.drafter(DRAFT_KIND, slot, None, shared=True)
        tokens = random_tokens(target, PROMPT + 24)
        prefill(target, slot, tokens[:PROMPT])
        drafter.reset(tokens[:PROMPT])
        said = []
        for place in range(PROMPT, PROMPT + 24, 3):
            said.append(drafter.propose(4).tokens)
            drafter.commit(tuple(tokens[place : place + 3]))
        found.append(said)
        counts.append(total(learned.graph_counts))
    same = sum(one == two for one, two in zip(*found, strict=True)) / len(found[0])
    figures = {"same": same, "captured": [dataclasses.asdict(each) for each in counts]}
    return Outcome(
        figures,
        [
            Promise("captured drafts that are the same", same, ">=", 1.0),
            Promise("drafts replayed", float(counts[0].replayed), ">=", 4.0),
            none_of("drafters' graphs that cannot be captured", len(counts[0].refused)),
        ],
    )
