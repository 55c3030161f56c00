"""`/v1/chat/completions` and `/v1/completions`: one or several choices, whole or streamed."""
