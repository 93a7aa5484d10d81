"""What a gradient check found, as a table that can be read and asked: rows, the adjoint test, and a conclusion."""

import math
from collections import Counter
from dataclasses import dataclass, field

from ..verdicts.judging import SEVERITY, Verdict

#: What follows from a verdict other than "right", for those who read it for the first time.
ADVICE = {
    Verdict.KINK: "the function has a kink there, or bends so near that steps pass over it; check away from it",
    Verdict.PRECISION: "the function computes in less than float64 inside; compute in float64, or raise the tolerance",
    Verdict.NOISE: "the function's rounding errors hide the derivative; rewrite it, or raise the tolerance",
    Verdict.NON_DETERMINISTIC: "two calls with the same arguments differ; fix the random stream, as in rng=0",
    Verdict.NOT_FINITE: "the value or a gradient is NaN or infinite there; check at a point inside of the domain",
    Verdict.WRONG: "the gradient is not the derivative of the value",
}


@dataclass(frozen=True)
class Row:
    """What was found about one argument, and its worst element."""

    argument: str
    shape: tuple[int, ...]
    index: tuple[int, ...]
    analytic: float
    numeric: float
    error: float
    verdict: Verdict
    #: How many of the elements checked got which verdict.
    counts: dict[Verdict, int]
    #: What one count is of: elements, or random directions through all of them.
    unit: str = "element"
    #: What else led to a verdict, in words, for the first element of each that has such a note.
    notes: dict[Verdict, str] = field(default_factory=dict)

    @property
    def checked(self) -> int:
        """How many elements, or directions, were checked."""
        return sum(self.counts.values())

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        counts = ", ".join(f"{n} {verdict}" for verdict, n in self.counts.items())
        total = math.prod(self.shape)
        sampled = f" (of {total})" if self.unit == "element" and self.checked < total else ""
        place = str(list(self.index)) if self.unit == "element" else f"direction {self.index[0]}"
        numbers = (f"{self.analytic:.9g}", f"{self.numeric:.9g}", f"{self.error:.1e}")
        return (self.argument, str(self.shape), counts + sampled, place, *numbers, self.verdict)


@dataclass(frozen=True)
class Adjoint:
    """The adjoint test: <w, J t> by forward mode and <J^T w, t> by reverse mode are the same number."""

    forward: float
    reverse: float
    #: Right, a wrong rule, or what hides the difference of both.
    verdict: Verdict = Verdict.RIGHT
    #: Why it was not run; empty if it was.
    reason: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether the modes agree, but for rounding."""
        return self.verdict is not Verdict.WRONG

    def __str__(self) -> str:
        if self.reason:
            return f"adjoint test: not run, {self.reason}"
        relation = {Verdict.RIGHT: "=", Verdict.WRONG: "differs from"}.get(self.verdict, "is, up to rounding errors,")
        return f"adjoint test: <w, J t> = {self.forward:.12g} {relation} <J^T w, t> = {self.reverse:.12g}"


@dataclass(frozen=True)
class GradientCheck:
    """The result of `check_gradients`; true if every gradient that was checked is right."""

    is_valid: bool
    max_error: float
    tolerance: float
    rows: list[Row] = field(repr=False)
    adjoint: Adjoint = field(repr=False, default=Adjoint(math.nan, math.nan, reason="nothing to test"))
    #: The first argument whose gradient is not linear in the cotangents of the outputs; empty if there is none.
    bent: str = ""

    @property
    def counts(self) -> dict[Verdict, int]:
        """How often each verdict was found."""
        total: Counter[Verdict] = Counter()
        for row in self.rows:
            total.update(row.counts)
        return dict(sorted(total.items(), key=lambda pair: SEVERITY[pair[0]]))

    @property
    def verdict(self) -> Verdict:
        """The worst verdict, of elements or of the tests of modes."""
        of_reverse = Verdict.WRONG if self.bent else Verdict.RIGHT
        return max(*self.counts, self.adjoint.verdict, of_reverse, key=SEVERITY.__getitem__)

    def __bool__(self) -> bool:
        return self.is_valid

    def __str__(self) -> str:
        heads = ("argument", "shape", "verdicts", "worst at", "gradient", "difference quotient", "error", "verdict")
        table = [heads, *(row.cells() for row in self.rows)]
        widths = [max(len(line[i]) for line in table) for i in range(len(heads))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in table]
        return "\n".join([*lines, str(self.adjoint), self._conclusion()])

    def _conclusion(self) -> str:
        numbers = f"largest error {self.max_error:.1e}, tolerance {self.tolerance:.0e}"
        if Verdict.WRONG in self.counts:
            return f"gradients are WRONG: {ADVICE[Verdict.WRONG]}; {numbers}"
        if self.bent:
            return (
                f"gradients are WRONG: that by {self.bent} is not linear in the cotangent g, and so right for some g "
                f"alone; a rule forgets g, or takes its size, its sign or a part of it; {numbers}"
            )
        forward = {
            Verdict.RIGHT: "",
            Verdict.WRONG: "forward mode is WRONG: a JVP is not the transpose of its VJP; ",
        }.get(self.adjoint.verdict, f"forward mode is NOT CERTIFIED: {self.adjoint.verdict} hides what it gives; ")
        if any(verdict is not Verdict.RIGHT for verdict in self.counts):
            found = "; ".join(f"{v}: {self._advice(v)}" for v in self.counts if v is not Verdict.RIGHT)
            return f"gradients are NOT CERTIFIED: {found}; {forward}{numbers}"
        if forward:
            return f"gradients are right, but {forward}{numbers}"
        sampled = any(row.unit != "element" for row in self.rows)
        return f"gradients are right{' as far as sampled' if sampled else ''}: {numbers}"

    def _advice(self, verdict: Verdict) -> str:
        return "; ".join([ADVICE[verdict], *(row.notes[verdict] for row in self.rows if verdict in row.notes)])
