"""Builds packages: sources, the decoder through optimum, quantisation, parity checks."""
