"""How a broker joins the cluster, stays in it and leaves it: registration, heartbeats, controlled shutdown. A pure machine.

There is one conversation with the active controller, one request at a time: the registration until it is accepted, then
heartbeats. Every `SendToController` comes back as ResponseReceived or RequestFailed, after its time-out at the latest; whoever
runs the machine finds the active controller, and says RequestFailed at once if there is none. Fenced or not is the
controller's word: a broker that wants clients says so in each heartbeat, and asks again soon while it is told no.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, Self

from pybroker.base.ids import Uuid, uuid_to_text
from pybroker.base.value import Value
from pybroker.config import Config
from pybroker.protocol.errors import ErrorCode, error_name
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)


class BrokerState(IntEnum):
    """Kafka's numbers, which are in metrics."""

    NOT_RUNNING = 0
    STARTING = 1  # catches up with the metadata
    RECOVERY = 2  # has caught up; fenced
    RUNNING = 3  # was unfenced
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


NEXT_STATES: Final[Mapping[BrokerState, frozenset[BrokerState]]] = {
    BrokerState.NOT_RUNNING: frozenset((BrokerState.STARTING, BrokerState.SHUTTING_DOWN)),
    BrokerState.STARTING: frozenset((BrokerState.RECOVERY, BrokerState.SHUTTING_DOWN)),
    BrokerState.RECOVERY: frozenset((BrokerState.RUNNING, BrokerState.SHUTTING_DOWN)),
    BrokerState.RUNNING: frozenset((BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN)),
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: frozenset((BrokerState.SHUTTING_DOWN,)),
    BrokerState.SHUTTING_DOWN: frozenset(),
}

NO_EPOCH: Final = -1

BACKOFF_MS: Final = 100
# Of a pause, what is drawn from either side of it, in percent.
JITTER_PERCENT: Final = 2
# While there may be nothing to recover, and a start should not take longer than it must.
CATCHING_UP_MS: Final = 10
# A broker that wants clients and is fenced asks again after this.
FENCED_MS: Final = 100
# The first leaders have hardly moved yet; often that is all of them.
FIRST_SHUTDOWN_ANSWER_MS: Final = 50
MAX_REQUEST_MS: Final = 30_000

# The controller knows this broker no more, or as another.
_LOST_REGISTRATION: Final = frozenset((ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED))

# What to do about a registration that is refused.
_ADVICE: Final[dict[int, str]] = {
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "A broker of this node.id runs, or the session of its last process is not over.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "The log directories were formatted for another cluster.",
    ErrorCode.UNSUPPORTED_VERSION: "The cluster has finalized a feature at a level that this release does not support: "
    "kafka-features describe shows them, downgrade takes them back.",
}


class LifecycleSettings(Value):
    heartbeat_interval_ms: int
    session_timeout_ms: int
    initial_registration_timeout_ms: int
    log_dir_failure_timeout_ms: int
    # As long as Apache Kafka waits to be let go; its keys for that went with ZooKeeper.
    controlled_shutdown_timeout_ms: int = 300_000
    # A broker that leaves waits no longer than this for a word of any controller: the others may have left before it.
    silent_shutdown_timeout_ms: int = 5_000

    @classmethod
    def of(cls, config: Config) -> Self:
        return cls(
            config.int("broker.heartbeat.interval.ms"),
            config.int("broker.session.timeout.ms"),
            config.int("initial.broker.registration.timeout.ms"),
            config.int("log.dir.failure.timeout.ms"),
        )


class BrokerIdentity(Value):
    """What a broker registers with."""

    broker_id: int
    cluster_id: str
    incarnation_id: Uuid  # a new one for each start of the process
    listeners: Sequence[Listener]
    features: Sequence[Feature]
    rack: str | None
    log_dirs: Sequence[Uuid]
    previous_broker_epoch: int = NO_EPOCH  # of the last incarnation, if it stopped cleanly


# Events.


class Started(Value):
    """The first event, once."""


class DeadlinePassed(Value):
    """`deadline_ms` has come; harmless too early."""


class ResponseReceived(Value):
    request_id: int
    message: Message


class RequestFailed(Value):
    """No answer, or no controller to ask. What the controller did is not known."""

    request_id: int
    reason: str


class MetadataPublished(Value):
    """Everything up to this offset is applied on this node."""

    offset: int


class ControllerChanged(Value):
    """Another controller is active, and should hear from us."""


class ConnectionLost(Value):
    """The connection with the active controller broke: it should hear from us before it takes us for dead."""


