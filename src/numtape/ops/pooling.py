"""Pooling: maxima and means over windows."""
