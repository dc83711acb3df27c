"""Bytes of records as typed columns and back, without a jar.

    orders = decode(records, Avro(registry=SchemaRegistry("http://127.0.0.1:8081"), subject="orders-value"))
    orders.select("decoded.*").where("error is null")

JSON is decoded by Spark itself. Avro and Protobuf are decoded by Python workers, from Arrow into Arrow. What cannot be
decoded stays in its row, as it came, with the reason beside it: `dead_letters` makes records of those rows.
"""

from __future__ import annotations

from ottla.spark.decode.columns import decode, encode
from ottla.spark.decode.dead_letters import dead_letters, with_dead_letters
from ottla.spark.decode.formats import Avro, Json, Protobuf

__all__ = ["Avro", "Json", "Protobuf", "dead_letters", "decode", "encode", "with_dead_letters"]
