"""Trains many small nets, MLPs 64-32-10 on the digits, with `fit_many`, scikit-learn's MLPClassifier and PyTorch.

Each side trains a number of nets of its own, and the table has seconds for `--nets` of them. minidl's nets are threads
of one process; the others are processes, with one thread each, whose start is not counted. The rounds of all sides
alternate. Then a search of scikit-learn runs in one process, in threads and in processes. README.md describes the
method.
"""

import argparse
import statistics
import time
import warnings
from functools import partial

import numpy as np
from joblib import Parallel, delayed, parallel_config
from measure import machine, positive, print_machine, usable_cores, write_json
from sides import mlp_classifier
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

from minidl import Sequential, Trainer, fit_many
from minidl.estimators import SequentialClassifier
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU
from minidl.optimizers import SGD

LR, MOMENTUM, BATCH = 0.1, 0.9, 64
X, Y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)


def make_trainer(seed):
    model = Sequential([Dense(32), ReLU(), Dense(10)], seed=seed)
    return Trainer(model, "softmax_cross_entropy", SGD(LR, momentum=MOMENTUM), seed=seed)


def with_fit_many(nets, epochs, jobs):
    fit_many([make_trainer(k) for k in range(nets)], X, Y, epochs=epochs, batch_size=BATCH, n_jobs=jobs, verbose=0)


def with_fit(nets, epochs, jobs):
    """One net after the other: `fit` chooses the number of threads."""
    for k in range(nets):
        make_trainer(k).fit(X, Y, epochs=epochs, batch_size=BATCH, verbose=0)


def fit_scikit_learn(seed, epochs):
    net = mlp_classifier([32], LR, BATCH, seed, max_iter=epochs, n_iter_no_change=10**6, tol=0)
    with warnings.catch_warnings(action="ignore"):  # that the largest number of epochs was reached
        return net.fit(X, Y).loss_


def fit_torch(seed, epochs):
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer, loss_of = torch.optim.SGD(model.parameters(), LR, momentum=MOMENTUM, fused=True), nn.CrossEntropyLoss()
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            loss = loss_of(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
    return loss.item()


def in_processes(fit, nets, epochs, jobs):
    Parallel(jobs)(delayed(fit)(k, epochs) for k in range(nets))


def sides_of(args):
    """Yields name, function of the number of nets, and that number, for each side that is here."""
    yield "fit_many", partial(with_fit_many, epochs=args.epochs, jobs=args.jobs), args.own
    yield "fit_many, n_jobs=1", partial(with_fit_many, epochs=args.epochs, jobs=1), args.own
    yield "fit, one after the other", partial(with_fit, epochs=args.epochs, jobs=1), args.own
    for name, fit in ("MLPClassifier", fit_scikit_learn), ("PyTorch", fit_torch):
        try:
            in_processes(fit, args.jobs, 1, args.jobs)  # starts the processes
        except ImportError as error:
            print(f"{name} is skipped: {error}")
        else:
            yield f"{name}, processes", partial(in_processes, fit, epochs=args.epochs, jobs=args.jobs), args.others


def count_equal(nets, epochs, jobs):
    """Returns how many of these nets have the bits of their own fits."""
    together, alone = [make_trainer(k) for k in range(nets)], [make_trainer(k) for k in range(nets)]
    fit_many(together, X, Y, epochs=epochs, batch_size=BATCH, n_jobs=jobs, verbose=0)
    for trainer in alone:
        trainer.fit(X, Y, epochs=epochs, batch_size=BATCH, verbose=0)
    pairs = zip(together, alone, strict=True)
    return sum(a.model.predict(X).tobytes() == b.model.predict(X).tobytes() for a, b in pairs)


def searches(args):
    """Yields the name of a net, the seconds of each way to search, and whether all scores were equal."""
    convolutions = [Conv2D(16, 3, padding=1), ReLU(), MaxPool2D(2), Conv2D(32, 3, padding=1), ReLU(), MaxPool2D(2)]
    nets = {
        "MLP 64-32-10": SequentialClassifier([Dense(32), ReLU(), Dense(10)]),
        "CNN": SequentialClassifier([*convolutions, Flatten(), Dense(10)], input_shape=(1, 8, 8)),
    }
    for name, net in nets.items():
        net.set_params(epochs=args.epochs, batch_size=BATCH, tol=None, random_state=0)
        grid, scores = {"lr": np.geomspace(1e-4, 1e-2, 4).tolist()}, set()
        rounds = {"one process": [], "threads": [], "processes": []}
        for _ in range(args.rounds):
            for how, seconds in rounds.items():
                net.set_params(num_threads=1 if how == "threads" else None)  # joblib limits those of processes alone
                with parallel_config("threading" if how == "threads" else "loky", n_jobs=args.jobs):
                    search = GridSearchCV(net, grid, cv=3, refit=False, n_jobs=1 if how == "one process" else None)
                    began = time.perf_counter()
                    scores.add(search.fit(X, Y).cv_results_["mean_test_score"].tobytes())
                    seconds.append(time.perf_counter() - began)
        yield name, rounds, len(scores) == 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", type=positive, default=1000)
    parser.add_argument("--own", type=positive, default=200, help="nets that each side of minidl trains in a round")
    parser.add_argument("--others", type=positive, default=20, help="nets that the other sides train in a round")
    parser.add_argument("--epochs", type=positive, default=30)
    parser.add_argument("--jobs", type=positive, default=usable_cores())
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--json", help="file for the results")
    args = parser.parse_args()
    results = {"machine": machine(), "arguments": vars(args)}
    print_machine(results["machine"])
    sides = list(sides_of(args))
    seconds = {name: [] for name, _, _ in sides}
    for _ in range(args.rounds):
        for name, train, count in sides:
            began = time.perf_counter()
            train(count)
            seconds[name].append((time.perf_counter() - began) / count * args.nets)
    print(f"\nseconds for {args.nets:,} nets, {args.epochs} epochs each, {args.jobs} jobs: median (fastest)\n")
    for name, rounds in seconds.items():
        print(f"{name:28}{statistics.median(rounds):9.1f} ({min(rounds):.1f})")
    equal = count_equal(args.own, args.epochs, args.jobs)
    print(f"\n{equal} of {args.own} nets of fit_many are equal in every bit to their own fits")
    results |= {"seconds": seconds, "equal": equal, "searches": {}}
    print("\nseconds of a search of 4 settings on 3 folds: median\n")
    for name, rounds, same in searches(args):
        shown = ", ".join(f"{how} {statistics.median(values):.2f}" for how, values in rounds.items())
        print(f"{name:16}{shown}; {'equal' if same else 'DIFFERENT'} scores", flush=True)
        results["searches"][name] = {**rounds, "equal": same}
    write_json(args.json, results)


if __name__ == "__main__":
    main()
