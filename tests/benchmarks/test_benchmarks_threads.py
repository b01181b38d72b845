"""Runs the benchmarks of threads, odd batches and callers in their shortest form. Asserts no speed."""

import pytest
from benchmark_programs import FOLDER, all_positive

import minidl_c


@pytest.mark.slow
@pytest.mark.skipif(not minidl_c.build_info()["openmp"], reason="a build without OpenMP")
def test_thread_pool(run, tmp_path):
    shortest = ["--rounds", 1, "--seconds", 0.2, "--nets", "mlp", "--tasks", "predict", "fit", "--busy", 0, 1]
    output, results = run("thread_pool.py", *shortest, "--pool", FOLDER.parent, json_file=tmp_path / "r.json")
    names = {f"{busy} busy, mlp, {task}, 64" for busy in (0, 1) for task in ("predict", "fit")}
    assert all(any(line.startswith(name) for line in output.splitlines()) for name in names)
    assert set(results) == {"machine", *names}
    for name in names:
        assert set(results[name]) == {"OpenMP", "pool"}
        assert all(all_positive(times.values()) for times in results[name].values())


def test_odd_batches(run, tmp_path):
    shortest = ["--nets", "mlp", "--batches", 16, 17, 32, "--threads", 1, "--rounds", 1, "--seconds", 0.001]
    output, results = run("odd_batches.py", *shortest, "--before", FOLDER.parent, json_file=tmp_path / "r.json")
    assert set(results) == {"machine", "mlp"}
    assert set(results["mlp"]) == {"fit, 1", "predict, 1"}
    for found in results["mlp"].values():
        assert set(found) == {"now", "before"}
        assert all(set(times) == {"16", "17", "32"} and all_positive(times.values()) for times in found.values())
    assert "mlp: fit, 1 threads, us for each example" in output


def test_callers(run, tmp_path):
    shortest = ["--nets", "mlp", "--callers", 2, "--pauses", 0.01, "--threads", 1, "--rounds", 1, "--seconds", 0.05]
    _, results = run("callers.py", *shortest, "--without-onnxruntime", json_file=tmp_path / "r.json")
    assert set(results) == {"machine", "mlp, 1 threads, 2 callers, now", "mlp, 1 threads, pause 0.01 s, now"}
    assert results["mlp, 1 threads, 2 callers, now"]["rate"] > 0
    assert all_positive(results["mlp, 1 threads, pause 0.01 s, now"]["us"])