class Recovered(Value):
    """The logs are loaded, and the broker can serve clients."""


class LogDirFailed(Value):
    directory_id: Uuid


class LogDirsCordoned(Value):
    """These directories, and no others, take no new replicas (cordoned.log.dirs); None while metadata.version knows nothing
    of that."""

    directory_ids: tuple[Uuid, ...] | None


class RegistrationOutdated(Value):
    """What the metadata say of this broker is not what it is now: it registers again."""


class ControlledShutdownRequested(Value):
    """Leave as soon as the controller has moved the leaders away."""


class StopRequested(Value):
    """Leave now."""


Event = (
    Started
    | DeadlinePassed
    | ResponseReceived
    | RequestFailed
    | MetadataPublished
    | ControllerChanged
    | ConnectionLost
    | Recovered
    | LogDirFailed
    | LogDirsCordoned
    | RegistrationOutdated
    | ControlledShutdownRequested
    | StopRequested
)

# Effects.


class SendToController(Value):
    """Directly, in no Envelope. An answer to a request that is not the latest is ignored."""

    request_id: int
    message: Message
    timeout_ms: int


class AnnounceState(Value):
    """STARTING to RECOVERY: the metadata are caught up with. To RUNNING: unfenced, once for all. To SHUTTING_DOWN: the broker
    may stop; nothing is sent after it."""

    state: BrokerState


class AnnounceEpoch(Value):
    """The broker is registered, or registered again."""

    broker_epoch: int


class AnnounceFenced(Value):
    """Whether the controller lets clients come here, each time that it changes."""

    is_fenced: bool


class AnnounceRefusal(Value):
    """The controller does not register this broker, once per reason: it is asked again, but an operator may have to act."""

    reason: str


class StopBroker(Value):
    """The broker cannot go on; the text says why and what to do."""

    reason: str


class Trace(Value):
    """For people."""

    text: str


Effect = SendToController | AnnounceState | AnnounceEpoch | AnnounceFenced | AnnounceRefusal | StopBroker | Trace


