"""Module: parameters, buffers and other modules under names, and a forward that uses them."""

import functools
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self

from .. import tree
from .._typing import DtypeLike
from ..core.value import Value, make_writable
from ..creation import tensor
from ..dtypes import bfloat16, float16, float32, float64
from ..errors import ArgumentError, NumtapeError, OperandError, UnknownNameError
from ..tensors import Tensor
from . import conversion, states, statistics, traversal
from .hooked import Hooked
from .located import locate
from .parameter import Parameter
from .traversal import Kind

if TYPE_CHECKING:
    from .summary import ModelSummary


#: What a name that stands for each of them may be bound to, beside None.
_CLASSES: dict[Kind, type] = {Kind.PARAMETER: Parameter, Kind.BUFFER: Value, Kind.TRANSIENT: Value}


#: What every module keeps beside its members.
_OWN = frozenset(("training", "_kinds", "_stands_for", "_statistics", "_follows", "_hooks"))


class Module(Hooked):
    """A part of a model: define `forward`, and assign parameters and other modules to attributes.

    An attribute that is a `Parameter` or a `Module` is registered under its name, so that `parameters`, `state_dict`,
    `train`, `to` and the like reach it. ``module(x)`` runs ``module.forward(x)`` and its hooks, and an error on the way
    names the layer's path. For `nt.tree`, and so for `nt.grad`, a module is the tree of its parameters.

    Example:
        >>> class Line(nt.nn.Module):
        ...     def __init__(self):
        ...         self.slope = nt.nn.Parameter(2.0)
        ...     def forward(self, x):
        ...         return self.slope * x
        >>> line = Line()
        >>> line(nt.tensor(3.0)).backward()
        >>> line.slope.grad
        tensor(3.)
    """

    #: Whether the module is being trained: what dropout and batch normalisation ask.
    training: bool
    #: What is registered, in order; the things themselves are ordinary attributes, which makes reading them fast.
    _kinds: dict[str, Kind]
    #: By name, what tells shared parameters from equal ones in a module whose parameters were replaced.
    _stands_for: dict[str, object]
    #: The names of buffers that are running statistics, which stay float32 where the module becomes half.
    _statistics: frozenset[str] = frozenset()
    #: Whether the forward itself notes what it makes of them.
    _follows = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Here, so that a subclass need not call super().__init__().
        self = super().__new__(cls)
        self.__dict__.update(training=True, _kinds={}, _stands_for={}, _hooks=None)
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let Python's errors about arguments name the class that was called, not the private one that takes them."""
        super().__init_subclass__(**kwargs)
        inherited: Any = cls.__init__
        if "__init__" not in vars(cls) and inherited.__qualname__.startswith("_"):
            parts = (inherited.__code__, inherited.__globals__, "__init__", inherited.__defaults__)
            made: Any = functools.update_wrapper(FunctionType(*parts, inherited.__closure__), inherited)
            made.__kwdefaults__ = inherited.__kwdefaults__
            made.__qualname__ = f"{cls.__qualname__}.__init__"
            del made.__wrapped__  # It is no wrapper, but the same function under another name.
            cls.__init__ = made  # type: ignore[method-assign]

    def __init__(self) -> None:
        """Do nothing; all is set up when the object is made."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's output; each subclass defines it."""
        raise UnknownNameError(
            f"{type(self).__name__}: has no forward(); define it in the class, or call the modules that it holds."
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`, and the hooks around it."""
        try:
            if self._statistics and self.training and not self._follows:
                return statistics.follow(self, self._run, args, kwargs)
            if self._hooks is None:
                return self.forward(*args, **kwargs)
            return self._hooks.call(self, args, kwargs)
        except NumtapeError as error:
            locate(self, error)
            raise

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs) if self._hooks is None else self._hooks.call(self, args, kwargs)

    # Registration.
    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self._register(name, value, Kind.PARAMETER)
        elif isinstance(value, Module):
            self._register(name, value, Kind.MODULE)
        else:
            kind = self._kinds.get(name)
            if kind is not None and value is not None and not isinstance(value, _CLASSES.get(kind, Module)):
                self._refuse(name, value, kind)
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._kinds.pop(name, None)

    def _refuse(self, name: str, value: Any, kind: Kind) -> None:
        repair = {
            Kind.PARAMETER: "wrap it in nt.nn.Parameter, or write into it: `with nt.no_grad(): p[...] = value`",
            Kind.MODULE: "assign a module, or delete the attribute first",
        }.get(kind, "assign a tensor")
        raise OperandError(
            f"{type(self).__name__}: {name!r} is {kind.value}, and {type(value).__name__} was assigned; {repair}."
        )

    def _register(self, name: str, value: Any, kind: Kind) -> None:
        self._check_name(name)
        if isinstance(value, Module) and any(part is self for part in value.modules()):
            raise ArgumentError(f"{type(self).__name__}: {name!r} would make the module a part of itself.")
        if self._kinds.get(name) is not kind:
            self._kinds.pop(name, None)
            self._kinds[name] = kind
        self._stands_for.pop(name, None)
        self.__dict__[name] = value
        traversal.give_names(name, value)

    def _check_name(self, name: Any) -> None:
        owner = type(self).__name__
        if not isinstance(name, str) or not name or "." in name:
            raise ArgumentError(f"{owner}: {name!r} is no name; names are text without dots, and not empty.")
        if callable(getattr(type(self), name, None)):
            raise ArgumentError(f"{owner}: {name!r} is a method of the class; choose another name.")
        if name in _OWN:
            raise ArgumentError(f"{owner}: {name!r} is an attribute of every module; choose another name.")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Register a parameter under a name; None keeps the name for one that is not there."""
        if param is not None and not isinstance(param, Parameter):
            raise OperandError(
                f"{type(self).__name__}.register_parameter: {name!r} is {type(param).__name__}; wrap it in "
                "nt.nn.Parameter."
            )
        self._register(name, param, Kind.PARAMETER)

    def register_buffer(self, name: str, value: Any, persistent: bool = True, *, is_statistic: bool = False) -> None:
        """Register a tensor that is no parameter but part of the module, and of its state if `persistent`.

        Args:
            name: the attribute's name.
            value: a tensor, an array (copied), or None.
            persistent: whether `state_dict` has it.
            is_statistic: whether it is added up over batches, and so needs the range and the digits of float32: `to`
                gives it no half dtype. What forward makes of it in training is taken back if it is not finite, or if a
                loss scaler skips the step.
        """
        if value is not None and not isinstance(value, Value):
            value = tensor(value)
        if value is not None:
            make_writable(value)
        self._register(name, value, Kind.BUFFER if persistent else Kind.TRANSIENT)
        others = self._statistics - {name}
        self.__dict__["_statistics"] = others | {name} if is_statistic else others

    def register_module(self, name: str, module: "Module | None") -> None:
        """Register a module under a name; None keeps the name for one that is not there."""
        if module is not None and not isinstance(module, Module):
            raise OperandError(
                f"{type(self).__name__}.register_module: {name!r} is {type(module).__name__}, not a module."
            )
        self._register(name, module, Kind.MODULE)

    add_module = register_module

    # What is in it.
    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, "Module"]]:
        """Go through the module itself and all modules in it, with their paths; each once."""
        return traversal.modules(self, prefix)

    def modules(self) -> Iterator["Module"]:
        """Go through the module itself and all modules in it; each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, "Module"]]:
        """Go through the modules directly in this one, with their names; each once."""
        return traversal.members(self, (Kind.MODULE,), recurse=False)

    def children(self) -> Iterator["Module"]:
        """Go through the modules directly in this one; each once."""
        return (module for _, module in self.named_children())

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Go through the parameters with their paths; a shared one comes once, under its first.

        Example:
            >>> [path for path, _ in nt.nn.Sequential(nt.nn.Linear(2, 3)).named_parameters()]
            ['0.weight', '0.bias']
        """
        return traversal.members(self, (Kind.PARAMETER,), prefix, recurse)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Go through the parameters; a shared one comes once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Go through the buffers with their paths; each once."""
        return traversal.members(self, (Kind.BUFFER, Kind.TRANSIENT), prefix, recurse)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Go through the buffers; each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    # State.
    def state_dict(self, prefix: str = "") -> dict[str, Tensor]:
        """Return parameters and persistent buffers by path: untracked tensors that share their memory.

        A random stream that a module holds, such as that of ``Dropout(rng=...)``, stands under its attribute's path.

        Example:
            >>> {path: value.shape for path, value in nt.nn.BatchNorm1d(3).state_dict().items()}
            {'weight': (3,), 'bias': (3,), 'running_mean': (3,), 'running_var': (3,), 'num_batches_tracked': ()}
        """
        return states.state_dict(self, prefix)

    def load_state_dict(self, state: Any, strict: bool = True) -> states.IncompatibleKeys:
        """Write tensors or arrays by path into parameters and buffers, all of them or none.

        Args:
            state: what `state_dict` gave, or arrays under the same keys; values are cast to the module's dtypes.
            strict: whether missing and unexpected keys are errors; wrong shapes always are.

        Returns:
            The missing and the unexpected keys, which a call that is not strict leaves alone.

        Raises:
            ArgumentError: that lists every key which is missing, unexpected or of the wrong shape.
        """
        return states.load_state_dict(self, state, strict)

    def train(self, mode: bool = True) -> Self:
        """Set the module and all in it to training, or to evaluation, and return it."""
        for module in self.modules():
            module.__dict__["training"] = bool(mode)
        return self

    def eval(self) -> Self:
        """Set the module and all in it to evaluation, and return it."""
        return self.train(False)

    def requires_grad_(self, flag: bool = True) -> Self:
        """Say whether `backward` delivers gradients to the parameters, and return the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(flag)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of the parameters: to None, or to zeros in place."""
        for parameter in self.parameters():
            parameter.zero_grad(set_to_none)

    def apply(self, function: Callable[["Module"], Any]) -> Self:
        """Call a function with each module in this one, children before parents, and return the module."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def get_submodule(self, target: str) -> "Module":
        """Return the module at a path such as "encoder.0"; "" is the module itself."""
        return traversal.find(self, target, dict(traversal.modules(self, is_unique=False)), "module")  # type: ignore[no-any-return]

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter at a path such as "encoder.0.weight"."""
        found = dict(traversal.members(self, (Kind.PARAMETER,), is_unique=False))
        return traversal.find(self, target, found, "parameter")  # type: ignore[no-any-return]

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer at a path such as "encoder.1.running_mean"."""
        found = dict(traversal.members(self, (Kind.BUFFER, Kind.TRANSIENT), is_unique=False))
        return traversal.find(self, target, found, "buffer")  # type: ignore[no-any-return]

    def to(self, *target: Any, device: Any = None, dtype: DtypeLike = None, non_blocking: bool = False) -> Self:
        """Give parameters and float buffers another dtype, in place, and return the module; "cpu" changes nothing.

        Running statistics become float32 where all else becomes half.

        Args:
            target: a dtype, a tensor that has it, a device, or both as in ``to("cpu", nt.float64)``.
            device: "cpu", the only one that there is.
            dtype: the dtype.
            non_blocking: accepted for PyTorch's sake.

        Example:
            >>> nt.nn.Linear(2, 3).to(nt.float64).weight.dtype
            dtype('float64')
        """
        given = [each for each in (*target, device, dtype) if each is not None]
        if not given:
            raise OperandError(f"{type(self).__name__}.to: takes a dtype, a device or a tensor.")
        for each in given:
            conversion.convert(self, each)
        return self

    def float(self) -> Self:
        """Convert to float32."""
        return self.to(float32)

    def double(self) -> Self:
        """Convert to float64."""
        return self.to(float64)

    def half(self) -> Self:
        """Convert to float16."""
        return self.to(float16)

    def bfloat16(self) -> Self:
        """Convert to bfloat16."""
        return self.to(bfloat16)

    def cpu(self) -> Self:
        """Return the module itself."""
        return self

    def cuda(self, device: Any = None) -> Self:
        """Raise, since there is no such device."""
        return self.to("cuda")

    # Text.
    def extra_repr(self) -> str:
        """Return what `repr` shows of the module itself; subclasses override it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = [f"({name}): {child!r}".replace("\n", "\n  ") for name, child in self.named_children()]
        if not lines:
            return f"{type(self).__name__}({extra})"
        return "\n  ".join([f"{type(self).__name__}(", *([extra] if extra else []), *lines]) + "\n)"

    def summary(self, *example: Any) -> "ModelSummary":
        """Return a table of the modules: path, class, output shape if an example input is given, parameters.

        An example is what the model is called with, or the shape of a float input, such as ``(1, 2)``.

        Example:
            >>> print(nt.nn.Sequential(nt.nn.Linear(2, 3), nt.nn.ReLU()).summary(np.ones((1, 2), np.float32)))
            path  class       output  parameters
            ----  ----------  ------  ----------
                  Sequential  (1, 3)           9
            0     Linear      (1, 3)           9
            1     ReLU        (1, 3)           0
            9 parameters (9 trainable), 36 bytes
        """
        from .summary import summarise

        return summarise(self, example)


def _leaves(module: Any) -> list[Any]:
    return list(module.parameters())


def _rebuilt(module: Any, new: list[Any]) -> Any:
    paths = (path for path, _ in module.named_parameters())
    return traversal.copy_with(module, dict(zip(paths, new, strict=True)))


tree.register(Module, _leaves, _rebuilt)
