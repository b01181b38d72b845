"""Compares estimators for tables: errors on test splits and CPU seconds, beside boosted trees and other networks.

    python benchmarks/tables.py --results build/bench/tables.jsonl              # tables that scikit-learn has
    python benchmarks/tables.py --results ... FOLDER ...                        # CSV files, without headers
    python benchmarks/tables.py --results ... FOLDER --inner --sides minidl --ablate relu

Each run is a line of the results: a program that was stopped goes on. README.md in this folder describes the method.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import warnings
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import fmean, median
from unittest import mock

import numpy as np
import pandas as pd
from measure import positive
from sklearn import datasets
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.metrics import mean_squared_error, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

OWN = {"breast_cancer": True, "diabetes": False, "digits": True, "wine": True}  # of scikit-learn; True: classes
CLASSES = 10  # the most distinct numbers of a last column that has classes
REFERENCE = "lightgbm"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


# ---- tables


def read_tables(folders):
    """Returns a function for each table that reads it: a frame, its targets, and whether they are classes."""
    tables = {}
    for path in sorted(path for folder in folders for path in folder.glob("*.csv*")):
        name = path.name.split(".")[0]
        tables.setdefault(name.removesuffix("-train").removesuffix("-test"), []).append(path)
    found = {name: partial(read_files, paths) for name, paths in tables.items()}
    return found or {name: partial(read_own, name) for name in OWN}


def read_files(paths):
    """Reads CSV files of one table, whose last column is the target; "?" is missing."""
    read = partial(pd.read_csv, header=None, skipinitialspace=True, na_values="?")
    frame = pd.concat([read(path) for path in paths], ignore_index=True)
    y = frame.pop(frame.columns[-1])
    if not pd.api.types.is_numeric_dtype(y):
        return frame, y.str.rstrip(".").to_numpy(str), True
    has_classes = y.nunique() <= CLASSES and not (y % 1).any()
    return frame, y.to_numpy(int if has_classes else float), has_classes


def read_own(name):
    """Reads a table of scikit-learn."""
    data = getattr(datasets, f"load_{name}")(as_frame=True)
    return data.data, data.target.to_numpy(), OWN[name]


def split(X, y, has_classes, seed, inner, rows):
    """Returns the indices of rows to train on, and of a quarter to test with; `inner`: of the first training part.

    Settings are chosen on inner splits, so that no setting has seen the rows of the first test part.
    """

    def parts(of, seed):
        is_stratified = has_classes and np.unique(y[of], return_counts=True)[1].min() > 1
        return train_test_split(of, test_size=0.25, random_state=seed, stratify=y[of] if is_stratified else None)

    chosen = np.random.default_rng(0).permutation(len(y))[:rows] if rows < len(y) else np.arange(len(y))
    return parts(parts(chosen, 0)[0], 100 + seed) if inner else parts(chosen, seed)


# ---- sides: functions of whether there are classes, the seed and the number of threads, that return an estimator


def minidl(has_classes, seed, threads, **options):
    import minidl as package
    from minidl.estimators import TabularClassifier, TabularRegressor

    package.set_num_threads(threads)
    return (TabularClassifier if has_classes else TabularRegressor)(random_state=seed, **options)


def lightgbm(has_classes, seed, threads):
    from lightgbm import LGBMClassifier, LGBMRegressor

    return (LGBMClassifier if has_classes else LGBMRegressor)(random_state=seed, n_jobs=threads, verbose=-1)


def hist(has_classes, seed, threads):
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    estimator = HistGradientBoostingClassifier if has_classes else HistGradientBoostingRegressor
    return estimator(random_state=seed, categorical_features="from_dtype")


def catboost(has_classes, seed, threads):
    from catboost import CatBoostClassifier, CatBoostRegressor

    estimator = CatBoostClassifier if has_classes else CatBoostRegressor
    return estimator(random_seed=seed, thread_count=threads, verbose=False, allow_writing_files=False)


def mlp(has_classes, seed, threads):
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    encoded = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_include="category")), remainder=numbers
    )
    return make_pipeline(encoded, (MLPClassifier if has_classes else MLPRegressor)(random_state=seed))


def pytabkit(name, has_classes, seed, threads):
    import pytabkit

    estimator = getattr(pytabkit, f"{name}_{'Classifier' if has_classes else 'Regressor'}")
    return estimator(device="cpu", random_state=seed, n_threads=threads, verbosity=0)


SIDES = {
    "minidl": minidl,
    "minidl, 8 folds": partial(minidl, n_folds=8),
    "lightgbm": lightgbm,
    "hist": hist,
    "catboost": catboost,
    "mlp": mlp,
    "realmlp": partial(pytabkit, "RealMLP_TD"),
    "tabm": partial(pytabkit, "TabM_D"),
}


def frame_for(side, X):
    """Returns the frame as an estimator takes it: minidl as it comes, the others with strings as categories."""
    if side.startswith("minidl"):
        return X
    X = X.set_axis([f"c{i}" for i in range(X.shape[1])], axis=1)
    for name in X.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in X.dtypes]]:
        if side == "catboost":
            X[name] = X[name].astype(object).where(X[name].notna(), "missing")
        else:
            X[name] = X[name].astype("category")
    return X


# ---- what is left out


def ablation(name):
    """Returns a context in which the networks of minidl lack one ingredient."""
    from minidl import layers
    from minidl.estimators import table_encoder, table_net, tabular
    from minidl.initializers import glorot_uniform

    def standardized(edges, missing):
        middle = [edge[len(edge) // 2] for edge in edges]
        widths = [edge[3 * len(edge) // 4] - edge[len(edge) // 4] or edge[-1] - edge[0] for edge in edges]
        return layers.Normalize(middle, widths)

    return {
        "bins": mock.patch.object(table_net, "PiecewiseLinearEncoding", standardized),
        "bins of distinct values": mock.patch.object(table_encoder, "quantile_edges", rows_only),
        "initial weights": mock.patch.object(table_net, "he_normal", glorot_uniform),
        "lower rates": mock.patch.object(tabular, "FACTOR", 1 - 1e-9),
        "patience": mock.patch.object(tabular, "PATIENCE", 3),
        "betas": mock.patch.object(tabular, "BETAS", (0.9, 0.999)),
    }[name]


def rows_only(values, bins, dtype):
    """Returns quantiles of all rows, as edges."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)))
    return edges if len(edges) > 1 else edges[:0]


