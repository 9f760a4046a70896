"""The reach of a session's filter: the addresses it stands for, and its links and durable subscriptions there.

Rules:
1. What a filter reaches it has a subscription for at each topic, together with the session's other filters there
   (``joint``), or by itself if the session gets a copy for each: a durable one (``SessionSubscription``) if the
   session outlives its connection and the filter's QoS is not 0, else one that ends with the connection. A group that
   shares a filter has one for all its members.
2. A filter with wildcards reaches topics and multicast addresses, those declared later included; others are
   reached by their exact names alone, as an outcome there takes something away, or by ``Space.find`` as for any
   receiver. One that begins with the name of a connector is looked up like an exact name, as the other container
   knows what it stands for, and so needs grants that cover all of it.
3. Of each address a filter has what the user's grants cover. Of a topic that may be a part of what it stands for: the
   topic looks for the patterns of both (``Cut``), so that nothing is asked for each message. What was stored by other
   grants is looked at when it is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.errors import RemoteError
from enmasse.message.outcomes import RELEASED
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import DETACHED, FAILED
from enmasse.messaging.direct.multicast import MulticastConsumer
from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import Footprint
from enmasse.messaging.patterns import is_cut, parse_filter, patterns_of, words_problem
from enmasse.messaging.queues.consumer import BacklogConsumer
from enmasse.messaging.queues.session_subscription import (
    SessionSubscription,
    SessionWatch,
    footprint_at,
    memory_of_cut,
    sources_of,
)
from enmasse.messaging.queues.shares import NameSelector
from enmasse.messaging.queues.subscription import Subscription
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.retaining import feed
from enmasse.messaging.sessions.joint import NUMBER, Joint
from enmasse.messaging.sessions.names import OWNERS, REACHED
from enmasse.messaging.sessions.session_filter import SessionLink
from enmasse.messaging.streams.readers import CONSUMER

if TYPE_CHECKING:
    from enmasse.messaging.sessions.session import Session
    from enmasse.messaging.sessions.session_filter import SessionFilter


def reach(filter_: SessionFilter, *, is_new: bool = False) -> list[tuple[Address, str]]:
    """Return the addresses that a filter reaches, with what it stands for there.

    Args:
        filter_: the filter.
        is_new: true to complain of what a client should hear of when it subscribes.

    Raises:
        AttachError: an exact name leads nowhere; of a filter with wildcards, the grants cover nothing, or it
            stands for too many addresses, or has too many words.
    """
    session = filter_.session
    wanted, space = filter_.filter, session.sessions.space
    if is_one_name(filter_):
        if not (is_new or session.may_reach(wanted.topic)):
            return []
        try:
            return [(space.find(wanted.topic), wanted.topic)]
        except AttachError:
            if is_new:
                raise
            return []
    problem = words_problem(wanted.topic)
    if problem is None and not space.may_name(wanted.topic):
        problem = f"space {space.name!r} has no names that {wanted.topic!r:.200} matches: they begin with '$'"
    if problem is not None:
        if is_new:
            raise AttachError("amqp:not-found", problem)
        return []
    reached: list[tuple[Address, str]] = []
    most = session.sessions.limits.filter_addresses
    is_refused = False
    for name, owns_subtree in session.sessions.names.reached_by(wanted.words):
        whole = wanted.part_of(name, owns_subtree=owns_subtree)
        if whole is None:
            continue
        source = _granted(filter_, whole, owns_subtree=owns_subtree, is_new=is_new)
        if source is None:
            is_refused = True
            continue
        if most and len(reached) >= most:
            if not is_new:
                break
            raise AttachError(
                "amqp:resource-limit-exceeded",
                f"filter {wanted.text!r:.200} stands for more than {most} addresses, as many as one may: "
                "use several that are narrower, or ask for a larger plan",
            )
        address = session.sessions.space.address(name)
        if address is not None:
            reached.append((address, source))
    if is_new and not reached and (is_refused or session.granted(wanted.topic, is_new=True) is None):
        session.require_allowed(wanted.topic)
    return reached


def _granted(filter_: SessionFilter, source: str, *, owns_subtree: bool, is_new: bool = False) -> str | None:
    """Return what the user may receive of what a filter stands for at an address; ``None`` if that is nothing."""
    session = filter_.session
    if owns_subtree and filter_.filter.is_wild:
        return session.granted(source, is_new=is_new)
    return source if session.may_reach(source) else None


def is_one_name(filter_: SessionFilter) -> bool:
    """Return true if a filter is looked up whole: it has no wildcards, or they are those of another container."""
    wanted = filter_.filter
    return not wanted.is_wild or wanted.topic.partition("/")[0] in filter_.session.sessions.space.connectors


def connect(filter_: SessionFilter, address: Address, source: str) -> SessionLink | None:
    """Let a filter reach an address; return the new link, if a client is connected.

    Args:
        filter_: the filter.
        address: the address.
        source: the filter that it stands for there.

    Raises:
        AttachError: the connection or the space has no room for it.
    """
    session = filter_.session
    name = address.name
    if name in filter_.links:
        return None
    if session.is_joint and filter_.group is None and address.kind in REACHED:
        return _connect_jointly(filter_, address, source)
    kept = _kept(filter_, address, source) if isinstance(address, Topic) else None
    if session.holder is None:
        return None
    link = _link(SessionLink(session, filter_, address, source), kept)
    filter_.links[name] = link
    return link


def _link(link: SessionLink, kept: SessionSubscription | None) -> SessionLink:
    """Give a new link its two ends; at a durable subscription, if there is one."""
    session, filter_, address, source = link.session, link.filter, link.address, link.source
    holder = session.require_holder()
    link.port = holder.make_port(link)
    presettle = filter_.qos == 0
    if kept is not None:
        link.is_kept = filter_.group is None
        # What one member of a group cannot take is another's, with QoS 0, too.
        presettle = presettle and not (filter_.group is not None and link.port.is_limited)
        consumer = BacklogConsumer(kept, link.port, presettle, None)
        link.consumer = kept.add_consumer(consumer)
        if filter_.group is not None:
            _select(consumer, address, source)
        kept.connected()
    elif isinstance(address, Topic):
        if filter_.links:
            _require_room(filter_, source)
        watched = address.sessions.watch(source)
        watched.origin = session if filter_.no_local else None
        link.consumer = watched.add_consumer(BacklogConsumer(watched, link.port, presettle, None))
    else:
        try:
            link.consumer = address.attach_consumer(link.port, _options(filter_, source))
        except AttachError:
            holder.left(link)
            raise
    return link


def _select(consumer: BacklogConsumer, topic: Address, source: str) -> None:
    """Have a member of a group get what it may of what all may together; the rest is for others."""
    consumer.reselect(NameSelector(patterns_of(source), topic.name) if is_cut(source) else None)


def _connect_jointly(filter_: SessionFilter, address: Address, source: str) -> SessionLink | None:
    """Let a filter reach an address together with the others of its session that do; see ``connect``."""
    session, name = filter_.session, address.name
    joint = session.joints.get(name)
    if joint is None:
        joint = session.joints[name] = Joint(name)
    try:
        if isinstance(address, Topic) and filter_.is_durable:
            _keep_jointly(joint, filter_, address, source)
        if filter_ not in joint.filters:
            joint.add(filter_, source)
        if session.holder is None:
            return None
        rank = filter_.qos > 0 if isinstance(address, Topic) else None
        link = joint.lower if rank is False else joint.upper
        made = None
        if link is not None:
            link.users += 1
            filter_.links[name] = link
            _widen(link, filter_, source)
        else:
            link = made = _link(
                SessionLink(session, filter_, address, source, joint=joint, rank=rank), filter_.kept.get(name)
            )
            filter_.links[name] = link
            if rank is False:
                joint.lower = link
            else:
                joint.upper = link
    except AttachError:
        _part(joint, filter_)
        raise
    if joint.upper is not None and joint.lower is not None and isinstance(address, Topic):
        address.sessions.pair(subscription_of(joint.upper), subscription_of(joint.lower))
    for one in joint.links:
        if one is not made:
            session.holder.changed(one)
    return made


def _widen(link: SessionLink, filter_: SessionFilter, source: str) -> None:
    """Have a link give a filter what it wants, too."""
    watched = link.consumer.address
    if isinstance(watched, SessionWatch) and watched.topic is not None:
        watched.topic.sessions.widen(watched, source)
    _widen_options(link, filter_)


def _widen_options(link: SessionLink, filter_: SessionFilter) -> None:
    consumer = link.consumer
    if not isinstance(link.address, Topic):
        consumer.presettle = not link.is_numbered
    elif filter_.no_local:
        subscription_of(link).origin = filter_.session


def subscription_of(link: SessionLink) -> Subscription:
    """Return the subscription at whose topic a link is."""
    found = link.consumer.address
    assert isinstance(found, Subscription)
    return found


def _keep_jointly(joint: Joint, filter_: SessionFilter, topic: Topic, source: str) -> None:
    """Have a filter's part in the durable subscription at a topic, which is made now unless it is there."""
    session = filter_.session
    name = topic.name
    kept = joint.kept
    if kept is not None and (kept.is_closed or kept.topic is not topic):
        kept = None
    if kept is not None and filter_.kept.get(name) is kept:
        return
    if kept is None:
        kept = topic.sessions.find((session.log_id, NUMBER))
        if kept is not None and kept.depth:
            # It may be for filters that were there.
            joint.is_mixed = True
    # An older version kept a subscription for each filter: of a single one it goes on, others are emptied.
    before = topic.sessions.find((session.log_id, filter_.number))
    if kept is None and before is not None and not _has_others(filter_, topic):
        topic.sessions.rename(before, (session.log_id, NUMBER))
        kept, before = before, None
    if kept is None:
        if filter_.kept:
            _require_room(filter_, source)
        kept = topic.sessions.subscribe((session.log_id, NUMBER), "", session.name)
    if kept.room is not session.room:
        kept.belong(session.room)
    if filter_.no_local:
        kept.origin = session
    topic.sessions.widen(kept, source)
    joint.kept = filter_.kept[name] = kept
    if before is not None and not before.is_retired:
        before.belong(session.room)
        topic.sessions.retire(before)
        session.has_leftovers = True


