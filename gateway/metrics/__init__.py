"""What is counted of a gateway, and how Prometheus reads it."""
