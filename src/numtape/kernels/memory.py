"""Let the C library keep freed memory for the next array, instead of giving it back and asking for it anew.

glibc returns freed blocks beyond a threshold to the system, and every new array of some megabytes then costs a fault
for each of its pages: two thirds of the time of a gradient with arrays of 4 MB. The threshold follows the largest block
freed so far, up to 32 MB. So one block of that size, never touched, settles it; up to 64 MB stay with the process.
Elsewhere this does nothing.
"""

import numpy as np

_LARGEST = 2**25 - 2**16


def keep_freed_memory() -> None:
    """Raise the threshold; takes some microseconds and no memory."""
    np.empty(_LARGEST, np.uint8)