def _has_others(filter_: SessionFilter, topic: Topic) -> bool:
    """Return whether an older version kept subscriptions for other filters of the session, too."""
    session = filter_.session
    return any(
        other is not filter_ and topic.sessions.find((session.log_id, other.number)) is not None
        for other in session.filters.values()
    )


def leftovers_of(filter_: SessionFilter) -> list[SessionSubscription]:
    """Return the subscriptions that an older version kept for a filter alone, as far as something is left in them."""
    session = filter_.session
    if not session.has_leftovers:
        return []
    return [one for one in session.room.subscriptions if one.is_retired and one.key[1] == filter_.number]


def join_leftovers(filter_: SessionFilter) -> None:
    """Have a client get what an older version stored for a filter alone, as it was stored."""
    session = filter_.session
    for kept in leftovers_of(filter_):
        topic = kept.topic
        source = None if topic is None else filter_.filter.part_of(topic.name, owns_subtree=True)
        if topic is None or source is None or not session.may_reach(source):
            continue
        try:
            link = _link(SessionLink(session, filter_, topic, source), kept)
            session.leftover_links = {**session.leftover_links, kept: link}
        except AttachError:
            session.sessions.unreached += 1


def _part(joint: Joint, filter_: SessionFilter) -> None:
    """Take a filter out of what several have in common at an address; the last one ends it."""
    session, name = filter_.session, joint.name
    _unlink(joint, filter_)
    _forget_part(joint, filter_)
    joint.remove(filter_)
    if not joint.filters:
        session.joints.pop(name, None)
    elif session.holder is not None:
        for link in joint.links:
            session.holder.changed(link)


