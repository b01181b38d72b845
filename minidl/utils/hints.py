"""Hints in errors: what minidl calls a word of Keras or PyTorch, or else the known word nearest to a misspelt one.

Unknown words come in three places. Arguments: `known_arguments` decorates a function, `answers` the constructor of a
class. Attributes: `answers` of a class, `unknown_names` of a module. Strings such as the name of a loss: `hint`.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, ParamSpec, TypeVar

from minidl.utils.foreign_arguments import ARGUMENTS, OWNERS, POSITIONS
from minidl.utils.foreign_words import Words

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)
CUTOFF = 0.75  # of difflib's similarity, for misspelt names
FOREIGN = ("keras", "tensorflow", "tf_keras", "torch")
TARGETS = ("label", "labels", "target", "targets", "truth", "y", "y_true")  # names of arguments
SCORES = (
    *("logits", "output", "outputs", "pred", "prediction", "predictions", "preds", "scores"),
    *("y_hat", "y_pred", "y_prob", "y_score", "yhat"),
)
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def plain(word: str) -> str:
    """Returns a word without what differs from one library to another: capitals, underscores and a final "loss".

    >>> plain("MSELoss"), plain("cross_entropy")
    ('mse', 'crossentropy')
    """
    short = word.lower().replace("_", "")
    return short.removesuffix("loss") or short


def hint(word: str, words: Words, known: Iterable[str] = ()) -> str:
    """Returns the end of an error about an unknown word; an empty string if there is nothing to say.

    words: of minidl/utils/foreign_words.py. known: the valid ones.

    >>> hint("relu", {}, ["ReLU", "PReLU"]), hint("p", {"p": "use rate="})
    ("; did you mean 'ReLU'?", '; use rate=')
    """
    key, names = plain(word), {plain(name): name for name in known}
    if key in words:
        return f"; {words[key]}"
    near = difflib.get_close_matches(key, names, 1, CUTOFF)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def foreign_hint(value: object, words: Words) -> str:
    """Returns the hint for an object of Keras or PyTorch, from the name of its class; otherwise an empty string."""
    is_foreign = type(value).__module__.partition(".")[0] in FOREIGN
    return hint(type(value).__name__, words) if is_foreign else ""


def class_hint(value: object) -> str:
    """Returns the hint for a class that is passed instead of an object; otherwise an empty string.

    >>> class_hint(dict), class_hint({})
    ('; pass an object, dict(...), not its class', '')
    """
    return f"; pass an object, {value.__name__}(...), not its class" if isinstance(value, type) else ""


def check_order(what: str, function: Callable[..., object], *expected: tuple[str, ...]) -> None:
    """Raises TypeError for a function whose two arguments have the names of one another, such as loss(y, scores).

    expected: TARGETS and SCORES, in the order in which the function is called. Other names say nothing.
    """
    try:
        names = list(inspect.signature(function).parameters)[:2]
    except (TypeError, ValueError):  # some callables in C have no signature
        return
    first, second = expected
    if len(names) == 2 and names[0] in second and names[1] in first:
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(f"{what}, got {name}({', '.join(names)}): exchange its arguments")


def known_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Returns a function whose TypeError for an unknown argument names the known ones, with a hint.

    Python's own message has neither. The function must not have been decorated before.
    """
    arguments = inspect.signature(function).parameters
    kinds = {argument.kind for argument in arguments.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return function
    by_position = [name for name, argument in arguments.items() if argument.kind in POSITIONAL]
    any_number = inspect.Parameter.VAR_POSITIONAL in kinds
    most = sys.maxsize if any_number else len(by_position)  # positional arguments
    is_constructor = function.__name__ == "__init__"
    is_method, method = is_constructor or by_position[:1] == ["self"], "" if is_constructor else f".{function.__name__}"

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if not kwargs and len(args) <= most:
            return function(*args, **kwargs)
        owner = f"{type(args[0]).__name__}{method}" if is_method else function.__name__
        for name in kwargs:
            if name not in arguments:
                known = list(arguments)[is_method:]
                expected = f"expected arguments from {', '.join(known)}" if known else "expected no argument"
                words = _argument_words(args[0], method, known) if is_method else _words_for(ARGUMENTS, known)
                raise TypeError(f"{owner}: {expected}, got {name}={hint(name, words, known)}")
        if len(args) > most:
            places = ", ".join(by_position[is_method:])
            expected = f"expected {places} as positional arguments" if places else "expected no positional arguments"
            others = ", ".join(f"{name}=" for name in arguments if name not in by_position)
            remedy = f"; the others are {others}" if others else ""
            inferred = f"; {POSITIONS[owner]}" if owner in POSITIONS else ""
            raise TypeError(f"{owner}: {expected}, got {len(args) - is_method}{inferred or remedy}")
        return function(*args, **kwargs)

    return checked


def _argument_words(owner: object, method: str, known: Iterable[str]) -> Words:
    """Returns the words for the arguments of a constructor (method "") or a method (".fit")."""
    words = _words_for(ARGUMENTS, known)
    for cls in reversed(type(owner).__mro__):
        words |= OWNERS.get(cls.__name__ + method, {})
    return words


def _words_for(words: Words, known: Iterable[str]) -> Words:
    """Returns the words without answers that begin with an argument of another function."""
    named = {word: re.match(r"use (\w+)=(?! of )", answer) for word, answer in words.items()}
    return {word: words[word] for word, match in named.items() if match is None or match[1] in known}


def answers(words: Words) -> Callable[[C], C]:
    """Returns a class decorator: `known_arguments` for the constructor, and hints for attributes that do not exist.

    words: of minidl/utils/foreign_words.py; with "call" among them, the TypeError of a call has a hint as well.
    """

    def __getattr__(self: Any, name: str) -> Any:
        if plain(name) in words:
            raise AttributeError(f"{type(self).__name__} has no {name!r}{hint(name, words)}")
        return object.__getattribute__(self, name)  # raises Python's error once more, also that of a property

    def __call__(self: object, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(f"{type(self).__name__}: expected no call{hint('call', words)}")

    def decorate(cls: C) -> C:
        answer_arguments(cls)
        if words:
            cls.__getattr__ = __getattr__  # type: ignore[attr-defined]
        if "call" in words:
            cls.__call__ = __call__  # type: ignore[method-assign]
        return cls

    return decorate


def answer_arguments(cls: type) -> None:
    """Decorates the constructor that a class defines with `known_arguments`."""
    if inspect.isfunction(vars(cls).get("__init__")):
        cls.__init__ = known_arguments(cls.__init__)  # type: ignore[misc]


def unknown_names(module: str, words: Words, known: Iterable[str]) -> Callable[[str], NoReturn]:
    """Returns a `__getattr__` for a module; known: its public names.

    It raises ImportError with a hint, as `from module import name` drops the message of an AttributeError, and no class
    can derive from both. Without a hint, as for the names that tools look for, it raises AttributeError.
    """

    def __getattr__(name: str) -> NoReturn:
        found = "" if name.startswith("_") else hint(name, words, known if name[:1].isupper() else ())
        message = f"module {module!r} has no attribute {name!r}"
        raise ImportError(message + found, name=module) if found else AttributeError(message)

    return __getattr__


def warn_caller(message: str) -> None:
    """Warns at the line outside of minidl that led to this call."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "minidl":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)
