"""Values of a graph as expressions of earlier ones, in which passes find what exporters write as several nodes.

x * Sigmoid(x) is ("Mul", "x", ("Sigmoid", "x")) of x. Sums have one form, and products: Sub, Neg, Div and Pow by
numbers become Add and Mul, whose terms are flat and in one order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import Any

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import DATA_TYPES, Graph, Node

MAX_DEPTH = 12  # nodes from x to the value: those of TensorFlow's layer norm
MAX_TERMS = 5  # of a sum or product

# "x", a number, or a tuple: of an operator and its operands, of "Constant" and its name, or of "Integers" and these
Expression = Any


@dataclass
class Candidate:
    """A value as an expression of another one: its longest path in nodes, and the most axes of its numbers."""

    expression: Expression
    depth: int = 0
    rank: int = 0


ReadConstant = Callable[[Node, str], Candidate | None]  # None: such a node is no expression
Merge = Callable[[Node, str, Candidate], Node | None]


class Expressions:
    """Values of a graph as expressions of earlier ones by some operators.

    A value is an expression of few others, each of which is one of the next, so that the time is linear.
    """

    def __init__(self, graph: Graph, ops: Container[str], constants: Constants, read_constant: ReadConstant) -> None:
        self.graph, self.ops, self.constants, self.read_constant = graph, ops, constants, read_constant
        self.producers = {name: node for node in graph.nodes for name in node.outputs if name not in constants}
        self.reads = Counter(name for node in graph.nodes for name in node.inputs)
        self.known: dict[str, dict[str, Candidate]] = {}

    def rewrite(self, merge: Merge) -> Graph:
        """Returns the graph in which a node takes the place of the last one of each expression that a pass looks for.

        The nodes before it stay, whether other nodes read their outputs or none.

        merge: returns it for a node of the graph, a value, and the node's output as an expression of this value; None
        for all expressions that the pass does not look for.
        """
        nodes = list[Node]()
        for node in self.graph.nodes:
            found: dict[str, Candidate] = {}
            if node.outputs and not node.domain and node.op in self.ops and node.outputs[0] not in self.constants:
                found = self.known[node.outputs[0]] = self._expand(node)
            merged = (merge(node, start, candidate) for start, candidate in found.items())
            nodes.append(next(filter(None, merged), node))
        return replace(self.graph, nodes=nodes)

    def _expand(self, node: Node) -> dict[str, Candidate]:
        """Returns the output of a node by the values that it is an expression of, the nearest first."""
        operands = list[Candidate | dict[str, Candidate]]()
        for name in filter(None, node.inputs):
            if name not in self.constants:
                operands.append({name: Candidate("x"), **self.known.get(name, {})})
            elif (constant := self.read_constant(node, name)) is not None:
                operands.append(constant)
            else:
                return {}
        values = [operand for operand in operands if isinstance(operand, dict)]
        found = dict[str, Candidate]()
        for start in values[0] if values else ():
            if all(start in value for value in values):
                parts = [operand[start] if isinstance(operand, dict) else operand for operand in operands]
                depth, rank = 1 + max(part.depth for part in parts), max(part.rank for part in parts)
                expression = _simplify(node, [part.expression for part in parts]) if depth <= MAX_DEPTH else None
                if expression is not None:
                    found[start] = Candidate(expression, depth, rank)
        return found

    def is_closed(self, start: str, last: Node) -> bool:
        """True if no other nodes read what the nodes from a value to the last one of an expression compute."""
        inner, pending = dict[int, Node](), [*last.inputs]
        while pending:
            if (name := pending.pop()) != start and name in self.producers:
                inner[id(self.producers[name])] = self.producers[name]
                pending += self.producers[name].inputs
        own = Counter(name for node in (last, *inner.values()) for name in node.inputs)
        return all(self.reads[name] == own[name] for node in inner.values() for name in node.outputs)


def name_constant(node: Node, name: str) -> Candidate:
    """Returns a constant by its name."""
    return Candidate(("Constant", name))


def _simplify(node: Node, operands: list[Expression]) -> Expression:
    """Returns a node as an expression; None for attributes that expressions do not have."""
    match node.op, operands:
        case "Cast", [operand]:
            return operand if node.attributes.get("to") == DATA_TYPES["bool"] else None
        case "Elu", [operand]:
            return "Elu", operand, node.attributes.get("alpha", 1.0)
        case "HardSigmoid", [operand]:
            return "HardSigmoid", operand, node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5)
        case "ReduceMean", [operand, *axes]:
            given = axes or [("Integers", *(node.attributes.get("axes") or ()))]
            return ("ReduceMean", operand, *given) if node.attributes.get("keepdims", 1) == 1 else None
        case "Mul", _:
            return _combine("Mul", operands, 1.0, float.__mul__)
        case "Neg", [operand]:
            return _combine("Mul", [operand, -1.0], 1.0, float.__mul__)
        case "Div", [operand, float(number)] if number:
            return _combine("Mul", [operand, 1 / number], 1.0, float.__mul__)
        case "Pow", [operand, 2.0 | 3.0 as number]:
            return _combine("Mul", [operand] * int(number), 1.0, float.__mul__)
        case "Add", _:
            return _combine("Add", operands, 0.0, float.__add__)
        case "Sub", [operand, float(number)]:
            return _combine("Add", [operand, -number], 0.0, float.__add__)
    return node.op, *operands


def _combine(
    op: str, operands: list[Expression], neutral: float, combine: Callable[[float, float], float]
) -> Expression:
    """Returns a sum or product of any number of terms: x first, then expressions by operator, last one number.

    Of two expressions of one operator, that with x as an operand comes first.
    """
    terms, number = list[Expression](), neutral
    for operand in operands:
        nested = isinstance(operand, tuple) and operand[0] == op
        for term in operand[1:] if nested else [operand]:
            if isinstance(term, float):
                number = combine(number, term)
            else:
                terms.append(term)
    terms.sort(key=lambda term: ("", False) if term == "x" else (term[0], "x" not in term))
    if number != neutral:
        terms.append(number)
    return None if len(terms) > MAX_TERMS else terms[0] if len(terms) == 1 else (op, *terms)
