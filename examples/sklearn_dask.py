"""Grid search on a dask cluster
================================

A grid search in several processes or machines, with the same results as in one process, bit for bit.

Run it with: `python examples/sklearn_dask.py`. It needs dask: `pip install "dask[distributed]"`

By default the cluster is two processes on this machine. To use your own, install minidl on all machines and run ::

    dask scheduler                                            # on one of them
    dask worker tcp://that-one:8786 --nworkers -1             # on each: as many workers as cores
    python examples/sklearn_dask.py --scheduler tcp://that-one:8786

Dask starts workers with OMP_NUM_THREADS=1, so that concurrent fits do not use more threads than there are cores. For a
few long fits, start fewer workers, `--nworkers 4 --nthreads 1`, and set `num_threads` of the classifier. The scores
stay the same.
"""

import argparse
from time import perf_counter

import numpy as np
from joblib import parallel_config
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

import minidl
from minidl.estimators import SequentialClassifier
from minidl.layers import BatchNorm2D, Conv2D, Dense, Dropout, Flatten, MaxPool2D, ReLU


def dense_net(outputs):
    """Returns one hidden layer, with dropout."""
    return [Flatten(), Dense(64), ReLU(), Dropout(0.2), Dense(outputs)]


def conv_net(outputs):
    """Returns the same after a convolution with batch norm."""
    return [Conv2D(16, 3, padding=1), BatchNorm2D(), ReLU(), MaxPool2D(2), *dense_net(outputs)]


def connect(scheduler):
    """Returns a client of the scheduler at this address, or of two local processes that end with the client."""
    try:
        from distributed import Client
    except ImportError:
        raise SystemExit('dask is not installed: pip install "dask[distributed]"') from None
    if scheduler is None:
        return Client(n_workers=2, threads_per_worker=1, dashboard_address=None)
    try:
        client = Client(scheduler)
        client.wait_for_workers(1, timeout=30)
        client.run_on_scheduler(minidl.show_config)  # the scheduler unpickles tasks: without minidl a search would hang
    except (ImportError, OSError, ValueError) as error:
        raise SystemExit(f"cannot search on {scheduler}: {error}") from None
    return client


def search(X, y):
    """Runs a grid search, in this process or where joblib's parallel_config says; returns it and its seconds."""
    net = SequentialClassifier(input_shape=(1, 8, 8), epochs=15, random_state=0)
    grid = {"model": [dense_net, conv_net], "lr": [0.001, 0.01]}
    start = perf_counter()
    found = GridSearchCV(net, grid, cv=3).fit(X, y)
    return found, perf_counter() - start


def have_same_bits(these, those):
    """True if two dicts of arrays have the same names and bits."""
    return these.keys() == those.keys() and all(these[name].tobytes() == those[name].tobytes() for name in these)


def main():
    """Searches on the cluster and in this process, and compares."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a cluster of your own, such as tcp://10.0.0.1:8786")
    scheduler = parser.parse_args().scheduler
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)

    with connect(scheduler) as client:
        for address, config in client.run(minidl.show_config).items():
            print(f"worker {address}: minidl {config.minidl}, {config.instruction_set}, threads: {config.threads}")
        with parallel_config("dask", scatter=[X, y]):  # the data go to each worker once
            there, seconds_there = search(X, y)
    here, seconds_here = search(X, y)

    found = there.cv_results_
    for options, mean in zip(found["params"], found["mean_test_score"], strict=True):
        print(f"{options['model'].__name__:10} lr {options['lr']:<6} accuracy {mean:.2%}")
    print(f"The best: {there.best_params_['model'].__name__}, lr {there.best_params_['lr']}\n")

    print(f"In one process {seconds_here:.1f} s, on the cluster {seconds_there:.1f} s")
    scores = [{k: v for k, v in s.cv_results_.items() if k.endswith("_test_score")} for s in (here, there)]
    print(f"All {len(scores[0])} columns of scores are the same, to the last bit: {have_same_bits(*scores)}")
    weights = [s.best_estimator_.model_.state_dict() for s in (here, there)]
    print(f"The weights of the best net are the same, to the last bit: {have_same_bits(*weights)}")


if __name__ == "__main__":  # the workers of a cluster on this machine import this file
    main()
