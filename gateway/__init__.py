"""The asyncio side: engine (requests, scheduling, control), http (the wire), command line."""
