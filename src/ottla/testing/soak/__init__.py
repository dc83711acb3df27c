"""One broker, several clients, and a world that does its worst; at each step and in the end every promise is checked.

    soak(381)                                      # SimulationError says what did not hold, and how to replay it
    soak(381, Climate(compacts=True))              # in a climate of one's choice

A seed decides everything: which kinds of trouble there are (`climate`), when they come (`weather`), what the clients do
(`admin`, `producers`, `readers`). `watch` looks at the broker from inside at each step, `verdict` in the end, and
`ottla.testing.ledger` judges what the clients saw.
"""

from ottla.testing.soak.climate import Climate
from ottla.testing.soak.run import Soak, soak

__all__ = ["Climate", "Soak", "soak"]
