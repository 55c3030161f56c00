"""The acceptance contract: what is promised, measured on the machine at hand."""
