"""Runs packages: sessions, slots, the target, drafters, verification, tokenizer and template.

Knows nothing of asyncio, HTTP or JSON messages. Installs without torch.
"""

import os

# ONNX Runtime's wheels (1.30 and newer) keep an identifier of the machine and a list of events in
# ~/.cache/Microsoft, and send them to their maker, unless this is set before they are imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
