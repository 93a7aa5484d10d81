"""ML Odyssey's complete example: plain tensors, a tape that watches whatever is used inside it, and weights made anew.

Nothing is marked as a parameter. `tape.backward(loss)` returns the gradients of all tensors that took part.
"""

import numpy as np

import numtape as nt


def main(steps: int = 60, learning_rate: float = 0.5, seed: int = 0) -> dict[str, float]:
    """Train on batches of 32 digits; return the first and last loss and the accuracy."""
    images, labels = nt.data.digits("train")
    test_images, test_labels = nt.data.digits("test")
    batches = np.random.default_rng(seed)
    w = nt.randn(64, 10, rng=seed) * 0.01
    b = nt.zeros(10)
    losses = []

    for step in range(steps):
        chosen = batches.integers(0, len(images), 32)
        x, targets = images.numpy()[chosen].reshape(32, 64), labels.numpy()[chosen]

        # Record the forward pass. Cross-entropy takes logits; for probabilities there is from_logits=False.
        tape = nt.Tape()
        with tape:
            logits = x @ w + b
            loss = nt.cross_entropy_loss(logits, targets)
        if step == 0:
            print("What the tape holds:\n")
            print(tape)
            print()

        # Compute gradients, and update the weights.
        grads = tape.backward(loss)
        dw = grads.get(w)
        db = grads.get(b)
        with nt.no_grad():  # The next weights start anew; how they were computed is nobody's business.
            w = w - learning_rate * dw
            b = b - learning_rate * db
        losses.append(loss.item())
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step:3}  loss {losses[-1]:.4f}  |dw| {float(nt.norm(dw)):.4f}")

    guesses = (test_images.reshape(len(test_images), 64) @ w + b).argmax(axis=1)
    accuracy = float((guesses.numpy() == test_labels.numpy()).mean())
    print(f"{accuracy:.1%} of the digits that it never saw are right")
    return {"first_loss": losses[0], "last_loss": float(np.mean(losses[-10:])), "accuracy": accuracy}


if __name__ == "__main__":
    main()
