"""Change what ops do, or what their derivatives are: one file per idea."""
