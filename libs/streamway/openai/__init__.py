"""What OpenAI's API makes of the mesh's events, for whoever needs an answer as a message."""

from streamway.openai.choice import Choice, raw_choice

__all__ = ["Choice", "raw_choice"]
