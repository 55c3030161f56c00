"""Requests as coroutines over session services. Knows nothing of aiohttp or onnxruntime."""
