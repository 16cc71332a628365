"""Lanes: Valkey streams of task copies, one per worker and class."""

from streamway.lanes.reader import LaneReader
from streamway.lanes.task import TakenTask, TaskCopy
from streamway.lanes.writer import NewTask, add_generation, add_generations, request_of, states_of

__all__ = [
    "LaneReader",
    "NewTask",
    "TakenTask",
    "TaskCopy",
    "add_generation",
    "add_generations",
    "request_of",
    "states_of",
]
