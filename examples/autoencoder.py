"""An autoencoder: 64 pixels of a digit through a bottleneck of 8 numbers, and back.

Trained with `nt.train.fit`: the target of an image is the image itself.
"""

import numpy as np

import numtape as nt


class Autoencoder(nt.nn.Module):
    """Squeeze an image into a few numbers, and draw it again from them."""

    def __init__(self, code: int, stream: nt.Generator) -> None:
        self.encoder = nt.nn.Sequential(
            nt.nn.Linear(64, 48, rng=stream), nt.nn.GELU(), nt.nn.Linear(48, code, rng=stream)
        )
        self.decoder = nt.nn.Sequential(
            nt.nn.Linear(code, 48, rng=stream), nt.nn.GELU(), nt.nn.Linear(48, 64, rng=stream), nt.nn.Sigmoid()
        )

    def forward(self, images: nt.Tensor) -> nt.Tensor:
        """Return the images as the bottleneck lets them through."""
        return self.decoder(self.encoder(images))


def main(epochs: int = 15, code: int = 8, seed: int = 0) -> dict[str, float]:
    """Train; return the errors of the model and of the mean image, on digits that it never saw."""
    images = nt.data.digits("train")[0].reshape(-1, 64)
    unseen, labels = nt.data.digits("test")
    unseen = unseen.reshape(-1, 64)
    loader = nt.data.DataLoader((images, images), batch_size=32, shuffle=True, rng=seed)
    model = Autoencoder(code, nt.Generator(seed))
    optimizer = nt.optim.Adam(model.parameters(), lr=3e-3)
    history = nt.train.fit(model, nt.mse_loss, optimizer, loader, epochs, validation=[(unseen, unseen)], progress=False)

    mean_error = nt.mse_loss(images.mean(axis=0, keepdims=True).expand(*unseen.shape), unseen).item()
    error = float(history["val_loss"][-1])
    print(f"error of the mean image {mean_error:.4f}, of the model {error:.4f}; {code} numbers for 64 pixels\n")
    with nt.no_grad():
        drawn = model(unseen).numpy()
    chosen = [int(np.flatnonzero(labels.numpy() == digit)[0]) for digit in (0, 3, 4, 7)]
    print(row_of(unseen.numpy()[chosen]), row_of(drawn[chosen]), sep="\n\n")
    return {"mean_error": mean_error, "error": error, "first_error": float(history["val_loss"][0])}


def row_of(images: np.ndarray) -> str:
    """Draw images of values from 0 to 1 beside each other."""
    inks = " .:-=+*#%@"
    lines = []
    for row in range(8):
        pixels = images.reshape(-1, 8, 8)[:, row]
        lines.append("   ".join("".join(2 * inks[min(int(10 * p), 9)] for p in image) for image in pixels))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
