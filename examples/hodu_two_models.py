"""hodu's third guide: two models that train side by side, each in its own context.

The main model learns a noisy curve. The auxiliary one learns how far the main model is off, from its detached output.
Nothing of that reaches the main model: its weights come out the same, bit for bit, without the auxiliary one.
"""

import numpy as np

import numtape as nt


def main(epochs: int = 300, seed: int = 0) -> dict[str, float]:
    """Train both models, then the main one alone; return its loss, the expected errors, and whether it was touched."""
    main_model, aux_model, loss = train(epochs, seed, with_auxiliary=True)
    alone, _, _ = train(epochs, seed, with_auxiliary=False)
    is_untouched = all(
        np.array_equal(a.numpy(), b.numpy()) for a, b in zip(main_model.parameters(), alone.parameters(), strict=True)
    )

    places = np.linspace(-2.0, 2.0, 9, dtype=np.float32)[:, None]
    with nt.no_grad():
        curve = main_model(nt.tensor(places)).numpy()[:, 0]
        errors = aux_model(nt.tensor(places)).numpy()[:, 0]
    print("\n     x    main   expected error")
    for x, y, error in zip(places[:, 0], curve, errors, strict=True):
        print(f"{x:6.1f}  {y:6.2f}   {error:5.2f} {'#' * int(40 * max(error, 0.0))}")
    print(f"\nthe main model is the same, bit for bit, without the auxiliary one: {is_untouched}")
    return {
        "loss": loss,
        "error_inside": float(errors[4]),
        "error_outside": float(max(errors[0], errors[8])),
        "is_untouched": is_untouched,
    }


def train(epochs: int, seed: int, with_auxiliary: bool) -> tuple[nt.nn.Module, nt.nn.Module, float]:
    """Return both models and the last loss of the main one."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, (256, 1)).astype(np.float32)
    # The further from the origin, the noisier.
    y = np.sin(2.0 * x) + 0.3 * np.abs(x) * rng.standard_normal(x.shape).astype(np.float32)
    x, y = nt.tensor(x), nt.tensor(y)
    stream = nt.Generator(seed)
    main_model, aux_model = network(stream), network(stream)
    main_optimizer = nt.optim.Adam(0.02, 0.9, 0.999, 1e-8)
    aux_optimizer = nt.optim.SGD(0.05)

    with nt.GradientContext() as aux_ctx:
        for epoch in range(epochs):
            # The main model, in context 0.
            with nt.default_context().activate():
                output = main_model.forward(x)
                main_loss = nt.mse_loss(output, y)
                nt.compute_gradients(main_loss)
                params = list(main_model.parameters())
                main_optimizer.step(params)
                main_optimizer.zero_grad(params)

            if not with_auxiliary:
                continue

            # The auxiliary model, in its context, which is active in this block.
            error = (output.detach() - y).abs()
            aux_loss = nt.mse_loss(aux_model.forward(x), error)
            nt.compute_gradients(aux_loss)
            params = list(aux_model.parameters())
            aux_optimizer.step(params)
            aux_optimizer.zero_grad(params)
            nt.clear_tape()
            if epoch % 100 == 0 or epoch == epochs - 1:
                print(
                    f"epoch {epoch:3}  main {main_loss.item():.4f} in context 0  "
                    f"auxiliary {aux_loss.item():.4f} in context {aux_ctx.id}"
                )
    return main_model, aux_model, main_loss.item()


def network(stream: nt.Generator) -> nt.nn.Module:
    """Return a network from one number to one number."""
    return nt.nn.Sequential(nt.nn.Linear(1, 24, rng=stream), nt.nn.Tanh(), nt.nn.Linear(24, 1, rng=stream))


if __name__ == "__main__":
    main()
