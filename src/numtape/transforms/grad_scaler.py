"""GradScaler: a dynamic loss scaler with the names and the saved state of PyTorch's."""

from typing import Any

from ..errors import ArgumentError
from .scaler_settings import as_backoff, as_count, as_growth
from .scaling import DynamicScaler
from .unscaling import parameters_of


class GradScaler(DynamicScaler):
    """Scale losses as PyTorch's `torch.amp.GradScaler` does; `LossScaler.Dynamic` by other names.

    Args:
        device: "cpu", or the first scale, as in older programs.
        init_scale: the first factor.
        growth_factor: what it is multiplied by after `growth_interval` good steps in a row.
        backoff_factor: what it is multiplied by after an overflow.
        growth_interval: after how many good steps in a row it grows.
        enabled: False to let losses, gradients and optimizers pass as if there were no scaler.

    Example:
        >>> scaler = nt.GradScaler(init_scale=1024.0)
        >>> w = nt.tensor([1.0], requires_grad=True)
        >>> optimizer = nt.optim.SGD([w], lr=0.5)
        >>> scaler.scale((w * w).sum()).backward()
        >>> scaler.unscale_(optimizer)
        >>> w.grad.tolist()
        [2.0]
        >>> scaler.step(optimizer)
        >>> scaler.update()
    """

    def __init__(
        self,
        device: str | float = "cpu",
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if not isinstance(device, str):
            init_scale = device
        elif device.split(":")[0] != "cpu":
            raise ArgumentError(f'GradScaler: there is no device {device!r}; numtape computes on "cpu".')
        super().__init__(init_scale, growth_factor, backoff_factor, growth_interval)
        self._is_enabled = bool(enabled)

    def is_enabled(self) -> bool:
        """Say whether it does anything."""
        return self._is_enabled

    def get_scale(self) -> float:
        """Return the factor by which losses are multiplied now; 1 if it is not enabled."""
        return super().get_scale() if self._is_enabled else 1.0

    def scale(self, outputs: Any) -> Any:
        """Return losses times the scale."""
        return super().scale(outputs) if self._is_enabled else outputs

    def unscale(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, in place."""
        if self._is_enabled:
            super().unscale(optimizer)

    def unscale_(self, optimizer: Any) -> None:
        """Do what `unscale` does."""
        self.unscale(optimizer)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Let an optimizer step, unless one of its gradients is not finite."""
        if self._is_enabled:
            return super().step(optimizer, *args, **kwargs)
        if kwargs.get("closure", 0) is None:
            del kwargs["closure"]
        parameters_of("GradScaler.step", optimizer)
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | None = None) -> None:
        """End a step: adapt the scale, or set it to another number."""
        if not self._is_enabled:
            return
        if new_scale is None:
            super().update()
        else:
            self._load({**self._settings(), "scale": getattr(new_scale, "item", lambda: new_scale)()})
            self._end_round()

    def get_growth_factor(self) -> float:
        """Return the factor of growth."""
        return self.growth_factor

    def get_backoff_factor(self) -> float:
        """Return the factor after an overflow."""
        return self.backoff_factor

    def get_growth_interval(self) -> int:
        """Return after how many good steps in a row the scale grows."""
        return self.growth_interval

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor of growth."""
        self.growth_factor = as_growth(new_factor)

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor after an overflow."""
        self.backoff_factor = as_backoff(new_factor)

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many good steps in a row the scale grows."""
        self.growth_interval = as_count("growth_interval", new_interval)

    def state_dict(self) -> dict[str, Any]:
        """Return the scale and the settings by PyTorch's names; nothing if it is not enabled."""
        if not self._is_enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self.growth_factor,
            "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval,
            "_growth_tracker": self.good_steps,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned, or PyTorch's; nothing happens if it is not enabled."""
        if self._is_enabled:
            super().load_state_dict(saved)

    def _load(self, saved: dict[str, Any]) -> None:
        bounds = {"min_scale": self.min_scale, "max_scale": self.max_scale}
        super()._load({"good_steps": saved.get("_growth_tracker", self.good_steps), **bounds, **saved})
