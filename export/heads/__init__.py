"""Learned draft heads: at once what is trained, what is checked against, and what is traced."""
