"""The subprotocol `streamway.v1.json`: text frames. `ws_protocol` reads them, `ws_frames` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from services.edge.core import ws_frames, ws_protocol
from services.edge.core.commands import BadFrame, Cancel, Command, Live, Name, Open, Ping, Restore, Resume, cursor_of
from services.edge.core.ws_frames import GenerationFrames
from services.edge.core.ws_protocol import SUBPROTOCOL
from streamway.errors import InvalidArgument, Malformed, StreamwayError


class JsonDialect:
    """What a connection says in JSON; see `services.edge.interfaces.Dialect`."""

    name: Final = SUBPROTOCOL
    heartbeat: Final = ws_frames.HEARTBEAT

    def parse(self, data: str | bytes, now_ms: int) -> Command:
        """The command in one frame. Raises BadFrame."""
        if isinstance(data, bytes):
            raise BadFrame(Malformed("a binary frame", f"{SUBPROTOCOL} has text frames only"))
        frame = ws_protocol.parse(data)
        if isinstance(frame, ws_protocol.OpenFrame):
            return Open(frame.id, ws_protocol.to_request(frame, now_ms))
        if isinstance(frame, ws_protocol.CancelFrame):
            return Cancel(frame.id)
        if isinstance(frame, ws_protocol.PingFrame):
            return Ping(frame.t)
        try:
            if isinstance(frame, ws_protocol.ResumeFrame):
                return Resume(frame.id, frame.generation, cursor_of("after", frame.after))
            return Restore(
                frame.restore_id, {name: cursor_of(f"after.{name}", after) for name, after in frame.after.items()}
            )
        except InvalidArgument as bad:
            raise BadFrame(bad, getattr(frame, "id", "")) from None

    def hello(self, restore_id: str, session: str, models: list[str], heartbeat_ms: int, grace_ms: int) -> bytes:
        return ws_frames.hello(restore_id, session, models, heartbeat_ms, grace_ms)

    def pong(self, t: float | str | None) -> bytes:
        return ws_frames.pong(t)

    def refused(self, error: StreamwayError, id_: Name) -> bytes:
        return ws_frames.error(error, str(id_))

    def going_away(self, error: StreamwayError, live: Sequence[Live]) -> bytes:
        return ws_frames.going_away(error, live)

    def restored(self, restore_id: str, live: Sequence[Live]) -> bytes:
        return ws_frames.restored(restore_id, live)

    def frames(self, id_: Name) -> GenerationFrames:
        return GenerationFrames(str(id_))

    def name_for(self, stored: str, generation: str, taken: int) -> Name:
        """What a restored generation is called: as before, else by its id."""
        return stored or generation
