"""SciPy with derivatives: its solvers on functions of trees, and its sparse matrices and transforms as ops."""

from .cosines import dct as dct
from .cosines import idct as idct
from .curves import curve_fit as curve_fit
from .fourier import fftconvolve as fftconvolve
from .minimizing import minimize as minimize
from .operators import linear_operator as linear_operator
from .results import CurveFit as CurveFit
from .results import Fit as Fit
from .results import Solution as Solution
from .results import SolverWarning as SolverWarning
from .roots import root as root
from .sparse_systems import spsolve as spsolve
from .squares import least_squares as least_squares
