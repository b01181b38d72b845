"""A CNN in a scikit-learn pipeline
===================================

A convolutional net after a scaler, with cross-validation and a classification report.

Run it with: `python examples/sklearn_pipeline.py`
"""

from sklearn.datasets import load_digits
from sklearn.metrics import classification_report
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from minidl.estimators import SequentialClassifier
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU

# %%
# Scalers take one row per image. `input_shape` tells the net that the rows are images.

X, y = load_digits(return_X_y=True)  # (1797, 64)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

layers = [Conv2D(16, 3, padding=1), ReLU(), MaxPool2D(2), Flatten(), Dense(64), ReLU(), Dense(10)]
net = SequentialClassifier(layers, input_shape=(1, 8, 8), lr=0.003, batch_size=32, epochs=15, random_state=0)
pipeline = make_pipeline(MinMaxScaler(), net)

# %%
# Cross-validation trains five copies of the pipeline, each on four fifths of the training data.

scores = cross_val_score(pipeline, X_train, y_train, cv=5)
print(f"Accuracy in five folds: {scores.mean():.1%}, from {scores.min():.1%} to {scores.max():.1%}")

# %%
# The pipeline itself is trained on all training data, and tested once.

pipeline.fit(X_train, y_train)
print(classification_report(y_test, pipeline.predict(X_test), digits=3))
print(f"Test accuracy {pipeline.score(X_test, y_test):.2%}")
