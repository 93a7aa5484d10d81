"""Other packages' solvers, matrices and transforms, with derivatives: one module for each package."""

from . import scipy as scipy
