"""Normalisation layers as functions."""
