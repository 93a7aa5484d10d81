"""Read and write elements by index arrays along an axis."""
