"""TenfloweRS' conditional gradients: track an input only when somebody will ask for its gradient.

A trained network says which digit it sees, without a record of it. Asked why, it runs again on an input that is
tracked; the gradient by the pixels shows where more or less ink would have mattered.
"""

import numpy as np

import numtape as nt


def main(epochs: int = 8, seed: int = 0) -> dict[str, float]:
    """Train, classify without tracking, explain with it; return the accuracy and the numbers of records."""
    stream = nt.Generator(seed)
    model = nt.nn.Sequential(nt.nn.Linear(64, 32, rng=stream), nt.nn.ReLU(), nt.nn.Linear(32, 10, rng=stream))
    images, labels = nt.data.digits("train")
    loader = nt.data.DataLoader((images.reshape(-1, 64), labels), batch_size=32, shuffle=True, rng=seed)
    optimizer = nt.optim.Adam(model.parameters(), lr=0.01)
    nt.train.fit(model, nt.cross_entropy, optimizer, loader, epochs, progress=False)
    model.requires_grad_(False)  # From here on only inputs are of interest.

    test_images, test_labels = nt.data.digits("test")
    inputs = test_images.reshape(-1, 64)
    output = forward(model, inputs, training=False)
    guesses = output.argmax(axis=1).numpy()
    accuracy = float((guesses == test_labels.numpy()).mean())
    print(f"{accuracy:.1%} of the digits are right; records of that pass: {len(nt.records(output))}")

    given = inputs[:1].clone()
    explained = forward(model, given, training=True)
    records = len(nt.records(explained))
    slope = nt.GradientTape().gradient(explained[0, int(guesses[0])], given)
    print(f"\nwhy is this a {guesses[0]}?  records of this pass: {records}\n")
    print(side_by_side(shades(given.numpy().reshape(8, 8)), signs(slope.numpy().reshape(8, 8))))
    print("\nleft: the ink; right: where more of it speaks for (+) or against (-) the answer")
    return {"accuracy": accuracy, "records_without": len(nt.records(output)), "records_with": records}


def forward(model: nt.nn.Module, given: nt.Tensor, training: bool) -> nt.Tensor:
    """Run the model; track its input only if gradients are wanted."""
    if training:
        tape = nt.GradientTape()
        tracked = tape.watch(given)
        return model.forward(tracked)
    return model.forward(given)  # No tracking overhead.


def shades(image: np.ndarray) -> list[str]:
    """Draw pixels from 0 to 1."""
    return ["".join(2 * " .:-=+*#%@"[min(int(10 * max(pixel, 0.0)), 9)] for pixel in row) for row in image]


def signs(slope: np.ndarray) -> list[str]:
    """Draw where a slope is large, and its sign."""
    large = 0.4 * np.abs(slope).max()
    return ["".join("++" if s > large else "--" if s < -large else "  " for s in row) for row in slope]


def side_by_side(left: list[str], right: list[str]) -> str:
    """Put two drawings beside each other."""
    return "\n".join(f"  |{a}|  |{b}|" for a, b in zip(left, right, strict=True))


if __name__ == "__main__":
    main()
