"""C3: keepalive on every hop fits together, so that an idle or slow stream never ends with GOAWAY."""

from __future__ import annotations

import pytest

from streamway.rpc.options import client_options, server_options

CLIENT = dict(client_options(4096))
SERVER = dict(server_options(4096))


def test_c3_no_client_pings_faster_than_the_server_takes() -> None:
    assert CLIENT["grpc.keepalive_time_ms"] > SERVER["grpc.http2.min_recv_ping_interval_without_data_ms"]


def test_c3_pings_go_on_while_nothing_is_said_and_without_a_bound_on_their_number() -> None:
    for side in (CLIENT, SERVER):
        assert side["grpc.keepalive_permit_without_calls"] == 1
        assert side["grpc.http2.max_pings_without_data"] == 0


def test_a_dead_peer_is_found_within_45_seconds() -> None:
    for side in (CLIENT, SERVER):
        assert side["grpc.keepalive_time_ms"] + side["grpc.keepalive_timeout_ms"] <= 45_000


@pytest.mark.parametrize("name", ["grpc.max_receive_message_length", "grpc.max_send_message_length"])
def test_one_size_limit_holds_on_both_sides(name: str) -> None:
    assert CLIENT[name] == SERVER[name] == 4096


def test_the_transport_retries_nothing_by_itself_and_two_servers_never_share_a_port() -> None:
    assert CLIENT["grpc.enable_retries"] == 0
    assert SERVER["grpc.so_reuseport"] == 0
