"""What each session has said so far: kept the same way in the simulation and live."""

from __future__ import annotations

from benchmarks.simulate.scenario import Scenario, Turn

Message = tuple[str, str]  # role, content


class Conversations:
    """The messages of each session. A turn's answer must be noted before the session's next turn is asked."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._messages: dict[int, list[Message]] = {}

    def ask(self, turn: Turn) -> list[Message]:
        """The whole prompt of a turn."""
        messages = self._messages.get(turn.session)
        if messages is None or _tokens(messages) + len(turn.text) // 4 > self._scenario.most_tokens:
            messages = self._messages[turn.session] = [("system", self._scenario.system_prompt(turn.session))]
        messages.append(("user", turn.text))
        return list(messages)

    def answered(self, turn: Turn, text: str) -> None:
        """The answer; empty when there was none: then the question was not asked."""
        messages = self._messages[turn.session]
        if text:
            messages.append(("assistant", text))
        else:
            messages.pop()


def _tokens(messages: list[Message]) -> int:
    return sum(len(content) for _, content in messages) // 4
