"""OpenAI Responses: one typed event stream inside, WebSocket and HTTP as its transports."""
