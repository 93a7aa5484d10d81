"""Whether a derivative agrees with differences of its function, and if not, or if that cannot be seen, why."""
