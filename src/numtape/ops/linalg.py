"""Decompositions, inverses and solutions of linear systems."""
