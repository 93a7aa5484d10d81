"""Special functions: the error function, the gamma function and their relatives."""
