"""`PerformanceBenchmark`: regions and functions by name, statistics that slow calls do not move, and regressions."""

import csv
import gc
import json
import math
import time
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ArgumentError, OperandError
from numtape.insight import benchmark as module
from numtape.insight import time_statistics
from numtape.insight.benchmark_results import BenchmarkResult, Comparison
from numtape.insight.time_statistics import median_interval, outliers, ratio_interval, spread


class Clock:
    """A clock that goes on by given steps."""

    def __init__(self, *steps):
        self.now = 0.0
        self.steps = list(steps)

    def __call__(self):
        now = self.now
        self.now += self.steps.pop(0) if self.steps else 0.0
        return now


def quick(**changes):
    return nt.BenchmarkConfig(**{"num_warmup": 1, "num_iterations": 6, **changes})


def of(name, *times):
    benchmark = nt.PerformanceBenchmark()
    benchmark.results[name] = BenchmarkResult(name, times)
    return benchmark


def test_calls_of_one_name_add_up_and_none_is_left_out(monkeypatch):
    monkeypatch.setattr(module, "clock", Clock(0.001, 1.0, 0.003, 1.0, 0.500))
    benchmark = nt.PerformanceBenchmark()
    for _ in range(3):
        benchmark.start_benchmark("backward")
        result = benchmark.end_benchmark("backward")
    assert result.times_seconds == pytest.approx((0.001, 0.003, 0.5))
    assert result.mean_time_ms == pytest.approx(168.0)
    assert result.median_time_ms == pytest.approx(3.0)
    assert (result.min_time_ms, result.max_time_ms) == pytest.approx((1.0, 500.0))
    assert result.throughput_ops_per_sec == pytest.approx(3 / 0.504)
    assert benchmark.results["backward"] == result


def test_regions_may_overlap(monkeypatch):
    monkeypatch.setattr(module, "clock", Clock(1.0, 2.0, 4.0, 8.0))
    benchmark = nt.PerformanceBenchmark()
    benchmark.start_benchmark("step")
    benchmark.start_benchmark("forward")
    assert benchmark.end_benchmark("forward").times_seconds == (2.0,)
    assert benchmark.end_benchmark("step").times_seconds == (7.0,)


def test_run_warms_up_and_measures_as_often_as_asked():
    calls = []
    benchmark = nt.PerformanceBenchmark(quick(num_warmup=3, num_iterations=5))
    result = benchmark.run("append", calls.append, 1)
    assert (len(calls), result.calls) == (8, 5)
    assert benchmark.run("append", calls.append, 1).calls == 10


def test_functions_run_in_turn():
    order = []
    benchmark = nt.PerformanceBenchmark(quick(num_warmup=1, num_iterations=2))
    results = benchmark.run_interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")})
    assert order == ["a", "b"] * 3
    assert [results[name].calls for name in "ab"] == [2, 2]


def test_memory_is_the_peak_of_one_more_call():
    benchmark = nt.PerformanceBenchmark(quick(measure_memory=True))
    result = benchmark.run("ones", lambda: np.ones(100_000))
    assert 800_000 <= result.peak_bytes < 900_000
    assert not tracemalloc.is_tracing()
    assert nt.PerformanceBenchmark(quick()).run("ones", lambda: np.ones(10)).peak_bytes is None


def test_memory_of_a_region_leaves_tracing_as_it_was():
    benchmark = nt.PerformanceBenchmark(quick(measure_memory=True))
    tracemalloc.start()
    try:
        benchmark.start_benchmark("ones")
        np.ones(100_000)
        result = benchmark.end_benchmark("ones")
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()
    assert 800_000 <= result.peak_bytes < 900_000


def test_a_function_that_raises_leaves_the_collector_on_and_no_result():
    benchmark = nt.PerformanceBenchmark(quick(num_warmup=0, measure_memory=True))
    with pytest.raises(ZeroDivisionError):
        benchmark.run("fails", lambda: 1 / 0)
    assert gc.isenabled()
    assert not tracemalloc.is_tracing()
    assert benchmark.results == {}
    assert str(benchmark) == "no results"


