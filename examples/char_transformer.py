"""A transformer that learns a rhyme letter by letter, and then tells it.

Embeddings of letters and places, two encoder layers with a causal mask, AdamW with a warm-up and a cosine, clipped
gradients. All that it ever reads is in this file.
"""

import math

import numpy as np

import numtape as nt

CORPUS = """\
The Owl and the Pussy-cat went to sea
In a beautiful pea-green boat,
They took some honey, and plenty of money,
Wrapped up in a five-pound note.
The Owl looked up to the stars above,
And sang to a small guitar,
"O lovely Pussy! O Pussy, my love,
What a beautiful Pussy you are,
You are,
You are!
What a beautiful Pussy you are!"
"""


class Reader(nt.nn.Module):
    """Scores for the next letter at every place of a text."""

    def __init__(self, letters: int, context: int, width: int, layers: int, stream: nt.Generator) -> None:
        self.context = context
        self.letters = nt.nn.Embedding(letters, width, rng=stream)
        self.places = nt.nn.Embedding(context, width, rng=stream)
        self.layers = nt.nn.ModuleList(
            nt.nn.TransformerEncoderLayer(
                width, 4, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, rng=stream
            )
            for _ in range(layers)
        )
        self.norm = nt.nn.LayerNorm(width)
        self.scores = nt.nn.Linear(width, letters, rng=stream)

    def forward(self, text: nt.Tensor) -> nt.Tensor:
        """Return scores of shape (batch, places, letters)."""
        x = self.letters(text) + self.places(np.arange(text.shape[1]))
        for layer in self.layers:
            x = layer(x, is_causal=True)
        return self.scores(self.norm(x))


def main(steps: int = 300, width: int = 32, layers: int = 2, seed: int = 0) -> dict[str, float | str]:
    """Train; return the first and last bits per letter, and what the model tells."""
    letters = sorted(set(CORPUS))
    text = np.array([letters.index(letter) for letter in CORPUS])
    context = 32
    model = Reader(len(letters), context, width, layers, nt.Generator(seed))
    print(model.summary())

    optimizer = nt.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = nt.optim.WarmupCosineLR(optimizer, warmup_steps=max(steps // 10, 1), total_steps=steps)
    starts = np.random.default_rng(seed)
    bits = []
    for step in range(steps):
        places = starts.integers(0, len(text) - context, 16)[:, None] + np.arange(context)
        loss = nt.cross_entropy(model(text[places]).reshape(-1, len(letters)), text[places + 1].reshape(-1))
        loss.backward()
        norm = nt.clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        bits.append(loss.item() / math.log(2.0))
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step:4}  {bits[-1]:.2f} bits per letter  gradient norm {float(norm):.2f}")

    told = tell(model, letters, "The Owl", 120)
    print(f"\n{told}")
    return {"first_bits": bits[0], "last_bits": float(np.mean(bits[-10:])), "told": told}


@nt.no_grad()
def tell(model: Reader, letters: list[str], start: str, count: int) -> str:
    """Go on from a start with the likeliest letter, again and again."""
    model.eval()
    text = [letters.index(letter) for letter in start]
    for _ in range(count):
        scores = model(np.array([text[-model.context :]]))
        text.append(int(scores[0, -1].argmax()))
    return "".join(letters[number] for number in text)


if __name__ == "__main__":
    main()
