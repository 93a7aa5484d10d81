"""A generative adversarial network: a generator that learns to draw a ring, and a critic that tells it how.

Each trains in a context of its own. The critic's gradient penalty is a gradient inside a loss: the inner tape's result
is recorded by the outer one, which then differentiates it.
"""

import numpy as np

import numtape as nt


def main(steps: int = 400, critic_steps: int = 3, batch: int = 64, seed: int = 0) -> dict[str, float]:
    """Train both; return the mean radius of what the generator draws, its spread, and how far around it gets."""
    stream = nt.Generator(seed)
    generator, critic = network(2, 2, stream), network(2, 1, stream)
    generator_optimizer = nt.optim.Adam(generator.parameters(), lr=3e-3, betas=(0.5, 0.9))
    critic_optimizer = nt.optim.Adam(critic.parameters(), lr=6e-3, betas=(0.5, 0.9))
    generator_context, critic_context = nt.GradientContext(), nt.GradientContext()
    distance = penalty = 0.0

    for step in range(steps):
        for _ in range(critic_steps):
            with critic_context.activate():
                real = ring(batch, stream)
                with nt.no_grad():
                    fake = generator(nt.randn(batch, 2, rng=stream))
                distance, penalty = critic_step(critic, critic_optimizer, real, fake, stream)
        with generator_context.activate():
            loss = -critic(generator(nt.randn(batch, 2, rng=stream))).mean()
            nt.compute_gradients(loss)
            generator_optimizer.step()
            # The critic was on the way and got gradients, too; its optimizer drops them.
            generator_optimizer.zero_grad()
            critic_optimizer.zero_grad()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step:4}  distance {distance:6.3f}  gradient penalty {penalty:.4f}")
    generator_context.close()
    critic_context.close()

    with nt.no_grad():
        points = generator(nt.randn(500, 2, rng=stream)).numpy()
    radius = np.linalg.norm(points, axis=1)
    angles = np.arctan2(points[:, 1], points[:, 0])
    sectors = len(np.unique((angles // (np.pi / 8)).astype(int)))
    print(f"\nradius {radius.mean():.3f} +- {radius.std():.3f}, in {sectors} of 16 directions\n\n{picture(points)}")
    return {"radius": float(radius.mean()), "spread": float(radius.std()), "sectors": sectors, "penalty": penalty}


def critic_step(
    critic: nt.nn.Module, optimizer: nt.optim.Optimizer, real: nt.Tensor, fake: nt.Tensor, stream: nt.Generator
) -> tuple[float, float]:
    """Let the critic tell real from fake with slopes near 1 between them; return its distance and the penalty."""
    share = nt.rand(len(real), 1, rng=stream)
    between = share * real + (1.0 - share) * fake
    with nt.GradientTape() as outer:
        with nt.GradientTape() as inner:
            inner.watch(between)
            scores = critic(between).sum()
        slopes = inner.gradient(scores, between)
        penalty = ((nt.norm(slopes, axis=1) - 1.0) ** 2).mean()
        distance = critic(real).mean() - critic(fake).mean()
        loss = 0.3 * penalty - distance
    outer.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return distance.item(), penalty.item()


def network(inputs: int, outputs: int, stream: nt.Generator) -> nt.nn.Module:
    """Return a small network."""
    return nt.nn.Sequential(
        nt.nn.Linear(inputs, 32, rng=stream),
        nt.nn.SiLU(),
        nt.nn.Linear(32, 32, rng=stream),
        nt.nn.SiLU(),
        nt.nn.Linear(32, outputs, rng=stream),
    )


def ring(count: int, stream: nt.Generator) -> nt.Tensor:
    """Return points about the unit circle."""
    angle = nt.uniform(0.0, 2.0 * np.pi, (count, 1), rng=stream)
    return nt.concat([nt.cos(angle), nt.sin(angle)], axis=1) + 0.03 * nt.randn(count, 2, rng=stream)


def picture(points: np.ndarray) -> str:
    """Draw points of the square from -1.5 to 1.5."""
    counts, _, _ = np.histogram2d(points[:, 1], points[:, 0], bins=(21, 42), range=[[-1.5, 1.5], [-1.5, 1.5]])
    return "\n".join("".join(" .oO@"[min(int(count), 4)] for count in row) for row in counts[::-1])


if __name__ == "__main__":
    main()