def test_what_is_not_asked_for_is_none():
    config = quick(measure_throughput=False, statistical_analysis=False)
    result = nt.PerformanceBenchmark(config).run("nothing", lambda: None)
    assert result.throughput_ops_per_sec is result.confidence_interval_ms is result.num_outliers is None


def test_slow_calls_move_the_mean_and_not_the_median():
    times = (1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 100.0)
    result = BenchmarkResult("f", times)
    assert result.median_time_ms == 1000.0
    assert result.mean_time_ms > 10_000.0
    assert outliers(times) == result.num_outliers == 1
    assert spread(times) == pytest.approx(1.4826 * 0.05)
    assert outliers((1.0, 1.0, 1.0)) == 0
    # A clock that is too coarse gives equal times: one that differs is far away.
    assert outliers([1e-7] * 19 + [1.0]) == 1


def test_the_interval_of_a_median_covers_it_as_often_as_promised():
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(1000):
        low, high = median_interval(rng.exponential(1.0, 25).tolist())
        covered += low <= np.log(2.0) <= high
    # For 25 times the ranks 8 and 18 cover it with 95.7%.
    assert 935 <= covered <= 975
    assert median_interval([float(i) for i in range(25)]) == (7.0, 17.0)


@pytest.mark.parametrize("count", [6, 7, 8, 9, 10, 25, 100, 101, 325, 999, 1000, 2500])
def test_the_interval_of_the_median_has_the_ranks_of_exact_arithmetic(count):
    tail, rank = Fraction(0), 0
    while True:
        tail += Fraction(math.comb(count, rank), 2**count)
        if tail > (1 - Fraction(95, 100)) / 2:
            break
        rank += 1
    assert median_interval([float(i) for i in range(count)]) == (rank - 1.0, count - float(rank))


@pytest.mark.parametrize("count", [999, 1000])
def test_medians_of_many_times_are_drawn_as_if_each_time_was(count, monkeypatch):
    times = np.random.default_rng(1).exponential(1.0, count).tolist()
    baseline = np.random.default_rng(2).exponential(1.0, count).tolist()
    one_by_one = ratio_interval(times, baseline)
    monkeypatch.setattr(time_statistics, "_FEW", 10)
    assert ratio_interval(times, baseline) == pytest.approx(one_by_one, rel=0.02)


def test_the_ratio_of_a_million_times_takes_no_memory_for_each_draw():
    times = np.linspace(1.0, 2.0, 1_000_000).tolist()
    low, high = ratio_interval(times, times)
    assert 0.99 < low < 1.0 < high < 1.01


def test_the_interval_of_a_million_times_takes_no_time():
    times = [float(i) for i in range(1_000_000)]
    begin = time.perf_counter()
    low, high = median_interval(times)
    assert time.perf_counter() - begin < 5.0
    # The number below the median is nearly normal, with a deviation of half the root.
    assert abs(low - (500_000 - 1.95996 * 500)) < 3.0
    assert low + high == 999_999.0


def test_the_interval_of_few_times_has_no_end():
    assert median_interval([2.0]) == (0.0, math.inf)
    assert median_interval([3.0, 1.0, 2.0, 4.0, 5.0]) == (0.0, math.inf)
    assert ratio_interval([2.0], [1.0] * 20) == ratio_interval([2.0] * 20, [1.0]) == (0.0, math.inf)
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1.0, 6.0)


def test_the_interval_of_a_ratio_is_the_same_at_each_call_and_holds_the_ratio():
    rng = np.random.default_rng(6)
    slow, fast = (2.0 + rng.random(40) * 0.2).tolist(), (1.0 + rng.random(40) * 0.1).tolist()
    low, high = ratio_interval(slow, fast)
    assert (low, high) == ratio_interval(slow, fast)
    assert 1.9 < low < 2.0 < high < 2.1


def test_a_comparison_says_what_is_sure():
    benchmark = of("slow", *[2.0 + 0.01 * i for i in range(20)])
    benchmark.results["fast"] = BenchmarkResult("fast", tuple(1.0 + 0.01 * i for i in range(20)))
    slower = benchmark.compare("slow", "fast")
    assert slower.ratio == pytest.approx(2.095 / 1.095)
    assert slower.verdict == "slower"
    assert benchmark.compare("fast", "slow").verdict == "faster"
    assert benchmark.compare("fast", "fast").verdict == "no difference"
    assert str(Comparison("a", "b", 1.5, (1.25, 1.75))) == "a takes 1.500 [1.250, 1.750] of b: slower"


