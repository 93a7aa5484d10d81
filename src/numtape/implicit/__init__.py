"""Derivatives through solvers: roots, fixed points, minima, linear systems and differential equations."""

from .dense_output import Solution as Solution
from .integrating import odeint as odeint
from .solving import fixed_point as fixed_point
from .solving import least_squares as least_squares
from .solving import linear_solve as linear_solve
from .solving import minimize as minimize
from .solving import root as root
