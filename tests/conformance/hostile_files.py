"""Hostile files: model files with modified headers and configs and recomputed, valid digests."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

from minidl.saving import safetensors_file

NUMBERS = [0, 1, 2, 3, -1, 31, 2**31, 2**32, 10**9, 2**62, 2**63, 2**64, 10**400, 0.5, 1e308, -0.0, True, None]
STRINGS = ["", "same", "F32", "F64", "BF16", "Dense", "Doubled", "os.system", "../../etc/passwd", "é\0"]
STRINGS += ["\ud800"]


def hostile_value(rng: random.Random, depth: int = 0) -> Any:
    """Draws a JSON value, biased to problematic ones."""
    choice = rng.randrange(10)
    if choice < 4 or depth > 4:
        return rng.choice(NUMBERS)
    if choice < 6:
        return rng.choice(STRINGS)
    if choice == 6:
        return [hostile_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if choice == 7:
        tag = rng.choice(["tuple", "dict", "custom", "minidl", "numpy", "float", "array"])
        return {tag: hostile_value(rng, depth + 1)} | (
            {"x": hostile_value(rng, depth + 1)} if rng.random() < 0.2 else {}
        )
    if choice == 8:
        name = rng.choice(["Dense", "Conv2D", "MaxPool2D", "ReLU", "Rescale", "Flatten", "Layer"])
        return {"minidl": [name, {"units": hostile_value(rng, depth + 1)}]}
    return {"tuple": [hostile_value(rng, depth + 1)]}


def places(value: Any) -> list[tuple[Any, Any]]:
    """Returns every (container, key) inside a JSON value."""
    found, rest = [], [value]
    while rest:
        container = rest.pop()
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for key, inner in list(items):
            found.append((container, key))
            if isinstance(inner, (dict, list)):
                rest.append(inner)
    return found


def modify(value: Any, rng: random.Random) -> None:
    """Modifies a random part of a JSON value in place."""
    container, key = rng.choice(places(value))
    match rng.randrange(6):
        case 0:
            del container[key]
        case 1 if isinstance(container, dict):
            container[rng.choice([*STRINGS, "units", "2.weight", "__metadata__"])] = container.pop(key)
        case 2 if isinstance(container, list):
            container[key:key] = [container[key]] * rng.choice((1, 2, 50))
        case 3:
            other, place = rng.choice(places(value))
            container[key] = json.loads(json.dumps(other[place]))
        case _:
            container[key] = hostile_value(rng)


def sealed(text: str, tensors: bytes) -> bytes:
    """Returns a file with this header and a valid digest."""
    return safetensors_file._seal(safetensors_file._add_length(text.encode("utf-8", "surrogatepass"))) + tensors


def dump(value: Any, sort_keys: bool = False) -> str:
    """Returns JSON in minidl's format."""
    return json.dumps(value, separators=(",", ":"), sort_keys=sort_keys)


def modified_file(good: bytes, rng: random.Random) -> bytes:
    """Returns a file with a modified header, config or tensors."""
    length = 8 + int.from_bytes(good[:8], "little")
    header, data = json.loads(good[8:length]), good[length:]
    config = json.loads(header["__metadata__"]["config"])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        try:
            modify(config if rng.random() < 0.6 else header, rng)
        except (IndexError, KeyError, TypeError):  # nothing left, or an earlier modification prevents this one
            break
    if rng.random() < 0.2:
        data = rng.choice([b"", data[: rng.randrange(len(data))], data * 2, rng.randbytes(len(data))])
    metadata = header.get("__metadata__")
    if isinstance(metadata, dict):
        if rng.random() < 0.9 and isinstance(metadata.get("config"), str):
            metadata["config"] = dump(config, sort_keys=True)
        if rng.random() < 0.9:
            redigest(header, data)
    text = dump(header)
    return sealed(mangled(text, rng) if rng.random() < 0.1 else text, data)


def redigest(header: dict[str, Any], data: bytes) -> None:
    """Sets valid digests of all tensors that can be located."""
    for name, entry in header.items():
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        if name != "__metadata__" and isinstance(offsets, list) and all(type(n) is int for n in offsets):
            header["__metadata__"][f"sha256:{name}"] = hashlib.sha256(data[slice(*offsets[:2] or [0])]).hexdigest()


def mangled(text: str, rng: random.Random) -> str:
    """Returns the text with a random edit, which usually makes it invalid JSON."""
    at = rng.randrange(len(text))
    more = rng.choice([" ", ",", '"', "{", "]", "NaN", "1e999", "\0", '"__metadata__":{},', "\\u0000", "ö"])
    return text[:at] + more + text[at + rng.randrange(2) :]


def bombs(good: bytes) -> dict[str, bytes]:
    """Returns files by name that are designed to exhaust memory or time."""
    length = 8 + int.from_bytes(good[:8], "little")
    header = json.loads(good[8:length])

    def with_config(config: str) -> str:
        metadata = header["__metadata__"] | {"config": config}
        return dump(header | {"__metadata__": metadata})

    room = safetensors_file.MAX_HEADER - 4000
    many = {f"{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(room // 60)}
    model = json.loads(header["__metadata__"]["config"])
    relu = {"minidl": ["ReLU", {}]}

    def with_layers(made: Any) -> str:
        if "model" in model:  # a checkpoint holds the model's own config
            return with_config(dump(model | {"model": model["model"] | {"layers": made}}, sort_keys=True))
        return with_config(dump(model | {"layers": made}, sort_keys=True))

    deep = "[" * (room // 2) + "]" * (room // 2)
    texts = {
        "deep header": '{"__metadata__":{"sha256":"' + "0" * 64 + '","x":' + deep + "}}",
        "deep config": with_config('{"a":' + deep + "}"),
        "config of lists": with_config('{"a":[' + "[]," * (room // 3) + "1]}"),
        "config of dicts": with_config('{"a":[' + "{}," * (room // 3) + "1]}"),
        "config of numbers": with_config('{"a":[' + "1," * (room // 2) + "1]}"),
        "config of small lists": with_config('{"a":[' + "[],[1]," * 16000 + "1]}"),
        "config of wide characters": with_config(dump("\U0001f600" + "a" * (room - 100))),
        "config of long numbers": with_config('{"a":[' + ("9" * 4299 + ",") * (room // 4300) + "1]}"),
        "config of longer numbers": with_config('{"a":' + "9" * (room - 100) + "}"),
        "many tensors": dump(header | many),
        "many axes": dump(header | {"0.weight": {"dtype": "F32", "shape": [3] * 100_000, "data_offsets": [0, 16]}}),
        "large axes": dump(header | {"0.weight": {"dtype": "F32", "shape": [10**4000] * 400, "data_offsets": [0, 16]}}),
        "10,000 layers": with_layers([relu] * 10_000),
        "many layers": with_layers([relu] * (room // 40)),
        "nested layers": with_layers([{"custom": ["Doubled", {"options": [relu] * 9000}]}]),
        "a large dense layer": with_layers([{"minidl": ["Dense", {"units": 10**9}]}]),
        "a large convolution": with_layers([{"minidl": ["Conv2D", {"filters": 10**9, "kernel_size": 3}]}]),
        "a long name": dump(header | {"x" * room: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}),
    }
    return {name: sealed(text, good[length:]) for name, text in texts.items()}
