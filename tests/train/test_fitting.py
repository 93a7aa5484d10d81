"""The training loop: history, metrics, validation, signals, exact resume."""

import os
import signal
import threading

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ArgumentError, GradientError, OperandError, ShapeError


def problem(n=64, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5], np.float32) > 0).astype(np.int64)
    return x, y


def classifier(seed=0):
    nt.seed(seed)
    return nt.nn.Sequential(nt.nn.Linear(3, 8), nt.nn.Tanh(), nt.nn.Dropout(0.2), nt.nn.Linear(8, 2))


def setting(seed=0, **loader):
    model = classifier(seed)
    data = nt.data.DataLoader(problem(), batch_size=16, shuffle=True, rng=1, **loader)
    optimizer = nt.optim.Adam(model.parameters(), lr=0.05)
    return model, optimizer, data


def values(model):
    return [p.numpy(copy=True) for p in model.parameters()]


def test_the_loss_falls_and_history_has_a_number_for_each_epoch():
    model, optimizer, loader = setting()
    history = nt.train.fit(
        model, nt.cross_entropy, optimizer, loader, epochs=8, metrics=[nt.train.Accuracy()], progress=False
    )
    assert len(history) == 8
    assert list(history) == ["loss", "accuracy"]
    assert history["loss"].shape == (8,)
    assert history.step_losses.shape == (32,)
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert history["accuracy"][-1] > 0.9
    assert repr(history).startswith("<History: 8 epochs, last loss ")


