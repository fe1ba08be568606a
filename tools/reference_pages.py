"""Writes docs/reference/: the public names of Python, from their docstrings.

    python -m tools.reference_pages

Reads the source only; nothing of aclearn is imported.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import griffe

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = ROOT / "docs" / "reference"
_PACKAGES: Final = ("aclearn", "services", "compress", "correctors")
_WIDTH: Final = 100
_TITLES: Final = {"parameters": "Arguments", "attributes": "Attributes", "raises": "Raises"}


@dataclass(frozen=True)
class _Part:
    """A section of a page.

    Attributes:
        title: its heading; "" for none.
        text: below the heading.
        module: where the names are public.
        names: of classes and functions; None: the module's `__all__`.
        shown_as: the module to import them from, if it is another one.
    """

    title: str
    text: str
    module: str
    names: tuple[str, ...] | None = None
    shown_as: str = ""


_EXTENSIONS: Final = (
    _Part(
        "An environment",
        "`env.id: module:factory`, a function or class that returns a `gymnasium.Env`: "
        "[environments](../environments.md#your-own-environment).",
        "aclearn.envs",
        (),
    ),
    _Part(
        "A network",
        "`policy.architecture: module:Class`; [an example](../networks.md#your-own-network).",
        "aclearn.policies",
        ("PolicyModule", "check_policy", "PolicyWarning"),
    ),
    _Part(
        "A loss",
        '`loss: {kind: "module:Name"}`; [an example](../architecture.md#a-loss).',
        "aclearn.algorithms",
        ("Loss", "LossSums"),
    ),
    _Part(
        "A corrector",
        "An entry of `correctors`; [an example](../architecture.md#a-corrector).",
        "correctors",
        ("Corrector", "Correction", "CorrectionInput", "check_corrector"),
    ),
    _Part(
        "A compression link",
        "An entry of `compressor.chain`; [an example](../architecture.md#a-compression-link).",
        "compress",
        ("Link", "ConfiguredLink", "Policy", "Context", "check_compressor"),
    ),
    _Part(
        "An indicator",
        "An entry of `monitor.indicators`; [an example](../architecture.md#an-indicator).",
        "aclearn.metrics.indicators",
    ),
    _Part(
        "A metrics sink",
        "An entry of `metrics.sinks`; [an example](../architecture.md#a-metrics-sink).",
        "aclearn.metrics.sinks",
        ("MetricsSink", "SinkRun"),
    ),
    _Part(
        "A selector",
        "`population.selector`; [an example](../populations.md#selectors).",
        "aclearn.population",
        ("Selector", "Origin", "Standing", "SearchSpace"),
    ),
    _Part(
        "A strategy",
        "An entry of `monitor.strategies`; [an example](../architecture.md#a-strategy).",
        "aclearn.control",
        ("Strategy", "Decision", "Moment"),
    ),
    _Part(
        "A monitor plug-in",
        "An entry of `monitor.plugins`; [an example](../architecture.md#a-monitor-plug-in).",
        "aclearn.control",
        ("MonitorPlugin", "Indicators", "Directive"),
    ),
)
_CONTENTS: Final = {
    "aclearn": (
        "aclearn in Python",
        "`import aclearn` is light: torch is imported by the first function that needs it.",
        (_Part("", "", "services.api", shown_as="aclearn"),),
    ),
    "correctors": (
        "correctors in Python",
        "Off-policy correction as pure functions on tensors; it works without the rest of "
        "aclearn. [Correction](../correction.md) explains it.",
        (_Part("", "", "correctors"),),
    ),
    "compress": (
        "compress in Python",
        "Chains that make smaller policies; it works without a run. "
        "[Compression](../compression.md) explains it.",
        (_Part("", "", "compress"),),
    ),
    "extension_points": (
        "Extension points",
        "Each is one class or function of yours, named `module:Name` in YAML. The module is in "
        "the current folder or on `PYTHONPATH`.",
        _EXTENSIONS,
    ),
}


def reference_pages() -> dict[str, str]:
    """File name → text of every page in docs/reference/.

    Raises:
        KeyError: a public name does not exist.
    """
    loader = griffe.GriffeLoader(
        search_paths=[ROOT],
        docstring_parser="google",
        # one value: otherwise each of its lines is another one
        docstring_options={"returns_multiple_items": False, "returns_named_value": False},
    )
    for package in _PACKAGES:
        loader.load(package, submodules=True)
    loader.resolve_aliases(external=False)
    return {
        f"{name}.md": _page(loader, title, text, parts)
        for name, (title, text, parts) in _CONTENTS.items()
    }


def _page(loader: griffe.GriffeLoader, title: str, text: str, parts: Sequence[_Part]) -> str:
    lines = [f"# {title}", "", *_wrapped(text), ""]
    lines += ["Generated from the docstrings by `make docs`.", ""]
    for part in parts:
        if part.title:
            lines += [f"## {part.title}", "", *_wrapped(part.text), ""]
        module = loader.modules_collection[part.module]
        for name in module.exports if part.names is None else part.names:
            shown = f"{part.shown_as or part.module}.{name}"
            lines += _entry(_find(loader, module, str(name)), shown, 3 if part.title else 2)
    return "\n".join(lines).rstrip() + "\n"


def _find(loader: griffe.GriffeLoader, module: Any, name: str) -> Any:
    """An object by its public name; a submodule of the same name does not hide it."""
    path = module.imports.get(name)
    found = loader.modules_collection[path] if path else module[name]
    return found.final_target if found.is_alias else found


def _entry(item: Any, shown: str, level: int) -> Iterator[str]:
    """The heading, signature, docstring and methods of a class, function or constant."""
    yield from (f"{'#' * level} `{item.name}`", "")
    if item.is_attribute:
        yield from _docstring(item)
        return
    kind = "class " if item.is_class else ""
    yield from ("```python", *_signature(item, kind + shown), "```", "")
    yield from _docstring(item)
    if item.is_class:
        for member in item.members.values():
            if not member.is_alias and member.name[0] != "_" and member.docstring:
                yield from _member(member)


def _member(member: Any) -> Iterator[str]:
    """A method or property: its signature as a line of its own, then its docstring."""
    if not (member.is_function or "property" in member.labels):
        return
    called = " ".join(_signature(member, member.name, width=10_000)).replace("( ", "(")
    yield from (f"**`{called}`**", "")
    yield from _docstring(member)


def _signature(item: Any, name: str, width: int = _WIDTH) -> list[str]:
    """The call and the type that it returns, on one line or with a line for each argument."""
    if not (item.is_class or item.is_function):
        return [f"{name}: {item.annotation}"] if item.annotation else [name]
    arguments, keyword_only = [], False
    for parameter in item.parameters:
        if parameter.name in ("self", "cls"):
            continue
        kind = parameter.kind.value
        if kind == "keyword-only" and not keyword_only:
            arguments.append("*")
        keyword_only |= kind in ("keyword-only", "variadic positional")
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        text = f"{stars}{parameter.name}"
        text += f": {parameter.annotation}" if parameter.annotation else ""
        if parameter.default is not None and not stars:
            text += f" = {parameter.default}" if parameter.annotation else f"={parameter.default}"
        arguments.append(text)
    returns = f" -> {item.returns}" if item.is_function and item.returns else ""
    if item.is_class and not arguments:
        return [name]
    line = f"{name}({', '.join(arguments)}){returns}"
    if len(line) <= width:
        return [line]
    return [f"{name}(", *(f"    {argument}," for argument in arguments), f"){returns}"]


def _docstring(item: Any) -> Iterator[str]:
    if item.docstring is None:
        return
    for section in item.docstring.parsed:
        kind = section.kind.value
        if kind == "text":
            yield from (section.value, "")
        elif kind in _TITLES:
            yield from (f"{_TITLES[kind]}:", "")
            for element in section.value:
                name = element.annotation if kind == "raises" else element.name
                yield f"* `{name}`: {_joined(element.description)}"
            yield ""
        elif kind == "returns":
            (value,) = section.value
            said = _joined(value.description)
            if str(value.annotation) != str(item.annotation if item.is_attribute else item.returns):
                said = f"{value.annotation}: {said}"  # a sentence with a colon is no type
            yield from (f"Returns: {said}", "")
        else:
            raise ValueError(f"{item.path}: a section {kind!r} in its docstring; add it here")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def _joined(text: str) -> str:
    return " ".join(text.split())


def write() -> None:
    """Write the pages to docs/reference/."""
    PAGES.mkdir(exist_ok=True)
    for name, text in reference_pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
