"""A convolutional network that learns digits in float32, bfloat16 and float16, and what each precision costs.

The parameters stay float32. In the half types, convolutions and products run and are stored in 16 bits, which halves
the tape; in float16 a loss scaler keeps small gradients from vanishing and skips steps that overflow.
"""

import numpy as np

import numtape as nt


def network(stream: nt.Generator) -> nt.nn.Module:
    """Return two convolutions and a linear layer."""
    return nt.nn.Sequential(
        nt.nn.Conv2d(1, 8, 3, stride=2, padding=1, rng=stream),
        nt.nn.ReLU(),
        nt.nn.Conv2d(8, 16, 3, padding=1, rng=stream),
        nt.nn.ReLU(),
        nt.nn.Flatten(),
        nt.nn.Linear(16 * 4 * 4, 10, rng=stream),
    )


def train(precision: str, epochs: int, seed: int) -> tuple[float, int]:
    """Train in a precision; return how many unseen digits are right, and the bytes that a tape kept at the end."""
    model = network(nt.Generator(seed))
    images, labels = nt.data.digits("train")
    optimizer = nt.optim.Adam(model.parameters(), lr=1e-2)
    batches = len(images) // 64
    schedule = nt.optim.OneCycleLR(optimizer, 1e-2, total_steps=epochs * batches)
    # One configuration for all tapes: its loss scaler goes on from step to step.
    config = nt.AmpConfig(precision_mode=precision)
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(len(images))
        for part in np.array_split(order, batches):
            optimizer.zero_grad()
            with nt.GradientTape.with_amp_config(config) as tape:
                loss = nt.cross_entropy(model(images[part]), labels[part])
            kept = sum(record.nbytes for record in tape.records if record.is_kept)
            optimizer.step(tape.backward(loss))  # Does nothing if gradients overflowed.
            schedule.step()
    images, labels = nt.data.digits("test")
    with nt.no_grad(), nt.autocast(precision):
        right = model(images).argmax(axis=-1) == labels
    return float(right.numpy().mean()), kept


def main(epochs: int = 8, seed: int = 0) -> dict[str, tuple[float, int]]:
    """Train in each precision; return accuracy and bytes by its name."""
    found = {precision: train(precision, epochs, seed) for precision in ("float32", "bfloat16", "float16")}
    for precision, (accuracy, kept) in found.items():
        print(f"{precision:8}  {accuracy:.1%} of unseen digits are right; a step keeps {kept / 2**20:.2f} MB")
    return found


if __name__ == "__main__":
    main()
