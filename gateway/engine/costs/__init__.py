"""What rounds cost on this machine: measured at start, corrected by every run."""
