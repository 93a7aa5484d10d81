"""ML Odyssey's accumulation: four small batches that make one large one, in three ways that agree to the last digits.

The first scales the loss and lets `.grad` add up, with `accumulate_gradients` as the document writes it. The second
averages gradients that a tape returned. The third is the whole batch at once, for comparison.
"""

import numpy as np

import numtape as nt

ACCUMULATION_STEPS = 4


def main(steps: int = 30, seed: int = 0) -> dict[str, float]:
    """Train three copies of a model; return how far their weights are apart, and the last loss."""
    rng = np.random.default_rng(seed)
    inputs = nt.tensor(rng.standard_normal((64, 5)))
    targets = nt.sin(inputs.sum(axis=1, keepdims=True))
    ways = {"scaled losses": by_scaled_losses, "averaged gradients": by_averaged_gradients, "whole batch": by_batch}

    trained, losses = {}, {}
    for name, way in ways.items():
        model = nt.nn.Sequential(
            nt.nn.Linear(5, 16, dtype="float64", rng=seed), nt.nn.Tanh(), nt.nn.Linear(16, 1, dtype="float64", rng=seed)
        )
        optimizer = nt.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(steps):
            way(model, optimizer, inputs, targets)
        trained[name] = np.concatenate([param.numpy().ravel() for param in model.parameters()])
        losses[name] = nt.mse_loss(model(inputs), targets).item()

    print(f"{ACCUMULATION_STEPS} batches of 16, or one of 64; Adam, {steps} steps\n")
    whole = trained["whole batch"]
    apart = {name: float(np.max(np.abs(weights - whole))) for name, weights in trained.items()}
    for name in ways:
        print(f"{name:20}  loss {losses[name]:.12f}  weights differ by {apart[name]:.1e}")
    return {"apart": max(apart.values()), "loss": losses["whole batch"]}


def batches(inputs: nt.Tensor, targets: nt.Tensor) -> list[tuple[nt.Tensor, nt.Tensor]]:
    """Return the samples in equal parts."""
    parts = nt.split(inputs, ACCUMULATION_STEPS), nt.split(targets, ACCUMULATION_STEPS)
    return list(zip(*parts, strict=True))


def by_scaled_losses(model: nt.nn.Module, optimizer: nt.optim.Optimizer, inputs: nt.Tensor, targets: nt.Tensor) -> None:
    """Do one step as the document writes it."""
    criterion = nt.nn.MSELoss()
    tape = nt.Tape()
    for x, target in batches(inputs, targets):
        with tape:
            output = model.forward(x)
            loss = criterion.forward(output, target)
            loss = loss / ACCUMULATION_STEPS  # Scale for accumulation.
        grads = tape.backward(loss)
        nt.accumulate_gradients(grads)  # Knows what backward has added already: nothing counts twice.
    optimizer.step()
    optimizer.zero_grad()


def by_averaged_gradients(
    model: nt.nn.Module, optimizer: nt.optim.Optimizer, inputs: nt.Tensor, targets: nt.Tensor
) -> None:
    """Do one step with gradients that `gradient` returned and an accumulator averaged."""
    accumulator = nt.GradientAccumulator(steps=ACCUMULATION_STEPS)
    for x, target in batches(inputs, targets):
        tape = nt.GradientTape()
        loss = nt.mse_loss(model(x), target)
        if accumulator.add(tape.gradient(loss, list(model.parameters()))):
            optimizer.step(accumulator.take())


def by_batch(model: nt.nn.Module, optimizer: nt.optim.Optimizer, inputs: nt.Tensor, targets: nt.Tensor) -> None:
    """Do one step with all samples at once."""
    nt.mse_loss(model(inputs), targets).backward()
    optimizer.step()
    optimizer.zero_grad()


if __name__ == "__main__":
    main()
