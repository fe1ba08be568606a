"""A counter-based generator: what is drawn depends on (seed, environment, step, use) only.

A stream's first state is a hash (PCG-RXS-M-XS, O'Neill 2014, as Warp's `rand_init`) of these
integers, so CPU and GPU and any number of environments draw the same, and nothing has to be kept.
"""

from aclearn.resident.warp_setup import wp

#: The uses of random numbers in one step.
CHOOSE, STEP, RESET = 0, 1, 2
_USES = 3


@wp.func
def stream_of(seed: wp.int32, environment: wp.int32) -> wp.uint32:
    """What the streams of one environment have in common."""
    return wp.rand_init(seed, environment)


@wp.func
def draws(stream: wp.uint32, step: wp.int32, use: wp.int32) -> wp.uint32:
    """The generator of one use in one step."""
    return wp.rand_init(wp.int32(stream), step * _USES + use)
