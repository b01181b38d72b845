"""InputError: data that a call refuses, as opposed to a wrong model, argument or file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class InputError(ValueError):
    """Data that a call refuses: of another shape or kind than expected, or with NaN or infinity.

    It is raised for X of `predict`, `predict_proba` and `evaluate`; for X, y and weights of `fit` and `train_batch`;
    for X and y of estimators; and for the bytes of an image in `load_image`. So a service can tell its caller's
    mistakes from its own. An InputError about a type is also a TypeError. A model that a call cannot use, other
    arguments, and files of models raise other errors.

    Examples
    --------
    >>> from minidl import InputError, Sequential
    >>> from minidl.layers import Dense
    >>> model = Sequential([Dense(2)], input_shape=(3,))
    >>> try:
    ...     model.predict([[1, 2]])
    ... except InputError as error:
    ...     print(error)
    X: expected shape (n, 3), got (1, 2)
    """


class InputTypeError(InputError, TypeError):
    """An InputError where TypeError is the usual type."""


KINDS: tuple[type[Exception], ...] = (InputTypeError, InputError, TypeError, ValueError)
OF_INPUT: dict[type[Exception], type[InputError]] = {TypeError: InputTypeError, ValueError: InputError}


def kind_of(error: Exception) -> type[Exception]:
    """Returns the type for an error with another message: the nearest of InputError, TypeError and ValueError.

    >>> kind_of(UnicodeError("")).__name__, kind_of(InputError("")).__name__
    ('ValueError', 'InputError')
    """
    return next(kind for kind in KINDS if isinstance(error, kind))


@contextmanager
def refusing_input() -> Iterator[None]:
    """A context in which a TypeError or ValueError becomes an InputError with the same message.

    Errors of other types, and of types derived from these two, are left as they are.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        if type(error) not in OF_INPUT:
            raise
        refused = OF_INPUT[type(error)](*error.args)
        for note in getattr(error, "__notes__", ()):
            refused.add_note(note)
        raise refused.with_traceback(error.__traceback__) from error.__cause__
