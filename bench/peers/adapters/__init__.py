"""What runs in peers' own processes, one module a peer. Nothing here is imported by the suite."""
