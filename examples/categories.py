"""A table with categories
==========================

A net learns a price that depends on the shop, the product and numbers together. An `Embedding` gives each category a
few learned numbers.

Run it with: `python examples/categories.py`

Shops value products differently, and most pairs of a shop and a product are rare. The learned numbers of shops that
value products alike come close. The same split is given to scikit-learn's gradient boosting with categorical features,
and to its `MLPRegressor` on one-hot columns. It takes a few seconds and ends with the R² of the net on the test rows.
"""

import warnings
from time import perf_counter

import numpy as np
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from minidl.estimators import SequentialRegressor
from minidl.layers import Columns, Dense, Embedding, Flatten, Parallel, ReLU
from minidl.schedules import Cosine

SHOPS, PRODUCTS, NUMBERS = 40, 60, 4
EPOCHS, BATCH = 40, 64
CATEGORIES, MEASURES = [0, 1], [2, 3, 4, 5]


def draw_table(n, seed=0):
    """Returns rows of a shop, a product and four numbers, and prices with noise."""
    rng = np.random.default_rng(seed)
    shop, product = rng.integers(0, SHOPS, n), rng.integers(0, PRODUCTS, n)
    numbers = rng.standard_normal((n, NUMBERS))
    taste, quality = rng.standard_normal((SHOPS, NUMBERS)), rng.standard_normal((PRODUCTS, NUMBERS))
    price = (taste[shop] * quality[product]).sum(axis=1)  # shops value products differently
    price += np.tanh((taste[shop] * numbers).sum(axis=1)) + np.sin(2 * numbers[:, 0]) * quality[product, 1]
    table = np.empty((n, 2 + NUMBERS), object)
    table[:, 0] = [f"shop {i}" for i in shop]
    table[:, 1] = [f"product {i}" for i in product]
    table[:, 2:] = numbers
    return table, price + 0.3 * rng.standard_normal(n)


def net(outputs):
    """Returns the layers: each column of categories has vectors of its own, beside the numbers."""
    shops = [Columns(0, 1), Embedding(SHOPS, 8), Flatten()]
    products = [Columns(1, 2), Embedding(PRODUCTS, 8), Flatten()]
    return [Parallel(shops, products, [Columns(2)]), Dense(128), ReLU(), Dense(64), ReLU(), Dense(outputs)]


def with_columns(encoder, regressor):
    """Returns a pipeline: categories are encoded, and numbers are scaled."""
    columns = ColumnTransformer([("categories", encoder, CATEGORIES), ("numbers", StandardScaler(), MEASURES)])
    return make_pipeline(columns, regressor)


def main():
    X, y = draw_table(12_000)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=3000, random_state=0)
    ordinal, one_hot = OrdinalEncoder(), OneHotEncoder(sparse_output=False)
    trees = HistGradientBoostingRegressor(
        categorical_features=CATEGORIES, max_iter=1000, early_stopping=True, random_state=0
    )
    mlp = MLPRegressor(hidden_layer_sizes=(128, 64), early_stopping=True, random_state=0)
    mlp = TransformedTargetRegressor(mlp, transformer=StandardScaler())
    rate = Cosine(0.003, EPOCHS * -(-len(X_train) // BATCH))  # decays over all steps
    embedded = SequentialRegressor(net, lr=rate, epochs=EPOCHS, batch_size=BATCH, tol=None, random_state=0)
    models = {
        "HistGradientBoostingRegressor": with_columns(ordinal, trees),
        "MLPRegressor on one-hot columns": with_columns(one_hot, mlp),
        "SequentialRegressor with Embedding": with_columns(ordinal, embedded),
    }
    for name, model in models.items():
        start = perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X_train, y_train)
        score = model.score(X_test, y_test)
        print(f"{name:<36} R² {score:.3f} after {perf_counter() - start:4.1f} s")
    print(f"Test R² of the net: {score:.3f}")


if __name__ == "__main__":
    main()
