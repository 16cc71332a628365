"""Lanes: Valkey streams of task copies, one per worker and class."""

from streamway.lanes.reader import LaneReader
from streamway.lanes.task import TakenTask, TaskCopy
from streamway.lanes.writer import add_generation, request_of

__all__ = ["LaneReader", "TakenTask", "TaskCopy", "add_generation", "request_of"]
