"""SciPy with derivatives: its solvers on functions of trees, and its sparse matrices and transforms as ops."""

from .curves import curve_fit as curve_fit
from .minimizing import minimize as minimize
from .results import CurveFit as CurveFit
from .results import Fit as Fit
from .results import Solution as Solution
from .results import SolverWarning as SolverWarning
from .roots import root as root
from .squares import least_squares as least_squares