def test_regressions_are_the_names_that_surely_got_slower(tmp_path):
    before = of("same", *[1.0 + 0.01 * i for i in range(20)])
    before.results["worse"] = before.results["worst"] = before.results["same"]
    before.results["gone"] = before.results["same"]
    after = of("same", *[1.02 + 0.01 * i for i in range(20)])
    after.results["worse"] = BenchmarkResult("worse", tuple(1.5 + 0.01 * i for i in range(20)))
    after.results["worst"] = BenchmarkResult("worst", tuple(3.0 + 0.01 * i for i in range(20)))
    after.results["new"] = after.results["same"]
    assert [c.name for c in after.regressions(before)] == ["worst", "worse"]
    assert [c.name for c in after.regressions(before, threshold=2.0)] == ["worst"]
    assert before.regressions(after) == []


def test_json_comes_back_whole(tmp_path):
    benchmark = nt.PerformanceBenchmark(quick(measure_memory=True))
    benchmark.run("ones", lambda: np.ones(1000))
    path = benchmark.to_json(tmp_path / "figures.json")
    again = nt.PerformanceBenchmark.from_json(path)
    assert again.results == benchmark.results
    assert again.config == benchmark.config
    document = json.loads(path.read_text())
    assert document["machine"]["numpy"] == np.__version__
    assert document["results"][0]["median_time_ms"] == benchmark.results["ones"].median_time_ms
    assert again.regressions(path) == []


def test_csv_has_a_row_for_each_name(tmp_path):
    path = of("f", 0.001, 0.003, 0.002).to_csv(tmp_path / "figures.csv")
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["name"], row["calls"], row["median_time_ms"], row["peak_bytes"]) == ("f", "3", "2.0", "")


def test_a_result_prints_on_one_line():
    assert str(BenchmarkResult("f", (0.001, 0.003, 0.002) * 2, peak_bytes=1234)) == (
        "f: median 2 ms [1 ms, 3 ms], mean 2 ms, calls 6, outliers 0, 500 a second, peak 1,234 bytes"
    )
    assert str(BenchmarkResult("f", (0.001, 0.003, 0.002))) == (
        "f: median 2 ms, mean 2 ms, calls 3, outliers 0, 500 a second"
    )
    plain = nt.BenchmarkConfig(measure_throughput=False, statistical_analysis=False)
    assert str(BenchmarkResult("f", (2.5e-6,), plain)) == "f: median 2.5 us, mean 2.5 us, calls 1"


def test_the_seeds_benchmark_of_a_backward_pass():
    config = nt.BenchmarkConfig(
        num_warmup=10, num_iterations=100, measure_throughput=True, measure_memory=True, statistical_analysis=True
    )
    benchmark = nt.PerformanceBenchmark(config)
    tape = nt.GradientTape()
    parameters = [tape.watch(nt.ones(3))]
    loss = (parameters[0] * 2.0).sum()
    benchmark.start_benchmark("backward_pass")
    gradients = tape.gradient([loss], parameters)
    result = benchmark.end_benchmark("backward_pass")
    assert gradients[0].tolist() == [2.0, 2.0, 2.0]
    assert result.mean_time_ms > 0.0
    assert result.throughput_ops_per_sec == pytest.approx(1e3 / result.mean_time_ms)
    assert result.peak_bytes > 0


def test_the_seeds_diagnosis_of_a_slow_gradient():
    benchmark = nt.PerformanceBenchmark()
    x = nt.ones(3, requires_grad=True)
    benchmark.start_benchmark("backward")
    (x * x).sum().backward()
    assert benchmark.end_benchmark("backward").mean_time_ms > 0.0


