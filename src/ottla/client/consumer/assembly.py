"""Puts the parts of a consumer together, as its settings say."""

from __future__ import annotations

import random

from ottla.client.connecting import client_id_of, cluster_of
from ottla.client.consumer.commits import AutoCommit, Commits
from ottla.client.consumer.consumer_metrics import ConsumerMetrics
from ottla.client.consumer.coordinator import Coordinator
from ottla.client.consumer.cursor import Cursor
from ottla.client.consumer.fetched import Reader
from ottla.client.consumer.fetcher import ConsumerFetcher, FetchLimits
from ottla.client.consumer.interceptors import Interceptors
from ottla.client.consumer.listeners import Listeners
from ottla.client.consumer.membership.classic_runner import ClassicRunner
from ottla.client.consumer.membership.consumer_runner import ConsumerRunner
from ottla.client.consumer.membership.runner import Membership
from ottla.client.consumer.parts import GroupParts, Parts
from ottla.client.consumer.positions import Positions
from ottla.client.consumer.reset import parse_reset
from ottla.client.consumer.subscription import Subscription
from ottla.client.consumer.topic_watch import TopicWatch
from ottla.client.metrics import Metrics
from ottla.client.offsets import Isolation
from ottla.client.serializers import deserializer_of
from ottla.client.settings import ConsumerSettings
from ottla.net.client import Connector
from ottla.runtime.clock import Clock
from ottla.runtime.signal import Signal


def parts_of(settings: ConsumerSettings, connector: Connector | None, clock: Clock, rng: random.Random) -> Parts:
    client_id = client_id_of(settings)
    cluster = cluster_of(settings, client_id, connector, rng)
    positions = Positions(parse_reset(settings.auto_offset_reset))
    metrics = ConsumerMetrics(
        Metrics(
            client_id,
            Parts.now_anywhere,
            settings.metrics_sample_window_s,
            settings.metrics_num_samples,
            settings.metric_reporters,
        ),
        positions,
    )
    pauses = cluster.options.pauses
    moved = Signal()
    interceptors = Interceptors(settings.interceptors)
    group = None
    if settings.group_id is not None:
        coordinator = Coordinator(cluster, settings.group_id)
        commits = Commits(
            settings.group_id,
            coordinator,
            pauses,
            settings.request_timeout_s,
            moved.fire,
            interceptors.on_commit,
            metrics.coordinator,
        )
        auto = AutoCommit(settings.auto_commit_interval_s) if settings.enable_auto_commit else None
        group = GroupParts(settings.group_id, coordinator, commits, auto)
    return Parts(
        settings=settings,
        cluster=cluster,
        subscription=Subscription(),
        positions=positions,
        listeners=Listeners(),
        cursor=Cursor(),
        interceptors=interceptors,
        moved=moved,
        pauses=pauses,
        clock=clock,
        rng=rng,
        metrics=metrics,
        group=group,
    )


def fetcher_of(parts: Parts) -> ConsumerFetcher:
    settings = parts.settings
    limits = FetchLimits(
        isolation=Isolation[settings.isolation_level.upper()],
        max_wait_s=settings.fetch_max_wait_s,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        partition_max_bytes=settings.max_partition_fetch_bytes,
        rack=settings.client_rack,
        checks_crcs=settings.check_crcs,
        retry_s=settings.retry_backoff_s,
        replica_max_age_s=settings.metadata_max_age_s,
    )
    reader = Reader(
        deserializer_of(settings.key_deserializer, "key_deserializer"),
        deserializer_of(settings.value_deserializer, "value_deserializer"),
        settings.on_bad_record,
    )
    return ConsumerFetcher(parts.cluster, parts.positions, limits, reader, parts.moved.fire, parts.metrics.fetches)


def membership_of(parts: Parts, topics: TopicWatch) -> Membership | None:
    """By the protocol that is set; None without a group."""
    if parts.group is None:
        return None
    runner = ClassicRunner if parts.settings.group_protocol == "classic" else ConsumerRunner
    membership: Membership = runner(parts, parts.group, topics)
    parts.group.commits.committer = membership
    return membership
