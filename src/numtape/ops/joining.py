"""Join, repeat, pad and split."""
