"""Runs packages: sessions, slots, the target, drafters, verification, tokenizer and template.

Knows nothing of asyncio, HTTP or JSON messages. Installs without torch.
"""