@pytest.mark.parametrize(
    ("mistake", "kind", "message"),
    [
        (
            lambda b: b.end_benchmark("forwrd"),
            ArgumentError,
            "end_benchmark: 'forwrd' is not running; call start_benchmark('forwrd') first. Running: 'forward'.",
        ),
        (
            lambda b: b.start_benchmark("forward"),
            ArgumentError,
            "start_benchmark: 'forward' is running; call end_benchmark('forward') first.",
        ),
        (
            lambda b: b.start_benchmark(3),
            ArgumentError,
            "start_benchmark: the name is 3; it must be a text that is not empty.",
        ),
        (
            lambda b: b.run("f", 3),
            OperandError,
            "run: 'f' is given int, which cannot be called; give a function.",
        ),
        (
            lambda b: b.run_interleaved({"f": None}),
            OperandError,
            "run: 'f' is given NoneType, which cannot be called; give a function.",
        ),
        (
            lambda b: b.compare("square", "cube"),
            ArgumentError,
            "compare: there is no result named 'square'; did you mean 'squared'?",
        ),
        (
            lambda b: b.compare("squared", "zzz"),
            ArgumentError,
            "compare: there is no result named 'zzz'; there are 'squared'.",
        ),
        (
            lambda b: b.regressions(b, threshold=0),
            ArgumentError,
            "regressions: threshold is 0; it must be a positive number.",
        ),
        (
            lambda b: b.regressions({"a": 1}),
            OperandError,
            "regressions: baseline is of type dict; give an nt.PerformanceBenchmark, or the path of a file that "
            "to_json wrote.",
        ),
        (
            lambda b: b.from_json(None),
            OperandError,
            "PerformanceBenchmark.from_json: path is of type NoneType; give the path of a file that to_json wrote.",
        ),
        (
            lambda b: nt.PerformanceBenchmark({"num_warmup": 3}),
            OperandError,
            "PerformanceBenchmark: config is of type dict; give an nt.BenchmarkConfig.",
        ),
        (
            lambda b: nt.BenchmarkConfig(num_iterations=0),
            ArgumentError,
            "BenchmarkConfig: num_iterations is 0; it must be an integer from 1 on.",
        ),
        (
            lambda b: nt.BenchmarkConfig(num_warmup=True),
            ArgumentError,
            "BenchmarkConfig: num_warmup is True; it must be an integer from 0 on.",
        ),
        (
            lambda b: nt.BenchmarkConfig(measure_memory="yes"),
            ArgumentError,
            "BenchmarkConfig: measure_memory is 'yes'; it must be a bool.",
        ),
    ],
)
def test_mistakes_say_what_to_do(mistake, kind, message):
    benchmark = of("squared", 1.0)
    benchmark.start_benchmark("forward")
    with pytest.raises(kind) as error:
        mistake(benchmark)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("{}", "KeyError: 'format'"),
        ('{"format": "other", "version": 1}', "ValueError: its format is 'other', version 1"),
        ("[]", "TypeError: list indices must be integers or slices, not str"),
    ],
)
def test_a_file_of_something_else_is_named(tmp_path, text, reason):
    path = tmp_path / "figures.json"
    path.write_text(text)
    with pytest.raises(ArgumentError) as error:
        nt.PerformanceBenchmark.from_json(path)
    assert str(error.value) == f"PerformanceBenchmark: {path} is no file that to_json wrote ({reason})."


def test_too_few_calls_give_no_verdict_and_no_regression(tmp_path):
    after, before = of("f", 2.0, 2.1), of("f", 1.0, 1.1)
    assert after.regressions(before) == []
    after.results["g"] = BenchmarkResult("g", (1.0,) * 20)
    comparison = after.compare("f", "g")
    assert comparison.verdict == "no verdict"
    assert str(comparison) == "f takes 2.050 [0.000, inf] of g: no verdict"
    assert "Infinity" not in after.to_json(tmp_path / "few.json").read_text()


def test_benchmarks_without_a_name_in_common_are_not_compared():
    before, after = (nt.PerformanceBenchmark(nt.BenchmarkConfig(num_warmup=1, num_iterations=5)) for _ in range(2))
    before.run("old", lambda: 1)
    after.run("new", lambda: 1)
    with pytest.raises(nt.errors.ArgumentError) as caught:
        after.regressions(before)
    assert str(caught.value) == (
        "regressions: the baseline has 'old', and this benchmark 'new'; no name is in both, so that there is nothing "
        "to compare."
    )
    with pytest.raises(nt.errors.OperandError, match="wants a dict of functions by their names, not list"):
        after.run_interleaved([len])
