"""Differences, integrals and interpolation of sampled functions."""
