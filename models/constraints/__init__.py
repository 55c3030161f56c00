"""Constraints on an answer's text: which tokens may come next, and which must."""
