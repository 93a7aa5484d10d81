"""See what a tape holds: one file per view."""
