"""How sure a result is: propagated errors, sensitivities, information, and what single samples pull at."""

from .information import fisher_information as fisher_information
from .per_sample import per_sample_gradients as per_sample_gradients
from .posterior import Laplace as Laplace
from .posterior import laplace as laplace
from .propagation import Propagated as Propagated
from .propagation import propagate as propagate
from .sensitivity import Sensitivities as Sensitivities
from .sensitivity import sensitivities as sensitivities
