from __future__ import annotations

from typing import Any

import pytest

from pybroker.base.ids import Uuid, uuid_to_text
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from pybroker.server.broker_lifecycle import (
    NEXT_STATES,
    AnnounceEpoch,
    AnnounceFenced,
    AnnounceRefusal,
    AnnounceState,
    BrokerIdentity,
    BrokerLifecycle,
    BrokerState,
    ConnectionLost,
    ControlledShutdownRequested,
    ControllerChanged,
    DeadlinePassed,
    Effect,
    Event,
    LifecycleSettings,
    LogDirFailed,
    LogDirsCordoned,
    MetadataPublished,
    Recovered,
    RegistrationOutdated,
    RequestFailed,
    ResponseReceived,
    SendToController,
    Started,
    StopBroker,
    StopRequested,
    Trace,
)

DIR_A, DIR_B = Uuid(b"a" * 16), Uuid(b"b" * 16)
INCARNATION = Uuid(b"i" * 16)
LISTENER = Listener(name="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0)
FEATURE = Feature(name="metadata.version", min_supported_version=7, max_supported_version=29)
IDENTITY = BrokerIdentity(4, "cluster", INCARNATION, [LISTENER], [FEATURE], "rack-1", [DIR_B, DIR_A], 17)
SETTINGS = LifecycleSettings(
    heartbeat_interval_ms=2000,
    session_timeout_ms=9000,
    initial_registration_timeout_ms=60_000,
    log_dir_failure_timeout_ms=30_000,
)


class Broker:
    """A lifecycle in virtual time, and a controller that the test plays."""

    def __init__(self) -> None:
        # Always in the middle of the jitter.
        self.machine = BrokerLifecycle(IDENTITY, SETTINGS, draw_below=lambda limit: limit // 2)
        self.now_ms = 1000
        self.sent: list[SendToController] = []
        self.announced: list[Effect] = []
        self.traces: list[str] = []

    def step(self, event: Event) -> None:
        for effect in self.machine.step(self.now_ms, event):
            match effect:
                case SendToController():
                    self.sent.append(effect)
                case Trace(text):
                    self.traces.append(text)
                case _:
                    self.announced.append(effect)

    def start(self) -> None:
        self.step(Started())

    def pass_time(self, ms: int) -> None:
        """The clock goes on, with a stop at each deadline."""
        end_ms = self.now_ms + ms
        while (deadline_ms := self.machine.deadline_ms) is not None and deadline_ms <= end_ms:
            assert deadline_ms >= self.now_ms, "a deadline in the past"
            self.now_ms = deadline_ms
            before = self.machine.deadline_ms
            self.step(DeadlinePassed())
            assert self.machine.deadline_ms != before, "nothing was done about the deadline"
        self.now_ms = end_ms

    def take(self) -> Message:
        """The only request that was sent since the last one was taken."""
        (order,) = self.sent
        self.sent.clear()
        self.last = order
        return order.message

    def answer(self, message: Message) -> None:
        self.step(ResponseReceived(self.last.request_id, message))

    def fail(self) -> None:
        self.step(RequestFailed(self.last.request_id, "no answer"))

    def accept_registration(self, broker_epoch: int) -> None:
        assert isinstance(self.take(), BrokerRegistrationRequest)
        self.answer(BrokerRegistrationResponse(error_code=0, broker_epoch=broker_epoch))

    def take_heartbeat(self) -> BrokerHeartbeatRequest:
        message = self.take()
        assert isinstance(message, BrokerHeartbeatRequest)
        return message

    def answer_heartbeat(self, **fields: Any) -> BrokerHeartbeatRequest:
        request = self.take_heartbeat()
        values = {"error_code": 0, "is_caught_up": True, "is_fenced": False, "should_shut_down": False} | fields
        self.answer(BrokerHeartbeatResponse(**values))
        return request

    @classmethod
    def running(cls) -> Broker:
        broker = cls()
        broker.start()
        broker.accept_registration(50)
        broker.answer_heartbeat(is_fenced=True)
        broker.step(Recovered())
        broker.answer_heartbeat()
        assert broker.machine.state is BrokerState.RUNNING
        broker.announced.clear()
        return broker


class TestStart:
    def test_a_broker_registers_with_all_that_it_is(self) -> None:
        broker = Broker()
        broker.start()
        assert broker.take() == BrokerRegistrationRequest(
            broker_id=4,
            cluster_id="cluster",
            incarnation_id=INCARNATION,
            listeners=[LISTENER],
            features=[FEATURE],
            rack="rack-1",
            is_migrating_zk_broker=False,
            log_dirs=[DIR_A, DIR_B],
            previous_broker_epoch=17,
        )

    def test_from_the_registration_to_clients(self) -> None:
        broker = Broker()
        broker.start()
        broker.accept_registration(50)
        assert broker.machine.broker_epoch == 50
        # Catching up: the next heartbeat comes soon.
        first = broker.answer_heartbeat(is_caught_up=False, is_fenced=True)
        assert (first.broker_epoch, first.current_metadata_offset, first.want_fence) == (50, -1, True)
        broker.step(MetadataPublished(120))
        broker.pass_time(9)
        assert not broker.sent
        broker.pass_time(1)
        assert broker.answer_heartbeat(is_fenced=True).current_metadata_offset == 120
        assert broker.machine.state is BrokerState.RECOVERY
        # Recovering the logs takes its time, and heartbeats go on, fenced.
        broker.pass_time(10)
        assert broker.answer_heartbeat(is_fenced=True).want_fence
        broker.pass_time(500)
        broker.step(Recovered())
        assert not broker.answer_heartbeat().want_fence
        assert broker.announced == [
            AnnounceState(BrokerState.STARTING),
            AnnounceEpoch(50),
            AnnounceState(BrokerState.RECOVERY),
            AnnounceFenced(False),
            AnnounceState(BrokerState.RUNNING),
        ]
        broker.pass_time(1999)
        assert not broker.sent
        broker.pass_time(1)
        broker.take_heartbeat()

    def test_a_registration_is_tried_again_after_growing_pauses(self) -> None:
        broker = Broker()
        broker.start()
        pauses = []
        for number in range(9):
            broker.take()
            began_ms = broker.now_ms
            if number % 2:
                broker.fail()
            else:
                broker.answer(BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION))
            deadline_ms = broker.machine.deadline_ms
            assert deadline_ms is not None
            broker.pass_time(deadline_ms - began_ms)
            pauses.append(broker.now_ms - began_ms)
        assert pauses == [100, 200, 400, 800, 1600, 3200, 6400, 9000, 9000]
        assert "DUPLICATE_BROKER_REGISTRATION" in broker.traces[1]

    @pytest.mark.parametrize(("drawn", "pause_ms"), [(0, 98), (4, 102)])
    def test_pauses_are_spread_by_chance(self, drawn: int, pause_ms: int) -> None:
        limits: list[int] = []

        def draw_below(limit: int) -> int:
            limits.append(limit)
            return drawn

        machine = BrokerLifecycle(IDENTITY, SETTINGS, draw_below=draw_below)
        machine.step(0, Started())
        machine.step(0, RequestFailed(1, "no controller"))
        assert (machine.deadline_ms, limits) == (pause_ms, [5])

    def test_why_a_broker_is_not_registered_is_said_once_and_again_when_the_reason_changes(self) -> None:
        broker = Broker()
        broker.start()
        for code in (ErrorCode.UNSUPPORTED_VERSION,) * 2 + (ErrorCode.DUPLICATE_BROKER_REGISTRATION,) * 2:
            broker.take()
            broker.answer(BrokerRegistrationResponse(error_code=code))
            assert broker.machine.deadline_ms is not None
            broker.pass_time(broker.machine.deadline_ms - broker.now_ms)
        refusals = [one.reason for one in broker.announced if isinstance(one, AnnounceRefusal)]
        assert [one.partition(".")[0] for one in refusals] == ["UNSUPPORTED_VERSION", "DUPLICATE_BROKER_REGISTRATION"]
        assert "finalized a feature at a level" in refusals[0]
        # Taken in and lost again, it would be news.
        broker.accept_registration(50)
        broker.answer_heartbeat(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
        broker.pass_time(100)
        broker.take()
        broker.answer(BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION))
        assert isinstance(broker.announced[-1], AnnounceRefusal)

    def test_a_broker_that_nobody_registers_gives_up(self) -> None:
        broker = Broker()
        broker.start()
        broker.take()
        broker.pass_time(60_000)
        stop, end = broker.announced[1:]
        assert isinstance(stop, StopBroker)
        assert "initial.broker.registration.timeout.ms = 60,000" in stop.reason
        assert end == AnnounceState(BrokerState.SHUTTING_DOWN)
        assert broker.machine.deadline_ms is None

    def test_once_registered_the_time_for_it_does_not_matter(self) -> None:
        broker = Broker()
        broker.start()
        broker.accept_registration(50)
        broker.take()
        broker.pass_time(100_000)
        assert broker.machine.state is BrokerState.STARTING

    def test_a_broker_recovered_before_it_has_caught_up_is_not_running(self) -> None:
        broker = Broker()
        broker.start()
        broker.step(Recovered())
        broker.accept_registration(50)
        assert not broker.answer_heartbeat(is_caught_up=False, is_fenced=True).want_fence
        assert broker.machine.state is BrokerState.STARTING
        broker.pass_time(10)
        broker.answer_heartbeat(is_caught_up=True, is_fenced=False)
        assert broker.machine.state is BrokerState.RECOVERY
        broker.pass_time(10)
        broker.answer_heartbeat()
        assert broker.machine.state is BrokerState.RUNNING


class TestHeartbeats:
    def test_only_one_request_is_in_flight(self) -> None:
        broker = Broker.running()
        broker.pass_time(2000)
        broker.take_heartbeat()
        broker.step(Recovered())
        broker.step(LogDirFailed(DIR_A))
        broker.pass_time(5000)
        assert not broker.sent
        broker.answer(BrokerHeartbeatResponse(error_code=0, is_fenced=False, should_shut_down=False))
        assert broker.answer_heartbeat().offline_log_dirs == [DIR_A], "what came up meanwhile is said at once"

    def test_one_that_fails_is_sent_again_after_a_pause_and_the_pauses_begin_anew_after_success(self) -> None:
        broker = Broker.running()
        broker.pass_time(2000)
        for pause_ms in (100, 200):
            broker.take_heartbeat()
            broker.fail()
            broker.pass_time(pause_ms)
        broker.answer_heartbeat()
        broker.pass_time(2000)
        broker.take_heartbeat()
        broker.fail()
        broker.pass_time(100)
        broker.take_heartbeat()

    def test_a_fenced_broker_that_wants_clients_asks_again_soon(self) -> None:
        broker = Broker.running()
        broker.pass_time(2000)
        broker.answer_heartbeat(is_fenced=True)
        assert broker.machine.is_fenced
        broker.pass_time(100)
        broker.answer_heartbeat(is_fenced=False)
        assert broker.announced == [AnnounceFenced(True), AnnounceFenced(False)]
        assert broker.machine.state is BrokerState.RUNNING
        broker.pass_time(1999)
        assert not broker.sent

    @pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
    def test_a_broker_that_the_controller_does_not_know_registers_again(self, code: ErrorCode) -> None:
        broker = Broker.running()
        broker.pass_time(2000)
        broker.answer_heartbeat(error_code=code)
        broker.pass_time(100)
        broker.accept_registration(77)
        assert broker.answer_heartbeat().broker_epoch == 77
        assert broker.machine.state is BrokerState.RUNNING
        assert AnnounceEpoch(77) in broker.announced

    def test_another_error_is_no_reason_to_register_again(self) -> None:
        broker = Broker.running()
        broker.pass_time(2000)
        broker.answer_heartbeat(error_code=ErrorCode.NOT_CONTROLLER)
        broker.pass_time(100)
        assert broker.take_heartbeat().broker_epoch == 50

    def test_a_registration_that_the_metadata_show_otherwise_is_made_again(self) -> None:
        broker = Broker.running()
        broker.step(RegistrationOutdated())
        broker.accept_registration(78)

    def test_a_new_controller_hears_at_once_and_the_old_ones_answer_does_not_matter(self) -> None:
        broker = Broker.running()
        broker.pass_time(2000)
        broker.take_heartbeat()
        old = broker.last.request_id
        broker.step(ControllerChanged())
        broker.take_heartbeat()
        broker.step(ResponseReceived(old, BrokerHeartbeatResponse(error_code=0, is_fenced=True, should_shut_down=True)))
        broker.step(RequestFailed(old, "disconnected"))
        assert not broker.announced
        assert not broker.sent
        broker.answer(BrokerHeartbeatResponse(error_code=0, is_fenced=False, should_shut_down=False))
        broker.pass_time(2000)
        broker.take_heartbeat()

    def test_when_the_connection_breaks_the_controller_hears_at_once_that_the_broker_lives(self) -> None:
        broker = Broker.running()
        broker.pass_time(700)
        broker.step(ConnectionLost())
        broker.take_heartbeat()

    def test_a_connection_that_breaks_again_and_again_is_no_reason_to_hurry(self) -> None:
        broker = Broker.running()
        broker.step(ConnectionLost())
        broker.take_heartbeat()
        broker.step(ConnectionLost())
        broker.fail()
        broker.step(ConnectionLost())
        assert not broker.sent
        broker.pass_time(100)
        broker.take_heartbeat()

    def test_the_offset_of_the_metadata_never_goes_back(self) -> None:
        broker = Broker.running()
        broker.step(MetadataPublished(9))
        broker.step(MetadataPublished(8))
        broker.pass_time(2000)
        assert broker.take_heartbeat().current_metadata_offset == 9


class TestLogDirs:
    def test_a_failed_one_is_reported_at_once_and_from_then_on(self) -> None:
        broker = Broker.running()
        broker.step(LogDirFailed(DIR_B))
        assert broker.answer_heartbeat().offline_log_dirs == [DIR_B]
        broker.pass_time(2000)
        assert broker.answer_heartbeat().offline_log_dirs == [DIR_B]
        # Reported, so the time for it is not running any more.
        broker.pass_time(2000)
        broker.take_heartbeat()
        broker.pass_time(40_000)
        assert broker.machine.state is BrokerState.RUNNING

    def test_one_that_cannot_be_reported_ends_the_broker(self) -> None:
        broker = Broker.running()
        broker.step(LogDirFailed(DIR_B))
        broker.take_heartbeat()
        broker.pass_time(30_000)
        stop = broker.announced[0]
        assert isinstance(stop, StopBroker)
        assert "log.dir.failure.timeout.ms = 30,000" in stop.reason
        assert uuid_to_text(DIR_B) in stop.reason

    def test_a_heartbeat_sent_before_the_failure_did_not_report_it(self) -> None:
        broker = Broker.running()
        broker.pass_time(2000)
        broker.take_heartbeat()
        broker.step(LogDirFailed(DIR_B))
        broker.answer(BrokerHeartbeatResponse(error_code=0, is_fenced=False, should_shut_down=False))
        broker.take_heartbeat()
        broker.pass_time(30_000)
        assert isinstance(broker.announced[0], StopBroker)

    def test_one_that_failed_is_left_out_of_a_new_registration(self) -> None:
        broker = Broker.running()
        broker.step(LogDirFailed(DIR_B))
        broker.answer_heartbeat()
        broker.step(RegistrationOutdated())
        request = broker.take()
        assert isinstance(request, BrokerRegistrationRequest)
        assert request.log_dirs == [DIR_A]

    def test_those_cordoned_off_are_told_once_the_metadata_are_known(self) -> None:
        broker = Broker()
        broker.start()
        broker.step(LogDirsCordoned((DIR_A,)))
        broker.accept_registration(50)
        assert broker.answer_heartbeat(is_fenced=True).cordoned_log_dirs is None
        broker.pass_time(10)
        assert broker.answer_heartbeat(is_fenced=True).cordoned_log_dirs == [DIR_A]

    def test_a_change_of_those_cordoned_off_is_told_at_once(self) -> None:
        broker = Broker.running()
        broker.step(LogDirsCordoned((DIR_A, DIR_B)))
        assert broker.answer_heartbeat().cordoned_log_dirs == [DIR_A, DIR_B]
        broker.step(LogDirsCordoned((DIR_A, DIR_B)))
        assert not broker.sent
        broker.step(LogDirsCordoned(()))
        assert broker.answer_heartbeat().cordoned_log_dirs == []

    def test_one_that_fails_before_the_registration_waits_for_it(self) -> None:
        broker = Broker()
        broker.start()
        broker.step(LogDirFailed(DIR_A))
        broker.accept_registration(50)
        assert broker.take_heartbeat().offline_log_dirs == [DIR_A]


class TestShutdown:
    def test_the_controller_moves_the_leaders_and_then_lets_go(self) -> None:
        broker = Broker.running()
        broker.pass_time(300)
        broker.step(ControlledShutdownRequested())
        assert broker.answer_heartbeat().want_shut_down
        broker.pass_time(50)
        assert broker.answer_heartbeat().want_shut_down
        broker.pass_time(2000)
        broker.answer_heartbeat(should_shut_down=True)
        assert broker.announced == [
            AnnounceState(BrokerState.PENDING_CONTROLLED_SHUTDOWN),
            AnnounceState(BrokerState.SHUTTING_DOWN),
        ]
        assert broker.machine.deadline_ms is None

    def test_it_waits_for_a_heartbeat_in_flight_whose_answer_says_nothing_of_it(self) -> None:
        broker = Broker.running()
        broker.pass_time(2000)
        broker.take_heartbeat()
        broker.step(ControlledShutdownRequested())
        broker.step(ControlledShutdownRequested())
        assert not broker.sent
        broker.answer(BrokerHeartbeatResponse(error_code=0, is_fenced=False, should_shut_down=True))
        assert broker.machine.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        broker.answer_heartbeat(should_shut_down=True)
        assert broker.machine.state is BrokerState.SHUTTING_DOWN

    def test_without_a_controller_it_ends_when_the_time_is_up(self) -> None:
        broker = Broker.running()
        broker.step(ControlledShutdownRequested())
        broker.take_heartbeat()
        broker.pass_time(300_000)
        assert broker.announced[-1] == AnnounceState(BrokerState.SHUTTING_DOWN)
        assert not any(isinstance(one, StopBroker) for one in broker.announced)

    def test_a_broker_that_leaves_last_does_not_wait_for_controllers_that_are_gone(self) -> None:
        broker = Broker.running()
        broker.step(ControlledShutdownRequested())
        broker.take()
        broker.pass_time(4999)
        assert broker.machine.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        broker.pass_time(1)
        assert broker.machine.state is BrokerState.SHUTTING_DOWN
        assert any("no controller answers" in text for text in broker.traces)

    def test_a_broker_that_is_not_running_leaves_at_once(self) -> None:
        broker = Broker()
        broker.start()
        broker.step(ControlledShutdownRequested())
        assert broker.machine.state is BrokerState.SHUTTING_DOWN

    def test_after_the_end_nothing_is_said_any_more(self) -> None:
        broker = Broker.running()
        broker.pass_time(2000)
        broker.take_heartbeat()
        broker.step(StopRequested())
        broker.announced.clear()
        events: list[Event] = [Recovered(), LogDirFailed(DIR_A), ControllerChanged(), ConnectionLost(), DeadlinePassed()]
        for event in [
            *events,
            ResponseReceived(broker.last.request_id, BrokerHeartbeatResponse(error_code=0, should_shut_down=False)),
        ]:
            broker.step(event)
        assert not broker.sent
        assert not broker.announced
        assert broker.machine.deadline_ms is None


def test_the_numbers_of_the_states_are_kafkas_and_every_state_can_end() -> None:
    assert [state.value for state in BrokerState] == [0, 1, 2, 3, 6, 7]
    for state, following in NEXT_STATES.items():
        assert all(next_state > state for next_state in following)
        assert state is BrokerState.SHUTTING_DOWN or BrokerState.SHUTTING_DOWN in following


def test_an_answer_of_another_kind_is_a_bug() -> None:
    broker = Broker()
    broker.start()
    broker.take()
    with pytest.raises(AssertionError, match="BrokerHeartbeatResponse in answer to BrokerRegistrationRequest"):
        broker.answer(BrokerHeartbeatResponse(error_code=0, should_shut_down=False))
