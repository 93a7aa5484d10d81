"""hodu's second guide: a small network on two moons, recorded in a context of its own.

In hodu, forgetting `clear_tape()` here fills the memory. Here the call is allowed and there is nothing left to clear;
what the context is good for is that leaving it ends everything that was recorded in it.
"""

from collections.abc import Callable

import numpy as np

import numtape as nt


def main(epochs: int = 200, seed: int = 0, clears: bool = True) -> dict[str, float]:
    """Train with or without `clear_tape()`; return loss, accuracy and the largest and last number of live records."""
    points, labels = nt.data.two_moons(200, noise=0.1, rng=seed)
    optimizer = nt.optim.SGD(0.5)
    hidden = nt.randn(2, 16, rng=seed + 1).set_requires_grad(True)
    hidden_bias = nt.zeros(16).set_requires_grad(True)
    out = (nt.randn(16, 2, rng=seed + 2) * 0.25).set_requires_grad(True)
    params = [hidden, hidden_bias, out]

    def forward(x: nt.Tensor) -> nt.Tensor:
        return x.matmul(hidden).add(hidden_bias).tanh().matmul(out)

    most = 0
    with nt.GradientContext() as ctx:
        for epoch in range(epochs):
            loss = nt.cross_entropy(forward(points), labels)
            most = max(most, len(ctx.tape))
            nt.compute_gradients(loss)
            optimizer.step(params)
            optimizer.zero_grad(params)
            if clears:
                nt.clear_tape()  # hodu needs it; here it does nothing.
            if epoch % 50 == 0 or epoch == epochs - 1:
                print(f"epoch {epoch:3}  loss {loss.item():.4f}  records in context {ctx.id}: {len(ctx.tape)}")
        left = len(ctx.tape)
    assert ctx.is_closed

    with nt.no_grad():
        accuracy = float((forward(points).argmax(axis=1).numpy() == labels.numpy()).mean())
        print(f"{accuracy:.1%} of the points are on the right moon:\n")
        print(picture(forward))
    return {"loss": loss.item(), "accuracy": accuracy, "most_records": most, "records_left": left}


def picture(forward: Callable[[nt.Tensor], nt.Tensor]) -> str:
    """Draw which moon each place of the plane belongs to."""
    columns, rows = np.linspace(-1.4, 2.4, 58), np.linspace(1.3, -0.9, 16)
    places = np.stack(np.meshgrid(columns, rows), axis=-1).reshape(-1, 2).astype(np.float32)
    moons = forward(nt.tensor(places)).argmax(axis=1).numpy().reshape(16, 58)
    return "\n".join("  " + "".join(".#"[moon] for moon in row) for row in moons)


if __name__ == "__main__":
    main()
