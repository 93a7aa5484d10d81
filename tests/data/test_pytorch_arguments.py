"""The loader takes the arguments that programs for PyTorch give."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ArgumentError, OperandError

X = np.arange(8)


def batches(loader):
    return [batch.tolist() for batch in loader]


def test_names_of_pytorch_mean_ours():
    loader = nt.data.DataLoader(X, batch_size=4, collate_fn=lambda samples: nt.tensor(samples) * 10)
    assert batches(loader) == [[0, 10, 20, 30], [40, 50, 60, 70]]
    first = nt.data.DataLoader(X, batch_size=4, shuffle=True, generator=3, pin_memory=True, persistent_workers=True)
    assert batches(first) == batches(nt.data.DataLoader(X, batch_size=4, shuffle=True, rng=3))
    second = nt.data.DataLoader(X, batch_size=4, shuffle=True, generator=nt.Generator(3))
    assert sorted(each for batch in batches(second) for each in batch) == X.tolist()


def test_a_sampler_says_which_samples_come_and_when():
    loader = nt.data.DataLoader(X, batch_size=2, sampler=[5, 1, 1])
    assert len(loader) == 2
    assert batches(loader) == [[5, 1], [1]]
    assert batches(loader) == [[5, 1], [1]]
    assert len(nt.data.DataLoader(X, batch_size=2, sampler=[5, 1, 1], drop_last=True)) == 1


class Drawing:
    """A sampler with another order each time."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return 6

    def __iter__(self):
        return iter(self.rng.permutation(8)[:6].tolist())


@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_rest_of_an_epoch_of_a_sampler_is_saved(tmp_path, prefetch):
    loader = nt.data.DataLoader(X, batch_size=2, sampler=Drawing(0), prefetch=prefetch)
    whole = batches(nt.data.DataLoader(X, batch_size=2, sampler=Drawing(0)))
    begun = iter(loader)
    assert next(begun).tolist() == whole[0]
    nt.save(tmp_path / "state", loader.state_dict())
    other = nt.data.DataLoader(X, batch_size=2, sampler=Drawing(1), prefetch=prefetch)
    other.load_state_dict(nt.load(tmp_path / "state"))
    assert batches(other) == whole[1:]
    assert len(batches(other)) == 3


def test_a_sampler_may_give_more_samples_than_there_are():
    def loader():
        return nt.data.DataLoader(X, batch_size=4, sampler=[i % 8 for i in range(20)])

    first = loader()
    begun = iter(first)
    taken = [next(begun) for _ in range(3)]
    assert batches(loader().load_state_dict(first.state_dict())) == batches(begun)
    assert len(taken) == 3


@pytest.mark.parametrize("was", ["with", "without"])
def test_the_state_of_a_sampler_is_for_loaders_with_one(was):
    loaders = {
        "with": nt.data.DataLoader(X, batch_size=2, sampler=[3, 2, 1, 0]),
        "without": nt.data.DataLoader(X, batch_size=2),
    }
    saved, other = loaders[was], loaders["without" if was == "with" else "with"]
    next(iter(saved))
    with pytest.raises(ArgumentError) as caught:
        other.load_state_dict(saved.state_dict())
    assert str(caught.value) == (
        f"DataLoader.load_state_dict: the state was saved {was} a sampler and this loader is "
        f"{'without' if was == 'with' else 'with'} one; the rest of the epoch would not be the rest."
    )


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (
            {"collate": list, "collate_fn": list},
            ArgumentError,
            "DataLoader: collate and collate_fn are two names of one argument; give one of them.",
        ),
        (
            {"rng": 0, "generator": 0},
            ArgumentError,
            "DataLoader: rng and generator are two names of one argument; give one of them.",
        ),
        (
            {"sampler": [0], "shuffle": True},
            ArgumentError,
            "DataLoader: a sampler has an order of its own; give it, or shuffle=True.",
        ),
        (
            {"sampler": iter([0])},
            OperandError,
            "DataLoader: sampler is of type list_iterator; it must be numbers of samples, with a length.",
        ),
        (
            {"sampler": [1, 8]},
            ArgumentError,
            "DataLoader: the sampler gave 8, and there are 8 samples, from 0 on.",
        ),
        ({"sampler": [0.5]}, ArgumentError, "DataLoader: the sampler gave 0.5; it must give numbers of samples."),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments, kind, message):
    with pytest.raises(kind) as caught:
        batches(nt.data.DataLoader(X, **arguments))
    assert str(caught.value) == message
