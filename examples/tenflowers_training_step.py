"""TenfloweRS' training step: a new tape for each step, weights that it watches, and weights that are set.

The layer has to find out, from pairs of points, by which angle somebody turned the plane.
"""

import numpy as np

import numtape as nt


def main(steps: int = 60, degrees: float = 30.0, learning_rate: float = 0.5, seed: int = 0) -> dict[str, float]:
    """Train a layer of four weights; return the losses and the angle that it found."""
    angle = np.deg2rad(degrees)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], np.float32)
    inputs = nt.randn(64, 2, rng=seed)
    targets = inputs @ turn.T
    model = nt.nn.Dense(2, 2, bias=False, rng=seed)

    losses = []
    for step in range(steps):
        losses.append(training_step(model, inputs, targets, learning_rate))
        if step % 10 == 0 or step == steps - 1:
            weights = np.array2string(model.weights().numpy().round(3).ravel(), separator=", ")
            print(f"step {step:3}  loss {losses[-1]:.2e}  weights {weights}")

    (a, b), (c, d) = model.weights().tolist()
    found = float(np.rad2deg(np.arctan2(c - b, a + d)))
    print(f"the plane was turned by {found:.2f} degrees; {degrees:.2f} is right")
    return {"first_loss": losses[0], "last_loss": losses[-1], "degrees": found}


def training_step(model: nt.nn.Dense, inputs: nt.Tensor, targets: nt.Tensor, learning_rate: float) -> float:
    """Take one step downhill, and return the loss before it."""
    tape = nt.GradientTape()

    # Forward pass with tracked weights.
    weights_tracked = tape.watch(model.weights().clone())
    predictions = nt.nn.functional_call(model, {"weight": weights_tracked}, inputs)

    # Compute the loss.
    loss = nt.mse_loss(predictions, targets)
    loss_value = loss.to_scalar()

    # Backward pass.
    grads = tape.gradient([loss], [weights_tracked])

    # Update the weights.
    updated_weights = model.weights().sub(grads[0].mul(nt.tensor(learning_rate)))
    model.set_weights(updated_weights)
    return loss_value


if __name__ == "__main__":
    main()
