"""Counter-based random numbers: the same key, counter and shape give the same values on every machine.

Words come from Philox 4x64 (each counter gives four 64-bit words). NumPy supplies the words; the transforms to floats
and integers are our own, since NumPy does not promise that its stay the same.
"""

import math
import threading

import numpy as np

from .._typing import Dtype, NDArray

WORDS_PER_COUNTER = 4
_MASK = (1 << 64) - 1
_local = threading.local()


def counters(count: int) -> int:
    """Return how many counters a draw of `count` words takes."""
    return -(-count // WORDS_PER_COUNTER)


def words(key: int, counter: int, count: int) -> NDArray:
    """Return `count` random 64-bit words of the stream `key` from `counter` on."""
    generator = getattr(_local, "philox", None)
    if generator is None:
        generator = _local.philox = np.random.Philox(0)
    generator.state = {
        "bit_generator": "Philox",
        "state": {
            "counter": np.array([counter & _MASK, counter >> 64 & _MASK, 0, 0], np.uint64),
            "key": np.array([key & _MASK, key >> 64], np.uint64),
        },
        "buffer": np.zeros(WORDS_PER_COUNTER, np.uint64),
        "buffer_pos": WORDS_PER_COUNTER,
        "has_uint32": 0,
        "uinteger": 0,
    }
    drawn: NDArray = generator.random_raw(count)
    return drawn


def uniform(key: int, counter: int, shape: tuple[int, ...]) -> NDArray:
    """Return float64 values in [0, 1), from the upper 53 bits of a word each."""
    count = math.prod(shape)
    return ((words(key, counter, count) >> np.uint64(11)) * 2.0**-53).reshape(shape)


#: How many draws of `chances` a word gives.
CHANCES_PER_WORD = 2
#: Fewer draws than these are made anew in less time than they are looked up.
_FEW_CHANCES = 1 << 12
#: The most bytes of bits of draws that a thread remembers.
_MOST_REMEMBERED = 1 << 22


def chances(key: int, counter: int, shape: tuple[int, ...], probability: float) -> NDArray:
    """Return True with a probability for each element, from 32 bits each: the lower half of a word comes first.

    A backward, and what is made again for it, ask for the draws of the forward: a thread remembers its last ones, a bit
    each, which takes a twentieth of the time of drawing them.
    """
    count = math.prod(shape)
    if count < _FEW_CHANCES:
        return fresh_chances(key, counter, shape, probability)
    memory = getattr(_local, "chances", None)
    if memory is None:
        memory = _local.chances = _Remembered()
    asked = key, counter, count, probability
    bits = memory.bits.get(asked)
    if bits is not None:
        return np.unpackbits(bits, count=count).view(bool).reshape(shape)
    happens = fresh_chances(key, counter, shape, probability)
    memory.put(asked, np.packbits(happens))
    return happens


def fresh_chances(key: int, counter: int, shape: tuple[int, ...], probability: float) -> NDArray:
    """Return what `chances` does, drawn anew."""
    if probability * 2.0**32 < 0.5:
        return np.zeros(shape, bool)
    count = math.prod(shape)
    drawn = words(key, counter, -(-count // CHANCES_PER_WORD)).astype("<u8", copy=False).view("<u4")[:count]
    happens: NDArray = drawn.reshape(shape) <= np.uint32(round(probability * 2.0**32) - 1)
    return happens


class _Remembered:
    """The bits of draws by what was asked for, the oldest first, up to a number of bytes."""

    def __init__(self) -> None:
        self.bits: dict[tuple[int, int, int, float], NDArray] = {}
        self._nbytes = 0

    def put(self, asked: tuple[int, int, int, float], bits: NDArray) -> None:
        """Remember bits, and forget the oldest ones."""
        if bits.nbytes > _MOST_REMEMBERED:
            return
        self.bits[asked] = bits
        self._nbytes += bits.nbytes
        while self._nbytes > _MOST_REMEMBERED:
            self._nbytes -= self.bits.pop(next(iter(self.bits))).nbytes


def rounded(drawn: NDArray, low: float, high: float, dtype: Dtype) -> NDArray:
    """Return float64 values of [low, high) in another dtype, where rounding must not take them out of the range."""
    out = np.asarray(drawn, np.float64).astype(dtype)
    first, last = np.asarray([low, high], dtype)
    if float(first) < low:
        first = np.nextafter(first, dtype.type(np.inf))
    if float(last) >= high:
        last = np.nextafter(last, dtype.type(-np.inf))
    # Where the range holds no number of the dtype, the nearest must do.
    return np.clip(out, first, last, out=out) if first <= last else out


def normal(key: int, counter: int, shape: tuple[int, ...]) -> NDArray:
    """Return float64 values of the standard normal distribution, by Box and Muller's transform of two words each."""
    count = math.prod(shape)
    pairs = uniform(key, counter, (2, count))
    # 1 - u lies in (0, 1], so that the logarithm is finite.
    radius = np.sqrt(-2.0 * np.log1p(-pairs[0]))
    return np.asarray(radius * np.cos(2.0 * np.pi * pairs[1])).reshape(shape)


def integers(key: int, counter: int, shape: tuple[int, ...], low: int, high: int, dtype: Dtype) -> NDArray:
    """Return integers in [low, high); the bias of the remainder is below (high - low) / 2**64."""
    count = math.prod(shape)
    drawn = words(key, counter, count)
    if high - low < 2**64:
        drawn %= np.uint64(high - low)
    # Both wrap around at 2**64, and so back to negative numbers.
    return (drawn + np.uint64(low % 2**64)).astype(dtype).reshape(shape)


def permutation(key: int, counter: int, count: int) -> NDArray:
    """Return the numbers 0 to count - 1 in random order: the order of as many random words."""
    return np.argsort(words(key, counter, count), kind="stable")
