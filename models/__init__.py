"""Runs packages: sessions, slots, the target, drafters, verification, tokenizer and template.

Knows nothing of asyncio, HTTP or JSON messages. Installs without torch.
"""

import os

# ONNX Runtime's wheels (1.30 and newer) keep an identifier of the machine in ~/.cache/Microsoft,
# and a list of events with an address to send them to, unless this is set before their import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
