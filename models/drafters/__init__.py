"""The drafters, one file each."""
