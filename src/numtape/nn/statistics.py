"""Running statistics of modules: what they held before a forward, for steps that are skipped and runs undone."""

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import tree
from ..core.effects import Update, note_updates, will_update
from ..core.value import array_of

if TYPE_CHECKING:
    from .module import Module


def follow(module: "Module", run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a module in training, and note at its results what its statistics held before.

    A statistic that is not finite afterwards, and was before, is left as it was.
    """
    before = {}
    for name in module._statistics:
        buffer = module.__dict__.get(name)
        if buffer is not None:
            will_update(buffer.array)
            before[name] = (buffer, buffer.array.copy())
    out = run(*args, **kwargs)
    updates = []
    for name, (buffer, array) in before.items():
        now = module.__dict__.get(name)
        if now is None or (now is buffer and np.array_equal(now.array, array, equal_nan=True)):
            continue
        update = Update(weakref.ref(module), array, name)
        if np.isfinite(array).all() and not np.isfinite(array_of(now)).all():
            update.put_back()
        else:
            updates.append(update)
    if updates:
        for result in tree.leaves(out):
            note_updates(result, updates)
    return out