def _unlink(joint: Joint, filter_: SessionFilter) -> None:
    link = filter_.links.get(joint.name)
    if link is None:
        return
    if link.users == 1:
        leave(link)
        return
    link.users -= 1
    del filter_.links[joint.name]
    watched = link.consumer.address
    if isinstance(watched, SessionWatch) and watched.topic is not None:
        watched.topic.sessions.narrow(watched, joint.filters[filter_])
    _widen_options(link, filter_)


def _forget_part(joint: Joint, filter_: SessionFilter) -> None:
    kept = filter_.kept.pop(joint.name, None)
    if kept is None or kept.topic is None:
        return
    kept.topic.sessions.narrow(kept, joint.filters[filter_])
    if not kept.sources:
        joint.kept = None
        kept.topic.sessions.end(kept)


def connect_all(filter_: SessionFilter, reached: list[tuple[Address, str]]) -> list[SessionLink]:
    """Let a filter that was there before reach addresses, as far as its connection and the space have room."""
    session = filter_.session
    made = []
    for address, source in reached:
        try:
            link = connect(filter_, address, source)
        except AttachError:
            session.sessions.unreached += 1
        else:
            made += [] if link is None else [link]
    return made


def _kept(filter_: SessionFilter, topic: Topic, source: str) -> SessionSubscription | None:
    """Return the durable subscription that a filter has at a topic, made now if it should have one."""
    session = filter_.session
    group = filter_.group
    if group is None and not filter_.is_durable:
        return None
    kept, room = (filter_.kept, session.room) if group is None else (group.kept, group.room)
    found = kept.get(topic.name)
    if group is not None:
        _share(filter_, topic.name, source)
        source = group.source_at(topic.name) or source
    if found is not None and not found.is_closed and found.topic is topic:
        topic.sessions.recut(found, source)
        return found
    key = (session.log_id, filter_.number) if group is None else (group.log_id, 0)
    found = topic.sessions.find(key)
    if found is None:
        if kept:
            _require_room(filter_, source)
        found = topic.sessions.subscribe(key, source, session.name if group is None else group.title)
    else:
        topic.sessions.recut(found, source)
    found.origin = session if filter_.no_local and group is None else None
    found.belong(room)
    kept[topic.name] = found
    return found


