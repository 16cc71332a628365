"""What the simulated model answers when nothing happens: its text is a function of the conversation alone."""

from __future__ import annotations

import json

from streamway.simulation.request import read
from streamway.simulation.settings import SimulationSettings


def simulated_answer(prompt: str, tokens: int) -> str:
    """The first tokens of the answer to one user message without a seed."""
    body = json.dumps({"messages": [{"role": "user", "content": prompt}]}).encode()
    return read(body, SimulationSettings()).choices[0].text.start(tokens)
