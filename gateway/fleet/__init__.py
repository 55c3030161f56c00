"""The packages of a gateway: which there are, which are loaded, and what becomes of failures."""
