"""What the gateway and the service manager (systemd) tell each other."""
