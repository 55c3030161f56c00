"""The wire: decodes requests, encodes events. Knows nothing of onnxruntime."""
