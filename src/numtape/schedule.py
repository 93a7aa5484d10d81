"""The hybrid scheduler: prices the ways to compute a Jacobian from the recorded graph, and chooses the cheapest.

The price of a way is the multiply-adds of its sweeps. A tangent costs as much as a cotangent through the graph; forward
needs one for each input, reverse one for each output, and mixed one of each for every element of the narrowest cut,
plus the product of the two halves. Plain sweeps begin with unit vectors: the first product with a matrix takes its rows
or columns, and costs nothing. Where the Jacobian is sparse and asked for as such, there is one sweep for each colour of
its columns, its rows, or both.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .core.jacobian import Path
from .errors import OperandError
from .scheduler_config import SchedulerConfig, SchedulingStrategy

_FORWARD, _REVERSE, _MIXED = SchedulingStrategy.FORWARD, SchedulingStrategy.REVERSE, SchedulingStrategy.MIXED


class Alternative(NamedTuple):
    """One way to compute a Jacobian: how many tangents and cotangents it carries, and its price in multiply-adds."""

    mode: SchedulingStrategy
    tangents: int
    cotangents: int
    multiply_adds: int
    #: The number of elements of the cut from which a mixed one goes both ways.
    width: int | None = None
    #: How a sparse one is coloured: "columns", "rows", "two-sided" or "star".
    colouring: str = ""

    @property
    def name(self) -> str:
        """The mode, and what is special about it."""
        if self.colouring:
            return f"{self.mode.value} (coloured: {self.colouring})"
        return self.mode.value if self.width is None else f"{self.mode.value} (cut of {self.width})"


class Decision(NamedTuple):
    """What a scheduler chose for one Jacobian, and why."""

    chosen: Alternative
    reason: str
    alternatives: tuple[Alternative, ...]
    inputs: int
    outputs: int

    @property
    def mode(self) -> SchedulingStrategy:
        """The way that was chosen."""
        return self.chosen.mode

    def __str__(self) -> str:
        lines = [f"Jacobian of {self.outputs} outputs by {self.inputs} inputs: {self.mode.value}, {self.reason}"]
        table = [("", "mode", "tangents", "cotangents", "multiply-adds")]
        for way in self.alternatives:
            mark = "->" if way is self.chosen else ""
            table.append((mark, way.name, f"{way.tangents:,}", f"{way.cotangents:,}", f"{way.multiply_adds:,}"))
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        for mark, name, *numbers in table:
            cells = [mark.ljust(widths[0]), name.ljust(widths[1])]
            cells += [number.rjust(width) for number, width in zip(numbers, widths[2:], strict=True)]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)


class HybridScheduler:
    """Chooses how to compute Jacobians, and remembers the last choice.

    Args:
        config: a `SchedulerConfig`; the default one if not given.

    Example:
        >>> scheduler = nt.HybridScheduler()
        >>> _ = nt.jacobian(lambda x: x[:2] * x.sum(), scheduler=scheduler)(np.ones(50))
        >>> scheduler.last_decision.mode.value
        'reverse'
    """

    def __init__(self, config: SchedulerConfig | None = None) -> None:
        if config is not None and not isinstance(config, SchedulerConfig):
            raise OperandError(f"HybridScheduler: wants a SchedulerConfig, not {type(config).__name__}.")
        self.config = config or SchedulerConfig()
        self.last_decision: Decision | None = None

    def decide(
        self,
        path: Path,
        refused: Mapping[SchedulingStrategy, str] | None = None,
        coloured: Sequence[Alternative] = (),
    ) -> Decision:
        """Price the ways to compute the Jacobian of a path, choose one and remember it as `last_decision`.

        Args:
            path: the records between sources and targets.
            refused: the modes that were tried and that an op on the path lacks, with what it said.
            coloured: the ways to compute a sparse Jacobian, if that is wanted; plain sweeps are no more chosen then.
        """
        ways = {
            _FORWARD: Alternative(_FORWARD, path.inputs, 0, path.inputs * (path.work - path.spared_tangents)),
            _REVERSE: Alternative(_REVERSE, 0, path.outputs, path.outputs * (path.work - path.spared_cotangents)),
            _MIXED: _mixed(path),
        }
        prices = {mode: way.multiply_adds for mode, way in ways.items()}
        if coloured:
            way, reason = self._choose_coloured(coloured, ways[_MIXED], refused)
        else:
            mode, reason = self._choose_other(prices, refused) if refused else self._choose(path, prices)
            way = ways[mode]
        self.last_decision = Decision(way, reason, (*coloured, *ways.values()), path.inputs, path.outputs)
        return self.last_decision

    def _choose_coloured(
        self, coloured: Sequence[Alternative], mixed: Alternative, refused: Mapping[SchedulingStrategy, str] | None
    ) -> tuple[Alternative, str]:
        best = min(coloured, key=lambda way: way.multiply_adds)
        if refused:
            failed, why = list(refused.items())[-1]
            return best, f"since {failed.value} failed: {why}"
        if self.config.strategy is not SchedulingStrategy.AUTO:
            return best, "as configured"
        is_mixed = self.config.enable_mixed_mode and mixed.multiply_adds < best.multiply_adds
        return mixed if is_mixed else best, "the cheapest"

    def _choose(self, path: Path, prices: dict[SchedulingStrategy, int]) -> tuple[SchedulingStrategy, str]:
        config = self.config
        assert isinstance(config.strategy, SchedulingStrategy)
        if config.strategy is not SchedulingStrategy.AUTO:
            return config.strategy, "as configured"
        cheaper = _FORWARD if prices[_FORWARD] < prices[_REVERSE] else _REVERSE
        if config.enable_mixed_mode and prices[_MIXED] < prices[cheaper]:
            return _MIXED, "the cheapest"
        ratio = path.outputs / max(path.inputs, 1)
        if ratio >= config.forward_mode_threshold:
            return _FORWARD, f"since outputs / inputs = {ratio:.4g} is at least {config.forward_mode_threshold:g}"
        if ratio <= config.reverse_mode_threshold:
            return _REVERSE, f"since outputs / inputs = {ratio:.4g} is at most {config.reverse_mode_threshold:g}"
        return cheaper, "the cheaper of the plain modes"

    def can_decide_anew(self, refused: Mapping[SchedulingStrategy, str]) -> bool:
        """Say whether a plain mode is left, and free to choose, when others were refused."""
        return self.config.strategy is SchedulingStrategy.AUTO and not {_FORWARD, _REVERSE} <= refused.keys()

    def _choose_other(
        self, prices: dict[SchedulingStrategy, int], refused: Mapping[SchedulingStrategy, str]
    ) -> tuple[SchedulingStrategy, str]:
        mode = min((mode for mode in (_REVERSE, _FORWARD) if mode not in refused), key=prices.__getitem__)
        failed, why = list(refused.items())[-1]
        return mode, f"since {failed.value} failed: {why}"

    def explain(self) -> str:
        """Return the last decision as text: the alternatives with their prices, and the reason."""
        return (
            "nothing was decided: no Jacobian was computed yet, or the last one was of constants"
            if self.last_decision is None
            else str(self.last_decision)
        )


def _mixed(path: Path) -> Alternative:
    """Price the sweeps both ways from the narrowest cut: for each of its elements, they pass each record once."""
    cut = path.narrowest
    price = cut.width * (path.work + path.product)
    return Alternative(_MIXED, cut.width, cut.width, price, cut.width)