def test_fit_is_the_plain_loop():
    model, optimizer, loader = setting()
    nt.train.fit(model, nt.cross_entropy, optimizer, loader, epochs=3, progress=False)
    by_fit = values(model)

    model, optimizer, loader = setting()
    for _ in range(3):
        model.train()
        for x, y in loader:
            loss = nt.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    for a, b in zip(by_fit, values(model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_validation_runs_in_eval_mode_without_gradients():
    model, optimizer, loader = setting()
    x, y = problem(32, seed=5)
    history = nt.train.fit(
        model,
        nt.cross_entropy,
        optimizer,
        loader,
        epochs=2,
        validation=nt.data.DataLoader((x, y), batch_size=8),
        metrics=[nt.train.Accuracy(), nt.train.ConfusionMatrix(2)],
        progress=False,
    )
    model.eval()
    expected = float(nt.cross_entropy(model(nt.tensor(x)), nt.tensor(y)))
    assert history["val_loss"][-1] == pytest.approx(expected, rel=1e-5)
    assert list(history) == ["loss", "val_loss", "accuracy"]


def test_accumulation_equals_larger_batches():
    x, y = problem()

    def run(batch_size, accumulate):
        nt.seed(0)
        model = nt.nn.Linear(3, 2).double()
        optimizer = nt.optim.SGD(model.parameters(), lr=0.1)
        loader = nt.data.DataLoader((x.astype(np.float64), y), batch_size=batch_size, dtype=nt.float64)
        nt.train.fit(model, nt.cross_entropy, optimizer, loader, epochs=2, accumulate=accumulate, progress=False)
        return values(model)

    for a, b in zip(run(32, 1), run(8, 4), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_early_stopping_ends_a_run_that_does_not_improve():
    model, optimizer, loader = setting()
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    stopping = nt.train.EarlyStopping(patience=2, min_delta=10.0)
    history = nt.train.fit(
        model, nt.cross_entropy, optimizer, loader, epochs=50, early_stopping=stopping, progress=False
    )
    assert len(history) == 3


def test_schedules_step_by_epoch_or_by_step():
    for schedule_by, expected in (("epoch", 0.05 * 0.5**3), ("step", 0.05 * 0.5**12)):
        model, optimizer, loader = setting()
        schedule = nt.optim.ExponentialLR(optimizer, 0.5)
        nt.train.fit(
            model,
            nt.cross_entropy,
            optimizer,
            loader,
            epochs=3,
            schedule=schedule,
            schedule_by=schedule_by,
            progress=False,
        )
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected)


def test_a_plateau_schedule_sees_the_loss():
    model, optimizer, loader = setting()
    schedule = nt.optim.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=1e9, threshold_mode="abs")
    nt.train.fit(model, nt.cross_entropy, optimizer, loader, epochs=3, schedule=schedule, progress=False)
    assert optimizer.param_groups[0]["lr"] < 0.05


class StopAfter:
    """A loss that asks the process to stop while it computes for the n-th time."""

    def __init__(self, n, number=signal.SIGINT):
        self.left = n
        self.number = number

    def __call__(self, prediction, target):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self.number)
        return nt.cross_entropy(prediction, target)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", [1, 4, 6, 11])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path, number, after, prefetch):
    def run(loss, folder=None, resume=False):
        model, optimizer, loader = setting(prefetch=prefetch)
        schedule = nt.optim.CosineAnnealingLR(optimizer, 4)
        history = nt.train.fit(
            model,
            loss,
            optimizer,
            loader,
            epochs=4,
            metrics=[nt.train.Accuracy()],
            schedule=schedule,
            early_stopping=nt.train.EarlyStopping(20),
            folder=folder,
            resume=resume,
            progress=False,
        )
        return model, history

    whole, expected = run(nt.cross_entropy)
    _, first = run(StopAfter(after, number), tmp_path)
    assert first.is_interrupted
    assert len(first.step_losses) == after
    model, history = run(nt.cross_entropy, tmp_path, resume=True)
    assert not history.is_interrupted
    np.testing.assert_array_equal(history.step_losses, expected.step_losses)
    for name in expected:
        np.testing.assert_array_equal(history[name], expected[name])
    for a, b in zip(values(model), values(whole), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_stop_says_how_to_go_on(tmp_path, capsys):
    model, optimizer, loader = setting()
    nt.train.fit(model, StopAfter(2), optimizer, loader, epochs=2, folder=tmp_path, progress=True)
    shown = capsys.readouterr().err
    assert "stopped by SIGINT after step 2" in shown
    assert "resume=True" in shown


def test_handlers_of_signals_are_as_before():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    model, optimizer, loader = setting()
    nt.train.fit(model, nt.cross_entropy, optimizer, loader, progress=False)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_fit_runs_in_another_thread():
    done = []

    def work():
        model, optimizer, loader = setting()
        done.append(nt.train.fit(model, nt.cross_entropy, optimizer, loader, progress=False))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(done[0]) == 1


def test_the_best_state_is_kept(tmp_path):
    model, optimizer, loader = setting()
    history = nt.train.fit(
        model, nt.cross_entropy, optimizer, loader, epochs=6, folder=tmp_path, keep=2, progress=False
    )
    best = nt.Checkpoints(tmp_path).load_best()
    assert best["run"]["epoch"] == int(history["loss"].argmin()) + 1


def test_a_new_run_does_not_mix_with_an_old_one(tmp_path):
    model, optimizer, loader = setting()
    nt.train.fit(model, nt.cross_entropy, optimizer, loader, folder=tmp_path, progress=False)
    with pytest.raises(ArgumentError) as caught:
        nt.train.fit(model, nt.cross_entropy, optimizer, loader, folder=tmp_path, progress=False)
    assert str(caught.value) == (
        f"fit: {tmp_path} holds the states of an earlier run; go on with resume=True, or give another folder."
    )


def test_lines_of_progress(capsys):
    model, optimizer, loader = setting()
    nt.train.fit(model, nt.cross_entropy, optimizer, loader, epochs=2, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    assert lines[0].split("  ")[1].startswith("loss ")


def test_a_csv_log_goes_on_after_a_resume(tmp_path):
    path = tmp_path / "log.csv"

    def run(loss, epochs, resume):
        model, optimizer, loader = setting()
        logger = nt.train.CSVLogger(path)
        nt.train.fit(
            model,
            loss,
            optimizer,
            loader,
            epochs=epochs,
            folder=tmp_path / "states",
            resume=resume,
            logger=logger,
            progress=False,
        )

    run(nt.cross_entropy, 2, False)
    run(nt.cross_entropy, 4, True)
    lines = path.read_text().splitlines()
    assert lines[0] == "epoch,loss"
    assert [line.split(",")[0] for line in lines[1:]] == ["1", "2", "3", "4"]


def test_a_plot_is_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    history = nt.train.History()
    for loss in (1.0, 0.5, 0.25):
        history.add({"loss": loss, "val_loss": loss * 1.1, "accuracy": 1 - loss})
    history.plot(tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_bad_input_of_fit():
    model, optimizer, loader = setting()

    def message(kind, *args, **kwargs):
        with pytest.raises(kind) as caught:
            nt.train.fit(*args, progress=False, **kwargs)
        return str(caught.value)

    fit = (model, nt.cross_entropy, optimizer)
    assert message(ArgumentError, *fit, loader, epochs=0) == "fit: epochs is 0; it must be a positive integer."
    assert message(ArgumentError, *fit, loader, accumulate=0) == "fit: accumulate is 0; it must be a positive integer."
    assert message(ArgumentError, *fit, loader, resume=True) == (
        "fit: resume is set, but there is no folder to resume from."
    )
    assert message(ArgumentError, *fit, loader, schedule_by="day") == (
        'fit: schedule_by is \'day\'; it must be "epoch" or "step".'
    )
    assert message(OperandError, *fit, [np.ones(3)]) == (
        "fit: a batch is ndarray; it must be a tuple of inputs and a target."
    )
    assert message(OperandError, *fit, iter([])) == (
        "fit: the loader gave no batches; an iterator can be gone through once only."
    )
    assert message(ArgumentError, model, lambda p, t: p.sum() * float("nan"), optimizer, loader) == (
        "fit: the loss is nan at step 1; lower the learning rate, clip gradients, or look for the op with "
        "nt.records(loss)."
    )


# Metrics.


def test_accuracy_adds_up_over_batches():
    rng = np.random.default_rng(0)
    scores, classes = rng.normal(size=(50, 4)), rng.integers(0, 4, 50)
    metrics = [nt.train.Accuracy(), nt.train.TopK(2), nt.train.ConfusionMatrix(4)]
    for start in range(0, 50, 7):
        for metric in metrics:
            metric.update(nt.tensor(scores[start : start + 7]), nt.tensor(classes[start : start + 7]))
    accuracy, top2, confusion = (metric.compute() for metric in metrics)
    assert accuracy == np.mean(scores.argmax(1) == classes)
    assert top2 == np.mean([c in np.argsort(-s)[:2] for s, c in zip(scores, classes, strict=True)])
    assert confusion.sum() == 50
    assert np.trace(confusion) / 50 == accuracy
    assert str(metrics[2]).splitlines()[0].split() == ["true\\taken", "0", "1", "2", "3"]


def test_r2_adds_up_over_batches_without_cancellation():
    rng = np.random.default_rng(0)
    target = 1e6 + rng.normal(size=300)
    prediction = target + 0.1 * rng.normal(size=300)
    metric = nt.train.R2()
    for start in range(0, 300, 41):
        metric.update(prediction[start : start + 41], target[start : start + 41])
    expected = 1 - ((prediction - target) ** 2).sum() / ((target - target.mean()) ** 2).sum()
    assert metric.compute() == pytest.approx(expected, rel=1e-9)


def test_metrics_say_what_shapes_they_want():
    with pytest.raises(ShapeError) as caught:
        nt.train.Accuracy().update(np.ones(3), np.ones(3))
    assert str(caught.value) == (
        "Accuracy: predictions have shape (3,) and targets (3,); wanted are scores (n, classes, ...) and class numbers "
        "(n, ...); those of probabilities are their argmax(1)."
    )
    with pytest.raises(ShapeError) as caught:
        nt.train.R2().update(np.ones(3), np.ones((3, 1)))
    assert str(caught.value) == "R2: predictions have shape (3,) and targets (3, 1); they must be equal."


def test_nan_predictions_are_misses():
    for metric in (nt.train.Accuracy(), nt.train.TopK(2)):
        metric.update(np.full((4, 3), np.nan), np.array([0, 1, 2, 1]))
        assert metric.compute() == 0.0


def test_targets_must_be_class_numbers():
    with pytest.raises(ArgumentError) as caught:
        nt.train.Accuracy().update(np.ones((1, 2)), np.array([-1]))
    assert str(caught.value) == (
        "Accuracy: a target is -1, but there are 2 classes, from 0 on; those to be ignored are -100."
    )
    with pytest.raises(ArgumentError) as caught:
        nt.train.Accuracy().update(np.ones((1, 2)), np.array([0.7]))
    assert str(caught.value) == "Accuracy: targets have dtype float64; they must be class numbers, as integers."
    with pytest.raises(ShapeError):
        nt.train.ConfusionMatrix(3).update(np.ones((1, 2)), np.array([0]))


def test_accumulation_weighs_smaller_batches_less():
    x, y = problem(24)

    def run(batch_size, accumulate):
        nt.seed(0)
        model = nt.nn.Linear(3, 2).double()
        optimizer = nt.optim.SGD(model.parameters(), lr=0.1)
        loader = nt.data.DataLoader((x.astype(np.float64), y), batch_size=batch_size, dtype=nt.float64)
        nt.train.fit(model, nt.cross_entropy, optimizer, loader, accumulate=accumulate, progress=False)
        return values(model)

    for a, b in zip(run(24, 1), run(10, 3), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_clipping_looks_at_the_optimizers_own_gradients():
    def run(is_frozen):
        nt.seed(0)
        model = nt.nn.Sequential(nt.nn.Linear(3, 8), nt.nn.Tanh(), nt.nn.Linear(8, 2))
        model[0].requires_grad_(not is_frozen)
        optimizer = nt.optim.SGD(model[2].parameters(), lr=0.5)
        loader = nt.data.DataLoader(problem(), batch_size=16)
        nt.train.fit(model, nt.cross_entropy, optimizer, loader, epochs=3, clip_norm=0.1, progress=False)
        return values(model)

    for a, b in zip(run(True), run(False), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_layer_in_eval_mode_stays_frozen_and_modes_are_as_before():
    nt.seed(0)
    model = nt.nn.Sequential(nt.nn.Linear(3, 4), nt.nn.BatchNorm1d(4), nt.nn.Linear(4, 2))
    model[1].eval()
    before = model[1].running_mean.numpy(copy=True)
    loader = nt.data.DataLoader(problem(), batch_size=16)
    optimizer = nt.optim.SGD(model.parameters(), lr=0.1)
    nt.train.fit(model, nt.cross_entropy, optimizer, loader, epochs=2, validation=loader, progress=False)
    np.testing.assert_array_equal(model[1].running_mean.numpy(), before)
    assert (model.training, model[0].training, model[1].training) == (True, True, False)


def test_a_validation_iterator_that_is_used_up_raises():
    model, optimizer, loader = setting()
    batches = iter(list(nt.data.DataLoader(problem(8), batch_size=8)))
    with pytest.raises(OperandError) as caught:
        nt.train.fit(model, nt.cross_entropy, optimizer, loader, epochs=2, validation=batches, progress=False)
    assert str(caught.value) == ("fit: the validation data gave no batches; an iterator can be gone through once only.")


def test_a_resume_that_does_not_fit_leaves_the_model_alone(tmp_path):
    model, optimizer, loader = setting()
    nt.train.fit(model, nt.cross_entropy, optimizer, loader, folder=tmp_path, progress=False)
    model, optimizer, loader = setting(seed=7)
    before = values(model)
    other = nt.data.DataLoader(problem(40), batch_size=16, shuffle=True, rng=1)
    with pytest.raises(ArgumentError):
        nt.train.fit(model, nt.cross_entropy, optimizer, other, epochs=2, folder=tmp_path, resume=True, progress=False)
    schedule = nt.optim.StepLR(optimizer, 1)
    with pytest.raises(ArgumentError, match="the saved state has no 'schedule'"):
        nt.train.fit(
            model,
            nt.cross_entropy,
            optimizer,
            loader,
            epochs=2,
            schedule=schedule,
            folder=tmp_path,
            resume=True,
            progress=False,
        )
    for a, b in zip(values(model), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_early_stopping_recovers_from_nan():
    stopping = nt.train.EarlyStopping(patience=2)
    assert [stopping.should_stop({"loss": value}) for value in (float("nan"), 3.0, 2.0, 1.0)] == [False] * 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": lambda x: x},
            "fit: model is function; it must be an nn.Module with train, eval, modules, parameters.",
        ),
        (
            {"optimizer": None},
            "fit: optimizer is NoneType; it must be an optimizer of nt.optim with step, zero_grad, param_groups.",
        ),
        ({"loader": None}, "fit: loader is NoneType; it must be an iterable of batches with __iter__."),
        (
            {"loss": nt.nn.MSELoss},
            "fit: loss is MSELoss; it must be a function of predictions and targets.",
        ),
        ({"loss": lambda p, t: 1.0}, "fit: the loss function returned float; it must return a scalar tensor."),
        ({"metrics": nt.train.Accuracy()}, "fit: metrics is Accuracy; it must be a list of metrics."),
        (
            {"metrics": ["accuracy"]},
            "fit: 'accuracy' is no metric; give an object such as nt.train.Accuracy(), with name, reset, update, "
            "compute, state_dict, load_state_dict.",
        ),
        ({"early_stopping": 3}, "fit: early_stopping is int; it must be an nt.train.EarlyStopping."),
        ({"logger": "log.csv"}, "fit: logger is str; it must be an object with start, log, finish."),
        (
            {"schedule": nt.optim.StepLR},
            "fit: schedule is the class StepLR; it must be a schedule of nt.optim with step.",
        ),
        ({"schedule": 5}, "fit: schedule is int; it must be a schedule of nt.optim with step."),
        (
            {"schedule": nt.optim.StepLR(nt.optim.SGD([nt.zeros(1, requires_grad=True)]), 1)},
            "fit: the schedule sets the learning rates of another optimizer, so that those of this one would stay as "
            "they are; make it with the optimizer that fit is given, as in StepLR(optimizer, ...).",
        ),
        (
            {"loader": (batch for batch in [problem(4)]), "epochs": 2},
            "fit: loader is generator, which can be gone through once only, and there are 2 epochs; give a list, or an "
            "object whose __iter__ begins anew.",
        ),
        ({"save_every": 0}, "fit: save_every is 0; it must be a positive integer."),
        ({"clip_norm": "1"}, "fit: clip_norm is '1'; it must be a positive number, or None."),
    ],
)
def test_settings_are_checked_before_training(changes, message):
    model, optimizer, loader = setting()
    given = {"model": model, "loss": nt.cross_entropy, "optimizer": optimizer, "loader": loader, "progress": False}
    with pytest.raises((ArgumentError, OperandError)) as caught:
        nt.train.fit(**{**given, **changes})
    assert str(caught.value) == message


def test_r2_of_several_outputs_is_the_mean_of_theirs():
    wanted = np.array([[0.0, 100.0], [1.0, 101.0], [2.0, 102.0]])
    metric = nt.train.R2()
    for rows in (slice(0, 1), slice(1, 3)):
        metric.update(wanted[::-1][rows], wanted[rows])
    assert metric.compute() == pytest.approx(-3.0)


def test_accuracy_takes_what_cross_entropy_takes():
    scores = np.zeros((2, 3, 4))
    scores[:, 1] = 1.0
    target = np.ones((2, 4), int)
    target[0, 0], target[1, 3] = 2, -100
    metric = nt.train.Accuracy()
    metric.update(scores, target)
    assert metric.compute() == pytest.approx(6 / 7)


def test_early_stopping_begins_anew_with_each_run():
    stopping = nt.train.EarlyStopping(patience=2)
    lengths = []
    for rate in (0.5, 0.01):
        model = nt.nn.Linear(2, 2, rng=0)
        loader = nt.data.DataLoader(nt.data.two_moons(40, rng=0), batch_size=10)
        optimizer = nt.optim.SGD(model.parameters(), lr=rate)
        history = nt.train.fit(model, nt.cross_entropy, optimizer, loader, 8, early_stopping=stopping, progress=False)
        lengths.append(len(history["loss"]))
    assert lengths == [8, 8]


def test_training_without_gradients_is_refused_at_once():
    model = nt.nn.Linear(2, 2, rng=0)
    loader = nt.data.DataLoader(nt.data.two_moons(40, rng=0), batch_size=10)
    with nt.no_grad(), pytest.raises(GradientError, match="call it outside of no_grad"):
        nt.train.fit(model, nt.cross_entropy, nt.optim.SGD(model.parameters(), lr=0.1), loader, 1)


def test_a_number_to_look_at_that_no_epoch_has_is_named_before_training():
    model = nt.nn.Linear(2, 2, rng=0)
    before = model.weight.tolist()
    loader = nt.data.DataLoader(nt.data.two_moons(40, rng=0), batch_size=10)
    stopping = nt.train.EarlyStopping(monitor="acc")
    with pytest.raises(ArgumentError, match="there is no 'acc' to look at; there are loss, accuracy"):
        nt.train.fit(
            model,
            nt.cross_entropy,
            nt.optim.SGD(model.parameters(), lr=0.1),
            loader,
            2,
            metrics=[nt.train.Accuracy()],
            early_stopping=stopping,
        )
    assert model.weight.tolist() == before


def test_a_layer_without_inputs_starts_from_zeros():
    assert nt.nn.Linear(0, 3, rng=0).bias.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("metric", "prediction", "target"),
    [
        (nt.train.R2(), np.ones(2), np.ones(2)),
        (nt.train.Accuracy(), np.ones((2, 2)), np.ones(2, np.int64)),
        (nt.train.ConfusionMatrix(2), np.ones((2, 2)), np.ones(2, np.int64)),
    ],
)
def test_a_mask_of_a_batch_is_not_lost_silently(metric, prediction, target):
    lost = "is a masked array, whose mask would be ignored; pass x.filled(...), and choose elements with nt.where."
    name = type(metric).__name__
    with pytest.raises(OperandError) as caught:
        metric.update(np.ma.masked_array(prediction, prediction > 0), target)
    assert str(caught.value) == f"{name}: the prediction {lost}"
    with pytest.raises(OperandError) as caught:
        metric.update(prediction, np.ma.masked_array(target, target > 0))
    assert str(caught.value) == f"{name}: the target {lost}"


def test_a_schedule_of_what_an_optimizer_wraps_is_its_own():
    class Wrapped:
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def __getattr__(self, name):
            return getattr(self.optimizer, name)

    model, optimizer, loader = setting()
    schedule = nt.optim.StepLR(optimizer, 1, gamma=0.5)
    nt.train.fit(model, nt.cross_entropy, Wrapped(optimizer), loader, schedule=schedule, progress=False)
    assert optimizer.param_groups[0]["lr"] == 0.025
