"""Sorting, selection by rank, and searches."""
