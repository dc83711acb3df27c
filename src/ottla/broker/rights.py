"""What the principal of a request may do, and the kinds of rules of which `api_rights` makes its table.

The dispatcher asks a rule before and after the handler. A rule looks at a decoded request. What is refused as a whole
never reaches the handler; of a request about several things those that are forbidden are taken out, and put into the
response with their error afterwards; lists of "all" are filtered. So a handler knows nothing of rights.

A rule of one right decides at once. A rule that looks at every entry of a request does so in steps, for there may be
very many of them, and each is judged by the rights of its moment. Nearly every request is about what was allowed to its
peer before, by the rules that hold: that is seen at once (`known_rights`), and no rule is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.broker.authorized import CLUSTER_OPERATIONS, GROUP_OPERATIONS, TOPIC_OPERATIONS
from ottla.broker.error_answers import error_answer, error_of_entries
from ottla.cluster.image import ClusterImage
from ottla.errors import ErrorCode
from ottla.protocol.versions import Api
from ottla.protocol.wire import ZERO_UUID
from ottla.runtime.turns import STEP, Steps
from ottla.security.acls import CLUSTER_NAME, WILDCARD, Operation, Resource
from ottla.security.authorizer import Verdict, right_number

if TYPE_CHECKING:
    from ottla.broker.acl_store import AclStore

Item = TypeVar("Item")

audit = logging.getLogger("kafka.authorizer.logger")
_is_told = audit.isEnabledFor

FORBIDDEN = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
MESSAGE = "Authorization failed."
NOTHING: frozenset[str] = frozenset()
LOOKED_AT_ONCE_MAX = 1000  # names: a tenth of a millisecond or two
ALL_BITS = {
    Resource.TOPIC: TOPIC_OPERATIONS,
    Resource.GROUP: GROUP_OPERATIONS,
    Resource.CLUSTER: CLUSTER_OPERATIONS,
}


def tells_all() -> bool:
    """Whether the audit log has also what is allowed."""
    return _is_told(logging.DEBUG)


class Rights:
    """What a principal may do by requests of one API."""

    __slots__ = ("_acls", "_allowed", "_host", "_known", "_principal", "api", "is_known")

    def __init__(
        self,
        acls: AclStore,
        principal: str,
        host: str,
        api: Api,
        is_known: Callable[[Rights, Any, ClusterImage], bool] | None = None,
    ) -> None:
        self._acls = acls  # by the rules of the moment, also for a request that waits
        self._principal = principal
        self._host = host
        self.api = api
        self.is_known = is_known  # whether a request is about nothing but what was allowed before
        self._allowed: object = None  # of which authorizer the next is
        self._known: dict[int, set[str]] = {}

    def known(self, right: int) -> set[str] | frozenset[str]:
        """Names with which this was allowed before, by the rules that hold; none where every decision is logged."""
        allowed = self._acls.authorizer.allowed
        if allowed is not self._allowed:
            found = allowed.get((self._principal, self._host))
            if found is None:
                return NOTHING
            self._allowed = allowed
            self._known = found
        if _is_told(logging.DEBUG):
            return NOTHING
        return self._known.get(right, NOTHING)

    def are_known(self, right: int, items: Sequence[Item], name_of: Callable[[Item], str | None]) -> bool:
        """Whether all of these were allowed before; False also where it takes longer to say."""
        return len(items) <= LOOKED_AT_ONCE_MAX and self.known(right).issuperset(map(name_of, items))

    def may(self, operation: Operation, resource: Resource, name: str = CLUSTER_NAME, *, quietly: bool = False) -> bool:
        """`quietly`: a denial only narrows an answer, or another right may do instead."""
        if name in self.known(right_number(operation, resource)):
            return True
        verdict = self._acls.authorizer.decide(self._principal, self._host, operation, resource, name)
        is_allowed = verdict.is_allowed
        if audit.isEnabledFor(logging.DEBUG if is_allowed or quietly else logging.INFO):
            self._tell(verdict, operation, resource, name, quietly=quietly)
        return is_allowed

    def may_any(self, operation: Operation, resource: Resource) -> bool:
        verdict = self._acls.authorizer.decide_any(self._principal, self._host, operation, resource)
        self._tell(verdict, operation, resource, WILDCARD, quietly=False)
        return verdict.is_allowed

    def bits(self, resource: Resource, name: str = CLUSTER_NAME) -> int:
        """The operations that are allowed on a resource, a bit for each."""
        return sum(
            1 << operation
            for operation in Operation
            if ALL_BITS[resource] >> operation & 1 and self.may(operation, resource, name, quietly=True)
        )

    def _tell(self, verdict: Verdict, operation: Operation, resource: Resource, name: str, *, quietly: bool) -> None:
        level = logging.DEBUG if verdict.is_allowed or quietly else logging.INFO
        audit.log(
            level,
            "Principal = %r is %s operation = %s from host = %s on resource = %r for request = %s based on rule %r",
            self._principal,
            "Allowed" if verdict.is_allowed else "Denied",
            operation.name,
            self._host,
            f"{resource.node_name}:LITERAL:{name}",
            self.api.name,
            verdict.rule,
        )


class Outcome(NamedTuple):
    """What a rule found: the answer to a request that is refused, or what to do with the handler's response."""

    refusal: Any = None
    finish: Callable[[Any], Steps[None]] | None = None  # changes the response in its place


PASSED = Outcome()