# ---- one run


def run_one(args, table, side, seed):
    """Fits one estimator on one split of a table, and prints its scores and CPU seconds as JSON."""
    warnings.simplefilter("ignore")
    X, y, has_classes = read_tables(args.folders)[table]()
    train, test = split(X, y, has_classes, seed, args.inner, args.rows)
    X = frame_for(side, X)
    estimator = SIDES[side](has_classes, seed, args.threads)
    if side.startswith("minidl"):
        options = dict(option.split("=", 1) for option in args.set)
        estimator.set_params(**{name: json.loads(value) for name, value in options.items()})
    if side == "catboost":
        estimator.set_params(cat_features=list(X.select_dtypes("object").columns))
    with ExitStack() as stack:
        for name in args.ablate:
            stack.enter_context(ablation(name))
        begin = cpu()
        estimator.fit(X.iloc[train], y[train])
        fitted = cpu()
    X, y = X.iloc[test], y[test]
    if has_classes:
        predicted = np.asarray(estimator.predict_proba(X))
        classes = estimator.classes_
        error = float(np.mean(classes[predicted.argmax(axis=1)] != y))
        scores = {"error": error, "1 - auc": 1 - auc(y, classes, predicted)}
    else:
        scores = {"error": float(np.sqrt(mean_squared_error(y, estimator.predict(X))))}
    print(json.dumps(scores | {"fit": fitted - begin, "predict": cpu() - fitted}))


