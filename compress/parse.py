"""A compressor chain from a configuration or a command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aclearn.config import YamlError, parse_yaml
from aclearn.errors import AclearnError, did_you_mean
from aclearn.extensions import load_extension
from compress.chain import CompressorChain
from compress.errors import ChainError
from compress.link import Link
from compress.methods import LINKS

_SHORT = {"int8": ("quantize", "int8"), "fp16": ("quantize", "fp16"), "bf16": ("quantize", "bf16")}


def parse_chain(items: Sequence[Any], *, any_cpu: bool = False, **options: Any) -> CompressorChain:
    """The chain of a configuration.

    An item is a name ("onnx", "int8"), a name with its main setting ({"prune": 0.5}), or a name
    with several ({"distill": {"student": "accerl-net1", "steps": 4}}). A link of your own is
    {"module:Class": {settings}}.

    Args:
        any_cpu: artifacts run on other CPUs than this one: int8 in 7 bits by default.

    Raises:
        ChainError: an unknown link or a wrong setting.
    """
    chain = CompressorChain(**options)
    for item in items:
        chain.add(_link(item, any_cpu))
    return chain


def parse_words(text: str) -> list[Any]:
    """The items of a chain on a command line: "prune=0.5,int8,onnx".

    A chain with several settings of a link is written as in a configuration file: "prune:
    {sparsity: 0.75, per_layer: {convolutions: 0}}, int8, onnx".

    Raises:
        ChainError: the text is neither of the two.
    """
    if ": " in text:
        try:
            listed = parse_yaml(f"[{text}]").value
        except YamlError as error:
            raise ChainError(f"chain: {text!r} is not YAML: {error}") from error
        return list(listed)
    items: list[Any] = []
    for word in (part.strip() for part in text.split(",") if text.strip()):
        if not word:
            raise ChainError(
                f"chain: {text!r} has a comma without a link; expected e.g. prune=0.5,int8"
            )
        name, equals, value = word.partition("=")
        items.append({name: _number(value)} if equals else name)
    return items


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _link(item: Any, any_cpu: bool) -> Link:
    if isinstance(item, str):
        name, value = item, None
    elif isinstance(item, Mapping) and len(item) == 1:
        name, value = next(iter(item.items()))
    else:
        raise ChainError(
            f"chain: expected a name or one 'name: setting' per item, got {str(item)[:80]!r}"
        )
    arguments = [] if value is None or isinstance(value, Mapping) else [value]
    if name in _SHORT:
        name, main = _SHORT[name]
        arguments = [main, *arguments]
    if name not in LINKS and ":" not in str(name):
        names = (*LINKS, *_SHORT)
        raise ChainError(
            f"chain: the link {str(name)!r} is unknown; expected one of {', '.join(names)}, or "
            f"module:Class{did_you_mean(str(name), names)}"
        )
    make = load_extension(LINKS.get(name, name), key="chain", error=ChainError)
    settings = dict(value) if isinstance(value, Mapping) else {}
    if any_cpu and name == "quantize":
        settings.setdefault("reduced_range", True)
    try:
        link = make(*arguments, **settings)
    except ChainError:
        raise
    except Exception as error:
        # a link may be the user's code
        raise ChainError(f"{name}: {_words_of(error)}") from error
    if not isinstance(link, Link):
        raise ChainError(f"{name}: expected a compress.Link, got {type(link).__name__}")
    return link


def _words_of(error: Exception) -> str:
    """An error's message, with its class where the message alone may be unclear."""
    telling = (AclearnError, ImportError, AttributeError, SyntaxError, TypeError, ValueError)
    return str(error) if isinstance(error, telling) and str(error) else repr(error)
