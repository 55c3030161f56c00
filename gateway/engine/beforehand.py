"""What is loaded before an engine takes requests, which these would otherwise wait for."""

from __future__ import annotations

import asyncio

from gateway.engine.constraints import Constraints
from gateway.engine.drafters import Drafters
from gateway.engine.loading import Report, use_huge_pages
from gateway.engine.names import AUTO, NGRAM
from gateway.engine.options import EngineOptions
from gateway.engine.tree_graphs import TreeGraphs
from models.errors import UserError
from models.providers import Provider

DISPENSABLE = frozenset({"out_of_memory", "graph_invalid"})
"""Codes of what keeps a drafter from being loaded, and nothing else from running."""


async def load_beforehand(
    options: EngineOptions,
    constraints: Constraints,
    trees: TreeGraphs,
    drafters: Drafters,
    provider: Provider,
    report: Report,
) -> str:
    """The name of what `auto` stands for. Raises `UserError` where it does not fit."""
    await constraints.prepare()
    if options.trees:
        await trees.load()
        report("graphs for trees loaded")
    automatic = await _load_drafters(options.drafter, drafters, report)
    await asyncio.to_thread(use_huge_pages, provider, report)
    report(f"drafters: {', '.join((NGRAM, *drafters.kinds))}")
    return automatic


async def _load_drafters(name: str, drafters: Drafters, report: Report) -> str:
    """Where memory does not suffice for those that nobody named, or their graphs do not load, there
    are n-grams alone."""
    try:
        await drafters.load(name)
    except UserError as error:
        if name != AUTO or error.code not in DISPENSABLE:
            raise
        report(f"only the {NGRAM} drafter: {error.message}")
        return NGRAM
    return AUTO
