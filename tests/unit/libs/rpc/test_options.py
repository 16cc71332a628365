"""C3: keepalive on every hop fits together, so that an idle or slow stream never ends with GOAWAY."""

from __future__ import annotations

import pytest

from services.edge.settings import EdgeSettings
from services.inference_adapter.settings import AdapterSettings
from services.router.settings import RouterSettings
from streamway.attach.client import SILENCE_S
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


@pytest.mark.parametrize("reader", [EdgeSettings, RouterSettings])
@pytest.mark.parametrize("speaker", [AdapterSettings, RouterSettings])
def test_c3_three_signs_of_life_may_be_missed_on_every_attach_stream(
    reader: type[EdgeSettings | RouterSettings], speaker: type[AdapterSettings | RouterSettings]
) -> None:
    silence_s = reader.model_fields["silence_s"].default
    assert silence_s >= 3 * speaker.model_fields["attach_heartbeat_s"].default
    assert silence_s == SILENCE_S


@pytest.mark.parametrize("reader", [EdgeSettings, RouterSettings])
def test_c2_a_silent_worker_is_found_within_ten_seconds(reader: type[EdgeSettings | RouterSettings]) -> None:
    # Torn down after the silence, and tried once more for half of it.
    assert reader.model_fields["silence_s"].default * 1.5 <= 10
