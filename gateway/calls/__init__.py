"""Functions that a model may call: how it is told of them, how it calls them, what it thinks."""
