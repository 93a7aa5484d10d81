"""Kernels: arrays in, arrays out. What NumPy lacks, and faster providers, chosen in one place."""
