"""The files that a profile writes: traces that Perfetto opens, and collapsed stacks."""

import json
import threading

import numpy as np
import pytest

import numtape as nt

X = nt.tensor(np.linspace(0.5, 1.5, 8), requires_grad=True)


def profiled(**asked):
    with nt.profile(**asked) as profile:
        y = nt.gelu(X)
        y.sum().backward()
    X.grad = None
    return profile


def events(profile, tmp_path):
    path = profile.to_chrome_trace(tmp_path / "trace.json")
    return json.loads(path.read_text())["traceEvents"]


def test_a_trace_has_a_complete_event_for_each_span(tmp_path):
    profile = profiled()
    spans = [event for event in events(profile, tmp_path) if event["ph"] == "X" and event["name"] != "profile"]
    assert len(spans) == len(profile.spans())
    assert {(e["name"], e["cat"]) for e in spans} >= {
        ("gelu", "forward"),
        ("sum", "forward"),
        ("gelu backward", "backward"),
        ("sum backward", "backward"),
    }
    for event in spans:
        assert set(event) == {"ph", "pid", "tid", "name", "cat", "args", "ts", "dur"}
        assert event["ts"] >= 0.0
        assert event["dur"] > 0.0
    gelu = next(e for e in spans if e["name"] == "gelu")
    assert gelu["args"]["line"].endswith("(y = nt.gelu(X))")


def test_spans_lie_inside_of_the_profile_and_nest(tmp_path):
    found = [event for event in events(profiled(), tmp_path) if event["ph"] == "X"]
    whole = found[0]
    assert whole["name"] == "profile"
    step = next(e for e in found if e["name"] == "gelu backward")
    inside = next(e for e in found if e["name"] == "normal_cdf")
    for outer, inner in ((whole, step), (step, inside)):
        assert outer["ts"] <= inner["ts"]
        assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1e-6


def test_a_trace_names_its_threads(tmp_path):
    profile = nt.profile()

    def work():
        with profile:
            nt.ones(3) * 2.0

    thread = threading.Thread(target=work, name="worker")
    with profile:
        nt.ones(3) * 3.0
    thread.start()
    thread.join()
    found = events(profile, tmp_path)
    names = {event["tid"]: event["args"]["name"] for event in found if event["name"] == "thread_name"}
    assert sorted(names.values()) == sorted(["worker", threading.current_thread().name])
    assert {names[event["tid"]] for event in found if event["name"] == "mul"} == set(names.values())


def test_threads_one_after_the_other_have_a_track_and_a_counter_each(tmp_path):
    profile = nt.profile(memory=True)

    def work():
        with profile:
            nt.exp(nt.ones(3, requires_grad=True))

    # The second takes the identity of the first in the operating system, most often.
    for name in ("first", "second", "second"):
        thread = threading.Thread(target=work, name=name)
        thread.start()
        thread.join()
    found = events(profile, tmp_path)
    names = [event["args"]["name"] for event in found if event["name"] == "thread_name"]
    assert names == ["first", "second", "second"]
    assert len({event["tid"] for event in found if event["name"] == "exp"}) == 3
    counters = [(event["name"], event.get("id")) for event in found if event["ph"] == "C"]
    assert counters == [("memory of first", None), ("memory of second", 2), ("memory of second", 3)]


def test_work_and_rates_stand_beside_a_span(tmp_path):
    square = nt.ones(100, 100)
    with nt.profile() as profile:
        square @ square
    (event,) = [e for e in events(profile, tmp_path) if e["name"] == "matmul"]
    assert (event["args"]["flops"], event["args"]["bytes"]) == (2_000_000, 120_000)
    assert event["args"]["GFLOP/s"] == pytest.approx(2_000_000 / event["dur"] * 1e-3)
    assert event["args"]["GB/s"] == pytest.approx(120_000 / event["dur"] * 1e-3)


def test_a_memory_counter_rises_and_falls(tmp_path):
    x = nt.tensor(np.ones(1000), requires_grad=True)
    with nt.profile(memory=True) as profile:
        y = x.exp()
        z = y.sin()
        z.sum().backward()
        del y, z
        x * 2.0
    samples = [event for event in events(profile, tmp_path) if event["ph"] == "C"]
    assert {event["name"] for event in samples} == {f"memory of {threading.current_thread().name}"}
    counts = [event["args"]["bytes"] for event in samples]
    assert counts[:3] == [8000, 16_000, 16_008]
    assert max(counts) >= 24_000
    assert counts[-1] < max(counts)
    assert [event["ts"] for event in samples] == sorted(event["ts"] for event in samples)


def test_a_view_of_a_leaf_is_no_memory_of_ours(tmp_path):
    x = nt.tensor(np.ones(1000), requires_grad=True)
    with nt.profile(memory=True) as profile:
        x.reshape(10, 100)
    assert [e["args"]["bytes"] for e in events(profile, tmp_path) if e["ph"] == "C"] == [0]


def test_without_memory_there_is_no_counter(tmp_path):
    assert not [event for event in events(profiled(), tmp_path) if event["ph"] == "C"]


def test_an_empty_trace_is_a_trace(tmp_path):
    (event,) = events(nt.profile(), tmp_path)
    assert event["name"] == "process_name"


def stacks(profile, tmp_path):
    lines = profile.to_flamegraph(tmp_path / "stacks.txt").read_text().splitlines()
    return {stack: int(count) for stack, _, count in (line.rpartition(" ") for line in lines)}


def test_collapsed_stacks_hold_all_of_the_time(tmp_path):
    profile = profiled()
    found = stacks(profile, tmp_path)
    assert sum(found.values()) == pytest.approx(profile.seconds * 1e9, rel=1e-3)
    shapes = {tuple(part.partition(" (")[0] for part in stack.split(";")) for stack in found}
    assert shapes >= {
        ("Python",),
        ("forward", "profiled", "gelu"),
        ("forward", "profiled", "sum"),
        ("backward", "profiled", "gelu backward"),
        ("backward", "profiled", "gelu backward", "normal_cdf"),
    }


def test_collapsed_stacks_with_stacks_show_the_callers(tmp_path):
    def layer(x):
        return x * 2.0

    with nt.profile(stacks=True) as profile:
        layer(X).sum().backward()
    X.grad = None
    shapes = {tuple(part.partition(" (")[0] for part in stack.split(";")) for stack in stacks(profile, tmp_path)}
    test = "test_collapsed_stacks_with_stacks_show_the_callers"
    inner = f"{test}.<locals>.layer"
    assert shapes >= {("forward", test, inner, "mul"), ("backward", test, inner, "mul backward")}


def test_a_trace_of_a_block_that_raised_is_whole(tmp_path):
    profile = nt.profile()
    with pytest.raises(KeyError), profile:
        {}[(X * 2.0).shape]
    assert [e["name"] for e in events(profile, tmp_path) if e["ph"] == "X"] == ["profile", "mul"]
