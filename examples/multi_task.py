"""Two tasks, one trunk, one tape: which digit is it, and how much ink is on the paper?

The forward pass runs once. One tape gives the gradients of each loss by itself, which says whether the tasks pull the
shared layer in the same direction; the step then takes their sum.
"""

import numpy as np

import numtape as nt


class TwoHeads(nt.nn.Module):
    """A shared layer, a head that names the digit and a head that weighs the ink."""

    def __init__(self, stream: nt.Generator) -> None:
        self.trunk = nt.nn.Linear(64, 32, rng=stream)
        self.digit = nt.nn.Linear(32, 10, rng=stream)
        self.ink = nt.nn.Linear(32, 1, rng=stream)

    def forward(self, images: nt.Tensor) -> tuple[nt.Tensor, nt.Tensor]:
        """Return scores of the digits, and the amount of ink."""
        shared = nt.relu(self.trunk(images))
        return self.digit(shared), self.ink(shared)[:, 0]


def main(epochs: int = 20, seed: int = 0) -> dict[str, float]:
    """Train both tasks; return accuracy, R2, and how far the sum of the gradients is from that of the summed loss."""
    images, labels = nt.data.digits("train")
    loader = nt.data.DataLoader((images.reshape(-1, 64), labels), batch_size=64, shuffle=True, rng=seed)
    model = TwoHeads(nt.Generator(seed))
    optimizer = nt.optim.Adam(model.parameters(), lr=1e-2)
    schedule = nt.optim.CosineAnnealingLR(optimizer, T_max=epochs)
    apart = 0.0

    for epoch in range(epochs):
        agreements = []
        for x, target in loader:
            with nt.Tape() as tape:
                scores, ink = model(x)
                digit_loss = nt.cross_entropy(scores, target)
                ink_loss = nt.mse_loss(ink, ink_of(x))
                loss = digit_loss + 20.0 * ink_loss

            # The graph is kept for the second loss and for the sum, which frees it.
            by_digit = tape.backward(digit_loss, retain_graph=True)
            by_ink = tape.backward(20.0 * ink_loss, retain_graph=True)
            optimizer.zero_grad()
            total = tape.backward(loss)
            optimizer.step(total)
            optimizer.zero_grad()

            trunk = model.trunk.weight
            agreements.append(cosine(by_digit[trunk], by_ink[trunk]))
            difference = by_digit[trunk].numpy() + by_ink[trunk].numpy() - total[trunk].numpy()
            apart = max(apart, float(np.max(np.abs(difference))))
        schedule.step()
        if epoch % 4 == 0 or epoch == epochs - 1:
            agreement = f"agreement on the shared layer {np.mean(agreements):+.2f}"
            print(f"epoch {epoch:2}  digit {digit_loss.item():.4f}  ink {ink_loss.item():.5f}  {agreement}")

    unseen, truth = nt.data.digits("test")
    unseen = unseen.reshape(-1, 64)
    accuracy, r2 = nt.train.Accuracy(), nt.train.R2()
    with nt.no_grad():
        scores, ink = model(unseen)
    accuracy.update(scores, truth)
    r2.update(ink, ink_of(unseen))
    print(f"\n{accuracy.compute():.1%} of the digits, and {r2.compute():.1%} of the variation of ink, are explained")
    return {"accuracy": accuracy.compute(), "r2": r2.compute(), "apart": apart}


def ink_of(images: nt.Tensor) -> nt.Tensor:
    """Return how dark images are, from 0 to 1."""
    return images.mean(axis=1)


def cosine(a: nt.Tensor, b: nt.Tensor) -> float:
    """Return 1 for gradients that agree, 0 for unrelated ones, -1 for opposite ones."""
    a, b = a.numpy().ravel(), b.numpy().ravel()
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-12))


if __name__ == "__main__":
    main()
