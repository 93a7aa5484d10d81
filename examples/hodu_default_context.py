"""hodu's first guide: softmax regression on handwritten digits, recorded in the default context.

Nothing is opened and nothing is cleared: tensors own their graphs, and a backward leaves none behind. The optimizer
gets its parameters with each step, as in Rust, where it could not borrow them for longer.
"""

import numtape as nt


def main(epochs: int = 100, seed: int = 0) -> dict[str, float]:
    """Train a matrix and a bias with Adam; return the losses, the accuracy and how many records are left."""
    images, labels = nt.data.digits("train")
    inputs = images.reshape(len(images), 64)
    test_images, test_labels = nt.data.digits("test")

    optimizer = nt.optim.Adam(0.05, 0.9, 0.999, 1e-8)
    weight = (nt.randn(64, 10, rng=seed) * 0.01).set_requires_grad(True)
    bias = nt.zeros(10).set_requires_grad(True)
    first = last = 0.0

    for epoch in range(epochs):
        # Forward: recorded in context 0.
        logits = inputs.matmul(weight).add(bias)
        loss = nt.cross_entropy(logits, labels)

        # Backward: reads these records in reverse, and frees them.
        nt.compute_gradients(loss)

        # Update: never recorded.
        params = [weight, bias]
        optimizer.step(params)
        optimizer.zero_grad(params)

        last = loss.item()
        first = first or last
        if epoch % 20 == 0 or epoch == epochs - 1:
            print(f"epoch {epoch:3}  loss {last:.4f}  records in context 0: {len(nt.default_context().tape)}")

    with nt.no_grad():
        guesses = test_images.reshape(len(test_images), 64).matmul(weight).add(bias).argmax(axis=1)
    accuracy = float((guesses.numpy() == test_labels.numpy()).mean())
    print(f"{accuracy:.1%} of the digits that it never saw are right")
    return {
        "first_loss": first,
        "last_loss": last,
        "accuracy": accuracy,
        "records_left": len(nt.default_context().tape),
    }


if __name__ == "__main__":
    main()