class BrokerLifecycle:
    def __init__(self, identity: BrokerIdentity, settings: LifecycleSettings, *, draw_below: Callable[[int], int]) -> None:
        """`draw_below(n)` is a random number from 0 to n - 1."""
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = NO_EPOCH
        self.is_fenced = True
        self._identity = identity
        self._settings = settings
        self._draw_below = draw_below
        self._metadata_offset = -1
        self._is_recovered = False
        self._is_registered = False
        self._last_request_id = 0
        self._in_flight: Message | None = None
        self._next_at_ms: int | None = None  # when to speak to the controller again, while nothing is in flight
        self._is_urgent = False  # something came up while a request was in flight
        self._failures = 0  # in a row
        self._refusal = 0  # the error code with which the last registration was refused
        self._got_shutdown_answer = False
        self._registration_due_ms: int | None = None
        self._shutdown_due_ms: int | None = None
        self._silence_due_ms: int | None = None
        # Directories that failed, and until when the controller must have heard of it; None once it has.
        self._offline: dict[Uuid, int | None] = {}
        self._cordoned: tuple[Uuid, ...] | None = None
        self._effects: list[Effect] = []

    @property
    def deadline_ms(self) -> int | None:
        due = [self._registration_due_ms, self._shutdown_due_ms, self._silence_due_ms, *self._offline.values()]
        if self._in_flight is None:
            due.append(self._next_at_ms)
        return min((one for one in due if one is not None), default=None)

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        assert (self.state is BrokerState.NOT_RUNNING) == isinstance(event, Started), f"{event} in {self.state.name}"
        if not self._has_ended():
            self._take(now_ms, event)
        if not self._has_ended():
            self._look_at_clock(now_ms)
        effects, self._effects = self._effects, []
        return effects

    def _has_ended(self) -> bool:
        return self.state is BrokerState.SHUTTING_DOWN

    def _take(self, now_ms: int, event: Event) -> None:
        match event:
            case Started():
                self._enter(BrokerState.STARTING)
                self._registration_due_ms = now_ms + self._settings.initial_registration_timeout_ms
                self._speak_at(now_ms)
            case DeadlinePassed():
                pass
            case ResponseReceived(request_id, message):
                if self._ends_request(request_id):
                    self._answered(now_ms, message)
            case RequestFailed(request_id, reason):
                if self._ends_request(request_id):
                    self._failed(now_ms, reason)
            case MetadataPublished(offset):
                self._metadata_offset = max(offset, self._metadata_offset)
            case ControllerChanged():
                # Whatever was asked of the old one, the answer does not matter any more.
                self._in_flight = None
                self._failures = 0
                self._speak_at(now_ms)
            case ConnectionLost():
                # A request in flight fails by itself, and pauses follow failures.
                if self._in_flight is None and not self._failures:
                    self._speak_at(now_ms)
            case Recovered():
                self._is_recovered = True
                self._speak_soon(now_ms)
            case LogDirFailed(directory_id):
                self._offline.setdefault(directory_id, now_ms + self._settings.log_dir_failure_timeout_ms)
                if self._is_registered:
                    self._speak_soon(now_ms)
            case LogDirsCordoned(directory_ids):
                has_changed, self._cordoned = directory_ids != self._cordoned, directory_ids
                if has_changed and self._is_registered:
                    self._speak_soon(now_ms)
            case RegistrationOutdated():
                self._is_registered = False
                self._speak_soon(now_ms)
            case ControlledShutdownRequested():
                self._begin_shutdown(now_ms)
            case StopRequested():
                self._end()

    # Time.

    def _look_at_clock(self, now_ms: int) -> None:
        if self._registration_due_ms is not None and self._registration_due_ms <= now_ms:
            timeout_ms = self._settings.initial_registration_timeout_ms
            self._give_up(
                f"no controller registered this broker within initial.broker.registration.timeout.ms = {timeout_ms:,}. Check "
                "that a majority of the controllers runs and can be reached from here."
            )
        elif self._silence_due_ms is not None and self._silence_due_ms <= now_ms:
            self._trace("no controller answers: this broker leaves without its leaderships being moved")
            self._end()
        elif self._shutdown_due_ms is not None and self._shutdown_due_ms <= now_ms:
            self._trace("the controller has not let go of this broker in time, which leaves without its word")
            self._end()
        elif late := [one for one, due_ms in self._offline.items() if due_ms is not None and due_ms <= now_ms]:
            names = ", ".join(map(uuid_to_text, late))
            timeout_ms = self._settings.log_dir_failure_timeout_ms
            self._give_up(
                f"the controller could not be told within log.dir.failure.timeout.ms = {timeout_ms:,} that the log directories "
                f"{names} have failed. Start the broker again when the controllers can be reached."
            )
        elif self._in_flight is None and self._next_at_ms is not None and self._next_at_ms <= now_ms:
            self._speak()

    def _speak_at(self, at_ms: int) -> None:
        self._next_at_ms = at_ms
        self._is_urgent = False

    def _speak_soon(self, now_ms: int) -> None:
        """At once, or as soon as the request in flight is answered."""
        if self._in_flight is None:
            self._speak_at(now_ms)
        else:
            self._is_urgent = True

    def _speak_after(self, now_ms: int, pause_ms: int) -> None:
        self._speak_at(now_ms if self._is_urgent else now_ms + pause_ms)

    # Requests.

    def _speak(self) -> None:
        self._next_at_ms = None
        self._in_flight = message = self._heartbeat() if self._is_registered else self._registration()
        self._last_request_id += 1
        timeout_ms = min(self._settings.session_timeout_ms, MAX_REQUEST_MS)
        self._effects.append(SendToController(self._last_request_id, message, timeout_ms))

    def _registration(self) -> BrokerRegistrationRequest:
        identity = self._identity
        return BrokerRegistrationRequest(
            broker_id=identity.broker_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=list(identity.listeners),
            features=list(identity.features),
            rack=identity.rack,
            is_migrating_zk_broker=False,
            log_dirs=sorted(one for one in identity.log_dirs if one not in self._offline),
            previous_broker_epoch=identity.previous_broker_epoch,
        )

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        # What metadata.version allows is not known before the metadata are.
        cordoned = None if self.state is BrokerState.STARTING else self._cordoned
        return BrokerHeartbeatRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset,
            want_fence=not self._is_recovered,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(self._offline),
            cordoned_log_dirs=None if cordoned is None else list(cordoned),
        )

    # Answers.

    def _ends_request(self, request_id: int) -> bool:
        return self._in_flight is not None and request_id == self._last_request_id

    def _answered(self, now_ms: int, message: Message) -> None:
        asked, self._in_flight = self._in_flight, None
        if isinstance(asked, BrokerRegistrationRequest) and isinstance(message, BrokerRegistrationResponse):
            self._registered(now_ms, message)
        elif isinstance(asked, BrokerHeartbeatRequest) and isinstance(message, BrokerHeartbeatResponse):
            self._heard(now_ms, asked, message)
        else:
            raise AssertionError(f"{type(message).__name__} in answer to {type(asked).__name__}")

    def _registered(self, now_ms: int, response: BrokerRegistrationResponse) -> None:
        if response.error_code:
            self._refused(response.error_code)
            self._failed(now_ms, f"the controller does not register this broker: {error_name(response.error_code)}")
            return
        self._failures = self._refusal = 0
        self._is_registered = True
        self._registration_due_ms = None
        self.broker_epoch = response.broker_epoch
        self._effects.append(AnnounceEpoch(self.broker_epoch))
        self._trace(f"registered with broker epoch {self.broker_epoch}")
        self._speak_at(now_ms)

    def _refused(self, error_code: int) -> None:
        if error_code != self._refusal:
            advice = _ADVICE.get(error_code, "The log of the controller says more.")
            self._effects.append(AnnounceRefusal(f"{error_name(error_code)}. {advice}"))
        self._refusal = error_code

    def _heard(self, now_ms: int, asked: BrokerHeartbeatRequest, response: BrokerHeartbeatResponse) -> None:
        if response.error_code in _LOST_REGISTRATION:
            self._is_registered = False
        if response.error_code:
            self._failed(now_ms, f"the controller refuses a heartbeat: {error_name(response.error_code)}")
            return
        self._failures = 0
        if self._silence_due_ms is not None:
            self._silence_due_ms = now_ms + self._settings.silent_shutdown_timeout_ms
        for directory_id in asked.offline_log_dirs:
            self._offline[directory_id] = None
        if response.is_fenced != self.is_fenced:
            self.is_fenced = response.is_fenced
            self._effects.append(AnnounceFenced(self.is_fenced))
        self._speak_after(now_ms, self._pause_after(asked, response))
        match self.state:
            case BrokerState.STARTING if response.is_caught_up:
                self._enter(BrokerState.RECOVERY)
            case BrokerState.RECOVERY if not response.is_fenced:
                self._enter(BrokerState.RUNNING)
            case BrokerState.PENDING_CONTROLLED_SHUTDOWN if asked.want_shut_down:
                self._got_shutdown_answer = True
                if response.should_shut_down:
                    self._end()

    def _pause_after(self, asked: BrokerHeartbeatRequest, response: BrokerHeartbeatResponse) -> int:
        pause_ms = self._settings.heartbeat_interval_ms
        match self.state:
            case BrokerState.STARTING:
                return min(pause_ms, CATCHING_UP_MS)
            case BrokerState.PENDING_CONTROLLED_SHUTDOWN if not self._got_shutdown_answer:
                return min(pause_ms, FIRST_SHUTDOWN_ANSWER_MS)
            case BrokerState.RECOVERY | BrokerState.RUNNING if response.is_fenced and not asked.want_fence:
                return min(pause_ms, FENCED_MS)
        return pause_ms

    def _failed(self, now_ms: int, reason: str) -> None:
        self._in_flight = None
        # Not beyond the session: a controller that comes back must hear from us in time.
        pause_ms = min(BACKOFF_MS << min(self._failures, 20), self._settings.session_timeout_ms)
        spread_ms = pause_ms * JITTER_PERCENT // 100
        pause_ms += self._draw_below(2 * spread_ms + 1) - spread_ms
        self._failures += 1
        self._trace(f"{reason}; the next attempt is in {pause_ms} ms")
        self._speak_at(now_ms + pause_ms)

    # States.

    def _begin_shutdown(self, now_ms: int) -> None:
        if self.state is BrokerState.RUNNING:
            self._enter(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            self._shutdown_due_ms = now_ms + self._settings.controlled_shutdown_timeout_ms
            self._silence_due_ms = now_ms + self._settings.silent_shutdown_timeout_ms
            self._speak_soon(now_ms)
        elif self.state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            # It leads nothing yet.
            self._end()

    def _end(self) -> None:
        self._in_flight = self._next_at_ms = None
        self._registration_due_ms = self._shutdown_due_ms = self._silence_due_ms = None
        self._offline.clear()
        self._enter(BrokerState.SHUTTING_DOWN)

    def _give_up(self, reason: str) -> None:
        self._effects.append(StopBroker(reason))
        self._end()

    def _enter(self, state: BrokerState) -> None:
        assert state in NEXT_STATES[self.state], f"from {self.state.name} to {state.name}"
        self._trace(f"from {self.state.name} to {state.name}")
        self.state = state
        self._effects.append(AnnounceState(state))

    def _trace(self, text: str) -> None:
        self._effects.append(Trace(text))
