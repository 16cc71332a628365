"""Which engines a request can do with.

    request ──► needs: abilities ──► unfit: workers whose engine is known to lack one

Where every worker lacks it none is unfit: the engine says itself what it refuses, better than a router could.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

from services.router.core.body import Body
from services.router.core.worker import Worker
from streamway.models.abilities import Ability
from streamway.v1 import common_pb2

NOTHING: Final[frozenset[Ability]] = frozenset()
# What a generation that has begun somewhere needs of whoever is to go on with it.
TO_GO_ON: Final = frozenset({Ability.CONTINUES})


def needs(request: common_pb2.GenerationRequest, body: Body | None) -> frozenset[Ability]:
    """What a request asks for that not every engine has. A body that was not read asks for nothing."""
    if body is None:
        return frozenset({Ability.SEVERAL_CHOICES}) if request.sampling.n > 1 else NOTHING
    wanted = {
        Ability.TOOLS: body.has_tools,
        Ability.GRAMMAR: body.has_format,
        Ability.LOGPROBS: body.has_logprobs,
        Ability.SEVERAL_CHOICES: (body.n or 1) > 1,
    }
    return frozenset(ability for ability, asked in wanted.items() if asked)


def unfit(workers: Iterable[Worker], needed: Set[Ability]) -> frozenset[str]:
    """Workers of one model that are known not to do for it; none where that would be all of them."""
    if not needed:
        return frozenset()
    all_of_them = {worker.id: worker for worker in workers}
    lacking = frozenset(id_ for id_, worker in all_of_them.items() if worker.cannot & needed)
    return lacking if len(lacking) < len(all_of_them) else frozenset()