def cpu():
    """Returns the CPU seconds of this process and those that it has waited for."""
    return sum(sum(resource.getrusage(of)[:2]) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def auc(y, classes, predicted):
    """Returns the mean area under the ROC curve of each class beside all others; of two classes, that of one."""
    if len(classes) == 2:
        return roc_auc_score(y == classes[1], predicted[:, 1])
    present = [k for k, label in enumerate(classes) if 0 < (y == label).sum() < len(y)]
    return fmean(roc_auc_score(y == classes[k], predicted[:, k]) for k in present)


# ---- all runs


def main():
    args = arguments()
    if args.one:
        run_one(args, args.one[0], args.one[1], int(args.one[2]))
        return
    args.results.parent.mkdir(parents=True, exist_ok=True)
    variant = {"inner": args.inner, "rows": args.rows, "threads": args.threads, "set": args.set, "ablate": args.ablate}
    done = [json.loads(line) for line in args.results.read_text("utf-8").splitlines()] if args.results.exists() else []
    environment = os.environ | dict.fromkeys(THREADS, str(args.threads))
    for table in args.tables or read_tables(args.folders):
        for seed in range(args.splits):
            for side in args.sides:
                key = {"table": table, "seed": seed, "side": side, **variant}
                if any(key.items() <= row.items() for row in done):
                    continue
                command = [sys.executable, *sys.argv, "--one", table, side, str(seed)]
                ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                if ran.returncode:
                    print(f"{table}, {side}, split {seed}: {ran.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                    continue
                row = key | json.loads(ran.stdout.splitlines()[-1])
                done.append(row)
                with args.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    print_tables(done)


def print_tables(rows):
    """Prints medians over splits, and geometric means over tables relative to LightGBM, of each side and variant."""
    groups = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        changed = [*row["set"], *(f"without {name}" for name in row["ablate"])]
        place = ("inner splits" if row["inner"] else "test splits", row["threads"], row["rows"])
        groups[place][", ".join([row["side"], *changed])].setdefault(row["table"], []).append(row)
    for (place, threads, most), sides in groups.items():
        print(f"\n{place}, at most {most} rows, {threads} threads: medians, and geometric means beside {REFERENCE}")
        print(f"{'':40}{'error, RMSE':>12}{'1 - AUC':>9}{'fit, CPU s':>11}{'predict':>9}   worst")
        for side, tables in sides.items():
            ratios = {key: relative(tables, sides.get(REFERENCE, {}), key) for key in ("error", "1 - auc")}
            means = {key: np.exp(np.mean(np.log(list(of.values())))) if of else np.nan for key, of in ratios.items()}
            worst = max(ratios["error"], key=ratios["error"].get, default="")
            seconds = {key: sum(median(row[key] for row in of) for of in tables.values()) for key in ("fit", "predict")}
            print(
                f"{side:40}{means['error']:12.3f}{means['1 - auc']:9.3f}{seconds['fit']:11.2f}{seconds['predict']:9.3f}"
                f"   {worst} {ratios['error'].get(worst, np.nan):.2f}, {len(tables)} tables"
            )


def relative(tables, reference, key):
    """Returns by table the geometric mean over splits of a score, relative to that of the reference."""
    found = {}
    for name, rows in tables.items():
        others = {row["seed"]: row for row in reference.get(name, [])}
        pairs = [(row[key], others[row["seed"]][key]) for row in rows if key in row and row["seed"] in others]
        if pairs:
            found[name] = float(np.exp(np.mean([np.log(max(own, 1e-4) / max(other, 1e-4)) for own, other in pairs])))
    return found


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="folders of CSV files; default: tables of scikit-learn")
    parser.add_argument("--results", type=Path, required=True, help="a file of JSON lines, to which runs are appended")
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--tables", nargs="+", help="names of files without .csv; default: all")
    parser.add_argument("--splits", type=positive, default=5)
    parser.add_argument("--rows", type=positive, default=10_000, help="the largest number of rows, drawn at random")
    parser.add_argument("--threads", type=positive, default=1)
    parser.add_argument("--inner", action="store_true", help="splits of the first training part, to choose settings on")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=JSON", help="arguments of minidl's estimators")
    parser.add_argument("--ablate", nargs="*", default=[], help="ingredients of minidl's networks to leave out")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
