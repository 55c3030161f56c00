"""Sampling: from the target's logits to the distribution a token is drawn from, and the draw."""
