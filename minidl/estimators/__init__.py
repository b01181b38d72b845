"""Estimators: networks as scikit-learn's classifiers and regressors, for pipelines, searches and cross-validation.

>>> from sklearn.datasets import load_iris
>>> from sklearn.pipeline import make_pipeline
>>> from sklearn.preprocessing import StandardScaler
>>> from minidl.estimators import SequentialClassifier
>>> X, y = load_iris(return_X_y=True)
>>> classifier = make_pipeline(StandardScaler(), SequentialClassifier(random_state=0)).fit(X, y)
>>> classifier.score(X, y) > 0.95
True
"""

from minidl.utils.optional import needs

with needs("sklearn", "minidl.estimators"):
    import sklearn  # noqa: F401

    from minidl.estimators.classifier import SequentialClassifier
    from minidl.estimators.ensembles import EnsembleClassifier, EnsembleRegressor
    from minidl.estimators.regressor import SequentialRegressor
    from minidl.estimators.tabular_classifier import TabularClassifier
    from minidl.estimators.tabular_regressor import TabularRegressor

__all__ = [
    "EnsembleClassifier",
    "EnsembleRegressor",
    "SequentialClassifier",
    "SequentialRegressor",
    "TabularClassifier",
    "TabularRegressor",
]
