"""A recorded computation with fewer operations and less memory: the results are the same bits."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

_ATEN = torch.ops.aten
#: Views that `vmap` records also where they change nothing.
_MAYBE_SAME = (
    _ATEN.expand.default,
    _ATEN.view.default,
    _ATEN._unsafe_view.default,
    _ATEN.permute.default,
    _ATEN.detach.default,
)
_COMMUTATIVE = (_ATEN.add.Tensor, _ATEN.mul.Tensor)


def simplify(module: GraphModule) -> None:
    """Leave out what changes nothing, and let operations write over what is not read any more.

    A tensor that fits into the CPU's cache is twice as fast to overwrite as to compute into
    another one.
    """
    graph = module.graph
    for node in list(graph.nodes):
        if _changes_nothing(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    graph.eliminate_dead_code()
    _overwrite(module)
    module.recompile()


def _layout(node: Any) -> tuple[Any, ...] | None:
    """Shape, strides and dtype of a node's tensor."""
    meta = getattr(node, "meta", {}).get("tensor_meta")
    return None if meta is None else (meta.shape, meta.stride, meta.dtype)


def _changes_nothing(node: Node) -> bool:
    once = node.target is _ATEN.mul.Scalar and node.args[1] == 1
    if not once and node.target not in _MAYBE_SAME:
        return False
    return _layout(node) is not None and _layout(node) == _layout(node.args[0])


def _is_view(node: Node) -> bool:
    if node.target in (_ATEN._unsafe_view.default, operator.getitem):
        return True
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.arguments:
        return False
    alias = schema.arguments[0].alias_info
    return alias is not None and not alias.is_write


def _overwrite(module: GraphModule) -> None:
    """Compute into the operand's memory where nothing reads it later."""
    nodes = list(module.graph.nodes)
    place = {node: number for number, node in enumerate(nodes)}
    owner: dict[Node, Node] = {}
    last_use: dict[Node, int] = {}
    for node in nodes:
        owner[node] = owner[node.args[0]] if _is_view(node) else node
        for used in node.all_input_nodes:
            last_use[owner[used]] = place[node]
    for node in nodes:
        if node.op != "call_function" or _is_view(node):
            continue
        for operand, change in _ways_to_overwrite(node):
            mine = owner[operand]
            # a whole tensor that was computed here, and that only this operand shows to the node
            free = mine.op == "call_function" and last_use[mine] == place[node]
            others = [each for each in node.all_input_nodes if each is not operand]
            shown = operand in others or any(owner[each] is mine for each in others)
            if (
                free
                and not shown
                and not _is_view(operand)
                and _layout(operand) == _layout(node) is not None
            ):
                change()
                last_use[mine] = last_use.get(node, place[node])
                for each, theirs in owner.items():
                    if theirs is node:
                        owner[each] = mine
                break


def _ways_to_overwrite(node: Node) -> list[tuple[Node, Callable[[], None]]]:
    """Operands that the result may take the place of, and how."""
    target: Any = node.target
    tensors = [each for each in node.args if isinstance(each, Node)]
    if (
        not isinstance(target, torch._ops.OpOverload)
        or not tensors
        or node.args[0] is not tensors[0]
    ):
        return []
    if target is _ATEN.threshold_backward.default:

        def into_gradient() -> None:
            node.target = _ATEN.threshold_backward.grad_input
            node.kwargs = {"grad_input": node.args[0]}

        return [(tensors[0], into_gradient)]
    packet = getattr(_ATEN, f"{target._schema.name.partition('::')[2]}_", None)
    overwriting = getattr(packet, target._overloadname, None)
    if overwriting is None:
        return []

    def into_first() -> None:
        node.target = overwriting

    def into_second() -> None:
        node.target = overwriting
        node.args = (node.args[1], node.args[0], *node.args[2:])

    ways = [(tensors[0], into_first)]
    if target in _COMMUTATIVE and len(tensors) == 2 and not node.kwargs:
        ways.append((tensors[1], into_second))
    return ways
