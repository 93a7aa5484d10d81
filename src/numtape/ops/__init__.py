"""The ops, one file per family; everything about an op stands in its file."""

from . import activations as activations
from . import arithmetic as arithmetic
from . import attention as attention
from . import calculus as calculus
from . import casting as casting
from . import comparisons as comparisons
from . import convolution as convolution
from . import diagonals as diagonals
from . import exponential as exponential
from . import gathering as gathering
from . import indexing as indexing
from . import joining as joining
from . import linalg as linalg
from . import losses as losses
from . import matrices as matrices
from . import normalisation as normalisation
from . import norms as norms
from . import pooling as pooling
from . import random as random
from . import reductions as reductions
from . import scans as scans
from . import selection as selection
from . import shapes as shapes
from . import sorting as sorting
from . import special as special
from . import trigonometric as trigonometric
