"""Channel and server options, the same on every hop; a test compares client and server side.

Keepalive: a client pings each 30 s also while it waits, a server takes pings 10 s apart (the default of 300 s would answer
a long prefill with `too_many_pings`).
"""

from __future__ import annotations

from typing import Final

CLIENT_KEEPALIVE_MS: Final = 30_000
KEEPALIVE_TIMEOUT_MS: Final = 10_000
SERVER_LEAST_PING_INTERVAL_MS: Final = 10_000

Options = list[tuple[str, int | str]]


def client_options(max_message_bytes: int) -> Options:
    """Options of every channel we open."""
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", CLIENT_KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # A peer that restarts is found again within a second, not after the default's two minutes.
        ("grpc.initial_reconnect_backoff_ms", 100),
        # Not a wait, whatever its name: how long one attempt may take, until the peer's first frame. A busy one takes tenths.
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        # Retrying is decided where the meaning of a request is known.
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]


def server_options(max_message_bytes: int) -> Options:
    """Options of every server we run."""
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", CLIENT_KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", SERVER_LEAST_PING_INTERVAL_MS),
        # A process or a path that stood still delivers its pings together; by default the third ends the connection.
        ("grpc.http2.max_ping_strikes", 0),
        # Two servers on one port would split the calls between them.
        ("grpc.so_reuseport", 0),
    ]