def _require_room(filter_: SessionFilter, source: str) -> None:
    """Check that there is room for what a filter has at one more topic; for the first its session has looked."""
    filter_.session.sessions.space.usage.require_room(footprint_at(source))


def _options(filter_: SessionFilter, source: str) -> AttachOptions:
    """Return the wishes of a receiver at an address that is reached by its exact name."""
    session = filter_.session
    name = _consumer_of(session)
    named = {CONSUMER: name} if name else {}
    return AttachOptions(
        presettle=filter_.qos == 0,
        container=session.client_id,
        name=filter_.text,
        owner=session.owner,
        user=session.user,
        source=source,
        properties=named,
    )


def _consumer_of(session: Session) -> str:
    """Return the name under which streams know how far a session has read them; empty: they do not."""
    return f"mqtt/{session.client_id}" if session.is_lasting and len(session.client_id) <= 200 else ""


def forget_offset(filter_: SessionFilter) -> None:
    """Have a stream forget how far a session has read it, as the session is over."""
    name = _consumer_of(filter_.session)
    if not name or filter_.filter.is_wild:
        return
    try:
        filter_.session.sessions.space.find(filter_.filter.topic).forget_consumer(name)
    except RemoteError:
        # It leads nowhere, or to another node.
        return


def _join(filter_: SessionFilter, address: Address, source: str) -> None:
    session = filter_.session
    link = connect(filter_, address, source)
    if link is not None:
        session.require_holder().joined(link)


def join_all(filter_: SessionFilter) -> None:
    """Let a filter of a connected session reach all that the grants cover now."""
    session = filter_.session
    for address, source in reach(filter_):
        try:
            _join(filter_, address, source)
        except AttachError:
            session.sessions.unreached += 1
            return


