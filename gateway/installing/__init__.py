"""Making a service of the gateway: what is written for a machine, and what is run."""
