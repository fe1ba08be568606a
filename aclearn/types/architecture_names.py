"""The names of the architectures that a configuration may ask for."""

from __future__ import annotations

#: Written out, since `policies` imports this package; a test compares them with the presets.
ARCHITECTURES = (
    "nature",
    "accerl-original",
    "accerl-net1",
    "accerl-net2",
    "accerl-net3",
    "impala-resnet",
    "mlp",
)

#: What names of recurrent networks contain.
_RECURRENT = ("lstm", "gru", "rnn")


def refuse_recurrence(name: str) -> str | None:
    """Why there is no network of such a name, where it asks for recurrence; None elsewhere."""
    if not any(word in name.lower() for word in _RECURRENT):
        return None
    return (
        f"{name!r} is recurrent, and recurrent policies are not supported: no layer keeps a state; "
        f"expected one of {', '.join(ARCHITECTURES)}"
    )
