"""Losses: how far predictions are from targets."""