class Asked:
    """One request, as rules see it. Made for every request, so it is a plain class."""

    __slots__ = ("image", "request", "rights", "topics_are_created", "version")

    def __init__(
        self, request: Any, version: int, rights: Rights, image: ClusterImage, topics_are_created: Callable[[], bool]
    ) -> None:
        self.request = request
        self.version = version
        self.rights = rights
        self.image = image
        self.topics_are_created = topics_are_created  # that are asked for and not there

    @property
    def api(self) -> Api:
        return self.rights.api

    def refused(self, code: ErrorCode) -> Steps[Outcome]:
        return Outcome((yield from error_answer(self.api, self.request, self.version, code, MESSAGE)))

    def topic_name(self, item: Any) -> str | None:
        """The topic that an entry is about; None for an id that is not known, which is not secret."""
        if type(item) is str:
            return item
        topic_id = getattr(item, "topic_id", ZERO_UUID)
        # The id first: where both are given, handlers go by it.
        if topic_id is not ZERO_UUID and topic_id != ZERO_UUID:
            return self.image.names_by_id.get(topic_id)
        return getattr(item, "name", None) or getattr(item, "topic", None) or None

    def may_topic(self, operation: Operation, item: Any) -> bool:
        name = self.topic_name(item)
        return name is None or self.rights.may(operation, Resource.TOPIC, name)


Rule = Callable[[Asked], Outcome | Steps[Outcome]]


def outcome_of(found: Outcome | Steps[Outcome]) -> Steps[Outcome]:
    """What a rule has decided, at once or in steps."""
    return found if isinstance(found, Outcome) else (yield from found)


def chosen(items: Iterable[Item], is_wanted: Callable[[Item], bool]) -> Steps[list[Item]]:
    """Those of a list that are wanted."""
    found = []
    for number, item in enumerate(items, 1):
        if number % STEP == 0:
            yield
        if is_wanted(item):
            found.append(item)
    return found


# -- kinds of rules ----------------------------------------------------------------------------------------------------


def open_to_all(asked: Asked) -> Outcome:
    return PASSED


def whole(operation: Operation, resource: Resource, field: str = "") -> Rule:
    """One thing is named by the request, or it is about the cluster: all or nothing."""

    def rule(asked: Asked) -> Outcome | Steps[Outcome]:
        name = getattr(asked.request, field) if field else CLUSTER_NAME
        return PASSED if asked.rights.may(operation, resource, name) else asked.refused(FORBIDDEN[resource])

    return rule


def cluster(operation: Operation) -> Rule:
    return whole(operation, Resource.CLUSTER)


def unless(operation: Operation, otherwise: Rule) -> Rule:
    """A right on the cluster that makes the others needless."""

    def rule(asked: Asked) -> Outcome | Steps[Outcome]:
        is_allowed = asked.rights.may(operation, Resource.CLUSTER, quietly=True)
        return PASSED if is_allowed else otherwise(asked)

    return rule


def in_turn(*rules: Rule) -> Rule:
    def rule(asked: Asked) -> Outcome | Steps[Outcome]:
        for place, each_rule in enumerate(rules):
            found = each_rule(asked)
            if found is not PASSED:
                return judged(asked, found, rules[place + 1 :])
        return PASSED

    def judged(asked: Asked, found: Outcome | Steps[Outcome], others: Sequence[Rule]) -> Steps[Outcome]:
        finishes = []
        for place in range(len(others) + 1):
            outcome = yield from outcome_of(others[place - 1](asked) if place else found)
            if outcome.refusal is not None:
                return outcome
            if outcome.finish is not None:
                finishes.append(outcome.finish)
        if not finishes:
            return PASSED

        def finish(response: Any) -> Steps[None]:
            for one in finishes:
                yield from one(response)

        return Outcome(finish=finish)

    return rule


def each(items: str, answers: str, code_of: Callable[[Asked, Any], ErrorCode]) -> Rule:
    """Every entry alone: those that are forbidden do not reach the handler, and are answered with their code."""

    def rule(asked: Asked) -> Steps[Outcome]:
        request = asked.request
        entries = getattr(request, items)
        if not entries:
            return PASSED
        allowed, denied = [], []
        for number, entry in enumerate(entries, 1):
            if number % STEP == 0:
                yield
            code = code_of(asked, entry)
            if code is ErrorCode.NONE:
                allowed.append(entry)
            else:
                denied.append((entry, code))
        if not denied:
            return PASSED
        refused: list[Any] = []
        for entry, code in denied:
            setattr(request, items, [entry])
            answer = yield from error_of_entries(asked.api, request, asked.version, code, MESSAGE)
            refused += getattr(answer, answers)
            yield
        setattr(request, items, allowed)
        if not allowed:
            if hasattr(answer, "error_code"):
                answer.error_code = ErrorCode.NONE
            setattr(answer, answers, refused)
            return Outcome(answer)

        def finish(response: Any) -> Steps[None]:
            getattr(response, answers).extend(refused)
            yield

        return Outcome(finish=finish)

    return rule


def each_topic(operation: Operation, items: str, answers: str) -> Rule:
    def code_of(asked: Asked, entry: Any) -> ErrorCode:
        return ErrorCode.NONE if asked.may_topic(operation, entry) else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    return each(items, answers, code_of)


def each_named(operation: Operation, resource: Resource, items: str, answers: str) -> Rule:
    """Entries that are no more than a name."""

    def code_of(asked: Asked, entry: str) -> ErrorCode:
        return ErrorCode.NONE if asked.rights.may(operation, resource, entry) else FORBIDDEN[resource]

    return each(items, answers, code_of)


def only_visible(answers: str, name: str, operation: Operation, resource: Resource) -> Rule:
    """Of a list of all only what may be seen; nothing shows that there is more."""

    def rule(asked: Asked) -> Outcome:
        def finish(response: Any) -> Steps[None]:
            found = getattr(response, answers)
            visible = yield from chosen(
                found, lambda one: asked.rights.may(operation, resource, getattr(one, name), quietly=True)
            )
            setattr(response, answers, visible)

        return Outcome(finish=finish)

    return rule
