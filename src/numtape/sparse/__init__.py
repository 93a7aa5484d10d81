"""Sparse Jacobians and Hessians: the pattern from the recorded graph, a colouring, and a few batched sweeps."""
