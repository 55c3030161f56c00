"""Policies: what a round drafts, and how the rows that share a run divide what it verifies."""
