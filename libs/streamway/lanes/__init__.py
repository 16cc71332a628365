"""Lanes: Valkey streams of task copies, one per worker and class, and pools that every worker of a model reads."""

from streamway.lanes.reader import LaneReader, own_lanes, pool_lanes
from streamway.lanes.records import Standing, give_away, keep_records, models_of, standings_of
from streamway.lanes.task import EarlierCall, TakenTask, TaskCopy
from streamway.lanes.writer import NewTask, add_generation, add_generations, commands_of, copy_command, request_of

__all__ = [
    "EarlierCall",
    "LaneReader",
    "NewTask",
    "Standing",
    "TakenTask",
    "TaskCopy",
    "add_generation",
    "add_generations",
    "commands_of",
    "copy_command",
    "give_away",
    "keep_records",
    "models_of",
    "own_lanes",
    "pool_lanes",
    "request_of",
    "standings_of",
]
