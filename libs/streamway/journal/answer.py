"""What the answer is so far, from the entries on its line: where an engine call that takes over goes on from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from streamway.journal.entries import Entry, decode_events


@dataclass(slots=True)
class ChoiceSoFar:
    """One choice. `token_ids` is complete only when it has `units` ids; `plain` is False once anything came that is not
    text (tool calls, log probabilities), which no engine can be asked to continue."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    units: int = 0
    finish_reason: str = ""
    plain: bool = True


def rebuild(entries: Iterable[Entry]) -> dict[int, ChoiceSoFar]:
    """The choices, by number. Raises protobuf's DecodeError."""
    choices: dict[int, ChoiceSoFar] = {}
    for entry in entries:
        for event in decode_events(entry):
            if event.WhichOneof("event") != "token":
                continue
            token = event.token
            choice = choices.setdefault(token.choice, ChoiceSoFar())
            choice.text += token.text
            choice.token_ids += token.token_ids
            choice.units += token.units
            choice.finish_reason = token.choice_finished.finish_reason or choice.finish_reason
            choice.plain = choice.plain and not token.raw_delta
    return choices