def source_at(filter_: SessionFilter, name: str) -> str:
    """Return what a filter stands for at an address that it reaches."""
    link = filter_.links[name]
    return link.source if link.joint is None else link.joint.filters[filter_]


def regrant(filter_: SessionFilter) -> list[str]:
    """Have a filter reach no more than the grants cover now; return the addresses that it has lost."""
    session = filter_.session
    lost = []
    for name in filter_.reached:
        whole = str(_source_of(filter_, name))
        owns_subtree = isinstance(session.sessions.space.addresses.get(name), Topic)
        source = _granted(filter_, whole, owns_subtree=owns_subtree)
        if source is None:
            lost.append(name)
        else:
            recut(filter_, name, source)
    for name in lost:
        address_went(filter_, name)
    return lost


def _source_of(filter_: SessionFilter, name: str) -> str:
    """Return what a filter stands for at an address that it reaches, whether a client is connected or not."""
    joint = filter_.session.joints.get(name)
    if joint is not None and filter_ in joint.filters:
        return joint.filters[filter_]
    if name in filter_.shares:
        return filter_.shares[name]
    if name in filter_.links:
        return filter_.links[name].source
    return sources_of(filter_.kept[name])[0]


def recut(filter_: SessionFilter, name: str, source: str) -> None:
    """Have a filter stand for what is left of it at a topic by other grants, if they are."""
    before = _source_of(filter_, name)
    if patterns_of(before) == patterns_of(source):
        return
    session, link, joint = filter_.session, filter_.links.get(name), filter_.session.joints.get(name)
    if joint is not None and filter_ in joint.filters:
        joint.recut(filter_, source)
    elif link is not None:
        link.source = source
    kept = filter_.kept.get(name)
    if filter_.group is not None:
        _share(filter_, name, source)
        filter_.group.share(name)
        if link is not None and isinstance(link.consumer, BacklogConsumer):
            _select(link.consumer, link.address, source)
    elif kept is not None and kept.topic is not None:
        kept.topic.sessions.recut(kept, source)
    watched = None if link is None else link.consumer.address
    if isinstance(watched, SessionWatch) and watched.topic is not None:
        watched.topic.sessions.recut(watched, source)
    if session.holder is None:
        return
    for one in joint.links if joint is not None and filter_ in joint.filters else [link]:
        if one is not None:
            session.holder.changed(one)


def options_changed(filter_: SessionFilter) -> None:
    """Have the links of a filter keep to its new options [MQTT-3.8.4-3]."""
    session = filter_.session
    for link in filter_.links.values():
        joint = link.joint
        if joint is None:
            session.require_holder().changed(link)
            continue
        _widen_options(link, filter_)
        for one in joint.links:
            session.require_holder().changed(one)


def give_retained(filter_: SessionFilter) -> None:
    """Send the retained values of the names that a filter stands for [MQTT-3.3.1-6]."""
    for name, link in filter_.links.items():
        consumer = link.consumer
        number = 0 if link.joint is None else filter_.number
        if isinstance(consumer, MulticastConsumer):
            consumer.give_retained(number)
        elif isinstance(consumer.address, Subscription) and isinstance(link.address, Topic):
            source = source_at(filter_, name)
            feed(consumer.address, pattern=parse_filter(source), number=number, within=source)


def disconnect(filter_: SessionFilter) -> None:
    """Detach the links that are for a filter alone, and take it out of those that it has together with others."""
    for name, link in list(filter_.links.items()):
        if link.joint is None:
            leave(link)
        elif name in filter_.kept:
            _unlink(link.joint, filter_)
        else:
            _part(link.joint, filter_)


def leave(link: SessionLink) -> None:
    """Detach a link from its address: what it was sent and has no outcome is given back, or stays in flight."""
    session = link.session
    forget(link)
    if not link.is_open:
        return
    link.is_open = False
    consumer = link.consumer
    is_backlog = isinstance(consumer, BacklogConsumer)
    for delivery in link.port.take_unsettled():
        consumer.on_outcome(delivery, RELEASED if is_backlog else FAILED)
    consumer.on_detached()
    kept = consumer.address
    if isinstance(kept, SessionSubscription):
        kept.disconnected()
    if session.holder is not None:
        session.holder.left(link)
    link.port = DETACHED


