"""A network that knows no data, only a law: the damped oscillator u'' + 2 d u' + w**2 u = 0 with u(0) = 1, u'(0) = 0.

Forward mode gives u' and u'' at all times at once, each a `jvp` along time; reverse mode then gives the gradient of
what is left of the law by all weights. The loss is zero only for the true motion.
"""

import numpy as np

import numtape as nt

DAMPING, FREQUENCY = 0.4, 2.0


def main(steps: int = 800, hidden: int = 24, seed: int = 0) -> dict[str, float]:
    """Fit the law on [0, 3]; return its residual and the largest error against the exact motion."""
    stream = nt.Generator(seed)
    kind = {"dtype": "float64", "rng": stream}
    model = nt.nn.Sequential(
        nt.nn.Linear(1, hidden, **kind),
        nt.nn.SiLU(),
        nt.nn.Linear(hidden, hidden, **kind),
        nt.nn.SiLU(),
        nt.nn.Linear(hidden, 1, **kind),
    )
    times = nt.tensor(np.linspace(0.0, 3.0, 40)[:, None])
    along = nt.ones_like(times)

    def motion(t: nt.Tensor) -> nt.Tensor:
        # Whatever the network says, it starts at 1 and at rest.
        return 1.0 + t**2 * model(t)

    def speed(t: nt.Tensor) -> nt.Tensor:
        return nt.jvp(motion, (t,), (along,))[1]

    optimizer = nt.optim.Adam(model.parameters(), lr=1e-2)
    schedule = nt.optim.CosineAnnealingLR(optimizer, T_max=steps)
    loss = nt.tensor(0.0)
    for step in range(steps):
        u = motion(times)
        du, ddu = nt.jvp(speed, (times,), (along,))
        loss = ((ddu + 2.0 * DAMPING * du + FREQUENCY**2 * u) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % 200 == 0 or step == steps - 1:
            print(f"step {step:4}  what is left of the law: {loss.item():.2e}")

    with nt.no_grad():
        found = motion(times).numpy()[:, 0]
    true = exact(times.numpy()[:, 0])
    error = float(np.max(np.abs(found - true)))
    print(f"\nlargest error against the exact motion: {error:.1e}\n\n{picture(found, true)}")
    return {"loss": loss.item(), "error": error}


def exact(t: np.ndarray) -> np.ndarray:
    """Return the motion in closed form."""
    w = np.sqrt(FREQUENCY**2 - DAMPING**2)
    return np.exp(-DAMPING * t) * (np.cos(w * t) + DAMPING / w * np.sin(w * t))


def picture(found: np.ndarray, true: np.ndarray) -> str:
    """Draw the motion downward: o is the network, | the truth where they differ."""
    lines = []
    for ours, theirs in zip(found[::2], true[::2], strict=True):
        line = [" "] * 61
        line[30] = "."
        line[round(30 + 28 * float(np.clip(theirs, -1.0, 1.0)))] = "|"
        line[round(30 + 28 * float(np.clip(ours, -1.0, 1.0)))] = "o"
        lines.append("".join(line).rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    main()