def forget(link: SessionLink) -> None:
    """Take a link from the filters that it is for."""
    name = link.address.name
    joint = link.joint
    if joint is None:
        if link.filter.links.get(name) is link:
            del link.filter.links[name]
        session = link.session
        if session.leftover_links:
            session.leftover_links = {kept: one for kept, one in session.leftover_links.items() if one is not link}
        return
    if isinstance(link.address, Topic) and joint.lower is not None:
        link.address.sessions.unpair(subscription_of(joint.lower))
    for filter_ in list(joint.users_of(link)):
        del filter_.links[name]
        if name not in filter_.kept:
            joint.remove(filter_)
    if joint.upper is link:
        joint.upper = None
    elif joint.lower is link:
        joint.lower = None
    if not joint.filters:
        link.session.joints.pop(name, None)


def _share(filter_: SessionFilter, name: str, source: str | None) -> bool:
    """Note what a member of a group may receive at a topic, and what that takes; return whether it had something."""
    usage = filter_.session.sessions.space.usage
    before = filter_.shares.pop(name, None)
    if before is not None:
        usage.give_back(Footprint(0, memory_of_cut(before)))
    if source is not None:
        filter_.shares[name] = source
        usage.take(Footprint(0, memory_of_cut(source)))
    if filter_.group is not None:
        filter_.group.note(name, before, source)
    return before is not None


def forget_shares(filter_: SessionFilter) -> None:
    """Forget what a member of a group may receive, as it has left that."""
    for name in list(filter_.shares):
        _share(filter_, name, None)


def forget_kept(filter_: SessionFilter) -> None:
    """End the durable subscriptions of a filter, and its part in those that it has together with others."""
    for name in list(filter_.kept):
        address_went(filter_, name)
    for subscription in leftovers_of(filter_):
        if subscription.topic is not None:
            subscription.topic.sessions.end(subscription)


def address_came(filter_: SessionFilter, name: str, *, owns_subtree: bool) -> None:
    """Let a filter reach an address that is declared now, if it stands for it and the grants allow it."""
    session = filter_.session
    wanted = filter_.filter
    try:
        if is_one_name(filter_):
            _resolve(filter_)
            return
        whole = wanted.part_of(name, owns_subtree=owns_subtree)
        most = session.sessions.limits.filter_addresses
        source = None if whole is None else _granted(filter_, whole, owns_subtree=owns_subtree)
        if source is None or (most and len(filter_.reached) >= most):
            return
        if session.holder is None and not (filter_.is_durable or filter_.group):
            return
        address = session.sessions.space.address(name)
        # It may have been made anew meanwhile, of another type.
        is_same = address is not None and address.kind in REACHED and (address.kind in OWNERS) is owns_subtree
        if address is not None and is_same:
            _join(filter_, address, source)
    except AttachError:
        # The connection has as many links as it may: it goes without this address.
        session.sessions.unreached += 1


def _resolve(filter_: SessionFilter) -> None:
    """Let an exact name reach the address that it leads to now."""
    session = filter_.session
    topic = filter_.filter.topic
    try:
        address = session.sessions.space.find(topic)
    except AttachError:
        return
    for name in filter_.reached:
        if name != address.name:
            address_went(filter_, name)
    if address.name not in filter_.reached and session.may_reach(topic):
        _join(filter_, address, topic)


def address_went(filter_: SessionFilter, name: str) -> None:
    """Leave an address that a filter does not reach any more."""
    joint = filter_.session.joints.get(name)
    if joint is not None and filter_ in joint.filters:
        _part(joint, filter_)
        return
    link = filter_.links.get(name)
    if link is not None:
        leave(link)
    if _share(filter_, name, None) and filter_.group is not None:
        filter_.group.share(name)
    kept = filter_.kept.pop(name, None)
    if kept is not None and kept.topic is not None:
        kept.topic.sessions.end(kept)
